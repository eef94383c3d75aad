//! Batches: many observers that one request creates, of which a limited number runs at once, and which are completed
//! together. The database holds everything that a batch knows, so any manager can take its next step.

mod actions;
mod pace;
mod step;
#[cfg(test)]
mod step_tests;

pub use actions::{BatchAction, NotNow};
pub use pace::{RATE_OVER, Sample};
pub use step::{Todo, beyond, step, todo};

use crate::clock::Timestamp;
use crate::id::{BatchId, LimitKey, Name, Namespace};
use crate::record::events::EventKind;
use crate::record::status::Status;
use crate::wire::batch::BatchCompleted;
use crate::wording::counted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The most members of a batch.
pub const MEMBERS_MAX: usize = 10_000;
/// The most batches that are not over.
pub const OPEN_MAX: usize = 100;
/// Batches that are over and are kept, the newest.
pub const ENDED_KEPT: usize = 100;
/// The members of batches that are over and are kept, together.
pub const ENDED_MEMBERS_KEPT: u64 = 200_000;
/// A request that creates members and has stored none for so long was cut off.
pub const INCOMPLETE_AFTER: Duration = Duration::from_secs(30);

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BatchState {
    /// A request stores its members.
    Creating,
    /// That request was cut off; the members that exist run.
    Incomplete,
    /// All members exist, and not all have ended.
    Running,
    /// All members have ended.
    Completed,
    /// A user cancelled it: managers delete the members that have not ended.
    Cancelling,
    /// It was cancelled, and all members have ended.
    Cancelled,
    /// Managers delete its members, and then the batch.
    Deleting,
}

impl BatchState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Creating,
        Self::Incomplete,
        Self::Running,
        Self::Completed,
        Self::Cancelling,
        Self::Cancelled,
        Self::Deleting,
    ];

    /// Whether it is over: it does not change until a user acts.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled => true,
            Self::Creating | Self::Incomplete | Self::Running | Self::Cancelling | Self::Deleting => false,
        }
    }

    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Incomplete => "Incomplete",
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Cancelling => "Cancelling",
            Self::Cancelled => "Cancelled",
            Self::Deleting => "Deleting",
        }
    }
}

impl fmt::Display for BatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The members that exist, by status.
pub type Counts = BTreeMap<Status, u32>;

/// The number of members that exist.
#[must_use]
pub fn existing(counts: &Counts) -> u32 {
    counts.values().sum()
}

/// The number of members that have ended: completed, failed or deleted.
#[must_use]
pub fn settled(counts: &Counts) -> u32 {
    counts.iter().filter(|(status, _)| status.is_final()).map(|(_, count)| count).sum()
}

/// A batch. Its serialized form is stored; `id`, `version` and `touched_at` are stored beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    #[serde(skip, default = "nil")]
    pub id: BatchId,
    /// Counts the changes: a save succeeds only on the version that was loaded.
    #[serde(skip)]
    pub version: i64,
    /// When its request last stored members, or began to.
    #[serde(skip, default = "zero")]
    pub touched_at: Timestamp,
    pub name: Name,
    /// That of its members.
    #[serde(default, skip_serializing_if = "Namespace::is_default")]
    pub namespace: Namespace,
    /// The number of its members, once all exist.
    pub total: u32,
    /// The most members that run at once; `None`: no limit of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    pub state: BatchState,
    /// Why it is incomplete, or who cancelled or retried it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user who created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// While its failed members are retried: those before this place have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_before: Option<u32>,
    /// How often it has completed.
    pub completions: u32,
    /// Completions that are not published yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<BatchCompleted>,
    /// How many members had ended at some times, the oldest first.
    pub samples: Vec<Sample>,
    /// Its members by status when it ended.
    pub counts: Counts,
}

fn nil() -> BatchId {
    BatchId(uuid::Uuid::nil())
}

fn zero() -> Timestamp {
    Timestamp(0)
}

impl Batch {
    /// The user whom events and versions name for the changes that it makes.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("batch {}", self.name)
    }

    /// Whether managers must look at it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.state.is_over() || !self.outbox.is_empty()
    }

    /// A text that no other batch that is not over has: its name, qualified by its namespace.
    #[must_use]
    pub fn name_key(&self) -> String {
        self.namespace.qualify(&self.name)
    }

    /// The key that its members count towards, if it limits them.
    #[must_use]
    pub fn limit_key(&self) -> Option<LimitKey> {
        self.max_running.map(|_| LimitKey::of_batch(self.id))
    }

    pub(crate) fn turn(&mut self, state: BatchState, reason: Option<String>, now: Timestamp) {
        (self.state, self.reason, self.modified_at) = (state, reason, now);
        self.ended_at = match state {
            BatchState::Deleting => self.ended_at,
            _ => state.is_over().then_some(now),
        };
    }

    /// The event of the change from `before`, with its text.
    #[must_use]
    pub fn event(&self, before: Option<&Self>) -> Option<(EventKind, String)> {
        let members = counted(self.total, "observer");
        let was = before.map(|it| it.state);
        if was == Some(self.state) {
            return None;
        }
        let kind = match self.state {
            BatchState::Creating if was.is_some() => return None,
            BatchState::Creating => EventKind::BatchCreated,
            BatchState::Incomplete => EventKind::BatchIncomplete,
            BatchState::Running if was == Some(BatchState::Completed) => EventKind::BatchRetried,
            BatchState::Running => return None,
            BatchState::Completed => EventKind::BatchCompleted,
            BatchState::Cancelling => EventKind::BatchCancelling,
            BatchState::Cancelled => EventKind::BatchCancelled,
            BatchState::Deleting => EventKind::BatchDeleted,
        };
        let text = match &self.reason {
            Some(reason) => format!("batch {}: {reason}", self.name),
            None => format!("batch {} of {members}", self.name),
        };
        Some((kind, text))
    }
}
