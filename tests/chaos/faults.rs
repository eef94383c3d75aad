//! What goes wrong, and how it is made to.

use crate::world::World;
use everwatch_tests::proxy::Proxy;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::time::Duration;

/// Longer than three heartbeats of 3 s, after which the broker has given everything away.
const LONG: Duration = Duration::from_secs(11);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of a service, which comes back under its name.
    Kill,
    /// SIGTERM of a service, which comes back under its name.
    Stop,
    /// A host stands still for longer than three heartbeats, children and all, and wakes up again.
    Freeze,
    /// Nothing passes between a service and the broker, for longer than three heartbeats.
    CutBoth,
    /// The broker does not hear a service.
    CutUp,
    /// A service does not hear the broker.
    CutDown,
    /// A service's sockets are reset.
    Reset,
    /// The broker closes all connections.
    CloseAll,
    /// The broker is killed and started again.
    BrokerKill,
    /// One node of a cluster is killed and started again.
    NodeKill,
    /// The leaders of all queues of a cluster go to other nodes.
    LeadersMove,
    /// The broker blocks publishers for longer than three heartbeats.
    Alarm,
    /// A manager is killed and started again.
    ManagerKill,
    /// The database is killed and started again.
    DatabaseKill,
    /// The disk of the database is full, and a service is killed meanwhile.
    DiskFull,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::Kill,
        Self::Stop,
        Self::Freeze,
        Self::CutBoth,
        Self::CutUp,
        Self::CutDown,
        Self::Reset,
        Self::CloseAll,
        Self::BrokerKill,
        Self::NodeKill,
        Self::LeadersMove,
        Self::Alarm,
        Self::ManagerKill,
        Self::DatabaseKill,
        Self::DiskFull,
    ];

    /// How long an observer may run twice at once because of it, in ms (invariant I6).
    pub(crate) fn may_overlap(self, child: bool, allowed: bool) -> i64 {
        const FENCE_GRACE: i64 = 500;
        const PROBE: i64 = 1000;
        match self {
            // The helper notices at once, and kills.
            Self::Kill | Self::DiskFull if child && allowed => FENCE_GRACE,
            // From the thaw on: a frozen process cannot know before.
            Self::Freeze => PROBE + FENCE_GRACE,
            // Both ends learn of it at once, and the other's start is as fast as this one's end.
            Self::Reset | Self::CloseAll | Self::NodeKill if allowed => FENCE_GRACE,
            _ => 0,
        }
    }

    /// Whether any observer may move because of it.
    pub(crate) fn moves(self) -> bool {
        !matches!(self, Self::Alarm | Self::ManagerKill | Self::DatabaseKill)
    }

    /// The longest gap, in ms, that counts as good: for a killed process a second, for what the broker has to
    /// notice three heartbeats and two seconds.
    /// One that may not overlap waits for two `fence_grace` more.
    pub(crate) fn good_gap(self, allowed: bool) -> i64 {
        let waits = if allowed { 0 } else { 1000 };
        waits
            + match self {
                Self::Kill | Self::Stop | Self::DiskFull => 1000,
                Self::Freeze | Self::CutBoth | Self::CutUp | Self::CutDown => 3 * 3000 + 2000,
                // A lost session comes back as a new incarnation within a few seconds.
                Self::Reset | Self::CloseAll | Self::LeadersMove => 5000,
                // The queue waits 15 s for a consumer whose node is gone.
                Self::NodeKill => 25_000,
                Self::BrokerKill => 45_000,
                Self::Alarm | Self::ManagerKill | Self::DatabaseKill => 0,
            }
    }

    pub(crate) async fn strike(self, world: &mut World, dice: &mut StdRng) {
        let victim = world.victim(dice).await;
        match self {
            Self::Kill => {
                world.cluster.kill(victim);
                world.until_all_run(self).await;
                back(world, victim).await;
            }
            Self::Stop => {
                assert_eq!(world.cluster.terminate(victim), Some(0), "{}", world.cluster.log(victim));
                back(world, victim).await;
            }
            Self::Freeze => freeze(world, victim).await,
            Self::CutBoth => cut(world, victim, (false, false)).await,
            Self::CutUp => cut(world, victim, (false, true)).await,
            Self::CutDown => cut(world, victim, (true, false)).await,
            Self::Reset => {
                world.proxies[victim].iter().for_each(Proxy::reset);
                for_a_while(Duration::from_secs(5)).await;
            }
            Self::CloseAll => {
                world.broker.own().ctl(&["close_all_connections", "chaos"]);
                for_a_while(Duration::from_secs(5)).await;
            }
            Self::BrokerKill => {
                world.broker.own().kill();
                for_a_while(Duration::from_secs(4)).await;
                world.broker.own().start_again();
            }
            Self::NodeKill => {
                let number = dice.random_range(1..=world.broker.urls.len());
                world.broker.node("kill", number);
                for_a_while(LONG).await;
                world.broker.node("start", number);
            }
            Self::LeadersMove => {
                world.broker.move_leaders();
                for_a_while(Duration::from_secs(5)).await;
            }
            Self::Alarm => {
                world.broker.own().ctl(&["set_disk_free_limit", "999GB"]);
                for_a_while(LONG).await;
                world.broker.own().ctl(&["set_disk_free_limit", "50MB"]);
            }
            Self::ManagerKill => {
                world.cluster.kill("manager");
                for_a_while(Duration::from_secs(2)).await;
                world.cluster.manager().await;
            }
            Self::DatabaseKill => {
                let server = world.postgres.as_ref().expect("chosen only where there is one");
                server.kill();
                for_a_while(Duration::from_secs(4)).await;
                server.start_again();
            }
            Self::DiskFull => {
                world.disk.as_ref().expect("chosen only where there is one").fill();
                world.cluster.kill(victim);
                world.until_all_run(self).await;
                for_a_while(Duration::from_secs(5)).await;
                world.disk.as_ref().expect("it stays").make_room();
                back(world, victim).await;
            }
        }
    }
}

async fn back(world: &mut World, victim: &str) {
    world.start_service(victim);
    world.cluster.until_active(victim).await;
}

async fn freeze(world: &World, victim: &str) {
    let family = world.cluster.family(victim);
    let all = |signal: Signal| {
        for pid in &family {
            let _one_that_has_just_ended = kill(Pid::from_raw(*pid), signal);
        }
    };
    all(Signal::SIGSTOP);
    for_a_while(LONG).await;
    all(Signal::SIGCONT);
    world.cluster.until_active(victim).await;
}

async fn cut(world: &World, victim: &str, (up, down): (bool, bool)) {
    let pass = |up, down| world.proxies[victim].iter().for_each(|proxy| proxy.pass(up, down));
    pass(up, down);
    for_a_while(LONG).await;
    pass(true, true);
    world.cluster.until_active(victim).await;
}

/// The fault lasts.
async fn for_a_while(time: Duration) {
    let mut ticks = tokio::time::interval(time);
    ticks.tick().await;
    ticks.tick().await;
}
