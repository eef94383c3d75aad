//! The parts of a history: hosts, requests of users, faults and their times. A seed determines one
//! (`dice`); a file holds one, so that a part of it can be played alone.

use crate::code::Code;
use crate::network::Lane;
use crate::world::Power;
use everwatch_core::id::{Name, Pool};
use everwatch_core::observer::definition::{ObserverDefinition, Overlap};
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
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) theme: Theme,
    pub(crate) services: Vec<ServiceSetup>,
    pub(crate) managers: usize,
    pub(crate) observers: Vec<ObserverSetup>,
    /// How far the wall clocks are off, in ms: services first, then managers.
    pub(crate) skews: Vec<i64>,
    /// Whether the managers are told of every pool, or find all but `default` by themselves.
    pub(crate) pools_are_configured: bool,
    /// No manager lives for some time after the last fault.
    pub(crate) managers_leave: bool,
    /// Minutes of quiet at the end, in which nothing may happen.
    pub(crate) quiet_minutes: u64,
}

impl Setup {
    /// Whether a service of its pool cannot run it.
    pub(crate) fn may_be_refused(&self, definition: &ObserverDefinition) -> bool {
        self.services.iter().any(|it| it.pool == definition.pool && !it.can_run(definition))
    }
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let pools: BTreeSet<&Pool> = self.services.iter().map(|it| &it.pool).collect();
        pools.into_iter().cloned().collect()
    }
}

/// What kind of history it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Theme {
    /// Nothing goes wrong.
    Healthy,
    Faulty,
    /// Besides, the broker forgets or mislays messages.
    Forgetful,
    /// The work queue is lost, and nothing else happens near it.
    Refill,
    /// One observer ends its services.
    Deadly,
    /// Sessions are closed again and again, and no process dies.
    Flaps,
    /// The database is away for longer than a publish lease.
    Outage,
    /// The database is replaced by a backup of itself.
    Restored,
    /// Wall clocks are off by up to ten minutes, and step.
    Skewed,
    /// Sessions of services break between a publish and its confirm, again and again.
    Interrupted,
    /// Two operators give orders for one service in the same moment, to two managers.
    Rivals,
    /// The broker gives messages away whose session lives, and nothing else goes wrong.
    GivenAway,
    /// Operators ask for one thing after another, and services die meanwhile.
    Operated,
}

/// What a person asks of a manager about one observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    Create,
    /// In one batch with all others that are created so in this moment.
    CreateInBatch,
    Delete,
    Retry,
    Pause,
    Resume,
    Restart,
    /// Another edition of its spec.
    Update,
    /// Another edition, and whether it is to run.
    Put {
        paused: bool,
    },
    /// To whichever service has room next.
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
    /// It answers questions and takes nothing in.
    DatabaseFull {
        for_ms: u64,
    },
    /// All managers stop, the database is put back to what it was so long before, and they start again.
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
    /// An orderly stop of a service.
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
    /// The broker hands `count` messages of a service out again, and its session lives.
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
    /// The broker comes back, so much later, with the work queues as they are now.
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
    Person(usize, Ask),
    Operator(Order),
    Fault(Fault),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    /// Faults happen until then, in ms.
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
            Action::Person(..) | Action::Operator(_) => false,
        })
    }
}
