//! Counts the messages of a deployment of any size: while its observers are created, while nothing happens, and after
//! the death of a service. The chapter "Scaling" of the documentation multiplies these counts by unit costs.

use crate::code::{Code, Does, Stops};
use crate::history::{Action, Ask, History, ObserverSetup, Runs, ServiceSetup, Setup, Theme};
use crate::machine;
use crate::world::{Power, World};
use everwatch_broker::{Message, Target, Topology};
use everwatch_core::id::{Name, Pool};
use everwatch_core::observer::definition::Overlap;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::message::decode;
use everwatch_core::wire::report::{Report, Reports, StateMessage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Services and managers have started after this time, in ms.
const STARTED: u64 = 10_000;
/// Afterwards all observers run, caches are filled and the first inventories were compared.
const SETTLED: u64 = 70_000;
const MINUTES: u64 = 2;
const FAILOVER: u64 = 60_000;

/// What was published, by kind of message.
pub(crate) type Sent = BTreeMap<String, u64>;

/// The messages of one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) observers: usize,
    pub(crate) services: usize,
    /// Until all observers that were created run and everything has settled.
    pub(crate) create: Sent,
    /// In two minutes in which nothing happens.
    pub(crate) idle: Sent,
    /// Observers that the killed service held.
    pub(crate) held: usize,
    /// In the minute after a service was killed.
    pub(crate) failover: Sent,
}

/// Simulates one manager, and this many observers and services. The services have twice the slots that the observers
/// need.
pub(crate) fn count(observers: usize, services: usize) -> Counts {
    let history = history(observers, services);
    machine::enter(history.setup.seed);
    let mut world = World::new(&history, false);
    world.sent = Some(Sent::new());
    world.schedule(&history);
    world.run_until(SETTLED);
    let create = world.sent.replace(Sent::new()).unwrap();
    world.run_until(SETTLED + MINUTES * 60_000);
    let idle = world.sent.replace(Sent::new()).unwrap();
    let victim = world.setup.services[0].name.clone();
    let at = world.hosts.iter().position(|host| host.name == victim.as_str()).unwrap();
    let known = &world.judge.knowledge;
    let held = known.alive.iter().filter(|start| known.starts[*start].host == at).count();
    world.kill(at, Power::On);
    world.run_until(SETTLED + MINUTES * 60_000 + FAILOVER);
    let failover = world.sent.take().unwrap();
    assert!(world.judge.breach.is_none(), "{:?}", world.judge.breach);
    Counts { observers, services, create, idle, held, failover }
}

fn history(observers: usize, services: usize) -> History {
    let capacity = u32::try_from((2 * observers).div_ceil(services)).unwrap();
    let service = |number| ServiceSetup {
        name: Name::new(&format!("service-{number}")).unwrap(),
        pool: Pool::default(),
        capacity,
        weight_max: 1,
        runs: Runs::All,
        start_rate: 0.0,
    };
    let observer = ObserverSetup {
        is_rare: false,
        pool: Pool::default(),
        code: Code { does: Does::RunsForEver, stops: Stops::After(0), edition: 0, saves_every: None },
        overlap: Overlap::Allow,
        attempts: 1,
        paused: false,
        start_ms: None,
        finish_ms: None,
        windows: None,
        limits: [].into(),
        weight: 1,
        schedule: None,
    };
    let setup = Setup {
        preempt_after_ms: None,
        seed: 1,
        theme: Theme::Healthy,
        services: (0..services).map(service).collect(),
        managers: 1,
        state_queues: 1,
        observers: vec![observer; observers],
        skews: vec![0; services + 1],
        pools_are_configured: true,
        managers_leave: false,
        quiet_minutes: 0,
    };
    let create = |number| (STARTED, Action::User(number, Ask::CreateInBatch));
    History { setup, calm_at: SETTLED, actions: (0..observers).map(create).collect() }
}

/// Counts one publish.
pub(crate) fn on_publish(sent: &mut Sent, target: &Target, message: &Message) {
    let topology = Topology::new(crate::PREFIX);
    let mut add = |what: &str| *sent.entry(what.to_owned()).or_default() += 1;
    match target {
        Target::Queue(queue) if queue.starts_with(&crate::work_prefix()) => add("work"),
        Target::Queue(queue) if *queue == topology.heartbeats() => match decode(&message.body) {
            Ok(HeartbeatMessage::Heartbeat(_)) => add("heartbeats"),
            Ok(HeartbeatMessage::Probe { .. }) => add("probes"),
            Ok(HeartbeatMessage::Watermark(_)) => add("watermarks"),
            Err(_) => add("other"),
        },
        Target::Queue(queue) if crate::is_state_queue(queue) => {
            add("state messages");
            if let Ok(StateMessage::Reports(Reports { entries, .. })) = decode(&message.body) {
                for entry in entries {
                    add(match entry.report {
                        Report::Run(_) => "reports of runs",
                        Report::InventoryDigest(_) => "digests",
                        Report::Inventory(_) => "inventories",
                        _ => "other reports",
                    });
                }
            }
        }
        _ => add("commands"),
    }
}
