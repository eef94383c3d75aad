//! The phases of a slot.

use super::CancelReason;
use crate::clock::Timestamp;
use crate::wire::command::{Cause, RevocationCause};
use crate::wire::report::RunEvent;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Without a cause, a later run replaces this one.
    Revocation(Option<RevocationCause>),
    /// Without a cause, the service ends.
    HandOver(Option<Cause>),
    /// Its attempt, which began at `since`, has run for its `attempt_timeout`, which is `after`.
    Timeout { since: Duration, after: Duration },
    /// Its `finish_at` has passed.
    Finish(Timestamp),
    /// Its window has closed.
    WindowClosed(Timestamp),
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Held, and its start is announced; it starts only after the broker has confirmed the announcement.
    Announced,
    /// Held; starts at that time.
    Waiting { until: Duration, attempt: u32, why: &'static str },
    Running {
        attempt: u32,
        since: Duration,
        /// The same by the wall clock, as it was reported: computed again from `since`, it may differ by a millisecond,
        /// and managers would take the second report for another start.
        started_at: Timestamp,
        /// Whether its code is ready, or its kind announces no readiness.
        is_ready: bool,
        /// When the attempt has run for its `attempt_timeout`.
        timeout_at: Option<Duration>,
    },
    /// It failed with this error; the next start, by the monotonic and by the wall clock.
    Backoff { attempt: u32, until: Duration, error: String, next_at: Timestamp },
    /// Told to stop; `abort_at` is `None` once it was aborted.
    Ending { attempt: u32, why: Why, abort_at: Option<Duration> },
    /// This service cannot run it; given back at that time.
    Refusing { until: Duration, why: String },
    /// Ended before its start: revoked, or because its time has passed, which is then `ends_at`. Settled at `until`, when
    /// an older run on another service has certainly ended.
    Over { until: Duration, ends_at: Option<Timestamp> },
    /// Its last report was sent and is not confirmed yet.
    Settling,
}

impl Why {
    pub(super) fn reason(self) -> CancelReason {
        match self {
            Self::Revocation(Some(RevocationCause::Deleted)) => CancelReason::Deleted,
            Self::Revocation(Some(RevocationCause::Paused)) => CancelReason::Paused,
            Self::Revocation(Some(RevocationCause::Restarted)) => CancelReason::Restarted,
            Self::Revocation(Some(RevocationCause::Other) | None) => CancelReason::Replaced,
            Self::HandOver(Some(Cause::Move | Cause::Rebalance | Cause::Other)) => CancelReason::Moved,
            Self::HandOver(Some(Cause::Drain | Cause::Resize | Cause::Stall | Cause::Memory) | None) => {
                CancelReason::Drained
            }
            Self::Timeout { .. } => CancelReason::TimedOut,
            Self::Finish(_) => CancelReason::Finished,
            Self::WindowClosed(_) => CancelReason::WindowClosed,
        }
    }
}

impl Phase {
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Waiting { until, .. }
            | Self::Backoff { until, .. }
            | Self::Refusing { until, .. }
            | Self::Over { until, .. } => Some(*until),
            Self::Ending { abort_at, .. } => *abort_at,
            Self::Running { timeout_at, .. } => *timeout_at,
            Self::Announced | Self::Settling => None,
        }
    }
}

/// The report of a start.
pub(super) fn started(attempt: u32, started_at: Timestamp, is_ready: bool) -> RunEvent {
    if is_ready {
        RunEvent::Started { attempt, started_at }
    } else {
        RunEvent::Starting { attempt, started_at }
    }
}
