//! The heartbeats queue: signs of life. What cannot be read here is dropped: the next heartbeat says it again.

use super::insist;
use super::unknown::ask_who;
use crate::commit::CAS_TRIES;
use crate::context::Manager;
use crate::context::freshness::WatermarkQueue;
use crate::context::records::Records;
use crate::metric;
use crate::queue_reader::{ack_all, next, open};
use everwatch_broker::{Consumer, Delivery, Session};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Watermark};
use everwatch_core::wire::message::decode;
use everwatch_core::wire::rounds::{AfterRound, Rounds};
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Heartbeats are gathered for this long, so that many services cost few reads and saves. They count from the start of
/// this time, so a manager may consider a service silent slightly too early, but not alive for too long. The gaps of observers count
/// from a heartbeat as soon as it has arrived.
const GATHER: Duration = Duration::from_millis(200);
/// The broker delivers this many messages and keeps the others until these are acknowledged. Then it delivers the next
/// ones together, which costs much less than one delivery for each message that arrives.
const PREFETCH: u16 = 50;
/// A nearby broker delivers the next waiting messages within this time.
const ROUND: Duration = Duration::from_millis(10);
/// Maximum number of messages that are applied together.
const MESSAGES_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// When its first message arrived.
    since: Timestamp,
    /// The newest of each service.
    heartbeats: HashMap<ServiceId, Heartbeat>,
    watermarks: Vec<Watermark>,
    /// More may wait.
    more: bool,
}

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.link.topology.heartbeats();
    let Some(mut consumer) = open(session.as_ref(), queue, PREFETCH).await else { return };
    let mut more = false;
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let since = manager.records.clock.now();
        let until = Instant::now() + if more { ROUND } else { GATHER };
        let gathering = gather(&manager.records, session.as_ref(), consumer.as_mut(), (first, since), until);
        let Some(batch) = over.run_until_cancelled(gathering).await else { return };
        more = batch.more;
        if insist(&over, || apply(&manager, &batch)).await.is_none() {
            return;
        }
        // Its first heartbeat may arrive before its registration.
        let heard = batch
            .heartbeats
            .values()
            .filter(|heartbeat| heartbeat.seq > 1)
            .map(|heartbeat| heartbeat.service);
        let strangers = manager.records.events.known.strangers(heard);
        if let Err(error) = ask_who(&manager, &strangers).await {
            debug!(%error, "unknown services are asked at their next heartbeat");
        }
        for watermark in &batch.watermarks {
            manager.freshness.on_watermark(WatermarkQueue::Heartbeats, watermark.sent_at);
        }
    }
}

/// Takes `first`, what arrives until `gathered`, and what the queue then holds. Messages are acknowledged before they are applied: if
/// this manager ends in between, the next heartbeat replaces it.
pub(crate) async fn gather(
    records: &Records,
    session: &dyn Session,
    consumer: &mut dyn Consumer,
    (first, since): (Delivery, Timestamp),
    gathered: Instant,
) -> Batch {
    let mut batch = Batch { since, ..Batch::default() };
    batch.add(records, &first);
    let (mut taken, mut rounds) = (vec![first.receipt], Rounds::new(PREFETCH, MESSAGES_MAX));
    let mut until = gathered;
    loop {
        while taken.len() < usize::from(PREFETCH)
            && let Ok(Some(delivery)) = timeout_at(until, consumer.next()).await
        {
            taken.push(delivery.receipt);
            batch.add(records, &delivery);
        }
        // Those that arrive meanwhile are delivered together after the acknowledgements.
        tokio::time::sleep_until(gathered).await;
        ack_all(session, &taken).await;
        until = Instant::now() + ROUND;
        match rounds.after(taken.len()) {
            AfterRound::TakeAnother => taken.clear(),
            AfterRound::Apply => return batch,
            AfterRound::ApplyAndGoOn => return Batch { more: true, ..batch },
        }
    }
}

impl Batch {
    fn add(&mut self, records: &Records, delivery: &Delivery) {
        match decode::<HeartbeatMessage>(&delivery.body) {
            Ok(HeartbeatMessage::Watermark(watermark)) => self.watermarks.push(watermark),
            Ok(HeartbeatMessage::Probe { service }) => {
                records.events.known.heard(service, self.since);
                metrics::counter!(metric::PROBES).increment(1);
            }
            Ok(HeartbeatMessage::Heartbeat(heartbeat)) => {
                records.events.known.heard(heartbeat.service, self.since);
                metrics::counter!(metric::HEARTBEATS).increment(1);
                let newest = self.heartbeats.entry(heartbeat.service).or_insert_with(|| heartbeat.clone());
                if heartbeat.seq > newest.seq {
                    *newest = heartbeat;
                }
            }
            Err(unreadable) => {
                metrics::counter!(metric::UNREADABLE, "queue" => "heartbeats").increment(1);
                debug!(why = %unreadable, "an unreadable heartbeat is dropped");
            }
        }
    }
}

async fn apply(manager: &Manager, Batch { since, heartbeats, .. }: &Batch) -> Result<(), StoreError> {
    if heartbeats.is_empty() {
        return Ok(());
    }
    for _ in 0..CAS_TRIES {
        let ids: Vec<ServiceId> = heartbeats.keys().copied().collect();
        let mut changed = manager.records.store.load_services(&ids).await?.rows;
        // A row that another manager has changed is loaded again; a saved row has the heartbeat.
        changed.retain_mut(|row| {
            heartbeats.get(&row.id).is_some_and(|heartbeat| row.on_heartbeat(heartbeat, *since))
        });
        if changed.is_empty() || manager.records.store.save_services(&changed).await?.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Contended("the services keep changing".to_owned()))
}
