//! Group commit: saves that wait for the one connection that writes share its next transaction. A commit costs more than
//! the rows, because it waits for the disk.
//!
//! The obvious way gives the saves to a task of their own. A caller that no longer waits could then not take its save
//! back. Instead, the first caller that gets the connection saves for all that wait; if it leaves, its transaction is
//! rolled back, and another caller saves for the others.

use super::observers::save_within;
use crate::error_mapping::failure;
use crate::port::{Change, StoreError};
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use sqlx::{Sqlite, SqlitePool, Transaction};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A transaction takes no further saves beyond this number of rows.
const ROWS_MAX: usize = 500;

/// The ids of the rows that another writer has changed in the meantime.
type Outcome = Result<Vec<ObserverId>, StoreError>;

struct Waiting {
    changes: Vec<(Row, Row)>,
    answer: oneshot::Sender<Outcome>,
}

#[derive(Default)]
pub(super) struct GroupCommit(Mutex<VecDeque<Waiting>>);

impl GroupCommit {
    /// Saves these changes, together with others that wait.
    pub(super) async fn save(
        &self,
        writer: &SqlitePool,
        changes: &[Change<'_>],
        policy: &RowPolicy,
    ) -> Outcome {
        loop {
            let owned = changes.iter().map(|it| (it.before.clone(), it.after.clone())).collect();
            let (answer, mut outcome) = oneshot::channel();
            self.waiting().push_back(Waiting { changes: owned, answer });
            tokio::select! {
                biased;
                Ok(outcome) = &mut outcome => return outcome,
                led = self.lead(writer, policy) => led?,
            }
            // The caller that was saving this may have left before it was done.
            if let Ok(outcome) = outcome.await {
                return outcome;
            }
        }
    }

    /// Saves for all that wait; for none, if another caller has saved for them.
    async fn lead(&self, writer: &SqlitePool, policy: &RowPolicy) -> Result<(), StoreError> {
        let transaction = super::writing(writer).await?;
        let group = self.take();
        match save_all(transaction, &group, policy).await {
            Ok(late) => group.into_iter().zip(late).for_each(|(it, late)| it.answer(Ok(late))),
            // The database refuses one of them: each is saved alone.
            Err(_) if group.len() > 1 => {
                for it in group {
                    let alone =
                        save_all(super::writing(writer).await?, std::slice::from_ref(&it), policy).await;
                    it.answer(alone.map(|mut late| late.remove(0)));
                }
            }
            Err(error) => group.into_iter().for_each(|it| it.answer(Err(error.clone()))),
        }
        Ok(())
    }

    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let (mut group, mut rows) = (Vec::new(), 0);
        while rows < ROWS_MAX
            && let Some(next) = waiting.pop_front()
        {
            if !next.answer.is_closed() {
                rows += next.changes.len();
                group.push(next);
            }
        }
        group
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn answer(self, outcome: Outcome) {
        // The caller may have left meanwhile.
        let _left = self.answer.send(outcome);
    }
}

/// Saves a group in one transaction; one outcome for each save, in order.
async fn save_all(
    mut transaction: Transaction<'_, Sqlite>,
    group: &[Waiting],
    policy: &RowPolicy,
) -> Result<Vec<Vec<ObserverId>>, StoreError> {
    let mut late = Vec::with_capacity(group.len());
    for Waiting { changes, .. } in group {
        let changes: Vec<Change<'_>> =
            changes.iter().map(|(before, after)| Change { before, after }).collect();
        late.push(save_within(&mut transaction, &changes, policy).await?);
    }
    transaction.commit().await.map_err(failure)?;
    Ok(late)
}
