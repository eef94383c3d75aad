//! Changes of single rows that arrive at the same time share one transaction.

use super::batches;
use crate::RunError;
use crate::context::Manager;
use crate::context::saves::Save;
use everwatch_core::id::ObserverId;
use everwatch_store::{Change, Store};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::debug;

pub(crate) async fn run(manager: Arc<Manager>, saves: mpsc::Receiver<Save>) -> Result<(), RunError> {
    let commit = |manager: Arc<Manager>, batch| async move {
        commit(manager.records.store.as_ref(), batch).await;
    };
    batches::run(manager, saves, commit).await
}

async fn commit(store: &dyn Store, batch: Vec<Save>) {
    let changes: Vec<Change<'_>> =
        batch.iter().map(|Save { before, after, .. }| Change { before, after }).collect();
    let unsaved = match store.save(&changes).await {
        Ok(unsaved) => unsaved,
        Err(error) => {
            // The channels close without an answer, so each request saves its row alone. A row that cannot be saved
            // then hinders no other.
            return debug!(%error, rows = batch.len(), "changes that share a transaction are not saved");
        }
    };
    let saved = saved(&changes, unsaved);
    for (save, saved) in batch.into_iter().zip(saved) {
        if save.answer.send(saved).is_err() {
            debug!("the request for this change ended before its answer");
        }
    }
}

/// Whether each change was saved. Of several changes of one row, only the first can be.
fn saved(changes: &[Change<'_>], unsaved: Vec<ObserverId>) -> Vec<bool> {
    let mut too_late: HashMap<ObserverId, usize> = HashMap::new();
    for id in unsaved {
        *too_late.entry(id).or_default() += 1;
    }
    let mut saved: Vec<bool> = changes
        .iter()
        .rev()
        .map(|change| match too_late.get_mut(&change.after.id) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect();
    saved.reverse();
    saved
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::record::row::Row;
    use everwatch_core::record::row_policy::RowPolicy;
    use uuid::Uuid;

    #[test]
    fn of_several_changes_of_one_row_only_the_first_is_saved() {
        let row = |number| {
            let definition =
                serde_json::from_str(r#"{"name": "a", "kind": "ticker", "spec": null}"#).unwrap();
            let id = ObserverId(Uuid::from_u128(number));
            Row::created(id, definition, everwatch_core::clock::now(), &RowPolicy::default())
        };
        let rows = [row(1), row(2), row(1), row(3), row(1)];
        let changes: Vec<_> = rows.iter().map(|row| Change { before: row, after: row }).collect();
        let id = |number| ObserverId(Uuid::from_u128(number));
        assert_eq!(saved(&changes, vec![]), [true; 5]);
        assert_eq!(saved(&changes, vec![id(1), id(1), id(3)]), [true, true, false, false, false]);
        assert_eq!(saved(&changes, vec![id(1), id(1), id(1)]), [false, true, false, true, false]);
    }
}
