//! Intake: what services report becomes rows, and is acknowledged only once it is committed. Each
//! batch may be applied twice (by this manager or another) and changes nothing the second time.

pub(crate) mod beats;
pub(crate) mod births;
mod lists;
pub(crate) mod state;
mod unknown;

use everwatch_broker::{Consume, Consumer, Delivery, Receipt, Session, Settle};
use everwatch_store::StoreError;
use futures::FutureExt as _;
use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Deliveries in hand at most.
const PREFETCH: u16 = 200;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Opens the consumer of one queue; `None` (logged) if the session cannot.
pub(crate) async fn open(session: &dyn Session, queue: String) -> Option<Box<dyn Consumer>> {
    let consume = Consume { queue, prefetch: PREFETCH, priority: 0 };
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
    for receipt in receipts {
        if session.ack(*receipt).await == Settle::NotOurs {
            debug!("what was applied is no longer ours to acknowledge, it comes again");
            return;
        }
    }
}

/// Tries until the store takes it; `None` if `over` comes first. Nothing is acknowledged meanwhile.
pub(crate) async fn insist<T, F>(over: &CancellationToken, mut attempt: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Ok(done) => return Some(done),
            Err(error) => {
                warn!(%error, again_in_ms = pause.as_millis(), "what came in waits for the database");
            }
        }
        tokio::select! {
            () = over.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
