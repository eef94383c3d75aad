//! Renews the leases of publishes in progress while the session with the broker lives: an alarm may delay a confirm for
//! longer than a lease.

use crate::RunError;
use crate::context::Manager;
use crate::context::leases::BATCH;
use everwatch_core::id::ObserverId;
use everwatch_store::StoreError;
use std::collections::{HashMap, HashSet};
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
    let mut rows = manager.records.store.load(&ids).await?.rows;
    rows.retain_mut(|row| {
        let generation = generations.get(&row.id).copied().unwrap_or_default();
        row.renew(generation, now, &manager.settings.row)
    });
    if rows.is_empty() {
        return Ok(());
    }
    // A report has ended this publish, or another manager has taken it over.
    let lost: HashSet<ObserverId> = manager.records.store.save(&rows).await?.into_iter().collect();
    for row in rows.iter().filter(|row| !lost.contains(&row.id)) {
        manager.publishing.leases.renewed(row);
    }
    Ok(())
}
