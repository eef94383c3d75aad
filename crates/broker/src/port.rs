//! The broker port: what Everwatch requires of a broker, and what it may rely on.
//!
//! A [`Session`] is two connections that live and die together: one consumes and acknowledges, the other publishes.
//! Questions about other sessions use a third connection, on which the session does not depend. Nothing reconnects
//! without the caller: once [`Session::lost`] resolves, every delivery of the session belongs to another consumer.

use async_trait::async_trait;
use bytes::Bytes;
use everwatch_core::doctor::Server;
use everwatch_core::wire::signature::Refused;
use std::sync::Arc;
use std::time::Duration;

/// Opens sessions.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Connects once, within a time limit, under a name that the broker's console shows.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if a retry cannot help, otherwise [`ConnectError::Unreachable`].
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError>;
    /// The version of RabbitMQ, as "3.10.8"; `None` if the broker does not send it within 2 s, or is not RabbitMQ.
    async fn version(&self) -> Option<String>;
    /// Whether it signs work and commands.
    fn signs(&self) -> bool {
        false
    }
    /// The state of the broker and of these queues as seen from outside a session, within 10 s. `None` if the broker is
    /// part of this process.
    async fn inspect(&self, queues: &[(String, QueueKind)]) -> Option<Server>;
}

/// Why no session could be opened. The message names the broker without its password, and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// A retry may help.
    #[error("{0}")]
    Unreachable(String),
    /// Access refused, unknown virtual host, bad URL: an operator must act.
    #[error("{0}")]
    Refused(String),
}

/// Why an operation on a session failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    /// The session, or the channel of this operation, is gone.
    #[error("the session with the broker is lost: {0}")]
    Lost(String),
    /// The broker refused the operation, for this reason.
    #[error("the broker refused: {0}")]
    Refused(String),
    /// The user of the session lacks the permission that this text names.
    #[error("the broker does not permit it: {0}")]
    Forbidden(String),
    /// The queue does not exist.
    #[error("the queue {0} does not exist")]
    NoQueue(String),
    /// No queue took the message.
    #[error("no queue takes messages for {0}")]
    Unroutable(String),
    /// The queue did not answer in time: it may have lost its leader.
    #[error("the queue {0} does not answer")]
    Silent(String),
    /// The broker did not keep the message (queue full).
    #[error("the broker did not accept the message for {0}")]
    NotAccepted(String),
}

/// Where a message is published. Every publish is persistent and confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To one queue; unroutable is an error.
    Queue(String),
    /// To every queue bound to the fan-out exchange; there may be none.
    Fanout(String),
    /// To every queue bound to the direct exchange with this key; there may be none.
    Direct { exchange: String, key: String },
    /// To a topic exchange; no queue need be bound.
    Topic { exchange: String, key: String },
}

impl Target {
    /// The name of the queue or of the exchange.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Queue(name) | Self::Fanout(name) => name,
            Self::Direct { exchange, .. } | Self::Topic { exchange, .. } => exchange,
        }
    }
}

/// A header value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    Text(String),
    Number(i64),
}

/// What is published.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub body: Bytes,
    pub headers: Vec<(String, HeaderValue)>,
}

/// The kind of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueKind {
    /// Durable, quorum, drops no message: work, state, parked, store (see `topology`).
    Durable { max_length: Option<u32> },
    /// Durable, quorum, drops no message, and serves one consumer at a time, the others in turn after it has ended: the
    /// work queue of a single pool. The broker refuses [`Session::get`] on it. All consumers must have the same priority.
    ///
    /// When a consumer of a higher priority arrives, RabbitMQ 4.0 and later deliver no more messages to the active one, and
    /// none to the new one until the active one holds no message. Services hold their messages as long as observers run, so
    /// the queue would deliver nothing.
    SingleActive,
    /// Durable, quorum, keeps the messages of the last 15 s: heartbeats.
    Heartbeats,
    /// Durable, quorum, keeps the messages of the last 2 s: requests for permits.
    Rates,
    /// Exclusive to the consume connection of this session, and deleted with it.
    Exclusive,
}

/// Whether a declaration found the queue or created it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    Existed,
    Created,
}

/// The result of a passive declaration. RabbitMQ answers `0/0` if it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub ready: u32,
    pub consumers: u32,
}

impl Depth {
    /// Refuses the deletion of a queue that has messages or consumers.
    pub(crate) fn check_idle(self, queue: &str) -> Result<(), BrokerError> {
        match self {
            Self { ready: 0, consumers: 0 } => Ok(()),
            Self { ready, consumers } => Err(BrokerError::Refused(format!(
                "{queue} is in use: it has {ready} ready messages and {consumers} consumers"
            ))),
        }
    }
}

/// Whether the session that owns an exclusive queue lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerLiveness {
    /// Its session lives (RabbitMQ answers 405).
    Alive,
    /// Its session is gone (404).
    Gone,
}

/// Identifies one delivery within its session; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Receipt(pub u64);

/// A message that the session holds until it is settled or the session is lost.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub receipt: Receipt,
    pub body: Bytes,
    /// How often the broker has delivered this message before: the greater of `x-acquired-count`
    /// and `x-delivery-count`, 0 if neither is there.
    pub acquisitions: u32,
    pub redelivered: bool,
    /// The headers that are text or whole numbers, including those of the broker.
    pub headers: Vec<(String, HeaderValue)>,
    /// Why the message is not from a manager, if signatures are verified.
    pub refused: Option<Refused>,
}

impl Delivery {
    /// The header of this name, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(key, value)| match value {
            HeaderValue::Text(text) if key == name => Some(text.as_str()),
            HeaderValue::Text(_) | HeaderValue::Number(_) => None,
        })
    }
}

/// The result of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Sent to the broker.
    Done,
    /// The delivery no longer belongs to this session: another session has it, or will get it.
    NotOurs,
}

/// One consumer at a time on its own channel (a "block"), each with a consumer tag that was never used before.
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; `None` once the consumer has ended: cancelled here, cancelled by the broker, or lost with its
    /// channel ([`Consumer::cancelled_here`] tells which). Cancel-safe.
    async fn next(&mut self) -> Option<Delivery>;
    /// Stops deliveries. Held messages stay held and can still be settled. [`Consumer::next`] still returns deliveries
    /// that were in transit, then `None`.
    ///
    /// # Errors
    /// If the channel is gone.
    async fn cancel(&mut self) -> Result<(), BrokerError>;
    /// Consumes again, under a new tag, on the channel of this cancelled consumer once [`Consumer::next`] has
    /// returned `None`. Messages that are held from before stay held and do not count against the new prefetch.
    ///
    /// # Errors
    /// Refused if it was not cancelled here or its stream has not ended; no such queue; lost.
    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError>;
    /// Whether this side ended the consumer.
    fn cancelled_here(&self) -> bool;
}

/// What a refusal to declare a work queue must say if the reason is that its pool is single for one side only.
pub(crate) fn explain_refusal(refusal: &str) -> String {
    if !refusal.contains("x-single-active-consumer") {
        return refusal.to_owned();
    }
    format!(
        "{refusal}; managers and services differ on whether this pool is single, and the queue keeps what it was declared \
         with: set service.pool_single on all services of the pool if it was created with `everwatch pool create NAME \
         --single`, and on none otherwise; a pool cannot change, so for the other setting use a pool of another name"
    )
}

/// Why a consumer cannot consume again.
pub(crate) fn still_open() -> BrokerError {
    BrokerError::Refused("this consumer was not cancelled, or its stream has not ended".to_owned())
}

/// How to consume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consume {
    pub queue: String,
    /// 1 to 1,000: with more messages held on one channel, every acknowledgement becomes slow.
    pub prefetch: u16,
    /// The queue serves higher priorities first until they are full; 0 is normal.
    pub priority: i32,
}

/// Acknowledges messages one by one.
pub(crate) async fn ack_each<S: Session + ?Sized>(session: &S, receipts: &[Receipt]) -> Settle {
    for receipt in receipts {
        if session.ack(*receipt).await == Settle::NotOurs {
            return Settle::NotOurs;
        }
    }
    Settle::Done
}

/// Declares queues and exchanges.
#[async_trait]
pub trait Declare: Send + Sync + 'static {
    /// Makes sure that the queue exists, passively first, and that messages get to it.
    ///
    /// # Errors
    /// Forbidden; refused, naming queue and argument, if it exists with other arguments; lost.
    async fn declare(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError>;
    /// The same for a user that may lack the permission to declare the queue: if the queue exists, its arguments are then
    /// not compared.
    ///
    /// # Errors
    /// Forbidden if the queue, or an exchange that belongs to it, does not exist; otherwise as [`Declare::declare`].
    async fn ensure(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        self.declare(queue, kind).await
    }
    /// Makes sure that the durable exchange exists. A user that may not declare it needs it to exist.
    ///
    /// # Errors
    /// Forbidden, refused or lost.
    async fn declare_exchange(&self, target: &Target) -> Result<(), BrokerError>;
    /// Binds an exclusive queue of this session to fan-out exchanges, and to direct exchanges by their keys.
    ///
    /// # Errors
    /// Forbidden, refused or lost.
    async fn bind(&self, queue: &str, to: &[Target]) -> Result<(), BrokerError>;
}

/// Two connections to the broker that live and die together.
#[async_trait]
pub trait Session: Declare {
    /// Publishes and waits for the broker's confirm. Many publishes may be in progress at once; those that one task
    /// issues in order arrive in order. While the broker blocks publishers, this waits.
    ///
    /// # Errors
    /// Unroutable, not accepted, or lost (then the message may be in the queue).
    async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError>;
    /// Opens one block.
    ///
    /// # Errors
    /// No such queue, refused or lost.
    async fn consume(&self, consume: &Consume) -> Result<Box<dyn Consumer>, BrokerError>;
    /// Takes at most `most` (up to 1,000) ready messages without waiting for more. The messages of one call are held on
    /// one channel.
    ///
    /// # Errors
    /// No such queue, lost, or silent for 2 s: then nothing was taken.
    async fn get(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError>;
    /// Acknowledges the message. Works for cancelled consumers too.
    async fn ack(&self, receipt: Receipt) -> Settle;
    /// Acknowledges the message, and waits until the queue has accepted that: it never delivers the message again. While
    /// this waits, the queue may deliver another message once more than otherwise.
    async fn ack_accepted(&self, receipt: Receipt) -> Settle {
        match self.ack(receipt).await {
            Settle::Done if self.probe().await.is_err() => Settle::NotOurs,
            settle => settle,
        }
    }
    /// Acknowledges these messages of one consumer, in the order in which they came: with one frame if the consumer's
    /// channel holds no earlier message. If it answers [`Settle::NotOurs`], the broker may still have some of them.
    async fn ack_all(&self, receipts: &[Receipt]) -> Settle {
        ack_each(self, receipts).await
    }
    /// Returns the message to the head of the queue, for another consumer.
    async fn requeue(&self, receipt: Receipt) -> Settle;
    /// A round trip on the consume connection.
    ///
    /// # Errors
    /// Lost.
    async fn probe(&self) -> Result<(), BrokerError>;
    /// Deletes a durable queue that has no ready message and no consumer.
    ///
    /// RabbitMQ does not check this for a quorum queue as it deletes it, so the session checks it just before: a message that
    /// is published in between is lost.
    ///
    /// # Errors
    /// No such queue; refused, with the number of messages and consumers; forbidden, silent or lost.
    async fn delete(&self, queue: &str) -> Result<(), BrokerError>;
    /// Passively declares the queue on a temporary channel.
    ///
    /// # Errors
    /// No such queue or lost.
    async fn depth(&self, queue: &str) -> Result<Depth, BrokerError>;
    /// The number of ready messages of a queue.
    ///
    /// # Errors
    /// Those of [`Session::depth`].
    async fn ready(&self, queue: &str) -> Result<u32, BrokerError> {
        Ok(self.depth(queue).await?.ready)
    }
    /// Whether the session that owns this exclusive queue still lives. The question uses a separate connection, on
    /// which this session does not depend.
    ///
    /// # Errors
    /// Lost or silent.
    async fn fate(&self, exclusive_queue: &str) -> Result<OwnerLiveness, BrokerError>;
    /// Whether the broker currently blocks publishers (memory or disk alarm).
    fn is_blocked(&self) -> bool;
    /// The heartbeat that both sides have negotiated, if any.
    fn heartbeat(&self) -> Option<Duration>;
    /// Resolves with the reason when either connection is lost or closed; at once if it already is.
    async fn lost(&self) -> String;
    /// Closes both connections in order, within 2 s. The broker requeues held messages.
    async fn close(&self);
}
