//! The status values and their reasons.

use crate::clock::Timestamp;
use crate::record::preemption::Preemption;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The status of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Waits for its `start_at`, its next window or the next time of its schedule.
    Scheduled,
    /// Accepted; no service has reported a run yet.
    Created,
    /// Runs on a service, or moves to the next one.
    Processing,
    /// Told to stop.
    OnDeleting,
    /// Deleted, and its last run has ended.
    Deleted,
    /// Paused by its user.
    Paused,
    /// Its code reported that it is done, or its `finish_at` has passed.
    Completed,
    /// It gave up.
    Failed,
}

impl Status {
    /// Every status, in the order of an observer's life cycle.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Created,
        Self::Processing,
        Self::OnDeleting,
        Self::Deleted,
        Self::Paused,
        Self::Completed,
        Self::Failed,
    ];

    /// Whether the observer stays ended until a user acts.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Deleted | Self::Completed | Self::Failed => true,
            Self::Scheduled | Self::Created | Self::Processing | Self::OnDeleting | Self::Paused => false,
        }
    }
    /// Whether the observer uses or awaits a slot.
    #[must_use]
    pub fn uses_slot(self) -> bool {
        match self {
            Self::Created | Self::Processing | Self::OnDeleting => true,
            Self::Scheduled | Self::Deleted | Self::Paused | Self::Completed | Self::Failed => false,
        }
    }
    /// The status as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Created => "Created",
            Self::Processing => "Processing",
            Self::OnDeleting => "OnDeleting",
            Self::Deleted => "Deleted",
            Self::Paused => "Paused",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("`{text}` is not a status: one of {words}")
        })
    }
}

/// A status and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub status: Status,
    pub reason: Reason,
}

/// Why an observer has its status; displayed as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Nothing to add.
    None,
    /// Its message is not in the broker yet.
    ToBePublished,
    /// It waits for its `start_at`, its next window or the next time of its schedule.
    StartsAt { at: Timestamp },
    /// It waits in the backlog of this pool, or its message is in the queue of this pool.
    WaitingForSlot { pool: String, weight: u16, preempted: Option<Preemption> },
    /// It waits for a place of this limit.
    WaitingForLimit { key: String },
    /// It waits for a slot, and its last message may still be there.
    WaitingForRelease,
    /// Delivered but not started.
    Held { why: String, refuses: bool },
    /// Its code was started and has not announced that it is ready.
    NotReady,
    /// Its code failed and will restart.
    Restarting { next_at: Timestamp },
    /// Its service no longer holds its message and has not reported why.
    Unlisted,
    /// It moves from one service to the next.
    Moving,
    /// No service that took it could run it.
    Refused { why: String },
    /// No service of its pool could run it. `is_out`: its message is withdrawn until one can; otherwise it is being
    /// withdrawn.
    NoServiceForKind { kind: String, pool: String, is_out: bool },
    /// Told to stop, not yet reported as stopped.
    Ending,
    /// Told to stop so that it can restart.
    StartingAnew { preempted: Option<Preemption> },
    /// Told to pause, not yet reported as stopped.
    Pausing,
    /// It ended at its `finish_at`.
    FinishedAt { at: Timestamp },
    /// It gave up.
    GaveUp { error: String, attempts: u32 },
    /// A manager failed it: it waited for a slot for too long.
    NotStarted { error: String },
    /// A manager failed it: no service could run it.
    RefusedTooLong { error: String },
    /// A manager quarantined it: it ended too many services.
    Quarantined { error: String },
}

impl Reason {
    /// Whether it waits in a queue until a service has room.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::WaitingForSlot { .. } | Self::Moving)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::StartsAt { at } => write!(f, "starts at {at}"),
            Self::FinishedAt { at } => write!(f, "ended at its finish_at, {at}"),
            Self::ToBePublished => f.write_str("to be published"),
            Self::WaitingForSlot { pool, preempted: Some(preempted), .. } => {
                write!(f, "waiting for a slot in pool {pool}: {preempted}")
            }
            Self::WaitingForSlot { pool, weight: 1, .. } => write!(f, "waiting for a slot in pool {pool}"),
            Self::WaitingForSlot { pool, weight, .. } => {
                write!(f, "waiting for {weight} free slots in pool {pool}")
            }
            Self::WaitingForLimit { key } => write!(f, "waiting for a place of limit {key}"),
            Self::WaitingForRelease => f.write_str("waiting until the message of its last run is gone"),
            Self::Held { why, .. } => write!(f, "held: {why}"),
            Self::NotReady => f.write_str("started, and not ready yet"),
            Self::Restarting { next_at } => write!(f, "restarting after an error, next attempt at {next_at}"),
            Self::Unlisted => f.write_str("its service does not have it any more: a manager searches for it"),
            Self::Moving => f.write_str("handed over, waiting for a slot"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::NoServiceForKind { kind, pool, .. } => {
                write!(f, "no active service of pool {pool} that runs kind {kind} has a free slot")
            }
            Self::Ending => f.write_str("told to stop, waiting for its service to report the end"),
            Self::StartingAnew { preempted: None } => f.write_str("told to stop, then restarts"),
            Self::StartingAnew { preempted: Some(preempted) } => write!(f, "told to stop: {preempted}"),
            Self::Pausing => f.write_str("pausing"),
            Self::NotStarted { error } | Self::RefusedTooLong { error } | Self::Quarantined { error } => {
                f.write_str(error)
            }
            Self::GaveUp { error, attempts: 1 } => write!(f, "gave up after 1 attempt: {error}"),
            Self::GaveUp { error, attempts } => write!(f, "gave up after {attempts} attempts: {error}"),
        }
    }
}
