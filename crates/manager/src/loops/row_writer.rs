//! Changes of single rows that arrive at the same time share one transaction: its commit costs more than the rows.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use crate::context::row_saves::{RowSave, Saved};
use everwatch_core::id::ObserverId;
use everwatch_store::{Change, Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::debug;

const BATCH: usize = 500;

pub(crate) async fn run(manager: Arc<Manager>, mut saves: mpsc::Receiver<RowSave>) -> Result<(), RunError> {
    loop {
        let first = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            first = saves.recv() => first,
        };
        let Some(first) = first else { return Ok(()) };
        // While this batch is committed, the next one gathers.
        let batch = gather(first, &mut saves, BATCH, Duration::ZERO).await;
        let saved = save(manager.records.store.as_ref(), &batch).await;
        for (RowSave { answer, .. }, saved) in batch.into_iter().zip(saved) {
            if answer.send(saved).is_err() {
                debug!("a request left before its change was saved");
            }
        }
    }
}

/// One result for each save, in order. If the database refuses the batch, it may have refused a single row: each row is
/// then saved alone.
async fn save(store: &dyn Store, batch: &[RowSave]) -> Vec<Saved> {
    match save_together(store, batch).await {
        Err(StoreError::Refused(_) | StoreError::Corrupt(_)) if batch.len() > 1 => {
            let mut saved = Vec::with_capacity(batch.len());
            for one in batch {
                saved
                    .push(save_together(store, std::slice::from_ref(one)).await.map(|saved| saved == [true]));
            }
            saved
        }
        Ok(saved) => saved.into_iter().map(Ok).collect(),
        Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
    }
}

async fn save_together(store: &dyn Store, batch: &[RowSave]) -> Result<Vec<bool>, StoreError> {
    let changes: Vec<Change<'_>> =
        batch.iter().map(|it| Change { before: &it.before, after: &it.after }).collect();
    let mut lost: HashMap<ObserverId, usize> = HashMap::new();
    for id in store.save(&changes).await? {
        *lost.entry(id).or_default() += 1;
    }
    // Of several changes of one row, the store saves the first or none.
    let mut first_saved = HashSet::new();
    let mut asked: HashMap<ObserverId, usize> = HashMap::new();
    batch.iter().for_each(|it| *asked.entry(it.after.id).or_default() += 1);
    let saved = |it: &RowSave| {
        let id = it.after.id;
        lost.get(&id).copied().unwrap_or(0) < asked[&id] && first_saved.insert(id)
    };
    Ok(batch.iter().map(saved).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::id::Name;
    use everwatch_core::observer::definition::ObserverDefinition;
    use everwatch_core::record::row::Row;
    use everwatch_core::record::row_policy::RowPolicy;
    use everwatch_store::MemoryStore;
    use tokio::sync::oneshot;
    use uuid::Uuid;

    fn row(number: u128) -> Row {
        let name = Name::new(&format!("o{number}")).unwrap();
        let definition = serde_json::json!({"kind": "ticker", "on_full": "queue"});
        let definition = ObserverDefinition::parse(definition, &name).unwrap();
        Row::created(ObserverId(Uuid::from_u128(number)), definition, Timestamp(1), &RowPolicy::default())
    }
    fn change(before: &Row) -> RowSave {
        let after = Row { modified_at: Timestamp(2), ..before.clone() };
        RowSave { before: before.clone(), after, answer: oneshot::channel().0 }
    }

    #[tokio::test]
    async fn each_of_a_batch_hears_whether_its_own_change_was_saved() {
        let store = MemoryStore::new(RowPolicy::default());
        let rows: Vec<Row> = (1..=3).map(row).collect();
        everwatch_store::Observers::create(&store, &rows).await.unwrap();
        let late = Row { version: 7, ..rows[1].clone() };
        let unknown = row(9);
        let changes = [&rows[0], &late, &rows[0], &rows[2], &unknown];
        let batch: Vec<RowSave> = changes.map(change).into();
        let saved: Vec<bool> = save(&store, &batch).await.into_iter().map(|it| it.unwrap()).collect();
        assert_eq!(saved, [true, false, false, true, false]);
    }
}
