//! Queries that the broker may refuse, on a separate connection.
//!
//! RabbitMQ closes a channel that queries a missing queue or an exclusive queue of another session, and lapin never
//! reuses the number of such a channel. If the session sent these queries on its own connection, it would run out of
//! channels after some 2,000 queries; managers query each suspect once a second, and the doctor looks for queues that
//! are not there. This connection can be replaced without ending the session.

use super::channel::open_channel;
use super::nodes::Nodes;
use super::{AmqpRuntime, TlsFiles, dial};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, Queue};
use std::sync::Arc;
use tokio::sync::Mutex;

/// How many channels one connection opens. Brokers allow 2,047.
const CHANNELS_MAX: u32 = 1000;

/// The connection for these queries. The first query opens it; a later query replaces it when it is used up
/// or lost.
pub(super) struct Asking {
    node: AMQPUri,
    nodes: Arc<Nodes>,
    tls: TlsFiles,
    name: String,
    runtime: Arc<AmqpRuntime>,
    open: Mutex<Option<(Arc<Connection>, u32)>>,
    /// The channel of a query that the broker answered: the next query uses it. A refusal closes the channel of its query.
    idle: std::sync::Mutex<Option<Channel>>,
}

impl Asking {
    pub(super) fn new(
        (node, nodes, tls): (AMQPUri, Arc<Nodes>, TlsFiles),
        name: String,
        runtime: Arc<AmqpRuntime>,
    ) -> Self {
        let (open, idle) = (Mutex::default(), std::sync::Mutex::default());
        Self { node, nodes, tls, name, runtime, open, idle }
    }

    /// A channel for one query.
    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        open_channel(self.connection().await?.as_ref()).await
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Channel>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Passively declares a queue.
    pub(super) async fn look(&self, queue: &str) -> lapin::Result<Queue> {
        let idle = self.idle().take().filter(|channel| channel.status().connected());
        let channel = match idle {
            Some(channel) => channel,
            None => self.channel().await?,
        };
        let options = QueueDeclareOptions::default().passive();
        let found = channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
        *self.idle() = Some(channel);
        Ok(found)
    }

    async fn connection(&self) -> lapin::Result<Arc<Connection>> {
        let mut open = self.open.lock().await;
        if let Some((connection, asked)) = open.as_mut()
            && *asked < CHANNELS_MAX
            && connection.status().connected()
        {
            *asked += 1;
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(
            dial(&self.nodes.renewed(&self.node), &self.tls, self.name.clone(), &self.runtime).await?,
        );
        // The previous connection closes when its last query has been answered.
        *open = Some((Arc::clone(&connection), 1));
        Ok(connection)
    }

    pub(super) async fn close(&self) {
        drop(self.idle().take());
        if let Some((connection, _)) = self.open.lock().await.take()
            && let Err(error) = connection.close(200, "bye".into()).await
        {
            tracing::debug!(%error, "the connection for questions had ended before");
        }
    }
}
