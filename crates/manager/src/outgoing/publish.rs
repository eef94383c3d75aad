//! Publishes work messages: rows whose lease this manager has just taken. If a publish fails, the lease ends and the
//! reconciler publishes the next generation.

use crate::context::Manager;
use crate::context::publishing::{PublishResult, Published};
use crate::metric;
use crate::outgoing::{spans, work_queues};
use everwatch_broker::{BrokerError, HeaderValue, Message, Session, Target};
use everwatch_core::record::row::Row;
use everwatch_core::wire::trace::TraceContext;
use everwatch_core::wire::work::Work;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, error, warn};

/// A publish does not begin in the last moments of its lease: the next one is near.
const LEASE_MARGIN: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Publishes rows whose lease this manager has just taken, without waiting.
pub(crate) fn publish(manager: &Arc<Manager>, mut rows: Vec<Row>) {
    rows.retain(|row| manager.publishing.leases.begin(row));
    if rows.is_empty() {
        return;
    }
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        for row in rows {
            let permit = tokio::select! {
                () = it.stop.cancelled() => return,
                permit = Arc::clone(&it.publishing.permits).acquire_owned() => permit,
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
    let span = spans::send(row, manager.link.topology.work(&row.definition.pool));
    let trace = span.trace();
    let result = tokio::select! {
        () = manager.stop.cancelled() => None,
        result = deliver(manager, row, &trace) => result,
    };
    if result != Some(PublishResult::Confirmed) {
        span.fail("not confirmed");
    }
    drop(span);
    manager.publishing.leases.end(row.id, row.generation);
    let Some(result) = result else { return };
    if result == PublishResult::Confirmed {
        metrics::counter!(metric::PUBLISHES).increment(1);
    }
    // The loop that reads these ends only with the manager.
    let at = manager.records.clock.now();
    if manager
        .publishing
        .results
        .send(Published { id: row.id, generation: row.generation, result, at })
        .await
        .is_err()
    {
        debug!(observer = %row.id, "an answer came after the end of the outbox");
    }
}

/// Tries while the message is surely not in the queue; `None` if its lease ended before.
async fn deliver(manager: &Manager, row: &Row, trace: &TraceContext) -> Option<PublishResult> {
    let message = message(row, trace)?;
    // Past the lease another manager may have published a higher generation already.
    loop {
        let left = manager.publishing.leases.left(row.id, row.generation, manager.records.clock.now());
        let left = left.checked_sub(LEASE_MARGIN).filter(|left| !left.is_zero())?;
        let Some(session) = manager.link.session.by(Instant::now() + left.min(RETRY_PAUSE)).await else {
            continue;
        };
        match publish_once(manager, session.as_ref(), row, &message).await {
            Ok(()) => return Some(PublishResult::Confirmed),
            Err(BrokerError::Lost(why)) => {
                // Only a higher generation under a revocation is safe now.
                debug!(observer = %row.id, why, "publish without an answer");
                return Some(PublishResult::Unsure);
            }
            Err(
                error @ (BrokerError::Refused(_)
                | BrokerError::Forbidden(_)
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
    let work = Work::of(row.id, row.generation, &row.definition);
    let scheduled_for = row.executions.as_ref().and_then(|executions| executions.scheduled_for);
    let work = work.map(|work| Work { closes_at: row.closes_at, scheduled_for, ..work });
    match work.and_then(|work| serde_json::to_vec(&work)) {
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
    let pool = &row.definition.pool;
    work_queues::ensure(manager, session, pool).await?;
    let target = Target::Queue(manager.link.topology.work(pool));
    match session.publish(&target, message.clone()).await {
        Err(BrokerError::NoQueue(_) | BrokerError::Unroutable(_)) => {
            work_queues::declare(manager, session, pool).await?;
            session.publish(&target, message.clone()).await
        }
        published => published,
    }
}
