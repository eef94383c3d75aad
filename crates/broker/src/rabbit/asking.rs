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

/// How many queries use one connection. Brokers allow 2,047 channels.
const QUESTIONS_MAX: u32 = 1000;

/// The connection for these queries. The first query opens it; a later query replaces it when it is used up
/// or lost.
pub(super) struct Asking {
    node: AMQPUri,
    nodes: Arc<Nodes>,
    tls: TlsFiles,
    name: String,
    runtime: Arc<AmqpRuntime>,
    open: Mutex<Option<(Arc<Connection>, u32)>>,
}

impl Asking {
    pub(super) fn new(
        (node, nodes, tls): (AMQPUri, Arc<Nodes>, TlsFiles),
        name: String,
        runtime: Arc<AmqpRuntime>,
    ) -> Self {
        Self { node, nodes, tls, name, runtime, open: Mutex::default() }
    }

    /// A channel for one query.
    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        open_channel(self.connection().await?.as_ref()).await
    }

    /// Passively declares a queue.
    pub(super) async fn look(&self, queue: &str) -> lapin::Result<Queue> {
        let channel = self.channel().await?;
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
        let connection = Arc::new(
            dial(&self.nodes.renewed(&self.node), &self.tls, self.name.clone(), &self.runtime).await?,
        );
        // The previous connection closes when its last query has been answered.
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
