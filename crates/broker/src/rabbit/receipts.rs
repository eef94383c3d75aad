//! The deliveries that a session holds. A receipt identifies lapin's acker and keeps its channel open.

use super::acceptance::{Acceptance, REQUEUE};
use crate::loss::Loss;
use crate::port::{BrokerError, Delivery, HeaderValue, Receipt, Settle};
use crate::signing::{Received, Verifier};
use crate::topology::Topology;
use bytes::Bytes;
use everwatch_core::wire::signature::{HEADER, Refused};
use lapin::options::BasicAckOptions;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A channel with deliveries. The consumer and each held delivery keep a reference to it. When the last
/// reference is dropped, lapin closes the channel and the broker takes back the messages that it held.
pub(super) struct Block {
    pub(super) channel: Channel,
    /// The broker cancelled the consumer and delivered its messages elsewhere. lapin would still report that
    /// settling them succeeds.
    pub(super) given_away: AtomicBool,
    /// From which its deliveries come.
    pub(super) queue: String,
    pub(super) acceptance: Acceptance,
}

impl Block {
    pub(super) fn new(channel: Channel, queue: &str) -> Arc<Self> {
        let (given_away, queue) = (AtomicBool::new(false), queue.to_owned());
        Arc::new(Self { channel, given_away, queue, acceptance: Acceptance::default() })
    }
}

struct Held {
    acker: Acker,
    block: Arc<Block>,
}

/// Everything this session holds.
pub(super) struct Receipts {
    verifier: Option<(Arc<Verifier>, Topology)>,
    last: AtomicU64,
    held: Mutex<HashMap<u64, Held>>,
}

/// How a delivery is settled.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Ack,
    /// With all earlier deliveries of its channel.
    AckAll,
    Requeue,
}

impl Receipts {
    /// With the verifier of its deliveries.
    pub(super) fn new(verifier: Option<(Arc<Verifier>, Topology)>) -> Self {
        Self { verifier, last: AtomicU64::new(0), held: Mutex::default() }
    }

    fn refusal(&self, delivery: &lapin::message::Delivery, queue: &str) -> Option<Refused> {
        let (verifier, topology) = self.verifier.as_ref()?;
        let header = delivery.properties.headers().as_ref().and_then(|headers| headers.inner().get(HEADER));
        let signature = header.and_then(|value| match value {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
            _ => None,
        });
        let way = (delivery.exchange.as_str(), delivery.routing_key.as_str());
        let is_command = topology.is_for_commands(way.0);
        if signature.is_some() && !topology.leads_to(way, queue) {
            return Some(Refused::Altered);
        }
        verifier.check(&Received { way, signature, body: &delivery.data, is_command }).err()
    }

    pub(super) fn keep(&self, delivery: lapin::message::Delivery, block: &Arc<Block>) -> Delivery {
        let refused = self.refusal(&delivery, &block.queue);
        let receipt = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Held { acker: delivery.acker, block: Arc::clone(block) };
        self.lock().insert(receipt, held);
        Delivery {
            receipt: Receipt(receipt),
            body: Bytes::from(delivery.data),
            acquisitions: delivery.properties.headers().as_ref().map_or(0, acquisitions),
            redelivered: delivery.redelivered,
            headers: delivery.properties.headers().as_ref().map(readable).unwrap_or_default(),
            refused,
        }
    }

    pub(super) async fn settle(&self, receipt: Receipt, ending: Ending, loss: &Loss) -> Settle {
        let held = self.lock().remove(&receipt.0);
        let Some(Held { acker, block }) = held else { return Settle::NotOurs };
        if loss.is_lost() || block.given_away.load(Ordering::Acquire) {
            return Settle::NotOurs;
        }
        let settled = loss
            .guard(async {
                match ending {
                    Ending::Ack => acker.ack(BasicAckOptions::default()).await,
                    Ending::AckAll => acker.ack(BasicAckOptions { multiple: true }).await,
                    Ending::Requeue => acker.nack(REQUEUE).await,
                }
                .map_err(|e| BrokerError::Lost(e.to_string()))
            })
            .await;
        if matches!(settled, Ok(true)) { Settle::Done } else { Settle::NotOurs }
    }

    /// Acknowledges the delivery, and waits until the queue has accepted that.
    pub(super) async fn ack_accepted(&self, receipt: Receipt, loss: &Loss) -> Settle {
        let block = self.lock().get(&receipt.0).map(|held| Arc::clone(&held.block));
        let Some(block) = block else { return Settle::NotOurs };
        if self.settle(receipt, Ending::Ack, loss).await == Settle::NotOurs {
            return Settle::NotOurs;
        }
        let accepted = tokio::select! {
            accepted = block.acceptance.prove((&block.channel, &block.queue), loss) => accepted,
            _ = loss.wait() => false,
        };
        // The broker may have delivered it elsewhere before the acknowledgement arrived.
        if accepted && !block.given_away.load(Ordering::Acquire) { Settle::Done } else { Settle::NotOurs }
    }

    /// Forgets `earlier` if they are all deliveries before `last` that its channel still holds, so that one frame
    /// can acknowledge them with it. Answers whether they are.
    pub(super) fn forget_if_first(&self, earlier: &[Receipt], last: Receipt) -> bool {
        let mut held = self.lock();
        let Some(block) = held.get(&last.0).map(|it| Arc::clone(&it.block)) else { return false };
        let is_before = |receipt: u64, it: &Held| receipt < last.0 && Arc::ptr_eq(&it.block, &block);
        let before = held.iter().filter(|(receipt, it)| is_before(**receipt, it)).count();
        let named = |it: &Receipt| held.get(&it.0).is_some_and(|found| is_before(it.0, found));
        if before != earlier.len() || !earlier.iter().all(named) {
            return false;
        }
        for receipt in earlier {
            held.remove(&receipt.0);
        }
        true
    }

    /// Drops a delivery without settling it. When all deliveries of its channel are dropped, the channel
    /// closes and the broker takes them back.
    pub(super) fn let_go(&self, receipt: Receipt) {
        self.lock().remove(&receipt.0);
    }

    /// Whether a channel that holds a delivery is closed.
    pub(super) fn lost_a_channel(&self) -> bool {
        self.lock().values().any(|held| !held.block.channel.status().connected())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn acquisitions(headers: &FieldTable) -> u32 {
    let count = |name| headers.inner().get(name).and_then(number).unwrap_or(0);
    count("x-acquired-count").max(count("x-delivery-count"))
}

fn readable(headers: &FieldTable) -> Vec<(String, HeaderValue)> {
    let value = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(HeaderValue::Text(text_of(text.as_bytes()))),
        AMQPValue::ShortString(text) => Some(HeaderValue::Text(text.as_str().to_owned())),
        AMQPValue::LongLongInt(n) => Some(HeaderValue::Number(*n)),
        other => number(other).map(|n| HeaderValue::Number(n.into())),
    };
    let mut read = Vec::with_capacity(headers.inner().len());
    read.extend(headers.inner().iter().filter_map(|(name, it)| Some((name.as_str().to_owned(), value(it)?))));
    read
}

/// Formatting the text would cost several times as much.
fn text_of(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), str::to_owned)
}

fn number(value: &AMQPValue) -> Option<u32> {
    match *value {
        AMQPValue::ShortShortInt(n) => u32::try_from(n).ok(),
        AMQPValue::ShortShortUInt(n) => Some(n.into()),
        AMQPValue::ShortInt(n) => u32::try_from(n).ok(),
        AMQPValue::ShortUInt(n) => Some(n.into()),
        AMQPValue::LongInt(n) => u32::try_from(n).ok(),
        AMQPValue::LongUInt(n) => Some(n),
        AMQPValue::LongLongInt(n) => u32::try_from(n).ok(),
        _ => None,
    }
}
