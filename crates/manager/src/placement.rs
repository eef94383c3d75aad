//! Takes messages that no service of their pool can run out of the queues, and publishes them again when one can.
//! [`everwatch_core::placement`] decides which.

use crate::shared::Manager;
use crate::telling;
use everwatch_core::message::Floor;
use everwatch_core::placement::{Placement, Refused};
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_store::StoreError;
use std::collections::HashSet;
use std::sync::Arc;
use tracing::info;

/// The most observers of one kind and pool that one pass changes; the next pass is a second later.
const AT_ONCE: u32 = 500;

pub(crate) async fn look(manager: &Arc<Manager>, services: &[ServiceRow]) -> Result<(), StoreError> {
    for refused in manager.store.refused().await? {
        match refused.placement(services) {
            Placement::Leave => {}
            Placement::Withdraw => {
                let rows =
                    changed(manager, &refused, AT_ONCE, |row, now| row.withdraw(now, &manager.settings.row));
                let rows = rows.await?;
                let floors: Vec<Floor> = rows.iter().map(Row::floor).collect();
                telling::floors(manager, &floors).await;
                tell(
                    &refused,
                    rows.len(),
                    "no service can run these observers: their messages leave the queue",
                );
            }
            Placement::Release(most) => {
                let rows = changed(manager, &refused, most.min(AT_ONCE), Row::release).await?;
                tell(&refused, rows.len(), "a service can run these observers: they are published again");
                if !rows.is_empty() {
                    // The next pass publishes them.
                    manager.wake.notify_one();
                }
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

/// Changes the oldest of a group; answers those that nobody else has changed meanwhile.
async fn changed(
    manager: &Arc<Manager>,
    refused: &Refused,
    most: u32,
    mut change: impl FnMut(&mut Row, everwatch_core::clock::Timestamp) -> bool,
) -> Result<Vec<Row>, StoreError> {
    let now = manager.clock.now();
    let before = manager.store.refused_rows(refused, usize::try_from(most).unwrap_or(usize::MAX)).await?;
    let mut pairs: Vec<(Row, Row)> = before.into_iter().map(|row| (row.clone(), row)).collect();
    pairs.retain_mut(|(_, row)| change(row, now));
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = pairs.iter().map(|(_, row)| row.clone()).collect();
    let lost: HashSet<_> = manager.store.save(&rows).await?.into_iter().collect();
    pairs.retain(|(_, row)| !lost.contains(&row.id));
    for (before, after) in &pairs {
        manager.tell(Some(before), after);
    }
    manager.note_change();
    Ok(pairs.into_iter().map(|(_, row)| row).collect())
}
