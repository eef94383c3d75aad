//! Questions about queues of other sessions, on a connection of their own.
//!
//! RabbitMQ closes the channel that asks about an exclusive queue, and lapin never uses the number of such a channel
//! again. The obvious way, to ask on a connection of the session, ends that session after some 2,000 questions, and a
//! suspect is asked about once a second.

use super::channel::open_channel;
use super::{AmqpRuntime, dial};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Connection, Queue};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Questions on one connection; brokers allow 2,047 channels.
const QUESTIONS_MAX: u32 = 1000;

/// A connection that is opened by the first question, and again whenever it is used up or lost.
pub(super) struct Asking {
    node: AMQPUri,
    name: String,
    runtime: Arc<AmqpRuntime>,
    open: Mutex<Option<(Arc<Connection>, u32)>>,
}

impl Asking {
    pub(super) fn new(node: AMQPUri, name: String, runtime: Arc<AmqpRuntime>) -> Self {
        Self { node, name, runtime, open: Mutex::default() }
    }

    /// A passive look at a queue.
    pub(super) async fn look(&self, queue: &str) -> lapin::Result<Queue> {
        let channel = open_channel(self.connection().await?.as_ref()).await?;
        let options = QueueDeclareOptions::default().passive();
        channel.queue_declare(queue.into(), options, FieldTable::default()).await
    }

    async fn connection(&self) -> lapin::Result<Arc<Connection>> {
        let mut open = self.open.lock().await;
        if let Some((connection, asked)) = open.as_mut()
            && *asked < QUESTIONS_MAX
            && connection.status().connected()
        {
            *asked += 1;
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(dial(&self.node, self.name.clone(), &self.runtime).await?);
        // The one before ends once its last question is answered.
        *open = Some((Arc::clone(&connection), 1));
        Ok(connection)
    }

    pub(super) async fn close(&self) {
        if let Some((connection, _)) = self.open.lock().await.take()
            && let Err(error) = connection.close(200, "bye".into()).await
        {
            tracing::debug!(%error, "the connection for questions had ended before");
        }
    }
}
