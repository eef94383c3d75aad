//! The beats queue: signs of life. What cannot be read here is dropped: the next beat says it again.

use super::unknown::ask_who;
use super::{ack_all, insist, next, next_ready, open};
use crate::metric;
use crate::shared::{CAS_TRIES, Manager, Marked};
use everwatch_broker::{Delivery, Receipt, Session};
use everwatch_core::id::ServiceId;
use everwatch_core::message::{BATCH_MAX, Beat, BeatMessage, Tick, decode};
use everwatch_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

#[derive(Debug, Default)]
struct Batch {
    receipts: Vec<Receipt>,
    /// The newest of each service.
    beats: HashMap<ServiceId, Beat>,
    ticks: Vec<Tick>,
}

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.topology.beats();
    let Some(mut consumer) = open(session.as_ref(), queue).await else { return };
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let mut batch = Batch::default();
        batch.add(&manager, &first);
        while batch.receipts.len() < BATCH_MAX
            && let Some(delivery) = next_ready(consumer.as_mut())
        {
            batch.add(&manager, &delivery);
        }
        if insist(&over, || apply(&manager, &batch.beats)).await.is_none() {
            return;
        }
        ack_all(session.as_ref(), &batch.receipts).await;
        // Its first beat may be faster than its birth.
        let heard = batch.beats.values().filter(|beat| beat.seq > 1).map(|beat| beat.service);
        let strangers = manager.known.strangers(heard);
        if let Err(error) = ask_who(&manager, &strangers).await {
            debug!(%error, "unknown services are asked at their next beat");
        }
        for tick in &batch.ticks {
            manager.on_tick(Marked::Beats, tick.sent_at);
        }
    }
}

impl Batch {
    fn add(&mut self, manager: &Manager, delivery: &Delivery) {
        self.receipts.push(delivery.receipt);
        match decode::<BeatMessage>(&delivery.body) {
            Ok(BeatMessage::Tick(tick)) => self.ticks.push(tick),
            Ok(BeatMessage::Probe { service }) => {
                manager.known.heard(service, manager.clock.now());
                metrics::counter!(metric::PROBES).increment(1);
            }
            Ok(BeatMessage::Beat(beat)) => {
                manager.known.heard(beat.service, manager.clock.now());
                metrics::counter!(metric::BEATS).increment(1);
                let newest = self.beats.entry(beat.service).or_insert_with(|| beat.clone());
                if beat.seq > newest.seq {
                    *newest = beat;
                }
            }
            Err(unreadable) => {
                metrics::counter!(metric::UNREADABLE, "queue" => "beats").increment(1);
                debug!(why = %unreadable, "an unreadable beat is dropped");
            }
        }
    }
}

async fn apply(manager: &Manager, beats: &HashMap<ServiceId, Beat>) -> Result<(), StoreError> {
    if beats.is_empty() {
        return Ok(());
    }
    for _ in 0..CAS_TRIES {
        let now = manager.clock.now();
        let mut changed = manager.store.services(now).await?.rows;
        // One that somebody else has changed is loaded again; those that are saved have the beat.
        changed.retain_mut(|row| beats.get(&row.id).is_some_and(|beat| row.on_beat(beat, now)));
        if changed.is_empty() || manager.store.save_services(&changed).await?.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Contended("the services keep changing".to_owned()))
}
