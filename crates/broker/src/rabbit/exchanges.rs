//! Exchanges: makes sure that they exist before messages are published to them, and binds queues to them.

use super::channel::{ACCESS_REFUSED, NOT_FOUND, code, open_channel};
use super::session::RabbitSession;
use crate::port::{BrokerError, Target};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};

impl RabbitSession {
    /// Makes sure that the exchange of this target exists: the broker ends the channel of a publish to a missing one, and
    /// that ends the session.
    pub(super) async fn ensure_target(&self, target: &Target) -> Result<(), BrokerError> {
        match target {
            Target::Queue(queue) => {
                self.ensure_exchange(&self.topology.exchange_of(queue), ExchangeKind::Direct).await
            }
            Target::Direct { exchange, .. } => self.ensure_exchange(exchange, ExchangeKind::Direct).await,
            Target::Fanout(exchange) => self.ensure_exchange(exchange, ExchangeKind::Fanout).await,
            Target::Topic { exchange, .. } => self.ensure_exchange(exchange, ExchangeKind::Topic).await,
        }
    }

    /// Declares the exchange, once for each session. If the user may not declare it, it must exist.
    pub(super) async fn ensure_exchange(
        &self,
        exchange: &str,
        kind: ExchangeKind,
    ) -> Result<(), BrokerError> {
        if self.exchanges.has(exchange) {
            return Ok(());
        }
        let _turn = self.exchanges.turn.lock().await;
        if self.exchanges.has(exchange) {
            return Ok(());
        }
        let exists = self.exchanges.is_restricted() && self.has_exchange(exchange, &kind).await?;
        if !exists {
            let channel = self.channel(exchange).await?;
            match declare(&channel, exchange, (kind.clone(), false)).await {
                Ok(()) => {}
                Err(error) if code(&error) == ACCESS_REFUSED => {
                    if self.exchanges.is_restricted() || !self.has_exchange(exchange, &kind).await? {
                        return Err(self.shared.fail(&error, exchange));
                    }
                    self.exchanges.set_restricted();
                }
                Err(error) => return Err(self.shared.fail(&error, exchange)),
            }
        }
        self.exchanges.add(exchange);
        Ok(())
    }

    /// Uses a temporary channel: the broker closes the channel if the exchange does not exist.
    async fn has_exchange(&self, exchange: &str, kind: &ExchangeKind) -> Result<bool, BrokerError> {
        let look = async {
            let channel = open_channel(&self.consume).await?;
            declare(&channel, exchange, (kind.clone(), true)).await
        };
        match look.await {
            Ok(()) => Ok(true),
            Err(error) if code(&error) == NOT_FOUND => Ok(false),
            // Hidden, as queues are: the user publishes nothing to it.
            Err(error) if code(&error) == ACCESS_REFUSED => Ok(true),
            Err(error) => Err(self.shared.fail(&error, exchange)),
        }
    }

    pub(super) async fn bind_queue(&self, queue: &str, to: &[Target]) -> Result<(), BrokerError> {
        for target in to {
            self.ensure_target(target).await?;
            match target {
                Target::Queue(_) => {}
                Target::Direct { exchange, key } | Target::Topic { exchange, key } => {
                    self.bind_by_key(queue, (exchange, key)).await?;
                }
                Target::Fanout(exchange) => self.bind_by_key(queue, (exchange, "")).await?,
            }
        }
        Ok(())
    }

    pub(super) async fn bind_by_key(
        &self,
        queue: &str,
        (exchange, key): (&str, &str),
    ) -> Result<(), BrokerError> {
        let channel = self.channel(queue).await?;
        let options = QueueBindOptions::default();
        let bound =
            channel.queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default());
        bound.await.map_err(|e| self.shared.fail(&e, queue))
    }
}

async fn declare(
    channel: &Channel,
    exchange: &str,
    (kind, passive): (ExchangeKind, bool),
) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, passive, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(exchange.into(), kind, options, FieldTable::default()).await
}
