//! Declares the work queues of pools.

use crate::context::Manager;
use crate::context::pool_notes;
use crate::context::records::Records;
use everwatch_broker::{BrokerError, Declared, QueueKind, Session};
use everwatch_core::capacity::pool_use::MissingQueue;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Pool;
use everwatch_core::record::events::EventKind;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::{debug, warn};

/// How long the note about a new queue waits for a manager.
const NOTE_KEPT: Duration = Duration::from_secs(3600);
/// A service reports that it created a queue after it did so, by its own clock: messages that were published up to this time before count
/// as in the new queue.
const REPORT_SLACK: Duration = Duration::from_secs(1);

/// Makes sure that the work queue of a pool exists, once per session.
pub(crate) async fn ensure(manager: &Manager, session: &dyn Session, pool: &Pool) -> Result<(), BrokerError> {
    if manager.link.pools.is_declared(pool) {
        return Ok(());
    }
    declare(manager, session, pool).await
}

/// Declares the work queue of a pool.
pub(crate) async fn declare(
    manager: &Manager,
    session: &dyn Session,
    pool: &Pool,
) -> Result<(), BrokerError> {
    let queue = manager.link.topology.work(pool);
    let before = manager.records.clock.now();
    let declared = match session.declare(&queue, &kind(&manager.records, pool)).await {
        Err(BrokerError::Refused(why)) if has_become_single(&manager.records, pool).await => {
            debug!(%pool, why, "another manager or a service has created the pool as a single one");
            session.declare(&queue, &QueueKind::SingleActive).await
        }
        declared => declared,
    };
    // The first to declare a queue after the broker lost its data creates it, and reports that: a service does, and so
    // must a manager. Without the note each observer is missed on its own, minutes later.
    if declared? == Declared::Created {
        manager.records.events.tell_all(EventKind::WorkQueueCreated, format!("pool {pool}"));
        if let Err(error) = note_created(&manager.records, pool, before).await {
            warn!(%pool, %error, "failed to record the re-creation of the work queue");
        }
    }
    manager.link.pools.on_declared(pool);
    Ok(())
}

/// Acts on a work queue that has gone: declares it again, because the broker user of the services may not do so, or forgets
/// the pool, as the use of the pool decides.
pub(crate) async fn on_missing(
    manager: &Manager,
    session: &dyn Session,
    pool: &Pool,
) -> Result<(), StoreError> {
    match manager.pool_use(pool).await?.on_missing_queue() {
        MissingQueue::Declare => {
            if let Err(error) = declare(manager, session, pool).await {
                warn!(%pool, %error, "a work queue that has gone could not be declared again");
            }
        }
        MissingQueue::Keep => {}
        MissingQueue::Forget => manager.link.pools.forget(pool),
    }
    Ok(())
}

/// How the work queue of a pool is declared.
pub(crate) fn kind(records: &Records, pool: &Pool) -> QueueKind {
    if records.is_single(pool) { QueueKind::SingleActive } else { QueueKind::Durable { max_length: None } }
}

/// Whether the pool is single, as the database says now, and was not known as such.
async fn has_become_single(records: &Records, pool: &Pool) -> bool {
    if records.is_single(pool) || records.services(Duration::ZERO).await.is_err() || !records.is_single(pool)
    {
        return false;
    }
    // A service may be the first to say so. The pool must stay single when none of its services lives.
    if let Err(error) = pool_notes::set_single(records.store.as_ref(), pool).await {
        warn!(%pool, %error, "failed to record that the pool is single");
    }
    true
}

/// Notes that a service created the work queue of a pool.
pub(crate) async fn note_report(records: &Records, pool: &Pool, at: Timestamp) -> Result<(), StoreError> {
    // The clock of the service may be ahead.
    note_created(records, pool, at.min(records.clock.now()).minus(REPORT_SLACK)).await
}

/// Notes that the work queue of a pool was created: the messages that were published before `at` are gone. The note is kept until a manager
/// has acted on it.
async fn note_created(records: &Records, pool: &Pool, at: Timestamp) -> Result<(), StoreError> {
    records.store.set_note(&note(pool), &at.0.to_string(), NOTE_KEPT).await
}

/// The key of that note.
pub(crate) fn note(pool: &Pool) -> String {
    format!("queue/{pool}")
}
