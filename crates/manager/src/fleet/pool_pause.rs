//! Pauses and resumes pools. Observers that have a slot in a paused pool keep it, and move to other services as usual.

use crate::context::pool_notes;
use crate::context::records::Records;
use everwatch_core::id::Pool;
use everwatch_core::record::events::EventKind;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::warn;

pub(crate) async fn is_paused(records: &Records, pool: &Pool) -> Result<bool, StoreError> {
    pool_notes::is_paused(records.store.as_ref(), pool).await
}

pub(crate) async fn set(records: &Records, pool: &Pool, paused: bool) -> Result<(), StoreError> {
    if !pool_notes::set_paused(records.store.as_ref(), pool, paused).await? {
        return Ok(());
    }
    // The next create and the next admission pass of this manager must know it.
    records.services(Duration::ZERO).await?;
    records.note_change();
    let kind = if paused { EventKind::PoolPaused } else { EventKind::PoolResumed };
    warn!(%pool, paused, "admission to a pool switched");
    records.events.tell_all(kind, format!("pool {pool}"));
    Ok(())
}
