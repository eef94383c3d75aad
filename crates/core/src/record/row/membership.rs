//! The batch of an observer.

use crate::id::BatchId;
use crate::record::row::Row;
use serde::{Deserialize, Serialize};

/// An observer is a member of a batch. It is kept as long as the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub batch: BatchId,
    /// Its place in the request that created the batch, from 0.
    pub place: u32,
}

impl Row {
    /// Whether it has ended for good, and its message is gone: its batch may be deleted with it.
    #[must_use]
    pub fn may_leave_batch(&self) -> bool {
        self.ended_at.is_some() && !self.awaits_release()
    }
}
