use super::*;
use crate::capacity::rate::{Rate, RateRow, grant};
use crate::clock::Timestamp;
use crate::wire::permits::{PermitsGranted, PermitsRefused};
use proptest::prelude::*;
use uuid::Uuid;

const ME: ServiceId = ServiceId(Uuid::from_u128(1));

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn permits(name: &str, cost: u32) -> Permits {
    [(RateKey::new(name).unwrap(), cost)].into()
}

/// A request as "number: turn × count, …".
fn asked(queue: &mut PermitQueue, at: u64) -> String {
    let Some(request) = queue.request(ms(at)) else { return "none".to_owned() };
    let asks = request.asks.iter().map(|ask| format!("{} × {}", ask.turn, ask.count));
    format!("{}: {}", request.number, asks.collect::<Vec<_>>().join(", "))
}

fn answers(request: u64, granted: &[(u64, u32)]) -> PermitAnswers {
    let granted = granted.iter().map(|(turn, count)| PermitsGranted { turn: *turn, count: *count }).collect();
    PermitAnswers { granted, ..PermitAnswers::new(ME, request) }
}

#[test]
fn the_first_request_is_sent_at_once_and_the_next_a_second_later() {
    let mut queue = PermitQueue::new(ME);
    assert_eq!((queue.due(), asked(&mut queue, 5000)), (None, "none".to_owned()));
    let first = queue.acquire(permits("a", 1));
    let second = queue.acquire(permits("a", 1));
    assert_eq!(asked(&mut queue, 5000), "1: 1 × 2");
    assert_eq!(queue.on_answers(&answers(1, &[(1, 1)]), ms(5020)), [(first, Decided::Until(ms(6990)))]);
    // A later acquire gets its own turn, behind the earlier ones.
    let third = queue.acquire(permits("a", 1));
    assert_eq!(queue.due(), Some(ms(6000)));
    assert_eq!(asked(&mut queue, 5999), "none");
    assert_eq!(asked(&mut queue, 6000), "2: 1 × 1, 2 × 1");
    let until = Decided::Until(ms(7990));
    assert_eq!(
        queue.on_answers(&answers(2, &[(1, 1), (2, 1)]), ms(6001)),
        [(second, until.clone()), (third, until)]
    );
    assert_eq!(queue.due(), None);
}

#[test]
fn an_answer_counts_once_and_in_time() {
    let mut queue = PermitQueue::new(ME);
    queue.acquire(permits("a", 1));
    let second = queue.acquire(permits("a", 1));
    assert_eq!(asked(&mut queue, 0), "1: 1 × 2");
    assert_eq!(queue.on_answers(&answers(1, &[(1, 1)]), ms(10)).len(), 1);
    assert_eq!(queue.on_answers(&answers(1, &[(1, 1)]), ms(20)), [], "it came twice");
    assert_eq!(asked(&mut queue, 1000), "2: 1 × 1");
    assert_eq!(queue.on_answers(&answers(2, &[(1, 1)]), ms(2990)), [], "it is too late");
    assert_eq!(asked(&mut queue, 2990), "3: 1 × 1");
    assert_eq!(asked(&mut queue, 4979), "none", "it may still be answered");
    assert_eq!(asked(&mut queue, 4980), "4: 1 × 1");
    assert_eq!(queue.on_answers(&answers(3, &[(1, 1)]), ms(4981)), [], "another request is asked");
    assert_eq!(queue.on_answers(&answers(4, &[(1, 1)]), ms(4982)), [(second, Decided::Until(ms(6970)))]);
}

#[test]
fn an_acquire_that_is_given_up_is_not_asked_for() {
    let mut queue = PermitQueue::new(ME);
    let first = queue.acquire(permits("a", 1));
    queue.acquire(permits("a", 1));
    assert_eq!(asked(&mut queue, 0), "1: 1 × 2");
    queue.give_up(first);
    assert_eq!(queue.on_answers(&answers(1, &[]), ms(1)), []);
    assert_eq!(asked(&mut queue, 1000), "2: 1 × 1");
}

#[test]
fn a_refusal_reaches_every_acquire_of_its_turn() {
    let mut queue = PermitQueue::new(ME);
    let gone = [queue.acquire(permits("a", 1)), queue.acquire(permits("a", 1))];
    queue.acquire(permits("b", 1));
    assert_eq!(asked(&mut queue, 0), "1: 1 × 2, 2 × 1");
    let refused = vec![PermitsRefused { turn: 1, error: "unknown".to_owned() }];
    let decided = queue.on_answers(&PermitAnswers { refused, ..answers(1, &[]) }, ms(1));
    assert_eq!(decided, gone.map(|it| (it, Decided::Refused("unknown".to_owned()))));
    assert_eq!(asked(&mut queue, 1000), "2: 2 × 1");
}

#[test]
fn a_request_has_at_most_so_many_asks_and_keeps_the_order() {
    let mut queue = PermitQueue::new(ME);
    for number in 0..ASKS_MAX + 5 {
        queue.acquire(permits(if number % 2 == 0 { "a" } else { "b" }, 1));
    }
    queue.acquire(permits("a", 1));
    let request = queue.request(ms(0)).unwrap();
    assert_eq!(request.asks.len(), ASKS_MAX);
    let granted: Vec<(u64, u32)> = request.asks.iter().map(|ask| (ask.turn, 1)).collect();
    assert_eq!(queue.on_answers(&answers(1, &granted), ms(1)).len(), ASKS_MAX);
    assert_eq!(queue.request(ms(1000)).unwrap().asks.len(), 5, "the last two ask together");
}

/// Several services, one database, and a network that delays, loses and duplicates messages.
struct World {
    rate: Rate,
    rows: Vec<RateRow>,
    services: Vec<PermitQueue>,
    /// What arrives, by time.
    requests: Vec<(u64, PermitRequest)>,
    answers: Vec<(u64, PermitAnswers)>,
    costs: BTreeMap<(ServiceId, Acquire), u32>,
    /// Permits are used as close to this time as their grants permit.
    rush: u64,
    /// The times at which permits are used, and their number.
    used: Vec<(u64, u32)>,
}

/// One choice of the test in each millisecond step.
#[derive(Debug, Clone, Copy)]
struct Chance {
    service: usize,
    cost: u32,
    delay: u64,
    /// How often the next message arrives: lost, once, or twice.
    copies: u8,
    gives_up: bool,
}

fn chance() -> impl Strategy<Value = Chance> {
    let delay = prop_oneof![2 => 0..50_u64, 1 => 0..2500_u64];
    (0..3_usize, 0..6_u32, delay, 0..5_usize, 0..10_u8).prop_map(
        |(service, cost, delay, copies, gives_up)| {
            let copies = [0, 1, 1, 1, 2][copies];
            Chance { service, cost, delay, copies, gives_up: gives_up == 0 }
        },
    )
}

impl World {
    fn new(rate: Rate, rush: u64) -> Self {
        let key = RateKey::new("a").unwrap();
        let services = (1..=3).map(|it| PermitQueue::new(ServiceId(Uuid::from_u128(it)))).collect();
        let rows = vec![RateRow::new(key, rate, Timestamp(0))];
        let (costs, used) = (BTreeMap::new(), Vec::new());
        Self { rate, rows, services, requests: Vec::new(), answers: Vec::new(), costs, rush, used }
    }

    fn step(&mut self, now: u64, chance: Chance) {
        let queue = &mut self.services[chance.service];
        if chance.cost > 0 {
            let cost = chance.cost.min(self.rate.bucket());
            let acquire = queue.acquire(permits("a", cost));
            self.costs.insert((queue.service, acquire), cost);
            if chance.gives_up {
                queue.give_up(acquire);
            }
        }
        if let Some(request) = queue.request(ms(now)) {
            for copy in 0..u64::from(chance.copies) {
                self.requests.push((now + chance.delay * (copy + 1), request.clone()));
            }
        }
        let arrived: Vec<_> = self.requests.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, request) in arrived {
            let answers = grant(&mut self.rows, &request, Timestamp(now.cast_signed()));
            for copy in 0..u64::from(chance.copies) {
                self.answers.push((now + chance.delay * (copy + 1) / 2, answers.clone()));
            }
        }
        let arrived: Vec<_> = self.answers.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, answers) in arrived {
            let queue = self.services.iter_mut().find(|it| it.service == answers.service).unwrap();
            for (acquire, decided) in queue.on_answers(&answers, ms(now)) {
                let Decided::Until(until) = decided else { panic!("{decided:?}") };
                let until = u64::try_from(until.as_millis()).unwrap();
                assert!(now < until, "it is too late");
                let used_at = self.rush.clamp(now, until - 1);
                self.used.push((used_at, self.costs[&(answers.service, acquire)]));
            }
        }
    }

    /// No window between two uses, of any length, has more permits than the rate allows.
    fn assert_within(&mut self) {
        self.used.sort_unstable();
        for (first, (from, _)) in self.used.iter().enumerate() {
            let mut permits = 0;
            for (to, cost) in &self.used[first..] {
                permits += u64::from(*cost);
                let per = u64::try_from(self.rate.per.as_millis()).unwrap();
                let most = u64::from(self.rate.burst) * per + (to - from) * u64::from(self.rate.permits);
                assert!(permits * per <= most, "{permits} permits from {from} to {to} ms: {:?}", self.rate);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_window_has_more_permits_than_the_rate_allows(
        permits in 1..40_u32, spare in 1..40_u32, rush in 0..10_000_u64,
        chances in prop::collection::vec(chance(), 300..800),
    ) {
        let rate = Rate { permits, per: Duration::from_secs(1), burst: 2 * permits + spare };
        let mut world = World::new(rate, rush);
        for (step, chance) in (0..).zip(chances) {
            world.step(step * 17, chance);
        }
        world.assert_within();
    }
}

#[test]
fn a_calm_world_uses_the_whole_rate_and_starves_nobody() {
    let rate = Rate { permits: 10, per: Duration::from_secs(1), burst: 40 };
    let mut world = World::new(rate, 0);
    let calm = Chance { service: 0, cost: 0, delay: 10, copies: 1, gives_up: false };
    let large = world.services[2].acquire(permits("a", 20));
    world.costs.insert((world.services[2].service, large), 20);
    for now in 0..60_000_u64 {
        let service = usize::try_from(now).unwrap() % 3;
        // Two of the services want five times as much as the rate.
        let cost = u32::from(service < 2 && now % 40 < 3);
        world.step(now, Chance { service, cost, ..calm });
    }
    world.assert_within();
    let large_at = world.used.iter().find(|(_, cost)| *cost == 20).unwrap().0;
    assert!(large_at < 4000, "the large request was granted after {large_at} ms");
    let used: u32 = world.used.iter().map(|(_, cost)| cost).sum();
    assert!(used >= 600, "{used} of 620 permits in a minute");
}
