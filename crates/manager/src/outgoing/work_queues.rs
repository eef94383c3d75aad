//! Declares the work queues of pools.

use crate::context::Manager;
use crate::context::records::Records;
use everwatch_broker::{BrokerError, Declared, QueueKind, Session};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Pool;
use everwatch_core::record::events::EventKind;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::warn;

/// How long the note about a new queue waits for a manager.
const NOTE_KEPT: Duration = Duration::from_secs(3600);
/// A message may be confirmed just before the report about the new queue is written.
const SLACK: Duration = Duration::from_secs(1);

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
    // The first to declare a queue after the broker lost its data creates it, and reports that: a service does, and so
    // must a manager. Without the note each observer is missed on its own, minutes later.
    if session.declare(&queue, &QueueKind::Durable { max_length: None }).await? == Declared::Created {
        manager.records.events.tell_all(EventKind::WorkQueueCreated, format!("pool {pool}"));
        if let Err(error) = note_created(&manager.records, pool, manager.records.clock.now()).await {
            warn!(%pool, %error, "failed to record the re-creation of the work queue");
        }
    }
    manager.link.pools.on_declared(pool);
    Ok(())
}

/// Notes that the work queue of a pool was created; the note is kept until a manager has acted on it.
pub(crate) async fn note_created(records: &Records, pool: &Pool, at: Timestamp) -> Result<(), StoreError> {
    records.store.set_note(&note(pool), &at.minus(SLACK).0.to_string(), NOTE_KEPT).await
}

/// The key of that note.
pub(crate) fn note(pool: &Pool) -> String {
    format!("queue/{pool}")
}
