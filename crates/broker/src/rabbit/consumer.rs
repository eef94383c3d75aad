//! Blocks and what they hold: receipts stand for lapin's ackers, and keep their channel open.

use crate::loss::Loss;
use crate::port::{BrokerError, Consume, Consumer, Delivery, HeaderValue, Receipt, Settle, still_open};
use crate::rabbit::session::{Shared, open_channel};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Connection};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A channel that deliveries belong to. lapin closes it, and the broker takes back what is held there,
/// only when the last holder lets go: the consumer itself and each delivery.
pub(super) struct Block {
    pub(super) channel: Channel,
    /// The broker cancelled the consumer and gave its deliveries away; lapin would still report success.
    given_away: AtomicBool,
}

impl Block {
    pub(super) fn new(channel: Channel) -> Arc<Self> {
        Arc::new(Self { channel, given_away: AtomicBool::new(false) })
    }
}

struct Held {
    acker: Acker,
    block: Arc<Block>,
}

/// Everything this session holds.
#[derive(Default)]
pub(super) struct Receipts {
    last: AtomicU64,
    held: Mutex<HashMap<u64, Held>>,
}

/// How a delivery ends.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Ack,
    Requeue,
}

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

impl Receipts {
    pub(super) fn keep(&self, delivery: lapin::message::Delivery, block: &Arc<Block>) -> Delivery {
        let receipt = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Held { acker: delivery.acker, block: Arc::clone(block) };
        self.lock().insert(receipt, held);
        Delivery {
            receipt: Receipt(receipt),
            body: Bytes::from(delivery.data),
            acquisitions: delivery.properties.headers().as_ref().map_or(0, acquisitions),
            redelivered: delivery.redelivered,
            headers: delivery.properties.headers().as_ref().map(readable).unwrap_or_default(),
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
                    Ending::Requeue => acker.nack(REQUEUE).await,
                }
                .map_err(|e| BrokerError::Lost(e.to_string()))
            })
            .await;
        if matches!(settled, Ok(true)) { Settle::Done } else { Settle::NotOurs }
    }

    /// Forgets a delivery. Once that is done for all of its channel, the channel ends and the broker takes them back.
    pub(super) fn let_go(&self, receipt: Receipt) {
        self.lock().remove(&receipt.0);
    }

    /// Whether the channel of something that is held is closed.
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
        AMQPValue::LongString(text) => Some(HeaderValue::Text(text.to_string())),
        AMQPValue::ShortString(text) => Some(HeaderValue::Text(text.to_string())),
        AMQPValue::LongLongInt(n) => Some(HeaderValue::Number(*n)),
        other => number(other).map(|n| HeaderValue::Number(n.into())),
    };
    headers.inner().iter().filter_map(|(name, it)| Some((name.to_string(), value(it)?))).collect()
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

pub(super) struct RabbitConsumer {
    shared: Arc<Shared>,
    block: Arc<Block>,
    stream: lapin::Consumer,
    cancelled_here: bool,
    over: bool,
}

impl RabbitConsumer {
    pub(super) async fn start(
        connection: &Connection,
        shared: Arc<Shared>,
        consume: &Consume,
    ) -> lapin::Result<Self> {
        let channel = open_channel(connection).await?;
        let stream = begin(&channel, consume).await?;
        Ok(Self { shared, block: Block::new(channel), stream, cancelled_here: false, over: false })
    }

    fn on_end(&mut self) {
        self.over = true;
        if !self.cancelled_here {
            self.block.given_away.store(true, Ordering::Release);
        }
    }
}

async fn begin(channel: &Channel, consume: &Consume) -> lapin::Result<lapin::Consumer> {
    channel.basic_qos(consume.prefetch, BasicQosOptions { global: false }).await?;
    let mut arguments = FieldTable::default();
    if consume.priority != 0 {
        arguments.insert("x-priority".into(), AMQPValue::LongInt(consume.priority));
    }
    // a tag used twice kills the whole connection on 3.10
    let tag = uuid::Uuid::new_v4().to_string();
    let options = BasicConsumeOptions::default();
    channel.basic_consume(consume.queue.as_str().into(), tag.into(), options, arguments).await
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        if self.over {
            return None;
        }
        // deliveries of a lost session may still lie in lapin's buffer: the loss comes first
        let next = tokio::select! {
            biased;
            _ = self.shared.loss.wait() => None,
            next = self.stream.next() => next,
        };
        match next {
            Some(Ok(delivery)) => Some(self.shared.receipts.keep(delivery, &self.block)),
            Some(Err(error)) => {
                self.shared.loss.lose(format!("a consumer lost its channel: {error}"));
                self.on_end();
                None
            }
            None => {
                self.on_end();
                None
            }
        }
    }

    async fn cancel(&mut self) -> Result<(), BrokerError> {
        if self.over || self.cancelled_here {
            return Ok(());
        }
        let cancelling = self.block.channel.basic_cancel(self.stream.tag(), BasicCancelOptions::default());
        self.cancelled_here = true;
        let loss = &self.shared.loss;
        loss.guard(async { cancelling.await.map_err(|e| self.shared.fail(&e, "")) }).await
    }

    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError> {
        if !self.over || !self.cancelled_here {
            return Err(still_open());
        }
        let (channel, shared) = (self.block.channel.clone(), Arc::clone(&self.shared));
        let begun = async { begin(&channel, consume).await.map_err(|e| shared.fail(&e, &consume.queue)) };
        self.stream = self.shared.loss.guard(begun).await?;
        (self.cancelled_here, self.over) = (false, false);
        Ok(())
    }

    fn cancelled_here(&self) -> bool {
        self.cancelled_here
    }
}

impl Drop for RabbitConsumer {
    /// What lies unread in lapin's buffer goes back at once: the channel may stay open for long, for
    /// the sake of what was read and is still held.
    fn drop(&mut self) {
        if self.over || self.shared.loss.is_lost() {
            return;
        }
        let (block, mut stream, loss) =
            (Arc::clone(&self.block), self.stream.clone(), self.shared.loss.clone());
        let cancelled = self.cancelled_here;
        self.shared.spawn(async move {
            let giving_back = async {
                if !cancelled {
                    block.channel.basic_cancel(stream.tag(), BasicCancelOptions::default()).await?;
                }
                while let Some(delivery) = stream.next().await {
                    delivery?.acker.nack(REQUEUE).await?;
                }
                lapin::Result::Ok(())
            };
            tokio::select! {
                _ = loss.wait() => {}
                given = giving_back => if let Err(error) = given {
                    loss.lose(format!("a consumer could not be ended: {error}"));
                },
            }
        });
    }
}
