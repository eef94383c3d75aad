//! Deletes the queues and exchanges of a deployment. No running part of Everwatch does this; only programs
//! that create a temporary deployment, such as tests, delete it afterwards.

use super::RabbitBroker;
use crate::port::ConnectError;
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};

impl RabbitBroker {
    /// Deletes these queues with their messages, and these exchanges. Ignores those that do not exist.
    ///
    /// # Errors
    /// If the broker cannot be reached or forbids it.
    pub async fn remove(&self, queues: &[String], exchanges: &[String]) -> Result<(), ConnectError> {
        let failed = |error: lapin::Error| ConnectError::Unreachable(format!("not deleted: {error}"));
        let mut failure = None;
        for node in self.nodes.current().iter() {
            let connection = match self.dial(node, "everwatch remove".to_owned()).await {
                Ok(connection) => connection,
                Err(error) => {
                    failure = Some(failed(error));
                    continue;
                }
            };
            let channel = connection.create_channel().await.map_err(failed)?;
            for queue in queues {
                channel
                    .queue_delete(queue.as_str().into(), QueueDeleteOptions::default())
                    .await
                    .map_err(failed)?;
            }
            for exchange in exchanges {
                let options = ExchangeDeleteOptions::default();
                channel.exchange_delete(exchange.as_str().into(), options).await.map_err(failed)?;
            }
            return connection.close(200, "bye".into()).await.map_err(failed);
        }
        failure.map_or(Ok(()), Err)
    }
}
