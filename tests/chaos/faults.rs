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
    /// The computer of the manager and its SQLite database loses power.
    PowerLoss,
    /// Two services are killed at once.
    KillTwo,
    /// A service is cut off, and another one is killed meanwhile.
    CutAndKill,
    /// The database is away, and a service is killed meanwhile.
    KillInOutage,
    /// All managers are killed, and a service meanwhile.
    NoManager,
    /// The database is away for longer than a lease.
    DatabaseLong,
    /// Nothing that a service logs is read any more, and its sockets are reset meanwhile.
    StalledLog,
    /// The helper process of a child is killed.
    HelperKill,
    /// A stored observer cannot be read, and a manager starts meanwhile.
    DamagedRow,
    /// Two nodes of a cluster lose contact with each other; the third still reaches both.
    Partition,
}

impl Fault {
    pub(crate) const ALL: [Self; 25] = [
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
        Self::PowerLoss,
        Self::KillTwo,
        Self::CutAndKill,
        Self::KillInOutage,
        Self::NoManager,
        Self::DatabaseLong,
        Self::StalledLog,
        Self::HelperKill,
        Self::DamagedRow,
        Self::Partition,
    ];

    /// Whether it lasts a minute.
    pub(crate) fn is_long(self) -> bool {
        self == Self::DatabaseLong
    }

    /// Whether everything has to run again while no manager can work. Requests that users made before wait for a
    /// manager: a restart, for instance, is published when a manager has written down that the old run is over.
    pub(crate) fn leaves_no_manager(self) -> bool {
        matches!(self, Self::NoManager | Self::KillInOutage | Self::DiskFull)
    }

    /// How long an observer may run twice at once because of it, in ms (invariant I6).
    pub(crate) fn may_overlap(self, child: bool, allowed: bool) -> i64 {
        const FENCE_GRACE: i64 = 500;
        const PROBE: i64 = 1000;
        match self {
            // The helper notices at once, and kills.
            Self::Kill
            | Self::DiskFull
            | Self::KillTwo
            | Self::CutAndKill
            | Self::KillInOutage
            | Self::NoManager
                if child && allowed =>
            {
                FENCE_GRACE
            }
            // From the thaw on: a frozen process cannot know before.
            Self::Freeze => PROBE + FENCE_GRACE,
            // Both ends learn of it at once, and the other's start is as fast as this one's end.
            Self::Reset | Self::CloseAll | Self::NodeKill | Self::StalledLog if allowed => FENCE_GRACE,
            // The node of the holder sends it no sign: the run on the next service makes a manager stop it.
            Self::Partition if allowed => PROBE + FENCE_GRACE,
            _ => 0,
        }
    }

    /// When everything has to run again. A quorum queue keeps what a cancelled consumer held whose node has died
    /// (seen on RabbitMQ 4.0): what a service handed over or kept at that moment is missed and published again.
    pub(crate) fn over_within(self) -> Duration {
        match self {
            Self::NodeKill | Self::Partition => Duration::from_secs(300),
            _ => Duration::from_secs(60),
        }
    }

    /// Whether the broker may keep messages back and give them out once managers have published new ones.
    pub(crate) fn mislays(self) -> bool {
        matches!(self, Self::NodeKill | Self::Partition | Self::LeadersMove)
    }

    /// Whether any observer may move because of it.
    pub(crate) fn moves(self) -> bool {
        !matches!(
            self,
            Self::Alarm
                | Self::ManagerKill
                | Self::DatabaseKill
                | Self::DatabaseLong
                | Self::PowerLoss
                | Self::HelperKill
                | Self::DamagedRow
        )
    }

    /// The longest gap, in ms, that counts as good: for a killed process a second, for what the broker has to
    /// notice three heartbeats and two seconds.
    /// One that may not overlap waits for two `fence_grace` more.
    pub(crate) fn good_gap(self, allowed: bool) -> i64 {
        let waits = if allowed { 0 } else { 1000 };
        waits
            + match self {
                Self::Kill | Self::DiskFull => 1000,
                // Two ends at once, and what is left is busy with the other one.
                Self::KillTwo | Self::KillInOutage | Self::NoManager => 2000,
                // Code may take as long as it lingers.
                Self::Stop => 1000,
                Self::Freeze | Self::CutBoth | Self::CutUp | Self::CutDown | Self::CutAndKill => {
                    3 * 3000 + 2000
                }
                // A lost session comes back as a new incarnation within a few seconds.
                Self::Reset | Self::CloseAll | Self::LeadersMove | Self::StalledLog => 5000,
                // The queue waits 15 s for a consumer whose node is gone.
                Self::NodeKill | Self::Partition => 25_000,
                Self::BrokerKill => 45_000,
                Self::Alarm
                | Self::ManagerKill
                | Self::DatabaseKill
                | Self::DatabaseLong
                | Self::PowerLoss
                | Self::HelperKill
                | Self::DamagedRow => 0,
            }
    }

    pub(crate) async fn strike(self, world: &mut World, dice: &mut StdRng) {
        let victim = world.victim(dice).await;
        let second = world.other_than(victim, dice);
        match self {
            Self::Kill => kill_all(world, &[victim], self).await,
            Self::KillTwo => kill_all(world, &[victim, second], self).await,
            Self::Stop => {
                assert_eq!(world.cluster.terminate(victim), Some(0), "{}", world.cluster.log(victim));
                back(world, victim).await;
            }
            Self::Freeze => freeze(world, victim).await,
            Self::CutBoth => cut(world, victim, (false, false)).await,
            Self::CutUp => cut(world, victim, (false, true)).await,
            Self::CutDown => cut(world, victim, (true, false)).await,
            Self::CutAndKill => {
                world.cluster.kill(second);
                cut(world, victim, (false, false)).await;
                back(world, second).await;
            }
            Self::Reset => {
                world.proxies[victim].iter().for_each(Proxy::reset);
                for_a_while(Duration::from_secs(5)).await;
            }
            Self::CloseAll => {
                world.broker.own().ctl(&["close_all_connections", "chaos"]);
                for_a_while(Duration::from_secs(5)).await;
            }
            Self::BrokerKill | Self::NodeKill | Self::LeadersMove | Self::Alarm | Self::Partition => {
                self.strike_broker(world, dice).await;
            }
            Self::ManagerKill => {
                world.cluster.kill("manager");
                for_a_while(Duration::from_secs(2)).await;
                world.cluster.manager().await;
            }
            Self::PowerLoss => {
                world.cluster.kill("manager");
                world.disk().lose_power();
                world.cluster.manager().await;
            }
            Self::NoManager => {
                world.kill_managers();
                world.cluster.kill(victim);
                world.until_all_run(self).await;
                world.start_managers().await;
                back(world, victim).await;
            }
            Self::DatabaseKill | Self::DatabaseLong | Self::KillInOutage | Self::DiskFull => {
                self.strike_database(world, victim).await;
            }
            Self::StalledLog => stall_a_log(world, dice).await,
            Self::HelperKill => kill_a_helper(world, victim).await,
            Self::DamagedRow => world.damage_a_row(dice).await,
        }
    }

    async fn strike_broker(self, world: &World, dice: &mut StdRng) {
        let number = dice.random_range(1..=world.broker.urls.len());
        match self {
            Self::NodeKill => {
                world.broker.node("kill", number);
                for_a_while(LONG).await;
                world.broker.node("start", number);
            }
            Self::Partition => {
                world.broker.part(number);
                for_a_while(LONG * 2).await;
                world.broker.join(number);
                for_a_while(LONG).await;
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
            _ => {
                world.broker.own().kill();
                for_a_while(Duration::from_secs(4)).await;
                world.broker.own().start_again();
            }
        }
    }

    async fn strike_database(self, world: &mut World, victim: &str) {
        let full = self == Self::DiskFull;
        if full {
            world.disk().fill();
        } else {
            world.server().kill();
        }
        let is_killed = matches!(self, Self::DiskFull | Self::KillInOutage);
        if is_killed {
            world.cluster.kill(victim);
            world.until_all_run(self).await;
        }
        let away = if self == Self::DatabaseLong { Duration::from_secs(45) } else { Duration::from_secs(5) };
        for_a_while(away).await;
        if full {
            world.disk().make_room();
        } else {
            world.server().start_again();
        }
        if is_killed {
            back(world, victim).await;
        }
    }
}

async fn kill_all(world: &mut World, victims: &[&'static str], fault: Fault) {
    victims.iter().for_each(|victim| world.cluster.kill(victim));
    world.until_all_run(fault).await;
    for victim in victims {
        back(world, victim).await;
    }
}

async fn stall_a_log(world: &World, dice: &mut StdRng) {
    let victim = world.stall_a_log(dice);
    world.proxies[victim].iter().for_each(Proxy::reset);
    for_a_while(LONG).await;
    world.let_logs_go_on();
    world.until_back(victim).await;
}

/// Kills the helper of the service's first child, if the service has one.
async fn kill_a_helper(world: &World, victim: &str) {
    // The service itself, then what it has started.
    if let Some(helper) = world.cluster.family(victim).get(1) {
        let _one_that_has_just_ended = kill(Pid::from_raw(*helper), Signal::SIGKILL);
    }
    for_a_while(Duration::from_secs(3)).await;
}

async fn back(world: &mut World, victim: &str) {
    world.start_service(victim);
    world.until_back(victim).await;
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
    world.until_back(victim).await;
}

async fn cut(world: &World, victim: &str, (up, down): (bool, bool)) {
    world.pass(victim, (up, down));
    for_a_while(LONG).await;
    world.pass(victim, (true, true));
    world.until_back(victim).await;
}

/// The fault lasts.
async fn for_a_while(time: Duration) {
    tokio::time::sleep(time).await;
}
