//! Writes the results of publishes to the database, many at a time.

use super::gather::gather;
use crate::RunError;
use crate::commit::{CAS_TRIES, try_change_rows};
use crate::context::Manager;
use crate::context::publishing::{PublishResult, Published};
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::warn;

const BATCH: usize = 500;
/// A result is written this much later. An observer that starts at once reports its start before that, and then only
/// the report is written. This is far below a lease, and nothing waits for the result.
const GATHER: Duration = Duration::from_millis(250);

pub(crate) async fn run(
    manager: Arc<Manager>,
    mut published: mpsc::Receiver<Published>,
) -> Result<(), RunError> {
    loop {
        let first = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            first = published.recv() => first,
        };
        let Some(first) = first else { return Ok(()) };
        let batch = gather(first, &mut published, BATCH, GATHER).await;
        let batch = batch.into_iter().map(|it| (it.id, it)).collect();
        if let Err(error) = write_down(&manager, batch).await {
            // Any report of the generation, or the end of the lease, repairs this.
            warn!(%error, "the results of publishes could not be saved");
        }
    }
}

async fn write_down(manager: &Manager, mut batch: HashMap<ObserverId, Published>) -> Result<(), StoreError> {
    for _ in 0..CAS_TRIES {
        let ids: Vec<ObserverId> = batch.keys().copied().collect();
        let now = manager.records.clock.now();
        let written = |row: &mut Row| match batch.get(&row.id) {
            Some(Published { result: PublishResult::Confirmed, generation, at, .. }) => {
                row.confirmed(*generation, *at)
            }
            Some(Published { result: PublishResult::Unsure, generation, .. }) => {
                row.publish_unconfirmed(*generation, now, &manager.settings.row)
            }
            None => false,
        };
        let lost = try_change_rows(&manager.records, &ids, written).await?.lost;
        if lost.is_empty() {
            return Ok(());
        }
        batch.retain(|id, _| lost.contains(id));
    }
    Err(StoreError::Contended("the rows keep changing".to_owned()))
}
