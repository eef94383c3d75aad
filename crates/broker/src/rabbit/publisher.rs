//! Publishing with confirms. Owns the channels of the publish connection.
//!
//! lapin hands a returned message to whichever confirm it completes next, not to the one it belongs to.
//! So messages that may be returned never share a channel with messages for another queue.

use crate::loss::Loss;
use crate::port::{BrokerError, HeaderValue, Message, Target};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use tokio::sync::OnceCell;

/// A channel on which messages follow each other in the order in which they are issued.
#[derive(Default)]
struct Lane {
    channel: OnceCell<Channel>,
    entry: Mutex<()>,
}

pub(super) struct Publisher {
    connection: Arc<Connection>,
    loss: Loss,
    /// For exchanges: nothing here is ever returned.
    exchanges: Lane,
    /// One for each durable queue that this session has declared, so few.
    queues: Mutex<HashMap<String, Arc<Lane>>>,
    /// For all other queues, which come and go: one message under way at a time.
    others: tokio::sync::Mutex<Lane>,
}

impl Publisher {
    pub(super) fn new(connection: Arc<Connection>, loss: Loss) -> Self {
        Self {
            connection,
            loss,
            exchanges: Lane::default(),
            queues: Mutex::default(),
            others: tokio::sync::Mutex::default(),
        }
    }

    /// From now on many messages for this queue may be under way at once.
    pub(super) fn expect_queue(&self, queue: &str) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(queue.to_owned()).or_default();
    }

    pub(super) async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError> {
        let (exchange, key) = match target {
            Target::Queue(queue) => ("", queue.as_str()),
            Target::Fanout(exchange) => (exchange.as_str(), ""),
            Target::Topic { exchange, key } => (exchange.as_str(), key.as_str()),
        };
        let Target::Queue(queue) = target else {
            return self.send(&self.exchanges, exchange, key, message).await;
        };
        let lane = {
            let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.get(queue).cloned()
        };
        match lane {
            Some(lane) => self.send(&lane, exchange, key, message).await,
            None => {
                let lane = self.others.lock().await;
                self.send(&lane, exchange, key, message).await
            }
        }
    }

    async fn send(
        &self,
        lane: &Lane,
        exchange: &str,
        key: &str,
        message: Message,
    ) -> Result<(), BrokerError> {
        let channel = lane.channel.get_or_try_init(|| self.open()).await.map_err(|e| self.lost(&e))?;
        let confirm = enter(lane, channel, (exchange, key), message).await.map_err(|e| self.lost(&e))?;
        let named = || if exchange.is_empty() { key.to_owned() } else { exchange.to_owned() };
        match confirm.await.map_err(|e| self.lost(&e))? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(BrokerError::Unroutable(named())),
            Confirmation::Nack(_) => Err(BrokerError::NotAccepted(named())),
            Confirmation::NotRequested => Err(BrokerError::Refused("it does not confirm".to_owned())),
        }
    }

    async fn open(&self) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// A publish fails only with its channel, and with it all that is under way: the session is over.
    fn lost(&self, error: &lapin::Error) -> BrokerError {
        self.loss.lose(format!("publishing failed: {error}"));
        self.loss.error()
    }
}

/// lapin numbers a message and queues its frames in two steps, both in the first poll. Two threads in
/// between each other would swap the confirms of their messages; the lock keeps the steps together.
async fn enter(
    lane: &Lane,
    channel: &Channel,
    (exchange, key): (&str, &str),
    message: Message,
) -> lapin::Result<PublisherConfirm> {
    let options = BasicPublishOptions { mandatory: exchange.is_empty(), ..BasicPublishOptions::default() };
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_headers(headers(message.headers));
    let mut sending =
        pin!(channel.basic_publish(exchange.into(), key.into(), options, &message.body, properties));
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
