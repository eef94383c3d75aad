//! The facts that events contribute to the timeline.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::record::events::EventKind;
use crate::wire::command::Cause as Reason;
use std::time::Duration;

/// A run, as an event names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub observer: ObserverId,
    pub service: ServiceId,
    pub epoch: Epoch,
}

/// A fact that an event contributes to the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A service started an observer.
    Started {
        run: Run,
        moved: Option<Moved>,
    },
    /// A service reported the end of a run.
    Ended {
        run: Run,
        /// Whether the observer continues elsewhere.
        moves: bool,
        /// Why the service handed it over, if it said so.
        why: Option<Reason>,
    },
    /// An observer that runs nowhere should not run now: a manager has settled it, or it waits for its next start time.
    AtRest {
        observer: ObserverId,
    },
    Registered {
        service: ServiceId,
        name: String,
    },
    /// A service has ended: it was lost, or it stopped.
    Gone {
        service: ServiceId,
        name: String,
        lost: bool,
        /// The last sign of life of a lost service, if it is known.
        heard_at: Option<Timestamp>,
        /// Why.
        text: String,
    },
    /// Any other event that explains the timeline.
    Mark(Mark),
}

/// The previous run of an observer that started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub from: ServiceId,
    pub gap: Duration,
    /// Whether the gap is an upper bound, because the previous run did not report its end.
    pub gap_is_bound: bool,
    pub overlap: Duration,
}

/// An event at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub at: Timestamp,
    /// The last sign of life of a lost service: the gaps of its observers begin then.
    pub since: Option<Timestamp>,
    pub kind: EventKind,
    /// The name of the service that it concerns.
    pub service: Option<String>,
    pub service_id: Option<ServiceId>,
    pub text: String,
}

impl Mark {
    pub(super) fn of_service(at: Timestamp, kind: EventKind, (id, name): (ServiceId, String)) -> Self {
        Self { at, since: None, kind, service: Some(name), service_id: Some(id), text: String::new() }
    }

    /// Whether the event means that a service may end or has ended.
    pub(super) fn is_of_life(&self) -> bool {
        matches!(
            self.kind,
            EventKind::ServiceSuspect
                | EventKind::ServiceLost
                | EventKind::ServiceGone
                | EventKind::ServiceCordoned
                | EventKind::ServiceDraining
        )
    }
}
