//! Rollouts: one patch for many observers, a few at a time, stopped by the first that does not become healthy. The
//! database holds everything that a rollout knows, so any manager can take its next step.

mod actions;
mod judge;
mod member;
mod step;
#[cfg(test)]
mod step_tests;

pub use actions::{NotNow, RolloutAction};
pub use judge::{RunsSince, Watch};
pub use member::{Member, MemberState};
pub use step::{Checks, MemberStep, Seen, Step, step};

use crate::clock::{Timestamp, friendly};
use crate::id::{Name, RolloutId};
use crate::record::events::EventKind;
use crate::wording::counted;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The most members of a rollout.
pub const MEMBERS_MAX: usize = 10_000;
/// The highest `max_parallel`: managers read that many members and their observers once a second.
pub const PARALLEL_MAX: u32 = 1000;
/// The shortest `healthy_for`: managers look once a second.
pub const HEALTHY_FOR_MIN: Duration = Duration::from_secs(1);
/// The longest `healthy_for` and `timeout`.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most rollouts that are not over.
pub const OPEN_MAX: usize = 100;
/// Rollouts that are over and are kept, the newest.
pub const ENDED_KEPT: usize = 100;

/// What a manager does with a rollout when a member fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    Pause,
    Revert,
}

/// The state of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RolloutState {
    /// Managers change its members.
    Running,
    /// Managers change nothing until a user resumes, reverts or cancels it.
    Paused,
    /// Managers restore the recorded versions of the members that it has changed.
    Reverting,
    /// Each member is done or skipped.
    Completed,
    /// The recorded versions are restored.
    Reverted,
    /// A user ended it. The members that it had changed stay changed.
    Cancelled,
}

impl RolloutState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Paused, Self::Reverting, Self::Completed, Self::Reverted, Self::Cancelled];

    /// Whether the rollout is over: it never changes again, and its members may join another one.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Running | Self::Paused | Self::Reverting => false,
            Self::Completed | Self::Reverted | Self::Cancelled => true,
        }
    }

    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Reverting => "Reverting",
            Self::Completed => "Completed",
            Self::Reverted => "Reverted",
            Self::Cancelled => "Cancelled",
        }
    }
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A rollout. Its serialized form is stored; `id` and `version` are stored beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    #[serde(skip, default = "nil")]
    pub id: RolloutId,
    /// Counts the changes: a save succeeds only on the version that was loaded.
    #[serde(skip)]
    pub version: i64,
    pub name: Name,
    /// Which observers it has taken, as its user wrote it.
    pub selector: Value,
    /// A merge patch (RFC 7396) of definitions.
    pub patch: Value,
    /// The most members that are changed and not yet healthy.
    pub max_parallel: u32,
    /// How long a changed member must run without an error.
    #[serde(with = "friendly")]
    pub healthy_for: Duration,
    /// How long a changed member may take to become healthy.
    #[serde(with = "friendly")]
    pub timeout: Duration,
    pub on_failure: OnFailure,
    pub state: RolloutState,
    /// Why it paused, reverts, or has ended before its last member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    /// When it was last resumed: the timeouts of its members begin again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Its members by state.
    pub counts: BTreeMap<MemberState, u32>,
}

fn nil() -> RolloutId {
    RolloutId(uuid::Uuid::nil())
}

impl Rollout {
    /// The user whom events and versions name for the changes that it makes.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("rollout {}", self.name)
    }

    /// All members.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.counts.values().sum()
    }

    /// The members in this state.
    #[must_use]
    pub fn count(&self, state: MemberState) -> u32 {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    /// Members have changed their states.
    pub fn recount<'a>(&mut self, saved: impl Iterator<Item = &'a MemberStep>) {
        for MemberStep { before, after, .. } in saved {
            let from = self.counts.entry(before.state).or_default();
            *from = from.saturating_sub(1);
            *self.counts.entry(after.state).or_default() += 1;
        }
        self.counts.retain(|_, count| *count > 0);
    }

    pub(crate) fn turn(&mut self, state: RolloutState, reason: Option<String>, now: Timestamp) {
        (self.state, self.reason, self.modified_at) = (state, reason, now);
        if state.is_over() {
            self.ended_at = Some(now);
        }
    }

    /// The event of the change from `before`, with its text.
    #[must_use]
    pub fn event(&self, before: Option<&Self>) -> Option<(EventKind, String)> {
        let members = counted(self.total(), "observer");
        let Some(before) = before else {
            return Some((EventKind::RolloutStarted, format!("rollout {} of {members}", self.name)));
        };
        if before.state == self.state {
            return None;
        }
        let kind = match self.state {
            RolloutState::Running => EventKind::RolloutResumed,
            RolloutState::Paused => EventKind::RolloutPaused,
            RolloutState::Reverting => EventKind::RolloutReverting,
            RolloutState::Completed => EventKind::RolloutFinished,
            RolloutState::Reverted => EventKind::RolloutReverted,
            RolloutState::Cancelled => EventKind::RolloutCancelled,
        };
        let text = match &self.reason {
            Some(reason) => format!("rollout {}: {reason}", self.name),
            None => format!("rollout {} of {members}", self.name),
        };
        Some((kind, text))
    }
}
