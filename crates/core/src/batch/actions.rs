//! What users request of a batch.

use crate::batch::{Batch, BatchState};
use crate::clock::Timestamp;

/// A request of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchAction {
    /// The request that creates the members was sent again.
    Continue,
    RetryFailed,
    Cancel,
    Delete,
}

/// The state in which a batch refuses an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotNow(pub BatchState);

impl BatchAction {
    /// The past participle, for reasons.
    fn done(self) -> &'static str {
        match self {
            Self::Continue => "continued",
            Self::RetryFailed => "failed members retried",
            Self::Cancel => "cancelled",
            Self::Delete => "deleted",
        }
    }
}

impl Batch {
    /// Performs a request of the user `by`; returns whether that changed anything.
    ///
    /// # Errors
    /// If the state of the batch does not allow it: only a batch that is over can be deleted, and only one that is not can
    /// be cancelled.
    pub fn act(&mut self, action: BatchAction, by: Option<&str>, now: Timestamp) -> Result<bool, NotNow> {
        use BatchAction::{Cancel, Continue, Delete, RetryFailed};
        use BatchState::{Cancelled, Cancelling, Completed, Creating, Deleting, Incomplete, Running};
        let state = match (self.state, action) {
            (Creating | Running | Completed, Continue)
            | (Cancelling | Cancelled, Cancel)
            | (Deleting, Delete) => return Ok(false),
            (Incomplete, Continue) => Creating,
            (Running | Completed, RetryFailed) => Running,
            (Creating | Incomplete | Running, Cancel) => Cancelling,
            (Completed | Cancelled, Delete) => Deleting,
            (Cancelling | Cancelled | Deleting, Continue)
            | (Creating | Incomplete | Cancelling | Cancelled | Deleting, RetryFailed)
            | (Completed | Deleting, Cancel)
            | (Creating | Incomplete | Running | Cancelling, Delete) => return Err(NotNow(self.state)),
        };
        let reason = format!("{} by {}", action.done(), by.unwrap_or("a user"));
        self.turn(state, (action != Continue).then_some(reason), now);
        match action {
            Continue => self.touched_at = now,
            RetryFailed => {
                self.retried_before = Some(0);
                self.samples.clear();
            }
            Cancel => self.retried_before = None,
            Delete => {}
        }
        Ok(true)
    }
}
