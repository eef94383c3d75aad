//! The broker port: what Everwatch asks of a broker, and what it may rely on.
//!
//! A [`Session`] is two connections (one consumes and acknowledges, one publishes) that live and die
//! together; questions about other sessions go through a third that is no part of it. Nothing recovers
//! behind the caller's back: once [`Session::lost`] answers, every delivery of the session belongs to
//! another consumer.

use async_trait::async_trait;
use bytes::Bytes;
use everwatch_core::doctor::Server;
use std::sync::Arc;
use std::time::Duration;

/// Opens sessions.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Connects once, time-boxed, under a name that the broker's console shows.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if trying again cannot help, else [`ConnectError::Unreachable`].
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError>;
    /// The version of RabbitMQ, as "3.10.8"; `None` if it does not tell within 2 s or is something else.
    async fn version(&self) -> Option<String>;
    /// What can be seen of it from outside a session, within 10 s; `queues` are looked at if they are there.
    /// `None`: it is a part of this process.
    async fn inspect(&self, queues: &[(String, QueueKind)]) -> Option<Server>;
}

/// Why no session could be opened. Messages name the broker without its password, and the cure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// Worth trying again.
    #[error("{0}")]
    Unreachable(String),
    /// Access refused, unknown vhost, bad URL: a person has to act.
    #[error("{0}")]
    Refused(String),
}

/// Why an operation on a session failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    /// The session, or the channel of this operation, is gone.
    #[error("the session with the broker is lost: {0}")]
    Lost(String),
    /// The broker refused the operation (its words).
    #[error("the broker refused: {0}")]
    Refused(String),
    /// The queue is not there.
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
    /// To everyone bound to the fan-out exchange; nobody there is fine.
    Fanout(String),
    /// To a topic exchange; nobody there is fine.
    Topic { exchange: String, key: String },
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

/// How a queue is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueKind {
    /// Durable, quorum, nothing in it is ever dropped: work, state, parked, store (see `topology`).
    Durable { max_length: Option<u32> },
    /// Durable, quorum, the newest messages of the last 15 s: beats.
    Beats,
    /// Exclusive to the consume connection of this session, dies with it.
    Exclusive,
}

/// Whether a declaration found the queue or made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    Existed,
    Created,
}

/// What a passive look at a queue tells. `0/0` is RabbitMQ's way of saying "I do not know".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub ready: u32,
    pub consumers: u32,
}

/// What became of somebody's exclusive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its session lives (RabbitMQ answers 405).
    Alive,
    /// Its session is gone (404).
    Gone,
}

/// Identifies one delivery within its session. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Receipt(pub u64);

/// A message in the consumer's keeping until it is settled or the session is lost.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub receipt: Receipt,
    pub body: Bytes,
    /// How often the broker had handed this message out before: the greater of `x-acquired-count`
    /// and `x-delivery-count`, 0 if neither is there.
    pub acquisitions: u32,
    pub redelivered: bool,
    /// Those that are text or whole numbers, the broker's own included.
    pub headers: Vec<(String, HeaderValue)>,
}

impl Delivery {
    /// A header that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(key, value)| match value {
            HeaderValue::Text(text) if key == name => Some(text.as_str()),
            HeaderValue::Text(_) | HeaderValue::Number(_) => None,
        })
    }
}

/// What the broker did with a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Handed to the broker.
    Done,
    /// The delivery was no longer ours: it is, or will be, somebody else's.
    NotOurs,
}

/// One consumer at a time on a channel of its own, each under a tag never used before (a "block").
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; `None` once the consumer is over, whether cancelled here, cancelled by the
    /// broker or lost with its channel ([`Consumer::cancelled_here`] tells). Cancel-safe.
    async fn next(&mut self) -> Option<Delivery>;
    /// Stops deliveries. What is held stays held and can still be settled. Deliveries that were on
    /// their way still come out of [`Consumer::next`] before `None`.
    ///
    /// # Errors
    /// If the channel is gone.
    async fn cancel(&mut self) -> Result<(), BrokerError>;
    /// Consumes anew, under a new tag, on the channel of this cancelled consumer once [`Consumer::next`] has
    /// answered `None`. What is held from before stays held and takes no part of the new prefetch.
    ///
    /// # Errors
    /// Refused if it was not cancelled here or its stream has not ended; no such queue; lost.
    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError>;
    /// Whether the end of the stream is our own doing.
    fn cancelled_here(&self) -> bool;
}

/// Why a consumer cannot consume anew.
pub(crate) fn still_open() -> BrokerError {
    BrokerError::Refused("this consumer was not cancelled, or its stream has not ended".to_owned())
}

/// How to consume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consume {
    pub queue: String,
    /// 1 to 1,000; more held on one channel makes every ack slow.
    pub prefetch: u16,
    /// Higher is served first until it is full; 0 is normal.
    pub priority: i32,
}

/// Two connections to the broker that live and die together.
#[async_trait]
pub trait Session: Send + Sync + 'static {
    /// Makes sure the queue is there, passively first.
    ///
    /// # Errors
    /// Refused, naming queue and argument, if it exists with other arguments; lost.
    async fn declare(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError>;
    /// Makes sure the durable exchange is there.
    ///
    /// # Errors
    /// Refused or lost.
    async fn declare_exchange(&self, target: &Target) -> Result<(), BrokerError>;
    /// Binds an exclusive queue of this session to a fan-out exchange.
    ///
    /// # Errors
    /// Refused or lost.
    async fn bind(&self, queue: &str, exchange: &str) -> Result<(), BrokerError>;
    /// Publishes and waits for the broker's confirm. Many may be under way at once; those issued in
    /// order from one task arrive in order. While the broker blocks publishers this waits.
    ///
    /// # Errors
    /// Unroutable, not accepted, or lost (then the message may or may not be there).
    async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError>;
    /// Opens one block.
    ///
    /// # Errors
    /// No such queue, refused or lost.
    async fn consume(&self, consume: &Consume) -> Result<Box<dyn Consumer>, BrokerError>;
    /// Takes at most `most` ready messages, without waiting for more. At most 1,000: those of one call are held on one
    /// channel.
    ///
    /// # Errors
    /// No such queue, lost, or silent for 2 s: then nothing was taken.
    async fn get(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError>;
    /// Ends the message. Works for cancelled consumers too.
    async fn ack(&self, receipt: Receipt) -> Settle;
    /// Gives the message back, to the head of the queue, for another consumer.
    async fn requeue(&self, receipt: Receipt) -> Settle;
    /// A round trip on the consume connection.
    ///
    /// # Errors
    /// Lost.
    async fn probe(&self) -> Result<(), BrokerError>;
    /// A passive look on a throw-away channel.
    ///
    /// # Errors
    /// No such queue or lost.
    async fn depth(&self, queue: &str) -> Result<Depth, BrokerError>;
    /// Whether the session that owns this exclusive queue still lives; asked on a connection of its own, which the
    /// session does not depend on.
    ///
    /// # Errors
    /// Lost or silent.
    async fn fate(&self, exclusive_queue: &str) -> Result<Fate, BrokerError>;
    /// Whether the broker blocks publishers now (memory or disk alarm).
    fn is_blocked(&self) -> bool;
    /// The heartbeat that both sides have agreed on, if there is one.
    fn heartbeat(&self) -> Option<Duration>;
    /// Resolves when either connection is lost or closed, with the reason; at once if it already is.
    async fn lost(&self) -> String;
    /// Closes both connections, politely and within 2 s. What is held goes back to its queue.
    async fn close(&self);
}
