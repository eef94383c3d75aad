//! The facts that the simulated parts record: starts and ends of code, messages at the broker, commits in the
//! database. Only the judge reads them.

use crate::network::ConnId;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::run::slots::Outcome;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::report::{RunReport, SequencedReport};
use std::cell::{Cell, RefCell};

/// How the broker came to take a delivery back from a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// The service gave it back, or closed its connection, or its kernel did.
    Closed,
    /// The broker closed the connection or the channel, and told the service.
    Told,
    /// The broker dropped the connection without telling the service.
    Untold,
    /// The broker closed the connection because it received nothing for more than two heartbeats.
    Silent,
    /// The broker redelivered the message to another service while the session lives.
    GivenAway,
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// A process starts on a host.
    Booted {
        host: usize,
    },
    /// The process on a host is gone, and all its code with it.
    Died {
        host: usize,
    },
    /// A write was committed but not confirmed. `until`: when its client stops waiting, in ms.
    AnswerLost {
        until: u64,
    },
    /// The host runs nothing until [`Fact::Thawed`].
    Frozen {
        host: usize,
    },
    Thawed {
        host: usize,
    },
    /// Code of an observer starts; `start` numbers it.
    Started(Start),
    /// The code of a start has ended. `own`: how it ended, if it ended before anybody cancelled it.
    Ended {
        start: u64,
        own: Option<Outcome>,
    },
    /// Code has received the checkpoint of an earlier run or attempt; 0: there was none.
    CheckpointRestored {
        id: ObserverId,
        epoch: Epoch,
        count: u64,
    },
    /// Code has learned that a manager has stored its checkpoint, or a later one.
    CheckpointStored {
        id: ObserverId,
        epoch: Epoch,
        count: u64,
    },
    /// A service process was ended by the code of an observer.
    EndedItsService,
    /// A service opened its session: its command queue is there.
    SessionOpened {
        host: usize,
        conn: ConnId,
        service: ServiceId,
    },
    /// The broker has ended a session.
    SessionClosed {
        conn: ConnId,
    },
    /// The work queue accepted a message.
    Published {
        id: ObserverId,
        generation: u32,
    },
    /// The publisher has received the confirm.
    Confirmed {
        id: ObserverId,
        generation: u32,
    },
    /// The state queue accepted reports.
    Reported {
        service: ServiceId,
        entries: Vec<SequencedReport>,
    },
    /// A service has received the broker's confirm for this report of a run.
    ReportConfirmed {
        conn: ConnId,
        report: RunReport,
    },
    /// The broker handed a work message out.
    Delivered {
        host: usize,
        conn: ConnId,
        id: ObserverId,
        epoch: Epoch,
    },
    /// It left the broker and will not arrive.
    Mislaid {
        conn: ConnId,
        id: ObserverId,
        epoch: Epoch,
    },
    /// The broker took a work message back from a session.
    TakenBack {
        conn: ConnId,
        id: ObserverId,
        epoch: Epoch,
        loss: Loss,
    },
    /// A delivery belongs to no session: it is neither ready nor held.
    Abandoned {
        id: ObserverId,
        epoch: Epoch,
    },
    /// Abandoned deliveries are ready again.
    Recovered,
    /// The broker removed a work message because this host acknowledged it.
    Acknowledged {
        host: usize,
        conn: ConnId,
        id: ObserverId,
        epoch: Epoch,
    },
    /// The broker has lost its work queues, or an older content is in their place.
    WorkLost,
    /// The broker will redeliver messages of these generations that it has delivered before.
    Rewound {
        messages: Vec<(ObserverId, u32)>,
    },
    /// A service gives a message back by itself.
    GivesBack {
        host: usize,
        id: ObserverId,
    },
    /// A service takes a command out of its queue.
    Heard {
        host: usize,
        command: Box<Command>,
    },
    /// A service asks the broker to open or cancel a consumer of work; the answer came.
    ConsumerChanging {
        host: usize,
    },
    ConsumerChanged {
        host: usize,
    },
    /// A row was committed. `request`: the number of the user request that caused it, if any.
    Saved {
        request: Option<u64>,
        before: Option<Box<Row>>,
        after: Box<Row>,
    },
    ServiceSaved {
        row: Box<ServiceRow>,
    },
    /// The database content was replaced by an older one.
    Restored,
    /// Safe mode was switched.
    SafeMode {
        on: bool,
    },
}

/// One start of code.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) number: u64,
    pub(crate) host: usize,
    pub(crate) id: ObserverId,
    pub(crate) epoch: Epoch,
    pub(crate) attempt: u32,
    /// Which edition of its spec this is.
    pub(crate) edition: u32,
}

thread_local! {
    static FACTS: RefCell<Vec<Fact>> = const { RefCell::new(Vec::new()) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn note(fact: Fact) {
    FACTS.with_borrow_mut(|facts| facts.push(fact));
}

/// Everything that was noted since the last call, in order.
pub(crate) fn take() -> Vec<Fact> {
    FACTS.take()
}

/// A number that no other start or request has.
pub(crate) fn number() -> u64 {
    NUMBER.replace(NUMBER.get() + 1)
}
