//! Exchanges: makes sure that they exist before messages are published to them, and binds queues to them.

use super::channel::{ACCESS_REFUSED, NOT_FOUND, code, open_channel};
use super::session::RabbitSession;
use crate::port::{BrokerError, Target};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// What a session has learned about exchanges, and about the permissions of its user.
#[derive(Default)]
pub(super) struct Exchanges {
    /// Those that exist. Nobody deletes an exchange while the deployment runs.
    exist: RwLock<HashSet<String>>,
    /// One look or declaration at a time: publishes that wait for it stay in order.
    turn: tokio::sync::Mutex<()>,
    /// The user may not declare the queues and exchanges that all share. RabbitMQ logs each refusal as an error, so the
    /// session tries once.
    restricted: AtomicBool,
}

impl Exchanges {
    pub(super) fn is_restricted(&self) -> bool {
        self.restricted.load(Ordering::Relaxed)
    }

    pub(super) fn set_restricted(&self) {
        self.restricted.store(true, Ordering::Relaxed);
    }

    fn has(&self, exchange: &str) -> bool {
        self.exist.read().unwrap_or_else(PoisonError::into_inner).contains(exchange)
    }

    fn add(&self, exchange: &str) {
        self.exist.write().unwrap_or_else(PoisonError::into_inner).insert(exchange.to_owned());
    }
}

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
