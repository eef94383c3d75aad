//! The heartbeats queue: signs of life. What cannot be read here is dropped: the next heartbeat says it again.

use super::insist;
use super::unknown::ask_who;
use crate::commit::CAS_TRIES;
use crate::context::Manager;
use crate::context::freshness::WatermarkQueue;
use crate::context::records::Records;
use crate::metric;
use crate::queue_reader::{ack_all, next, next_ready, open};
use everwatch_broker::{Delivery, Receipt, Session};
use everwatch_core::id::ServiceId;
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Watermark};
use everwatch_core::wire::message::{BATCH_MAX, decode};
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Heartbeats are gathered for this long: fifty services that send one each second cost one read and one save instead
/// of fifty, and nothing depends on the exact time of a heartbeat.
const GATHER: Duration = Duration::from_millis(200);
/// What a thousand services send while the manager gathers and applies one batch.
const PREFETCH: u16 = 1000;

#[derive(Debug, Default)]
struct Batch {
    receipts: Vec<Receipt>,
    /// The newest of each service.
    heartbeats: HashMap<ServiceId, Heartbeat>,
    watermarks: Vec<Watermark>,
}

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.link.topology.heartbeats();
    let Some(mut consumer) = open(session.as_ref(), queue, PREFETCH).await else { return };
    let mut is_full = false;
    while let Some(first) = next(consumer.as_mut(), &over).await {
        if !is_full {
            tokio::time::sleep(GATHER).await;
        }
        let mut batch = Batch::default();
        batch.add(&manager.records, &first);
        while batch.receipts.len() < BATCH_MAX
            && let Some(delivery) = next_ready(consumer.as_mut())
        {
            batch.add(&manager.records, &delivery);
        }
        is_full = batch.receipts.len() >= BATCH_MAX;
        if insist(&over, || apply(&manager, &batch.heartbeats)).await.is_none() {
            return;
        }
        ack_all(session.as_ref(), &batch.receipts).await;
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

impl Batch {
    fn add(&mut self, records: &Records, delivery: &Delivery) {
        self.receipts.push(delivery.receipt);
        match decode::<HeartbeatMessage>(&delivery.body) {
            Ok(HeartbeatMessage::Watermark(watermark)) => self.watermarks.push(watermark),
            Ok(HeartbeatMessage::Probe { service }) => {
                records.events.known.heard(service, records.clock.now());
                metrics::counter!(metric::PROBES).increment(1);
            }
            Ok(HeartbeatMessage::Heartbeat(heartbeat)) => {
                records.events.known.heard(heartbeat.service, records.clock.now());
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

async fn apply(manager: &Manager, heartbeats: &HashMap<ServiceId, Heartbeat>) -> Result<(), StoreError> {
    if heartbeats.is_empty() {
        return Ok(());
    }
    for _ in 0..CAS_TRIES {
        let now = manager.records.clock.now();
        let ids: Vec<ServiceId> = heartbeats.keys().copied().collect();
        let mut changed = manager.records.store.load_services(&ids).await?.rows;
        // A row that another manager has changed is loaded again; a saved row has the heartbeat.
        changed.retain_mut(|row| {
            heartbeats.get(&row.id).is_some_and(|heartbeat| row.on_heartbeat(heartbeat, now))
        });
        if changed.is_empty() || manager.records.store.save_services(&changed).await?.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Contended("the services keep changing".to_owned()))
}
