//! What a manager does with a batch: the batch, its members by status and the time in, the changed batch and the work on
//! its members out.

use crate::batch::{
    Batch, BatchState, Counts, ENDED_KEPT, ENDED_MEMBERS_KEPT, INCOMPLETE_AFTER, existing, settled,
};
use crate::clock::Timestamp;
use crate::id::BatchId;
use crate::wire::batch::BatchCompleted;

/// The work of a manager on the members of a batch, a part at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Todo {
    Nothing,
    /// Publishes the completions in its outbox.
    Emit,
    /// Retries failed members, from this place on.
    Retry {
        from: u32,
    },
    /// Deletes the members that have not ended.
    End,
    /// Deletes the rows of its members, and then the batch.
    Remove,
}

/// The work that the state of the batch requires.
#[must_use]
pub fn todo(batch: &Batch) -> Todo {
    if !batch.outbox.is_empty() {
        return Todo::Emit;
    }
    match batch.state {
        BatchState::Running => batch.retried_before.map_or(Todo::Nothing, |from| Todo::Retry { from }),
        BatchState::Cancelling => Todo::End,
        BatchState::Deleting => Todo::Remove,
        BatchState::Creating | BatchState::Incomplete | BatchState::Completed | BatchState::Cancelled => {
            Todo::Nothing
        }
    }
}

/// The batch after its next step; `None` if nothing changes.
#[must_use]
pub fn step(batch: &Batch, counts: &Counts, now: Timestamp) -> Option<Batch> {
    let mut it = batch.clone();
    let (all, ended) = (existing(counts), settled(counts));
    match it.state {
        BatchState::Creating | BatchState::Incomplete if all == it.total => {
            it.turn(BatchState::Running, None, now);
            it.complete_if_settled(counts, now);
        }
        BatchState::Creating if now.since(it.touched_at) >= INCOMPLETE_AFTER => {
            let cure = "send it again with the same Idempotency-Key, or cancel the batch";
            let reason = format!("its request was cut off after {all} of {} members: {cure}", it.total);
            it.turn(BatchState::Incomplete, Some(reason), now);
        }
        BatchState::Running => it.complete_if_settled(counts, now),
        BatchState::Cancelling if ended == all => {
            let reason = it.reason.clone();
            it.turn(BatchState::Cancelled, reason, now);
            it.counts.clone_from(counts);
        }
        BatchState::Creating
        | BatchState::Incomplete
        | BatchState::Cancelling
        | BatchState::Completed
        | BatchState::Cancelled
        | BatchState::Deleting => {}
    }
    let sampled = it.ended_at.is_none() && it.sample(ended, now);
    (sampled || it.state != batch.state).then_some(it)
}

impl Batch {
    /// Completes once each member has ended. Members that are about to be retried have not.
    fn complete_if_settled(&mut self, counts: &Counts, now: Timestamp) {
        if self.retried_before.is_some() || settled(counts) < self.total {
            return;
        }
        self.turn(BatchState::Completed, None, now);
        self.counts.clone_from(counts);
        self.completions += 1;
        self.outbox.push(BatchCompleted {
            batch: self.id,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            completion: self.completions,
            members: self.total,
            counts: counts
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(status, count)| (status.as_str().to_owned(), *count))
                .collect(),
            created_at: self.created_at,
            completed_at: now,
        });
    }
}

/// The batches that are kept no longer, of those that are over, the newest first.
#[must_use]
pub fn beyond<'a>(over: impl Iterator<Item = &'a Batch>) -> Vec<BatchId> {
    let mut members = 0;
    let mut is_kept = |(place, batch): (usize, &Batch)| {
        members += u64::from(batch.total);
        place < ENDED_KEPT && (place == 0 || members <= ENDED_MEMBERS_KEPT)
    };
    over.enumerate().filter(|it| !is_kept(*it)).map(|(_, batch)| batch.id).collect()
}
