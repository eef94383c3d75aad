//! Admits observers that wait for a slot. A pass has no input: a change of the database only makes the next one start
//! sooner, and the pass that every manager makes once a second admits what another manager or a lost wake-up left.

use crate::RunError;
use crate::commit::publish_rows;
use crate::context::Manager;
use crate::fleet::{rebalance, safe_mode};
use crate::metric;
use everwatch_core::capacity::admission::{PoolCount, offers};
use everwatch_core::id::Pool;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::{Admission, Admitted, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

const EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two passes. While many observers change, each commit would otherwise cause one.
const PAUSE: Duration = Duration::from_millis(10);
/// The most observers that one transaction admits.
const BATCH: u64 = 500;
/// The maximum age of the cached services. What a new service offers is read at once if slots are free.
const SERVICES_AGE: Duration = Duration::from_secs(1);
const SERVICES_AGE_IF_FREE: Duration = Duration::from_millis(100);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut changes = manager.records.changes();
    let mut failing = false;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            _ = changes.changed() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
        changes.mark_unchanged();
        let passed = pass(&manager).await;
        if let Err(error) = &passed
            && !failing
        {
            warn!(%error, "admission of waiting observers failed; retrying");
        }
        failing = passed.is_err();
        tokio::time::sleep(PAUSE).await;
    }
}

async fn pass(manager: &Arc<Manager>) -> Result<(), StoreError> {
    if manager.link.open_session().is_none() || !manager.has_read() {
        return Ok(());
    }
    let pools = manager.records.store.waiting_pools().await?;
    for (pool, count) in pools {
        admit(manager, &pool, &count).await?;
    }
    Ok(())
}

async fn admit(manager: &Arc<Manager>, pool: &Pool, count: &PoolCount) -> Result<(), StoreError> {
    if count.open() <= 0 || rebalance::is_in_progress(&manager.records, pool).await? {
        return Ok(());
    }
    let Some(services) = services_with_room(manager, pool, count).await? else { return Ok(()) };
    let offers = offers(&services, pool);
    let holds_restored = safe_mode::is_on(&manager.records).await?;
    while manager.publishing.leases.have_room() {
        let now = manager.records.clock.now();
        let admission = Admission { pool, offers: &offers, now, holds_restored, most: BATCH };
        let admitted = manager.records.store.admit(&admission).await?;
        let count = admitted.len() as u64;
        publish(manager, admitted).await;
        if count < BATCH {
            break;
        }
        debug!(%pool, count, "admitted a batch of waiting observers");
    }
    Ok(())
}

/// The services of the pool, if one of them offers a kind that an observer waits for.
async fn services_with_room(
    manager: &Manager,
    pool: &Pool,
    count: &PoolCount,
) -> Result<Option<Arc<Vec<ServiceRow>>>, StoreError> {
    for age in [SERVICES_AGE, SERVICES_AGE_IF_FREE] {
        let services = manager.records.services(age).await?;
        if !count.room(&offers(&services, pool), BATCH).is_empty() {
            return Ok(Some(services));
        }
    }
    Ok(None)
}

/// Tells the events of saved admissions, and publishes the rows.
async fn publish(manager: &Arc<Manager>, admitted: Vec<Admitted>) {
    if admitted.is_empty() {
        return;
    }
    metrics::counter!(metric::ADMISSIONS).increment(admitted.len() as u64);
    for Admitted { before, after } in &admitted {
        if let Some(waiting) = before.waiting {
            let waited = after.modified_at.since(waiting.since);
            metrics::histogram!(metric::WAITED).record(waited.as_secs_f64());
        }
        manager.records.events.tell(Some(before), after);
    }
    manager.records.note_change();
    publish_rows(manager, admitted.into_iter().map(|it| it.after).collect::<Vec<Row>>()).await;
}
