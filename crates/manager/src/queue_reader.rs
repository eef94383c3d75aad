//! Reads one queue of a session: consume, take what is there, acknowledge.

use everwatch_broker::{Consume, Consumer, Delivery, Receipt, Session, Settle};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Deliveries in hand at most, for a queue whose messages are applied as they come.
pub(crate) const PREFETCH: u16 = 200;

/// Opens the consumer of one queue; `None` (logged) if the session cannot.
pub(crate) async fn open(session: &dyn Session, queue: String, prefetch: u16) -> Option<Box<dyn Consumer>> {
    let consume = Consume { queue, prefetch, priority: 0 };
    match session.consume(&consume).await {
        Ok(consumer) => Some(consumer),
        Err(error) => {
            warn!(queue = consume.queue, %error, "a queue cannot be read");
            None
        }
    }
}

/// The next delivery; `None` when there will be no more, or `over` says so.
pub(crate) async fn next(consumer: &mut dyn Consumer, over: &CancellationToken) -> Option<Delivery> {
    tokio::select! {
        () = over.cancelled() => None,
        delivery = consumer.next() => delivery,
    }
}

/// A delivery that is there already.
pub(crate) fn next_ready(consumer: &mut dyn Consumer) -> Option<Delivery> {
    consumer.next().now_or_never().flatten()
}

pub(crate) async fn ack_all(session: &dyn Session, receipts: &[Receipt]) {
    if session.ack_all(receipts).await == Settle::NotOurs {
        debug!("what was applied is no longer ours to acknowledge, it comes again");
    }
}
