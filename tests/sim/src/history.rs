//! The parts of a history: hosts, requests of users, faults, and their times. `dice` generates a history from
//! a seed. A file can store one, so that a part of it can be replayed.

use crate::code::Code;
use crate::network::Lane;
use crate::world::Power;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::id::{LimitKey, LimitPattern, Name, Pool};
use everwatch_core::observer::definition::{ObserverDefinition, Overlap};
use everwatch_core::observer::schedule::IfRunning;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which observers of its pool a service can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Runs {
    /// Those of the kinds `common` and `rare`.
    All,
    Common,
    /// It is of an older version, which cannot read what managers publish.
    Nothing,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServiceSetup {
    pub(crate) name: Name,
    pub(crate) pool: Pool,
    pub(crate) capacity: u32,
    pub(crate) runs: Runs,
    /// Starts a second; 0: no limit.
    pub(crate) start_rate: f64,
    /// The greatest weight that it takes.
    #[serde(default = "one")]
    pub(crate) weight_max: u16,
}

impl ServiceSetup {
    pub(crate) fn can_run(&self, definition: &ObserverDefinition) -> bool {
        match self.runs {
            Runs::All => true,
            Runs::Common => definition.kind.as_str() == "common",
            Runs::Nothing => false,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ObserverSetup {
    pub(crate) is_rare: bool,
    pub(crate) pool: Pool,
    pub(crate) code: Code,
    pub(crate) overlap: Overlap,
    pub(crate) attempts: u32,
    /// Created paused.
    pub(crate) paused: bool,
    /// Its `start_at` and `finish_at`, in ms from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finish_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) windows: Option<WindowSetup>,
    /// The limits that it counts towards.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) limits: BTreeSet<LimitKey>,
    #[serde(default = "one")]
    pub(crate) weight: u16,
    /// It starts at each of the times of histories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<IfRunning>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) theme: Theme,
    pub(crate) services: Vec<ServiceSetup>,
    pub(crate) managers: usize,
    /// The number of state queues over which services spread their reports.
    #[serde(default = "one")]
    pub(crate) state_queues: u16,
    pub(crate) observers: Vec<ObserverSetup>,
    /// How long an observer waits before it gets the slot of one with a lower priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preempt_after_ms: Option<u64>,
    /// The offsets of the wall clocks, in ms: first the services, then the managers.
    pub(crate) skews: Vec<i64>,
    /// Whether the managers are configured with every pool, or must discover all pools but `default`.
    pub(crate) pools_are_configured: bool,
    /// No manager runs for some time after the last fault.
    pub(crate) managers_leave: bool,
    /// How many quiet minutes follow at the end, in which managers and services must do nothing.
    pub(crate) quiet_minutes: u64,
}

fn one() -> u16 {
    1
}

impl Setup {
    /// Whether a service of the observer's pool cannot run it.
    pub(crate) fn may_be_refused(&self, definition: &ObserverDefinition) -> bool {
        self.services.iter().any(|it| it.pool == definition.pool && !it.can_run(definition))
    }
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let pools: BTreeSet<&Pool> = self.services.iter().map(|it| &it.pool).collect();
        pools.into_iter().cloned().collect()
    }
}

/// The theme of a history: which faults it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Theme {
    /// Nothing goes wrong.
    Healthy,
    Faulty,
    /// As `Faulty`, and the broker also loses or mislays messages.
    Forgetful,
    /// The work queue is lost, and no other fault happens around that time.
    Refill,
    /// One observer ends its services.
    Deadly,
    /// Sessions are closed again and again, and no process dies.
    Flaps,
    /// The database is away for longer than a publish lease.
    Outage,
    /// The database is replaced by a backup of itself.
    Restored,
    /// The wall clocks are off by up to ten minutes, and jump.
    Skewed,
    /// Sessions of services break between a publish and its confirm, again and again.
    Interrupted,
    /// Two operators give orders for one service in the same moment, to two managers.
    Rivals,
    /// The broker delivers messages to another service although the session of the first one lives. No other
    /// fault happens.
    GivenAway,
    /// Operators ask for one thing after another, and services die meanwhile.
    Operated,
}

/// What a user asks of a manager about one observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    Create,
    /// Creates the observer in one batch with all other observers that are created this way at the same time.
    CreateInBatch,
    Delete,
    Retry,
    Pause,
    Resume,
    Restart,
    /// Changes the spec to a new edition.
    Update,
    /// Changes the spec to a new edition and sets whether the observer should run.
    Put {
        paused: bool,
    },
    /// Moves the observer to the next service that has a free slot.
    Move,
}

/// What an operator asks of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Cordon(usize),
    Uncordon(usize),
    Drain { service: usize, per_second: u32, within_ms: Option<u64>, force: bool },
    Resize { service: usize, capacity: Option<u32> },
    Rebalance,
    SafeMode { on: bool },
}

/// Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    Crash {
        host: usize,
        power: Power,
        back_in: u64,
    },
    Freeze {
        host: usize,
        for_ms: u64,
    },
    Cut {
        host: usize,
        lanes: Vec<Lane>,
        up: bool,
        down: bool,
        for_ms: u64,
    },
    /// A lane takes longer.
    Slow {
        host: usize,
        lane: Lane,
        delay: u64,
        for_ms: u64,
    },
    /// The broker drops a connection, with or without telling the client.
    Reset {
        host: usize,
        lane: Lane,
        told: bool,
    },
    /// The broker closes one channel of a service.
    CloseChannel {
        host: usize,
    },
    /// A connection breaks between the next publish and its confirm.
    BreakAfterPublish {
        host: usize,
    },
    /// A connection breaks between the next report of a run's end and its confirm.
    BreakAfterSettlement {
        host: usize,
    },
    /// `count` commits of the database are never answered.
    LoseAnswers {
        count: u32,
    },
    DatabaseAway {
        for_ms: u64,
    },
    DatabaseSlow {
        delay: u64,
        for_ms: u64,
    },
    /// The disk of the database is full: reads succeed, writes fail.
    DatabaseFull {
        for_ms: u64,
    },
    /// All managers stop, the database is restored to its state of some time ago, and the managers start
    /// again.
    DatabaseRestored {
        backup_at: u64,
    },
    /// The broker takes no publishes.
    Blocked {
        for_ms: u64,
    },
    BrokerRestart {
        down_ms: u64,
    },
    /// The broker does nothing for a while, as when leaders move.
    BrokerPauses {
        for_ms: u64,
    },
    RejectWork {
        count: u32,
    },
    /// Stops a service gracefully.
    Stop {
        service: usize,
        back_in: u64,
    },
    /// The broker closes the session of a service again and again.
    Flaps {
        service: usize,
        times: u32,
    },
    /// The broker drops the connection and leaves `count` of its messages with no session.
    Abandon {
        service: usize,
        count: usize,
    },
    /// The broker redelivers `count` messages of a service to others while its session lives.
    GiveAway {
        service: usize,
        count: usize,
    },
    /// The next `count` deliveries never arrive.
    LoseDeliveries {
        count: u32,
    },
    /// The broker comes back without its work queues.
    LoseWork {
        down_ms: u64,
    },
    /// The broker restarts after this time with the work queues as they are now.
    RewindWork {
        in_ms: u64,
    },
    /// A wall clock steps.
    ClockStep {
        host: usize,
        by_ms: i64,
    },
}

impl Fault {
    /// Its name in tables.
    pub(crate) fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    User(usize, Ask),
    Operator(Order),
    Fault(Fault),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    /// The time of the last fault, in ms.
    pub(crate) calm_at: u64,
    /// In order of time.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl History {
    /// Nothing goes wrong in it.
    pub(crate) fn is_healthy(&self) -> bool {
        self.actions.iter().all(|(_, action)| !matches!(action, Action::Fault(_)))
            && !self.setup.managers_leave
            && !self.has_deadly_code()
    }
    /// Whether some code ends its service at every start.
    pub(crate) fn has_deadly_code(&self) -> bool {
        self.setup.observers.iter().any(|it| it.code.is_deadly())
    }
    /// Whether some observer has windows.
    pub(crate) fn has_windows(&self) -> bool {
        self.setup.observers.iter().any(|it| it.windows.is_some())
    }
    /// Whether the broker forgets or mislays messages.
    pub(crate) fn forgets(&self) -> bool {
        self.actions.iter().any(|(_, action)| match action {
            Action::Fault(fault) => matches!(
                fault,
                Fault::Abandon { .. }
                    | Fault::LoseDeliveries { .. }
                    | Fault::LoseWork { .. }
                    | Fault::RewindWork { .. }
            ),
            Action::User(..) | Action::Operator(_) => false,
        })
    }
}

/// The windows of an observer. Histories begin 40 s before a full minute.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum WindowSetup {
    /// It is closed from the first full minute to the second.
    Interrupted,
    /// It opens at the first full minute.
    Late,
}

/// The keys of limits, each with its maximum.
const LIMITS: [(&str, u32); 2] = [("a", 2), ("b", 1)];

/// The limits of all histories.
pub(crate) fn limits() -> impl Iterator<Item = Limit> {
    let limit = |(key, max)| Limit { key: LimitPattern::new(key).unwrap(), max, enforce: false };
    LIMITS.into_iter().map(limit)
}

/// The maximum of a key.
pub(crate) fn limit_max(key: &LimitKey) -> u32 {
    LIMITS.into_iter().find(|(name, _)| *name == key.as_str()).map_or(0, |(_, max)| max)
}
