//! What users request of a rollout.

use crate::clock::Timestamp;
use crate::rollout::{Rollout, RolloutState};

/// A request of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutAction {
    Pause,
    Resume,
    Revert,
    Cancel,
}

/// The state in which a rollout refuses an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotNow(pub RolloutState);

impl RolloutAction {
    /// The past participle, for reasons.
    fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Revert => "reverted",
            Self::Cancel => "cancelled",
        }
    }
}

impl Rollout {
    /// Performs a request of the user `by`; returns whether that changed anything.
    ///
    /// # Errors
    /// If the rollout is over, or is being reverted: then it can only be cancelled.
    pub fn act(&mut self, action: RolloutAction, by: Option<&str>, now: Timestamp) -> Result<bool, NotNow> {
        use RolloutAction::{Cancel, Pause, Resume, Revert};
        use RolloutState::{Cancelled, Completed, Paused, Reverted, Reverting, Running};
        let state = match (self.state, action) {
            (Running, Resume) | (Paused, Pause) | (Reverting, Revert) => return Ok(false),
            (Running, Pause) => Paused,
            (Paused, Resume) => Running,
            (Running | Paused, Revert) => Reverting,
            (Running | Paused | Reverting, Cancel) => Cancelled,
            (Reverting, Pause | Resume) | (Completed | Reverted | Cancelled, _) => {
                return Err(NotNow(self.state));
            }
        };
        let by = by.map_or_else(
            || format!("{} by a user", action.done()),
            |by| format!("{} by {by}", action.done()),
        );
        let reason = (action != Resume).then_some(by);
        self.turn(state, reason, now);
        if action == Resume {
            self.resumed_at = Some(now);
        }
        Ok(true)
    }
}
