//! Renews the leases of publishes in progress while the session with the broker lives: an alarm may delay a confirm for
//! longer than a lease.

use crate::RunError;
use crate::commit::try_change_rows;
use crate::context::Manager;
use crate::context::leases::BATCH;
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use tracing::warn;

/// Looks at the leases in the time of one.
const LOOKS: u32 = 6;

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let every = manager.settings.row.lease / LOOKS;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        // Without a session nothing of this can succeed here; another manager may be better off.
        if manager.link.session.get().is_none() {
            continue;
        }
        let ending = manager.publishing.leases.ending(manager.records.clock.now(), &manager.settings.row);
        for batch in ending.chunks(BATCH) {
            if let Err(error) = renew(&manager, batch).await {
                warn!(%error, "leases of publishes could not be renewed");
                break;
            }
        }
    }
}

async fn renew(manager: &Manager, batch: &[(ObserverId, u32)]) -> Result<(), StoreError> {
    let generations: HashMap<ObserverId, u32> = batch.iter().copied().collect();
    let ids: Vec<ObserverId> = generations.keys().copied().collect();
    let now = manager.records.clock.now();
    let renew = |row: &mut Row| {
        let generation = generations.get(&row.id).copied().unwrap_or_default();
        row.renew(generation, now, &manager.settings.row)
    };
    // The others: a report has ended the publish, or another manager has taken it over.
    for row in &try_change_rows(&manager.records, &ids, renew).await?.saved {
        manager.publishing.leases.renewed(row);
    }
    Ok(())
}
