//! The parked queue: what no version could read goes into a table, as it came.

use super::insist;
use crate::context::Manager;
use crate::queue_reader::{PREFETCH, ack_all, next, next_ready, open};
use everwatch_broker::{Delivery, Session};
use everwatch_store::Parked;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Messages written down in one transaction.
const BATCH: usize = 100;

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.link.topology.parked();
    let Some(mut consumer) = open(session.as_ref(), queue, PREFETCH).await else { return };
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let mut parked = vec![describe(&manager, &first)];
        let mut receipts = vec![first.receipt];
        while receipts.len() < BATCH
            && let Some(delivery) = next_ready(consumer.as_mut())
        {
            parked.push(describe(&manager, &delivery));
            receipts.push(delivery.receipt);
        }
        if insist(&over, || manager.records.store.park(&parked)).await.is_none() {
            return;
        }
        ack_all(session.as_ref(), &receipts).await;
        warn!(messages = parked.len(), "unreadable work messages are parked");
    }
}

fn describe(manager: &Manager, delivery: &Delivery) -> Parked {
    // Said by the service that parked it, or by the broker if it gave up on the message itself.
    let queue = delivery.text("everwatch-queue").or_else(|| delivery.text("x-first-death-queue"));
    Parked {
        id: 0,
        queue: queue.map_or_else(|| manager.link.topology.parked(), str::to_owned),
        reason: delivery.text("everwatch-reason").unwrap_or("unreadable work message").to_owned(),
        body: delivery.body.to_vec(),
        at: manager.records.clock.now(),
    }
}
