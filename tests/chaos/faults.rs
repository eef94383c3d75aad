//! The faults of a campaign: how each is injected, and which effects are allowed.

use crate::world::World;
use everwatch_tests::proxy::Proxy;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::time::Duration;

/// Longer than three heartbeats of 3 s, after which the broker has redelivered all messages of a silent
/// client.
const LONG: Duration = Duration::from_secs(11);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of a service, which comes back under its name.
    Kill,
    /// SIGTERM of a service, which comes back under its name.
    Stop,
    /// A host is frozen for longer than three heartbeats, including child processes, and continues
    /// afterwards.
    Freeze,
    /// No data passes between a service and the broker for longer than three heartbeats.
    CutBoth,
    /// Data from a service does not reach the broker.
    CutUp,
    /// Data from the broker does not reach a service.
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
    /// A service is killed while the database is down.
    KillInOutage,
    /// All managers are killed, and a service meanwhile.
    NoManager,
    /// The database is away for longer than a lease.
    DatabaseLong,
    /// Nobody reads the log of a service, and its sockets are reset in the meantime.
    StalledLog,
    /// The helper process of a child is killed.
    HelperKill,
    /// A stored observer becomes unreadable, and a manager starts in the meantime.
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

    /// Whether all observers must run again while no manager works. Requests that users made before wait for
    /// a manager: for instance, a manager publishes a restart only once it has recorded the end of the old
    /// run.
    pub(crate) fn leaves_no_manager(self) -> bool {
        matches!(self, Self::NoManager | Self::KillInOutage | Self::DiskFull)
    }

    /// How long two runs of one observer may overlap because of this fault, in ms (invariant I6).
    pub(crate) fn may_overlap(self, child: bool, allowed: bool) -> i64 {
        const FENCE_GRACE: i64 = 500;
        const PROBE: i64 = 1000;
        match self {
            // The helper process notices the death of the service at once and kills the child.
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
            // Counted from the thaw: a frozen process cannot notice the loss earlier.
            Self::Freeze => PROBE + FENCE_GRACE,
            // Both sides notice the loss at once: the next run may start before this one has ended.
            Self::Reset | Self::CloseAll | Self::NodeKill | Self::StalledLog if allowed => FENCE_GRACE,
            // The holder's node does not tell it of the loss. The run on the next service makes a manager
            // revoke the old run.
            Self::Partition if allowed => PROBE + FENCE_GRACE,
            _ => 0,
        }
    }

    /// How long it may take until all observers run again. If a node dies, a quorum queue keeps messages that
    /// a cancelled consumer on that node held (seen on RabbitMQ 4.0). Managers must then notice that these
    /// messages are missing and republish the observers.
    pub(crate) fn over_within(self) -> Duration {
        match self {
            Self::NodeKill | Self::Partition => Duration::from_secs(300),
            _ => Duration::from_secs(60),
        }
    }

    /// Whether the broker may withhold messages and deliver them after managers have published new ones.
    pub(crate) fn mislays(self) -> bool {
        matches!(self, Self::NodeKill | Self::Partition | Self::LeadersMove)
    }

    /// Whether this fault may move observers.
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

    /// The longest acceptable gap, in ms: one second for a killed process; three heartbeats and two seconds
    /// for a fault that the broker must detect. An observer that forbids overlap waits for another two
    /// `fence_grace`.
    pub(crate) fn good_gap(self, allowed: bool) -> i64 {
        let waits = if allowed { 0 } else { 1000 };
        waits
            + match self {
                Self::Kill | Self::DiskFull => 1000,
                // Two services end at once, and the remaining services are busy with the observers of both.
                Self::KillTwo | Self::KillInOutage | Self::NoManager => 2000,
                // The code may take as long as it lingers after the stop.
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

/// Kills the helper process of the service's first child, if it has a child.
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

/// Waits while the fault lasts.
async fn for_a_while(time: Duration) {
    tokio::time::sleep(time).await;
}
