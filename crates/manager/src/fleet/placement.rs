//! Withdraws messages that no service of their pool can run, and returns their observers to the backlog when a service
//! can.
//! [`everwatch_core::capacity::placement`] decides which.

use crate::commit::{RowChange, Then, commit};
use crate::context::Manager;
use crate::context::records::Records;
use everwatch_core::capacity::admission::Selection;
use everwatch_core::capacity::kind_offer::offered_kinds;
use everwatch_core::capacity::placement::{Placement, Refused};
use everwatch_core::clock::Timestamp;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;
use std::sync::Arc;
use tracing::info;

/// The most observers of one kind and pool that one pass changes; the next pass is a second later.
const AT_ONCE: u32 = 500;

pub(crate) async fn look(manager: &Arc<Manager>, services: &[ServiceRow]) -> Result<(), StoreError> {
    withhold(manager, services).await?;
    for refused in manager.records.store.refused().await? {
        if refused.withdrawn && refused.is_offered(services) {
            let changes = changes(&manager.records, &refused, (AT_ONCE, Then::Tell), Row::readmit).await?;
            let count = commit(manager, changes).await?.len();
            tell(&refused, count, "returned observers to the backlog: a service offers their kind");
        }
        match refused.placement(services) {
            Placement::Leave => {}
            Placement::Withdraw => {
                let withdraw = |row: &mut Row, now| row.withdraw(now, &manager.settings.row);
                let changes = changes(&manager.records, &refused, (AT_ONCE, Then::Revoke), withdraw).await?;
                let count = commit(manager, changes).await?.len();
                tell(&refused, count, "no service can run these observers: their messages leave the queue");
            }
            Placement::Release(most) => {
                let changes =
                    changes(&manager.records, &refused, (most.min(AT_ONCE), Then::Tell), Row::release)
                        .await?;
                let count = commit(manager, changes).await?.len();
                tell(&refused, count, "returned observers to the backlog: a service can run them");
            }
        }
    }
    Ok(())
}

/// Takes waiting observers whose kind no living service of their pool offers out of the order: they need no slot.
async fn withhold(manager: &Arc<Manager>, services: &[ServiceRow]) -> Result<(), StoreError> {
    for (pool, count) in manager.records.store.waiting_pools().await?.pools {
        for kind in count.unoffered(&offered_kinds(services, &pool)) {
            let now = manager.records.clock.now();
            let first = Selection::of_any_weight(kind, AT_ONCE.into());
            let rows = manager.records.store.waiting(&pool, &first).await?;
            let changes = rows.into_iter().filter_map(|before| {
                let mut after = before.clone();
                after.withhold(now).then_some(RowChange { before, after, then: Then::Tell })
            });
            let count = commit(manager, changes.collect()).await?.len();
            if count > 0 {
                info!(%pool, kind = %first.kind, count, "withheld waiting observers: no service offers their kind");
            }
        }
    }
    Ok(())
}

fn tell(refused: &Refused, count: usize, what: &str) {
    if count > 0 {
        info!(pool = %refused.pool, kind = %refused.kind, count, "{what}");
    }
}

/// The changes of the oldest of a group.
async fn changes(
    records: &Records,
    refused: &Refused,
    (most, then): (u32, Then),
    mut change: impl FnMut(&mut Row, Timestamp) -> bool,
) -> Result<Vec<RowChange>, StoreError> {
    let now = records.clock.now();
    let rows = records.store.refused_rows(refused, usize::try_from(most).unwrap_or(usize::MAX)).await?;
    let changed = rows.into_iter().filter_map(|before| {
        let mut after = before.clone();
        change(&mut after, now).then_some(RowChange { before, after, then })
    });
    Ok(changed.collect())
}
