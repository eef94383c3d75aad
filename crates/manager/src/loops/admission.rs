//! Admits observers that wait for a slot. A pass has no input: a change of the database only makes the next one start
//! sooner, and the pass that every manager makes once a second admits what another manager or a lost wake-up left.

use crate::RunError;
use crate::commit::publish_rows;
use crate::context::Manager;
use crate::fleet::{limits, pool_pause, rebalance, safe_mode};
use crate::loops::changes::after_changes;
use crate::metric;
use everwatch_core::capacity::admission::{Offers, PoolCount};
use everwatch_core::id::Pool;
use everwatch_core::record::row::Row;
use everwatch_store::{Admission, Decided, StoreError, WaitingPools};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The shortest time between two passes, and after one that found no waiting observer. While many observers change, each
/// commit would otherwise cause a pass.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_IF_NONE_WAITS: Duration = Duration::from_millis(50);
/// The most observers that one transaction admits.
const BATCH: u64 = 500;
/// The maximum age of the cached services. What a new service offers is read at once if slots are free.
const SERVICES_AGE: Duration = Duration::from_secs(1);
const SERVICES_AGE_IF_FREE: Duration = Duration::from_millis(100);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    after_changes(&manager, "admission of waiting observers failed; retrying", || async {
        let passed = pass(&manager).await;
        let waits = *passed.as_ref().unwrap_or(&true);
        (passed.map(drop), if waits { PAUSE } else { PAUSE_IF_NONE_WAITS })
    })
    .await
}

/// Returns whether observers wait.
async fn pass(manager: &Arc<Manager>) -> Result<bool, StoreError> {
    if manager.link.open_session().is_none() || !manager.has_read() {
        return Ok(false);
    }
    let WaitingPools { pools, limits_changed } = manager.records.store.waiting_pools().await?;
    let mut goes_on = false;
    for (pool, count) in &pools {
        goes_on |= admit(manager, pool, count).await?;
    }
    if limits_changed {
        goes_on |= limits::look(manager).await?;
    }
    if goes_on {
        // Some observers now wait for a slot instead of a place; others may have left a place of another limit to the next.
        manager.records.note_change();
    }
    Ok(goes_on || !pools.is_empty())
}

/// Returns whether observers went behind a limit.
async fn admit(manager: &Arc<Manager>, pool: &Pool, count: &PoolCount) -> Result<bool, StoreError> {
    if count.open() <= 0 || rebalance::is_in_progress(&manager.records, pool).await? {
        return Ok(false);
    }
    let Some(offers) = offers_with_room(manager, pool, count).await? else { return Ok(false) };
    let mut went_behind = false;
    let holds_restored = safe_mode::is_on(&manager.records).await?;
    while manager.publishing.leases.have_room() && !pool_pause::is_paused(&manager.records, pool).await? {
        let now = manager.records.clock.now();
        let admission = Admission { pool, offers: &offers, now, holds_restored, most: BATCH };
        let decided = manager.records.store.admit(&admission).await?;
        let (admitted, behind): (Vec<Decided>, Vec<Decided>) =
            decided.into_iter().partition(|it| it.after.behind.is_none());
        let count = admitted.len() as u64;
        behind.iter().for_each(|it| manager.records.events.tell(Some(&it.before), &it.after));
        publish(manager, admitted).await;
        went_behind |= !behind.is_empty();
        if count < BATCH && behind.is_empty() {
            break;
        }
        debug!(%pool, count, behind = behind.len(), "admitted a batch of waiting observers");
    }
    Ok(went_behind)
}

/// What the services of the pool offer, if that is a slot for an observer that waits.
async fn offers_with_room(
    manager: &Manager,
    pool: &Pool,
    count: &PoolCount,
) -> Result<Option<Offers>, StoreError> {
    for age in [SERVICES_AGE, SERVICES_AGE_IF_FREE] {
        let offers = manager.records.offers(age).await?.get(pool).cloned().unwrap_or_default();
        if !count.selections(&offers, BATCH).is_empty() {
            return Ok(Some(offers));
        }
    }
    Ok(None)
}

/// Tells the events of saved admissions, and publishes the rows.
async fn publish(manager: &Arc<Manager>, admitted: Vec<Decided>) {
    if admitted.is_empty() {
        return;
    }
    metrics::counter!(metric::ADMISSIONS).increment(admitted.len() as u64);
    for Decided { before, after } in &admitted {
        if let Some(waiting) = before.waiting {
            let waited = after.modified_at.since(waiting.since);
            metrics::histogram!(metric::WAITED).record(waited.as_secs_f64());
        }
        manager.records.events.tell(Some(before), after);
    }
    manager.records.note_change();
    publish_rows(manager, admitted.into_iter().map(|it| it.after).collect::<Vec<Row>>()).await;
}
