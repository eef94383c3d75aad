//! Outbox: publishes what a row's mark says, and takes the mark away once the broker has confirmed.
//! Whatever goes wrong here, the lease of the mark ends and the reconciler publishes anew.

use crate::RunError;
use crate::shared::{CAS_TRIES, Manager};
use everwatch_broker::{BrokerError, HeaderValue, Message, Session, Target};
use everwatch_core::id::ObserverId;
use everwatch_core::message::Work;
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, error, warn};

/// A publish does not begin in the last moments of its lease: the next one is near.
const LEASE_MARGIN: Duration = Duration::from_secs(2);
const BATCH: usize = 500;
const GATHER: Duration = Duration::from_millis(5);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The broker has this generation of this observer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirm {
    pub(crate) id: ObserverId,
    pub(crate) generation: u32,
}

/// Publishes rows whose lease this manager has just taken, without waiting.
pub(crate) fn publish(manager: &Arc<Manager>, rows: Vec<Row>) {
    if rows.is_empty() {
        return;
    }
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        for row in rows {
            let permit = tokio::select! {
                () = it.stop.cancelled() => return,
                permit = Arc::clone(&it.publishes).acquire_owned() => permit,
            };
            let Ok(permit) = permit else { return };
            let one = Arc::clone(&it);
            it.tasks.spawn(async move {
                publish_one(&one, &row).await;
                drop(permit);
            });
        }
    });
}

async fn publish_one(manager: &Manager, row: &Row) {
    let Some(until) = row.mark.map(|mark| mark.until) else { return };
    let lease = until.since(manager.clock.now()).saturating_sub(LEASE_MARGIN);
    let deadline = Instant::now() + lease;
    let body = match Work::of(row.id, row.generation, &row.wanted).and_then(|work| serde_json::to_vec(&work))
    {
        Ok(body) => body,
        Err(error) => {
            error!(observer = %row.id, %error, "an observer cannot be written as a work message");
            return;
        }
    };
    let id = HeaderValue::Text(row.id.to_string());
    let message = Message { body: body.into(), headers: vec![("everwatch-observer".to_owned(), id)] };
    let delivered = tokio::select! {
        () = manager.stop.cancelled() => return,
        delivered = deliver(manager, row, &message, deadline) => delivered,
    };
    if delivered {
        metrics::counter!("everwatch_publishes_total").increment(1);
        // The loop that reads these ends only with the manager.
        if manager.confirms.send(Confirm { id: row.id, generation: row.generation }).await.is_err() {
            debug!(observer = %row.id, "a confirm came after the end of the outbox");
        }
    }
}

/// Tries while the message is surely not in the queue; answers whether the broker has confirmed it.
async fn deliver(manager: &Manager, row: &Row, message: &Message, deadline: Instant) -> bool {
    // Past the lease the reconciler may have published a higher generation already.
    while Instant::now() < deadline
        && let Some(session) = manager.session_by(deadline).await
    {
        match publish_once(manager, session.as_ref(), row, message).await {
            Ok(()) => return true,
            Err(BrokerError::Lost(why)) => {
                // It may be there or not: only the end of the lease, and a higher generation, is safe.
                debug!(observer = %row.id, why, "publish unconfirmed, left to its lease");
                return false;
            }
            Err(
                error @ (BrokerError::Refused(_)
                | BrokerError::NoQueue(_)
                | BrokerError::Unroutable(_)
                | BrokerError::NotAccepted(_)),
            ) => warn!(observer = %row.id, %error, "publish failed, trying again"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    false
}

async fn publish_once(
    manager: &Manager,
    session: &dyn Session,
    row: &Row,
    message: &Message,
) -> Result<(), BrokerError> {
    let pool = &row.wanted.pool;
    manager.ensure_work(session, pool).await?;
    let target = Target::Queue(manager.topology.work(pool));
    match session.publish(&target, message.clone()).await {
        Err(BrokerError::NoQueue(_) | BrokerError::Unroutable(_)) => {
            manager.declare_work(session, pool).await?;
            session.publish(&target, message.clone()).await
        }
        published => published,
    }
}

/// Writes confirms down, many at a time.
pub(crate) async fn run(
    manager: Arc<Manager>,
    mut confirms: mpsc::Receiver<Confirm>,
) -> Result<(), RunError> {
    loop {
        let first = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            first = confirms.recv() => first,
        };
        let Some(first) = first else { return Ok(()) };
        let mut batch = HashMap::from([(first.id, first.generation)]);
        let gathered = Instant::now() + GATHER;
        while batch.len() < BATCH
            && let Ok(Some(confirm)) = tokio::time::timeout_at(gathered, confirms.recv()).await
        {
            batch.insert(confirm.id, confirm.generation);
        }
        if let Err(error) = on_confirmed(&manager, batch).await {
            // Any report of the generation, or the end of the lease, repairs this.
            warn!(%error, "confirmed publishes could not be written down");
        }
    }
}

async fn on_confirmed(manager: &Manager, mut batch: HashMap<ObserverId, u32>) -> Result<(), StoreError> {
    for _ in 0..CAS_TRIES {
        let ids: Vec<ObserverId> = batch.keys().copied().collect();
        let mut rows = manager.store.load(&ids).await?;
        let now = manager.clock.now();
        rows.retain_mut(|row| batch.get(&row.id).is_some_and(|generation| row.confirmed(*generation, now)));
        if rows.is_empty() {
            return Ok(());
        }
        let lost = manager.store.save(&rows).await?;
        manager.note_change();
        if lost.is_empty() {
            return Ok(());
        }
        batch.retain(|id, _| lost.contains(id));
    }
    Err(StoreError::Unavailable("the rows are changed too often by others".to_owned()))
}
