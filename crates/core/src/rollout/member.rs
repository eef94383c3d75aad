//! One observer in a rollout.

use crate::id::{Name, ObserverId};
use crate::rollout::judge::Watch;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Not changed yet.
    Pending,
    /// Changed, and not yet healthy.
    Changed,
    /// Changed, and healthy or not meant to run.
    Done,
    /// Left alone: it was edited or deleted by others, or the patch changes nothing.
    Skipped,
    /// It did not become healthy, or its patched definition is not valid.
    Failed,
    /// Its recorded version is restored, and it does not run with it yet.
    Reverting,
    /// Its recorded version is restored.
    Reverted,
}

impl MemberState {
    /// Every state, in the order of a rollout.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Changed,
        Self::Done,
        Self::Skipped,
        Self::Failed,
        Self::Reverting,
        Self::Reverted,
    ];

    /// Whether the rollout is over for this member.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Changed | Self::Reverting => false,
            Self::Done | Self::Skipped | Self::Failed | Self::Reverted => true,
        }
    }

    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Changed => "changed",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Reverting => "reverting",
            Self::Reverted => "reverted",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MemberState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("`{text}` is not a state of a member: one of {words}")
        })
    }
}

/// A member of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The order in which members are changed, from 0.
    pub place: u32,
    pub observer: ObserverId,
    pub name: Name,
    /// The version of its definition when the rollout started.
    pub version: u32,
    /// The version that the rollout has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_to: Option<u32>,
    pub state: MemberState,
    /// Why it has its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is known of its run since it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

impl Member {
    /// A member that is not changed yet.
    #[must_use]
    pub fn pending(place: u32, observer: ObserverId, name: Name, version: u32) -> Self {
        let (changed_to, reason, watch) = (None, None, None);
        Self { place, observer, name, version, changed_to, state: MemberState::Pending, reason, watch }
    }

    /// Whether it has the definition that the rollout has made.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        use MemberState::{Changed, Done, Failed};
        matches!(self.state, Changed | Done | Failed) && self.changed_to.is_some()
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.reason.clone().filter(|_| self.state == MemberState::Failed && self.changed_to.is_some())
    }

    pub(crate) fn turned(&self, state: MemberState, reason: Option<String>) -> Self {
        Self { state, reason, ..self.clone() }
    }
}
