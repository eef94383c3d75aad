//! Changes of single rows that arrive at the same time share one transaction.

use super::batches;
use crate::RunError;
use crate::context::Manager;
use crate::context::saves::Save;
use everwatch_store::{Change, Store};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::debug;

/// While one transaction commits, the next one is filled.
const IN_FLIGHT: usize = 2;

pub(crate) async fn run(manager: Arc<Manager>, saves: mpsc::Receiver<Save>) -> Result<(), RunError> {
    let commit = |manager: Arc<Manager>, batch| async move {
        commit(manager.records.store.as_ref(), batch).await;
    };
    batches::run(manager, saves, IN_FLIGHT, commit).await
}

async fn commit(store: &dyn Store, batch: Vec<Save>) {
    // The obvious way gives all changes of a row to the store, which saves one of them. But the list of ids that it returns
    // does not tell which one: once, a delete was taken for saved when it was a pause that was.
    let mut ids = HashSet::new();
    let (firsts, too_late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|save| ids.insert(save.after.id));
    too_late.into_iter().for_each(|save| save.answer(false));
    let changes: Vec<Change<'_>> =
        firsts.iter().map(|Save { before, after, .. }| Change { before, after }).collect();
    match store.save(&changes).await {
        Ok(unsaved) => {
            for save in firsts {
                let saved = !unsaved.contains(&save.after.id);
                save.answer(saved);
            }
        }
        // The channels close without an answer, so each request saves its row alone. A row that cannot be saved then
        // hinders no other.
        Err(error) => debug!(%error, rows = firsts.len(), "changes that share a transaction are not saved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::id::ObserverId;
    use everwatch_core::record::row::Row;
    use everwatch_core::record::row_policy::RowPolicy;
    use everwatch_store::{MemoryStore, Observers as _};
    use tokio::sync::oneshot;
    use uuid::Uuid;

    fn row(number: u128) -> Row {
        let definition = format!(r#"{{"name": "o{number}", "kind": "ticker", "spec": null}}"#);
        let definition = serde_json::from_str(&definition).unwrap();
        let id = ObserverId(Uuid::from_u128(number));
        Row::created(id, definition, everwatch_core::clock::now(), &RowPolicy::default()).created_paused()
    }
    /// A change that was decided on this version of the row, and the answer to it.
    fn change(before: &Row) -> (Save, oneshot::Receiver<bool>) {
        let (answer, saved) = oneshot::channel();
        let after =
            Row { modified_at: before.modified_at.plus(std::time::Duration::from_secs(1)), ..before.clone() };
        (Save { before: before.clone(), after, answer }, saved)
    }

    /// Whatever the order of stale and fresh changes of one row: each answer says whether that change was saved.
    #[tokio::test]
    async fn each_change_learns_whether_it_was_saved() {
        for stale in [[false, false, false], [true, false, false], [false, true, false], [true, true, true]] {
            let store = MemoryStore::new(RowPolicy::default());
            let (one, other) = (row(1), row(2));
            store.create(&[one.clone(), other.clone()], &Default::default()).await.unwrap();
            let of =
                |is_stale: bool| change(&Row { version: one.version - i64::from(is_stale), ..one.clone() });
            let (mut batch, mut answers): (Vec<_>, Vec<_>) = stale.map(of).into_iter().unzip();
            let (alone, alone_saved) = change(&other);
            batch.insert(1, alone);
            commit(&store, batch).await;
            assert!(alone_saved.await.unwrap(), "another row");
            let saved: Vec<bool> = answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect();
            let version = store.load(&[one.id]).await.unwrap().rows[0].version;
            let saves = i64::try_from(saved.iter().filter(|saved| **saved).count()).unwrap();
            assert_eq!(version, one.version + saves, "{stale:?}: {saved:?}");
            assert!(
                saved.iter().zip(stale).all(|(saved, is_stale)| !(*saved && is_stale)),
                "{stale:?}: {saved:?}"
            );
        }
    }
}
