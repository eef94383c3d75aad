//! Ends runs so that observers of a higher priority get their slots, if the configuration says so.

use crate::RunError;
use crate::context::Manager;
use crate::fleet::{pool_pause, rebalance, safe_mode};
use crate::loops::sweep;
use crate::metric;
use crate::outgoing::commands;
use everwatch_core::capacity::preemption::{EVERY, Look, pause};
use everwatch_core::id::Pool;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// The maximum age of the cached services.
const SERVICES_AGE: Duration = Duration::from_secs(1);

/// Looks once a second. `after` is how long an observer must have waited for a slot.
pub(crate) async fn run(manager: Arc<Manager>, after: Duration) -> Result<(), RunError> {
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = pass(&manager, after).await {
            warn!(%error, "a look for runs to preempt failed");
        }
    }
}

async fn pass(manager: &Arc<Manager>, after: Duration) -> Result<(), StoreError> {
    if manager.link.open_session().is_none()
        || !manager.has_read()
        || safe_mode::is_on(&manager.records).await?
    {
        return Ok(());
    }
    for pool in manager.records.store.waiting_pools().await?.pools.keys() {
        // Managers admit no observer meanwhile, so a freed slot would stay free.
        if pool_pause::is_paused(&manager.records, pool).await?
            || rebalance::is_in_progress(&manager.records, pool).await?
        {
            continue;
        }
        preempt(manager, pool, after).await?;
    }
    Ok(())
}

async fn preempt(manager: &Arc<Manager>, pool: &Pool, after: Duration) -> Result<(), StoreError> {
    let records = &manager.records;
    let services = records.services(SERVICES_AGE).await?;
    let offers = records.offers(SERVICES_AGE).await?.get(pool).cloned().unwrap_or_default();
    let look = Look { pool, services: &services, offers: &offers, after, now: records.clock.now() };
    if !look.may_end_runs() {
        return Ok(());
    }
    // The note limits how many runs all managers end in a minute.
    let (note, turn) = (format!("preemption/{pool}"), uuid::Uuid::new_v4().to_string());
    if records.store.claim(&note, &turn, EVERY).await? != turn {
        return Ok(());
    }
    let preempted = records.store.preempt(&look).await?;
    if preempted.is_empty() {
        return Ok(());
    }
    let recalled = preempted.iter().filter(|it| it.recalled).count();
    let ended = preempted.len() - recalled;
    metrics::counter!(metric::PREEMPTIONS).increment(ended as u64);
    info!(%pool, ended, recalled, "observers give their slots to others of a higher priority");
    for it in &preempted {
        records.events.tell(Some(&it.before), &it.after);
        commands::revoke_later(manager, &it.after);
    }
    records.note_change();
    records.store.set_note(&note, &turn, pause(&preempted)).await?;
    if recalled > 0 { sweep::recall(manager, pool).await } else { Ok(()) }
}
