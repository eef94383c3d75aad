//! Two connections that live and die together. This file detects and reports their end; other files implement
//! the operations.

use super::AmqpRuntime;
use super::asking::Asking;
use super::channel::{RESOURCE_LOCKED, Shared, code, open_channel};
use super::consumer::RabbitConsumer;
use super::known_exchanges::KnownExchanges;
use super::publisher::Publisher;
use super::receipts::{Block, Ending, Receipts};
use crate::loss::Loss;
use crate::port::{
    BrokerError, Consume, Consumer, Declare, Declared, Delivery, Depth, Message, OwnerLiveness, QueueKind,
    Receipt, Session, Settle, Target, ack_each,
};
use crate::signing::Signing;
use crate::topology::Topology;
use async_trait::async_trait;
use futures::{Stream, StreamExt};
use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Event};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::task::TaskTracker;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for one answer of the broker.
const GET_TIMEOUT: Duration = Duration::from_secs(2);

/// When one connection of a session is lost, the other one stays open until the owner closes or drops the
/// session. The owner first stops its runs; only then may the broker deliver their messages elsewhere.
pub(super) struct RabbitSession {
    pub(super) consume: Arc<Connection>,
    pub(super) publisher: Publisher,
    pub(super) prefix: String,
    pub(super) topology: Topology,
    pub(super) exchanges: KnownExchanges,
    pub(super) shared: Arc<Shared>,
    publish: Arc<Connection>,
    probe: Channel,
    probe_queue: String,
    pub(super) asking: Asking,
}

/// The messages that one `get` call has taken so far. If the call is cancelled, the session must not keep
/// them.
struct Taking<'a> {
    receipts: &'a Receipts,
    taken: Vec<Delivery>,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        for delivery in &self.taken {
            self.receipts.let_go(delivery.receipt);
        }
    }
}

impl RabbitSession {
    pub(super) async fn start(
        (consume, publish, asking): (Connection, Connection, Asking),
        (prefix, signing): (&str, Signing),
        runtime: Arc<AmqpRuntime>,
    ) -> lapin::Result<Self> {
        let loss = Loss::default();
        let shared = Arc::new(Shared {
            loss: loss.clone(),
            receipts: Receipts::new(signing.verifier.map(|verifier| (verifier, Topology::new(prefix)))),
            tasks: TaskTracker::new(),
            runtime,
        });
        shared.spawn(watch(consume.events_listener(), (Arc::downgrade(&shared), loss.clone()), "consume"));
        shared.spawn(watch(publish.events_listener(), (Weak::new(), loss.clone()), "publish"));
        let probe = open_channel(&consume).await?;
        let probe_queue = format!("{prefix}probe.{}", uuid::Uuid::new_v4());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), lapin::types::AMQPValue::LongString("classic".into()));
        probe.queue_declare(probe_queue.as_str().into(), QueueDeclareOptions::exclusive(), arguments).await?;
        let (publish, topology) = (Arc::new(publish), Topology::new(prefix));
        let publisher = Publisher::start(Arc::clone(&publish), loss, (topology.clone(), signing.signer));
        Ok(Self {
            consume: Arc::new(consume),
            publisher: publisher.await?,
            prefix: prefix.to_owned(),
            topology,
            exchanges: KnownExchanges::default(),
            shared,
            publish,
            probe,
            probe_queue,
            asking,
        })
    }

    /// A channel of the consume connection for one operation.
    pub(super) async fn channel(&self, queue: &str) -> Result<Channel, BrokerError> {
        open_channel(&self.consume).await.map_err(|e| self.shared.fail(&e, queue))
    }

    async fn take(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        let silent = || BrokerError::Silent(queue.to_owned());
        // Checks that the queue exists: a `get` from a missing queue would close the channel that holds the
        // messages of this call.
        tokio::time::timeout(GET_TIMEOUT, self.depth_of(queue)).await.unwrap_or_else(|_| Err(silent()))?;
        // Uses a separate channel for each call. The broker may still answer a `get` that the caller has
        // given up, and it takes that message back only when the channel closes.
        let block = Block::new(self.channel(queue).await?, queue);
        let mut taking = Taking { receipts: &self.shared.receipts, taken: Vec::new() };
        while taking.taken.len() < most {
            let get = block.channel.basic_get(queue.into(), BasicGetOptions::default());
            match tokio::time::timeout(GET_TIMEOUT, get).await.map_err(|_| silent())? {
                Ok(Some(message)) => {
                    taking.taken.push(self.shared.receipts.keep(message.delivery, &block));
                }
                Ok(None) => break,
                // The queue serves one consumer; the channel holds nothing yet.
                Err(error) if taking.taken.is_empty() && code(&error) == RESOURCE_LOCKED => {
                    return Err(self.shared.fail(&error, queue));
                }
                Err(error) => {
                    self.shared.loss.lose(format!("getting from {queue} failed: {error}"));
                    return Err(self.shared.loss.error());
                }
            }
        }
        Ok(std::mem::take(&mut taking.taken))
    }

    async fn round_trip(&self) -> Result<(), BrokerError> {
        let options = QueueDeclareOptions::default().passive();
        let queue = self.probe_queue.as_str().into();
        match self.probe.queue_declare(queue, options, FieldTable::default()).await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.shared.loss.lose(format!("the probe failed: {error}"));
                Err(self.shared.loss.error())
            }
        }
    }
}

/// Ends the session when this connection ends. `holds`: the session state with the deliveries of this
/// connection.
async fn watch(
    events: impl Stream<Item = Event>,
    (holds, loss): (Weak<Shared>, Loss),
    connection: &'static str,
) {
    let mut events = pin!(events);
    loop {
        let event = tokio::select! {
            _ = loss.wait() => return,
            event = events.next() => event,
        };
        match event {
            // A soft error closes one channel. A consumer learns of it from its stream. The stream of a
            // cancelled consumer has ended, but its channel may still hold deliveries, which the broker then
            // delivers elsewhere without notice.
            Some(Event::Error(error)) if error.is_amqp_soft_error() => {
                if holds.upgrade().is_some_and(|shared| shared.receipts.lost_a_channel()) {
                    loss.lose(format!("the broker closed a channel that holds deliveries: {error}"));
                }
            }
            Some(Event::Error(error)) => {
                loss.lose(format!("the {connection} connection ended: {error}"));
            }
            Some(Event::ConnectionBlocked(why)) => {
                tracing::warn!(connection, why, "the broker blocks publishers");
            }
            Some(Event::ConnectionUnblocked) => {
                tracing::info!(connection, "the broker accepts messages again");
            }
            Some(_) => {}
            None => {
                loss.lose(format!("the {connection} connection ended"));
            }
        }
    }
}

#[async_trait]
impl Declare for RabbitSession {
    async fn declare(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        self.shared.loss.guard(self.declare_queue(queue, kind)).await
    }
    async fn ensure(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        self.shared.loss.guard(self.ensure_queue(queue, kind)).await
    }
    async fn declare_exchange(&self, target: &Target) -> Result<(), BrokerError> {
        self.shared.loss.guard(self.ensure_target(target)).await
    }
    async fn bind(&self, queue: &str, to: &[Target]) -> Result<(), BrokerError> {
        self.shared.loss.guard(self.bind_queue(queue, to)).await
    }
}

#[async_trait]
impl Session for RabbitSession {
    async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError> {
        let published = async {
            self.ensure_target(target).await?;
            self.publisher.publish(target, message).await
        };
        self.shared.loss.guard(published).await
    }
    async fn consume(&self, consume: &Consume) -> Result<Box<dyn Consumer>, BrokerError> {
        let starting = RabbitConsumer::start(&self.consume, Arc::clone(&self.shared), consume);
        let started = async { starting.await.map_err(|e| self.shared.fail(&e, &consume.queue)) };
        Ok(Box::new(self.shared.loss.guard(started).await?))
    }
    async fn get(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        self.shared.loss.guard(self.take(queue, most)).await
    }
    async fn ack(&self, receipt: Receipt) -> Settle {
        self.shared.receipts.settle(receipt, Ending::Ack, &self.shared.loss).await
    }
    async fn ack_accepted(&self, receipt: Receipt) -> Settle {
        self.shared.receipts.ack_accepted(receipt, &self.shared.loss).await
    }
    async fn ack_all(&self, receipts: &[Receipt]) -> Settle {
        let Some((last, earlier)) = receipts.split_last() else { return Settle::Done };
        if self.shared.receipts.forget_if_first(earlier, *last) {
            return self.shared.receipts.settle(*last, Ending::AckAll, &self.shared.loss).await;
        }
        ack_each(self, receipts).await
    }
    async fn requeue(&self, receipt: Receipt) -> Settle {
        self.shared.receipts.settle(receipt, Ending::Requeue, &self.shared.loss).await
    }
    async fn probe(&self) -> Result<(), BrokerError> {
        self.shared.loss.guard(self.round_trip()).await
    }
    async fn depth(&self, queue: &str) -> Result<Depth, BrokerError> {
        self.shared.loss.guard(self.depth_of(queue)).await
    }
    async fn delete(&self, queue: &str) -> Result<(), BrokerError> {
        self.shared.loss.guard(self.delete_queue(queue)).await
    }
    async fn fate(&self, exclusive_queue: &str) -> Result<OwnerLiveness, BrokerError> {
        self.shared.loss.guard(self.fate_of(exclusive_queue)).await
    }
    fn is_blocked(&self) -> bool {
        self.publish.status().blocked()
    }
    fn heartbeat(&self) -> Option<Duration> {
        let seconds = self.consume.configuration().heartbeat();
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
    async fn lost(&self) -> String {
        self.shared.loss.wait().await
    }
    async fn close(&self) {
        self.shared.loss.lose("closed by this side");
        let closing = async {
            self.asking.close().await;
            tokio::join!(self.consume.close(200, "bye".into()), self.publish.close(200, "bye".into()))
        };
        match tokio::time::timeout(CLOSE_TIMEOUT, closing).await {
            Ok((Ok(()), Ok(()))) => {}
            Ok((consume, publish)) => tracing::debug!(?consume, ?publish, "a connection had ended before"),
            Err(_) => tracing::debug!("the broker does not answer the close"),
        }
    }
}

impl Drop for RabbitSession {
    fn drop(&mut self) {
        self.shared.loss.lose("dropped by this side");
    }
}
