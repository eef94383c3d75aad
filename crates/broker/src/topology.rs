//! Every queue and exchange of Everwatch, in one place.

use crate::port::{QueueKind, Target};
use everwatch_core::id::{ObserverId, Pool, RepliesId, ServiceId};

/// The most state queues of a deployment.
pub const STATE_QUEUES_MAX: u16 = 64;

/// The routing key of commands to all services of a pool.
const ALL: &str = "all";

/// The names of a deployment's queues and exchanges.
#[derive(Debug, Clone)]
pub struct Topology {
    prefix: String,
    state_queues: u16,
}

impl Topology {
    /// `prefix` separates deployments that share a vhost (default `everwatch.`).
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), state_queues: 1 }
    }
    /// The same names, with the reports spread over this many state queues, from 1 (default) to [`STATE_QUEUES_MAX`].
    #[must_use]
    pub fn with_state_queues(self, count: u16) -> Self {
        Self { state_queues: count.clamp(1, STATE_QUEUES_MAX), ..self }
    }
    /// One message per live observer of the pool.
    #[must_use]
    pub fn work(&self, pool: &Pool) -> String {
        format!("{}work.{pool}", self.prefix)
    }
    /// The first state queue: the reports of services about themselves, and its share of the reports about observers.
    #[must_use]
    pub fn state(&self) -> String {
        self.state_queue(0)
    }
    /// A state queue: reports, service to managers. The first has no number, so a deployment that adds queues keeps it.
    #[must_use]
    pub fn state_queue(&self, index: u16) -> String {
        match index {
            0 => format!("{}state", self.prefix),
            index => format!("{}state.{index}", self.prefix),
        }
    }
    /// The number of state queues.
    #[must_use]
    pub fn state_queues(&self) -> u16 {
        self.state_queues
    }
    /// The state queue of all reports about this observer, which keeps their order. Every version must choose the same
    /// queue.
    ///
    /// The obvious choice is the end of the id, as a UUID of version 7 ends with random bits. But managers number the
    /// observers of one request there, so the end is zero for all that are created with single requests. Instead, every
    /// bit of the id affects every bit of the hash (the finalizer of `SplitMix64`).
    #[must_use]
    pub fn state_of(&self, observer: ObserverId) -> u16 {
        let (high, low) = observer.0.as_u64_pair();
        let mut hash = high ^ low;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        u16::try_from(hash % u64::from(self.state_queues)).unwrap_or_default()
    }
    /// Heartbeats and probes.
    #[must_use]
    pub fn heartbeats(&self) -> String {
        format!("{}heartbeats", self.prefix)
    }
    /// Requests of services for permits of rates.
    #[must_use]
    pub fn rates(&self) -> String {
        format!("{}rates", self.prefix)
    }
    /// The queue for messages that no version of Everwatch can read.
    #[must_use]
    pub fn parked(&self) -> String {
        format!("{}parked", self.prefix)
    }
    /// Holds one message: the identity of the database that owns this prefix.
    #[must_use]
    pub fn store(&self) -> String {
        format!("{}store", self.prefix)
    }
    /// The fan-out exchange for commands to all services. Every service may read it, so most commands that name observers
    /// go to the services of their pools instead.
    #[must_use]
    pub fn commands(&self) -> Target {
        Target::Fanout(format!("{}commands", self.prefix))
    }
    /// All services of a pool, through the direct exchange for the commands to them.
    #[must_use]
    pub fn commands_to(&self, pool: &Pool) -> Target {
        Target::Direct { exchange: format!("{}commands.{pool}", self.prefix), key: ALL.to_owned() }
    }
    /// A service's own command queue: exclusive, so its existence tells whether its session lives.
    #[must_use]
    pub fn commands_of(&self, pool: &Pool, service: ServiceId) -> String {
        format!("{}commands.{pool}.{service}", self.prefix)
    }
    /// The service whose command queue this is.
    #[must_use]
    pub fn service_of(&self, commands: &str) -> Option<ServiceId> {
        let (_, service) = commands.strip_prefix(&self.prefix)?.strip_prefix("commands.")?.split_once('.')?;
        service.parse().ok().map(ServiceId)
    }
    /// The exclusive queue of one manager session for replies.
    #[must_use]
    pub fn replies(&self, to: RepliesId) -> String {
        format!("{}replies.{to}", self.prefix)
    }
    /// The topic exchange for the output of observers.
    #[must_use]
    pub fn output(&self) -> String {
        format!("{}output", self.prefix)
    }
    /// The durable queues that every deployment needs, in addition to the work queues.
    #[must_use]
    pub fn durable_queues(&self) -> Vec<(String, QueueKind)> {
        let kept = || QueueKind::Durable { max_length: None };
        let mut queues =
            vec![(self.parked(), kept()), (self.state(), kept()), (self.heartbeats(), QueueKind::Heartbeats)];
        queues.push((self.rates(), QueueKind::Rates));
        queues.extend((1..self.state_queues).map(|index| (self.state_queue(index), kept())));
        queues
    }
    /// The exchanges that every deployment needs.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Target> {
        vec![self.commands(), Target::Topic { exchange: self.output(), key: String::new() }]
    }
    /// The direct exchange through which messages get to the work queues, and to the note about the owner of the prefix.
    #[must_use]
    pub fn work_exchange(&self) -> String {
        format!("{}work", self.prefix)
    }
    /// The direct exchange through which messages get to the managers.
    #[must_use]
    pub fn reports_exchange(&self) -> String {
        format!("{}reports", self.prefix)
    }
    /// The direct exchange through which messages get to this queue; the routing key is the name of the queue.
    ///
    /// The obvious choice is the default exchange, which every queue is bound to. But permission to write to it is
    /// permission to write to every queue of the vhost. So each exchange leads to the queues that one user may write to:
    /// managers write to `work` and `commands.{pool}`, services write to `reports`.
    #[must_use]
    pub fn exchange_of(&self, queue: &str) -> String {
        let name = queue.strip_prefix(&self.prefix).unwrap_or_default();
        if name == "store" || name.starts_with("work.") {
            return self.work_exchange();
        }
        // The name of a pool contains no dot.
        match name.strip_prefix("commands.").and_then(|rest| rest.split_once('.')) {
            Some((pool, _)) => format!("{}commands.{pool}", self.prefix),
            None => self.reports_exchange(),
        }
    }
    /// Whether messages that go through this exchange are work or commands, which only managers send.
    #[must_use]
    pub fn leads_to_services(&self, exchange: &str) -> bool {
        exchange == self.work_exchange() || self.is_for_commands(exchange)
    }
    /// Whether managers publish to this queue of a service through this exchange with this routing key. Anybody with the
    /// permission can bind the queue to other exchanges, and to other keys.
    #[must_use]
    pub fn leads_to(&self, (exchange, routing_key): (&str, &str), queue: &str) -> bool {
        let own = self.exchange_of(queue);
        let is_for_all = self.service_of(queue).is_some()
            && (exchange == self.commands().name() && routing_key.is_empty()
                || exchange == own && routing_key == ALL);
        is_for_all || exchange == own && routing_key == queue
    }
    /// Whether this exchange is one of those for commands.
    #[must_use]
    pub fn is_for_commands(&self, exchange: &str) -> bool {
        let name = exchange.strip_prefix(&self.prefix).unwrap_or_default();
        name == "commands" || name.starts_with("commands.")
    }
    /// The exchanges that are declared with this queue: its own; with the work queue of a pool also the one for commands
    /// to the services of the pool.
    #[must_use]
    pub fn exchanges_with(&self, queue: &str) -> Vec<String> {
        let pool = queue.strip_prefix(&self.prefix).and_then(|name| name.strip_prefix("work."));
        let commands = pool.map(|pool| format!("{}commands.{pool}", self.prefix));
        [self.exchange_of(queue)].into_iter().chain(commands).collect()
    }
    /// The names of all exchanges of a deployment with these pools.
    #[must_use]
    pub fn exchange_names(&self, pools: &[Pool]) -> Vec<String> {
        let names = ["commands", "output", "reports", "work"].map(|name| format!("{}{name}", self.prefix));
        names.into_iter().chain(pools.iter().map(|pool| format!("{}commands.{pool}", self.prefix))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn spread(count: u16) -> Topology {
        Topology::new("p.").with_state_queues(count)
    }

    #[test]
    fn reports_are_spread_evenly() {
        let random = || Uuid::now_v7().as_u128();
        // As managers assign them: to a single observer of each request, and to those of one large batch.
        let (single, first) = (|_| random() >> 16 << 16, random() >> 16 << 16);
        let ids: [&dyn Fn(u128) -> u128; 3] = [&|_| random(), &single, &|number| first + number];
        for (way, id) in ids.iter().enumerate() {
            let mut counts = [0; 4];
            for number in 0..10_000 {
                counts[usize::from(spread(4).state_of(ObserverId(Uuid::from_u128(id(number)))))] += 1;
            }
            assert!(counts.iter().all(|count| (2250..=2750).contains(count)), "{way}: {counts:?}");
        }
    }

    #[test]
    fn an_observer_keeps_its_queue_in_every_version() {
        let ids = [
            ("0190a1b2-0000-7000-8000-000000000001", [0, 1, 2, 3, 43]),
            ("0190a1b2-0000-7000-8000-000000000002", [0, 1, 2, 1, 21]),
            ("01939b3c-6f1e-7a55-9c41-5be2f0d7a3e8", [0, 1, 0, 1, 41]),
            ("01939b3c-6f1e-7a55-b7f3-0c9d84e6125f", [0, 1, 1, 3, 19]),
        ];
        for (id, queues) in ids {
            let of = |count| spread(count).state_of(ObserverId(id.parse().unwrap()));
            assert_eq!([1, 2, 3, 4, 64].map(of), queues, "{id}");
        }
    }

    #[test]
    fn each_queue_has_its_exchange() {
        let topology = Topology::new("p.");
        let (pool, id) = (Pool::new("work").unwrap(), Uuid::from_u128(7));
        let commands = topology.commands_of(&pool, ServiceId(id));
        let queues = [
            (topology.work(&pool), "p.work"),
            (topology.store(), "p.work"),
            (commands.clone(), "p.commands.work"),
            (topology.state(), "p.reports"),
            (topology.state_queue(3), "p.reports"),
            (topology.heartbeats(), "p.reports"),
            (topology.rates(), "p.reports"),
            (topology.parked(), "p.reports"),
            (topology.replies(RepliesId(id)), "p.reports"),
        ];
        for (queue, exchange) in queues {
            assert_eq!(topology.exchange_of(&queue), exchange, "{queue}");
        }
        assert_eq!(topology.exchanges_with(&topology.work(&pool)), ["p.work", "p.commands.work"]);
        assert_eq!(topology.exchanges_with(&commands), ["p.commands.work"]);
        let all = Target::Direct { exchange: "p.commands.work".to_owned(), key: "all".to_owned() };
        assert_eq!(topology.commands_to(&pool), all);
        assert_eq!(topology.service_of(&commands), Some(ServiceId(id)));
        for other in ["p.commands.work", "q.commands.work.00000000-0000-0000-0000-000000000007", "p.work.a"] {
            assert_eq!(topology.service_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_queue_of_a_service_has_few_ways() {
        let topology = Topology::new("p.");
        let id = ServiceId(Uuid::from_u128(7));
        let (a, b) = (Pool::new("a").unwrap(), Pool::new("b").unwrap());
        let (work, commands) = (topology.work(&a), topology.commands_of(&a, id));
        assert!(topology.leads_to(("p.work", &work), &work));
        for way in [
            ("p.work", "p.work.b"),
            ("p.commands.a", &*work),
            ("", &*work),
            ("p.work", "all"),
            ("p.commands", ""),
        ] {
            assert!(!topology.leads_to(way, &work), "{way:?}");
        }
        for way in [("p.commands.a", &*commands), ("p.commands.a", "all"), ("p.commands", "")] {
            assert!(topology.leads_to(way, &commands), "{way:?}");
        }
        let of_b = topology.commands_of(&b, id);
        for way in
            [("p.commands.b", &*of_b), ("p.commands.b", "all"), ("p.commands", "all"), ("p.work", &*commands)]
        {
            assert!(!topology.leads_to(way, &commands), "{way:?}");
        }
    }

    #[test]
    fn the_first_state_queue_keeps_its_name() {
        let state = |topology: &Topology| {
            let names = topology.durable_queues().into_iter().map(|(name, _)| name);
            names.filter(|name| name.starts_with("p.state")).collect::<Vec<_>>()
        };
        assert_eq!(state(&Topology::new("p.")), ["p.state"]);
        assert_eq!(state(&spread(3)), ["p.state", "p.state.1", "p.state.2"]);
        assert_eq!(spread(0).state_queues(), 1);
        assert_eq!(spread(1000).state_queues(), STATE_QUEUES_MAX);
    }
}
