//! Outbox: publishes what a row's mark says, and takes the mark away once the broker has confirmed.
//! Whatever goes wrong here, the lease of the mark ends and the reconciler publishes anew.

use crate::shared::{CAS_TRIES, Manager};
use crate::{RunError, metric, traced};
use everwatch_broker::{BrokerError, HeaderValue, Message, Session, Target};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::message::Work;
use everwatch_core::row::Row;
use everwatch_core::trace::TraceContext;
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
/// An answer of the broker is written down so much later: whatever starts at once says so before, and that word alone
/// is then written. Far below a lease, and nobody waits for it.
const GATHER: Duration = Duration::from_millis(250);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How the publish of one generation ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published {
    pub(crate) id: ObserverId,
    pub(crate) generation: u32,
    pub(crate) how: How,
    /// When it ended.
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The broker has it.
    Confirmed,
    /// The session was lost before the broker's answer: it may be there or not.
    Unsure,
}

/// Publishes rows whose lease this manager has just taken, without waiting.
pub(crate) fn publish(manager: &Arc<Manager>, mut rows: Vec<Row>) {
    rows.retain(|row| manager.leases.begin(row));
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
    let span = traced::send(row, manager.topology.work(&row.wanted.pool));
    let trace = span.trace();
    let how = tokio::select! {
        () = manager.stop.cancelled() => None,
        how = deliver(manager, row, &trace) => how,
    };
    if how != Some(How::Confirmed) {
        span.fail("not confirmed");
    }
    drop(span);
    manager.leases.end(row.id, row.generation);
    let Some(how) = how else { return };
    if how == How::Confirmed {
        metrics::counter!(metric::PUBLISHES).increment(1);
    }
    // The loop that reads these ends only with the manager.
    let at = manager.clock.now();
    if manager.published.send(Published { id: row.id, generation: row.generation, how, at }).await.is_err() {
        debug!(observer = %row.id, "an answer came after the end of the outbox");
    }
}

/// Tries while the message is surely not in the queue; `None` if its lease ended before.
async fn deliver(manager: &Manager, row: &Row, trace: &TraceContext) -> Option<How> {
    let message = message(row, trace)?;
    // Past the lease another manager may have published a higher generation already.
    loop {
        let left = manager.leases.left(row.id, row.generation, manager.clock.now());
        let left = left.checked_sub(LEASE_MARGIN).filter(|left| !left.is_zero())?;
        let Some(session) = manager.session_by(Instant::now() + left.min(RETRY_PAUSE)).await else {
            continue;
        };
        match publish_once(manager, session.as_ref(), row, &message).await {
            Ok(()) => return Some(How::Confirmed),
            Err(BrokerError::Lost(why)) => {
                // Only a higher generation under a floor is safe now.
                debug!(observer = %row.id, why, "publish without an answer");
                return Some(How::Unsure);
            }
            Err(
                error @ (BrokerError::Refused(_)
                | BrokerError::NoQueue(_)
                | BrokerError::Unroutable(_)
                | BrokerError::Silent(_)
                | BrokerError::NotAccepted(_)),
            ) => warn!(observer = %row.id, %error, "publish failed, trying again"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn message(row: &Row, trace: &TraceContext) -> Option<Message> {
    match Work::of(row.id, row.generation, &row.wanted).and_then(|work| serde_json::to_vec(&work)) {
        Ok(body) => {
            let headers = [("everwatch-observer", row.id.to_string())].into_iter().chain(trace.headers());
            let headers = headers.map(|(name, text)| (name.to_owned(), HeaderValue::Text(text)));
            Some(Message { body: body.into(), headers: headers.collect() })
        }
        Err(error) => {
            error!(observer = %row.id, %error, "an observer cannot be written as a work message");
            None
        }
    }
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

/// Writes the broker's answers down, many at a time.
pub(crate) async fn run(
    manager: Arc<Manager>,
    mut published: mpsc::Receiver<Published>,
) -> Result<(), RunError> {
    loop {
        let first = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            first = published.recv() => first,
        };
        let Some(first) = first else { return Ok(()) };
        let mut batch = HashMap::from([(first.id, first)]);
        let gathered = Instant::now() + GATHER;
        while batch.len() < BATCH
            && let Ok(Some(answer)) = tokio::time::timeout_at(gathered, published.recv()).await
        {
            batch.insert(answer.id, answer);
        }
        if let Err(error) = write_down(&manager, batch).await {
            // Any report of the generation, or the end of the lease, repairs this.
            warn!(%error, "the broker's answers could not be written down");
        }
    }
}

async fn write_down(manager: &Manager, mut batch: HashMap<ObserverId, Published>) -> Result<(), StoreError> {
    for _ in 0..CAS_TRIES {
        let ids: Vec<ObserverId> = batch.keys().copied().collect();
        let mut rows = manager.store.load(&ids).await?.rows;
        let now = manager.clock.now();
        rows.retain_mut(|row| match batch.get(&row.id) {
            Some(Published { how: How::Confirmed, generation, at, .. }) => row.confirmed(*generation, *at),
            Some(Published { how: How::Unsure, generation, .. }) => {
                row.unsure(*generation, now, &manager.settings.row)
            }
            None => false,
        });
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
    Err(StoreError::Contended("the rows keep changing".to_owned()))
}
