//! What a history is made of, from one seed: who takes part, what people ask, what goes wrong and when.

use crate::code::Code;
use crate::dice::Dice;
use crate::net::{Cut, Ending, Lane};
use crate::operators::Order;
use crate::users::Ask;
use everwatch_core::id::{Kind, Name};
use everwatch_core::observer::Overlap;

/// Faults happen until then.
pub(crate) const CALM: u64 = 60_000;

#[derive(Debug, Clone)]
pub(crate) struct ServiceSetup {
    pub(crate) name: Name,
    pub(crate) capacity: u32,
    pub(crate) kinds: Vec<Kind>,
    /// Starts a second; 0: as they come.
    pub(crate) start_rate: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct ObserverSetup {
    pub(crate) kind: Kind,
    pub(crate) code: Code,
    pub(crate) overlap: Overlap,
    pub(crate) attempts: u32,
    /// It is not to run before somebody resumes it.
    pub(crate) paused: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) services: Vec<ServiceSetup>,
    pub(crate) managers: usize,
    pub(crate) observers: Vec<ObserverSetup>,
    /// Of all hosts, services first.
    pub(crate) skews: Vec<i64>,
    /// No manager lives for some time after the last fault.
    pub(crate) alone: bool,
    /// Whether managers look for observers that nobody holds.
    pub(crate) misses_orphans: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Person(usize, Ask),
    Operator(Order),
    Fault(Fault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash {
        host: usize,
        ending: Ending,
        back_in: u64,
    },
    Freeze {
        host: usize,
        for_ms: u64,
    },
    Cut {
        host: usize,
        lanes: Vec<Lane>,
        cut: Cut,
        for_ms: u64,
    },
    /// The broker drops a connection; the other end hears of it, or not.
    Reset {
        host: usize,
        lane: Lane,
        told: bool,
    },
    BreakAfterPublish {
        host: usize,
    },
    LoseAnswers {
        count: u32,
    },
    DatabaseDown {
        for_ms: u64,
    },
    /// The database answers questions and takes nothing in.
    DiskFull {
        for_ms: u64,
    },
    Blocked {
        for_ms: u64,
    },
    BrokerRestart {
        down_ms: u64,
    },
    RejectWork {
        count: u32,
    },
    Drain {
        service: usize,
        back_in: u64,
    },
    /// The broker closes this connection again and again.
    Flaps {
        service: usize,
        times: u32,
    },
    /// The broker drops the connection and leaves so many of its messages with nobody.
    Orphan {
        service: usize,
        count: usize,
    },
    /// So many of the next deliveries never arrive.
    LoseDeliveries {
        count: u32,
    },
    /// The broker comes back without its work queues.
    LoseWork {
        down_ms: u64,
    },
    /// The broker will come back with the work queues as they are now.
    TurnBackWork {
        in_ms: u64,
    },
    /// Somebody switches hold on for so long.
    Hold {
        for_ms: u64,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    /// In order of time.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl History {
    pub(crate) fn of(seed: u64) -> Self {
        Dice::of(seed).history(seed)
    }

    /// Nothing goes wrong in it.
    pub(crate) fn is_healthy(&self) -> bool {
        let wished = |action: &Action| matches!(action, Action::Person(..) | Action::Operator(_));
        self.actions.iter().all(|(_, action)| wished(action)) && !self.setup.alone && !self.has_poison()
    }

    /// Whether some code takes its service down at every start.
    pub(crate) fn has_poison(&self) -> bool {
        self.setup.observers.iter().any(|it| it.code.is_poison())
    }

    /// The last moment of a fault that does not end with the calm.
    pub(crate) fn held_until(&self) -> u64 {
        let held = self.actions.iter().map(|(at, action)| match action {
            Action::Fault(Fault::Hold { for_ms }) => at + for_ms,
            _ => 0,
        });
        held.max().unwrap_or(0)
    }
}
