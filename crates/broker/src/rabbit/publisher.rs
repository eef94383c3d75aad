//! Publishing with confirms. Owns the channels of the publish connection.
//!
//! lapin attaches a returned message to the confirm that it completes next, which may belong to another
//! message. Therefore messages that the broker may return never share a channel with messages for another
//! queue.

use super::channel::open_channel;
use crate::loss::Loss;
use crate::port::{BrokerError, HeaderValue, Message, Target};
use crate::signing::Signer;
use crate::topology::Topology;
use everwatch_core::wire::signature::HEADER;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// A channel that keeps messages in the order in which they are issued. It is opened in advance: if the first
/// messages had to wait for it, later messages could overtake them.
struct Lane {
    channel: Channel,
    entry: Mutex<()>,
}

impl Lane {
    async fn open(connection: &Connection) -> lapin::Result<Self> {
        let channel = open_channel(connection).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { channel, entry: Mutex::new(()) })
    }
}

/// Retry pauses, in ms. RabbitMQ also rejects a message for several queues while one of them is being deleted
/// with the session of its owner. The remaining queues may receive the message several times.
const FANOUT_PAUSES_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

pub(super) struct Publisher {
    connection: Arc<Connection>,
    loss: Loss,
    /// For exchanges. The broker never returns these messages.
    exchanges: Lane,
    /// One for each durable queue that this session has declared; there are few.
    queues: Mutex<HashMap<String, Arc<Lane>>>,
    /// For all other queues, which are temporary. Sends one message at a time.
    others: tokio::sync::Mutex<Lane>,
    topology: Topology,
    signer: Option<Arc<Signer>>,
}

/// Where a message goes.
#[derive(Clone, Copy)]
struct Address<'a> {
    exchange: &'a str,
    key: &'a str,
    /// The broker returns the message if no queue takes it.
    mandatory: bool,
}

impl Publisher {
    pub(super) async fn start(
        connection: Arc<Connection>,
        loss: Loss,
        (topology, signer): (Topology, Option<Arc<Signer>>),
    ) -> lapin::Result<Self> {
        let exchanges = Lane::open(&connection).await?;
        let others = tokio::sync::Mutex::new(Lane::open(&connection).await?);
        Ok(Self { connection, loss, exchanges, queues: Mutex::default(), others, topology, signer })
    }

    /// Opens a channel for this queue, so that many messages for it can be in progress at once.
    pub(super) async fn expect_queue(&self, queue: &str) -> Result<(), BrokerError> {
        if self.lane(queue).is_none() {
            let lane = Lane::open(&self.connection).await.map_err(|e| self.lost(&e))?;
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.entry(queue.to_owned()).or_insert_with(|| Arc::new(lane));
        }
        Ok(())
    }

    fn lane(&self, queue: &str) -> Option<Arc<Lane>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }

    pub(super) async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError> {
        let (exchange, key) = match target {
            Target::Queue(queue) => {
                let exchange = self.topology.exchange_of(queue);
                let to = Address { exchange: &exchange, key: queue, mandatory: true };
                return match self.lane(queue) {
                    Some(lane) => self.send(&lane, to, message).await,
                    None => self.send(&*self.others.lock().await, to, message).await,
                };
            }
            Target::Topic { exchange, key } => {
                let to = Address { exchange, key, mandatory: false };
                return self.send(&self.exchanges, to, message).await;
            }
            Target::Direct { exchange, key } => (exchange, key.as_str()),
            Target::Fanout(exchange) => (exchange, ""),
        };
        let to = Address { exchange, key, mandatory: false };
        for pause in FANOUT_PAUSES_MS {
            match self.send(&self.exchanges, to, message.clone()).await {
                Err(BrokerError::NotAccepted(_)) => sleep(Duration::from_millis(pause)).await,
                done => return done,
            }
        }
        self.send(&self.exchanges, to, message).await
    }

    /// The message with the signature of this manager, if it goes to services.
    fn signed(&self, to: Address<'_>, mut message: Message) -> Message {
        if let Some(signer) = self.signer.as_ref().filter(|_| self.topology.leads_to_services(to.exchange)) {
            let signature = signer.sign((to.exchange, to.key), &message.body);
            message.headers.push((HEADER.to_owned(), HeaderValue::Text(signature.to_string())));
        }
        message
    }

    async fn send(&self, lane: &Lane, to: Address<'_>, message: Message) -> Result<(), BrokerError> {
        let confirm = enter(lane, to, self.signed(to, message)).await.map_err(|e| self.lost(&e))?;
        let named = || if to.mandatory { to.key.to_owned() } else { to.exchange.to_owned() };
        match confirm.await.map_err(|e| self.lost(&e))? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(BrokerError::Unroutable(named())),
            Confirmation::Nack(_) => Err(BrokerError::NotAccepted(named())),
            Confirmation::NotRequested => Err(BrokerError::Refused("it does not confirm".to_owned())),
        }
    }

    /// Ends the session. A publish fails only if its channel fails, and then all messages in progress on it
    /// fail too.
    fn lost(&self, error: &lapin::Error) -> BrokerError {
        self.loss.lose(format!("publishing failed: {error}"));
        self.loss.error()
    }
}

/// lapin numbers a message and queues its frames in two steps, both in the first poll. If two threads
/// interleave these steps, their messages swap confirms; the lock keeps the steps together.
async fn enter(lane: &Lane, to: Address<'_>, message: Message) -> lapin::Result<PublisherConfirm> {
    let options = BasicPublishOptions { mandatory: to.mandatory, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_headers(headers(message.headers));
    let mut sending = pin!(lane.channel.basic_publish(
        to.exchange.into(),
        to.key.into(),
        options,
        &message.body,
        properties
    ));
    let first = poll_fn(|context| {
        let _entry = lane.entry.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(sending.as_mut().poll(context))
    })
    .await;
    match first {
        Poll::Ready(sent) => sent,
        Poll::Pending => sending.await,
    }
}

fn headers(headers: Vec<(String, HeaderValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        let value = match value {
            HeaderValue::Text(text) => AMQPValue::LongString(text.into()),
            HeaderValue::Number(number) => AMQPValue::LongLongInt(number),
        };
        table.insert(name.into(), value);
    }
    table
}
