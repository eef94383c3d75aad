//! Declares queues. The queue arguments must never change, because RabbitMQ refuses a
//! declaration with other arguments. Also interprets the results of passive declarations.

use super::channel::{ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, code, open_channel};
use super::session::RabbitSession;
use crate::port::{BrokerError, Declared, Depth, OwnerLiveness, QueueKind, explain_refusal};
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind, Queue};
use std::time::Duration;

/// The time limit for a deletion, which the broker performs on each node of the queue.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// The queue arguments. Every version from 3.10 to 4.3 accepts them, also when the queue is declared again.
pub(super) fn arguments(prefix: &str, queue: &str, kind: &QueueKind) -> FieldTable {
    let mut table = FieldTable::default();
    let mut set = |name: &str, value: AMQPValue| {
        table.insert(name.into(), value);
    };
    match kind {
        QueueKind::Durable { .. } | QueueKind::SingleActive => {
            set("x-queue-type", text("quorum"));
            // Without a limit, 4.x uses 20. With -1, 3.x deletes a message at its first redelivery.
            set("x-delivery-limit", AMQPValue::LongInt(1_000_000_000));
            // Ten years. Values above 292 years crash the queue on 4.3.
            set("x-consumer-timeout", AMQPValue::LongLongInt(315_360_000_000));
            let parked = format!("{prefix}parked");
            if queue != parked {
                set("x-dead-letter-exchange", text(""));
                set("x-dead-letter-routing-key", text(&parked));
            }
            set("x-overflow", text("reject-publish"));
            set("x-consumer-disconnected-timeout", AMQPValue::LongInt(15_000));
            if let QueueKind::Durable { max_length: Some(most) } = kind {
                set("x-max-length", AMQPValue::LongLongInt(i64::from(*most)));
            }
            if *kind == QueueKind::SingleActive {
                set("x-single-active-consumer", AMQPValue::Boolean(true));
            }
        }
        QueueKind::Heartbeats => {
            set("x-queue-type", text("quorum"));
            set("x-message-ttl", AMQPValue::LongInt(15_000));
            set("x-max-length", AMQPValue::LongInt(100_000));
            set("x-overflow", text("drop-head"));
        }
        // An older request would be granted although its service no longer uses the grant.
        QueueKind::Rates => {
            set("x-queue-type", text("quorum"));
            set("x-message-ttl", AMQPValue::LongInt(2000));
            set("x-max-length", AMQPValue::LongInt(10_000));
            set("x-overflow", text("drop-head"));
        }
        QueueKind::Exclusive => set("x-queue-type", text("classic")),
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn options(kind: &QueueKind) -> QueueDeclareOptions {
    match kind {
        QueueKind::Durable { .. } | QueueKind::SingleActive | QueueKind::Heartbeats | QueueKind::Rates => {
            QueueDeclareOptions::durable()
        }
        QueueKind::Exclusive => QueueDeclareOptions::exclusive(),
    }
}

/// A failure of the connection for queries does not end the session.
fn unanswered(queue: &str, error: &lapin::Error) -> BrokerError {
    BrokerError::Silent(format!("{queue} ({error})"))
}

impl RabbitSession {
    /// Declares the queue and its exchanges, and binds it.
    pub(super) async fn declare_queue(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        let found = self.find(queue).await?;
        // Only the connection that declares an exclusive queue can consume from it. The doctor declares the others again
        // and again, and the broker may refuse each of these declarations.
        let channel = match kind {
            QueueKind::Exclusive => self.channel(queue).await?,
            _ => self.asking.channel().await.map_err(|error| unanswered(queue, &error))?,
        };
        match self.declare_found(queue, kind, &channel).await {
            Ok(()) => Ok(found),
            Err((_, error)) => {
                // Services need the exchanges of a pool even if the broker refuses the arguments of its queue.
                self.ensure_exchanges(queue).await?;
                Err(error)
            }
        }
    }

    /// The same for a user that may not declare the queue.
    pub(super) async fn ensure_queue(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        let found = self.find(queue).await?;
        if found == Declared::Created || !self.exchanges.is_restricted() {
            let channel = self.channel(queue).await?;
            match self.declare_found(queue, kind, &channel).await {
                Ok(()) => return Ok(found),
                Err((ACCESS_REFUSED, _)) if found == Declared::Existed => self.exchanges.set_restricted(),
                Err((_, error)) => return Err(error),
            }
        }
        self.ensure_exchanges(queue).await?;
        self.publisher.expect_queue(queue).await?;
        Ok(found)
    }

    async fn ensure_exchanges(&self, queue: &str) -> Result<(), BrokerError> {
        for exchange in self.topology.exchanges_with(queue) {
            self.ensure_exchange(&exchange, ExchangeKind::Direct).await?;
        }
        Ok(())
    }

    async fn find(&self, queue: &str) -> Result<Declared, BrokerError> {
        match self.look(queue).await {
            Ok(_) => Ok(Declared::Existed),
            Err(error) if code(&error) == NOT_FOUND => Ok(Declared::Created),
            // RabbitMQ 4.2.6 and later hide a queue on which the user has no permission. Managers declare such queues together
            // with an exchange that the user may see.
            Err(error) if code(&error) == ACCESS_REFUSED => {
                self.exchanges.set_restricted();
                Ok(Declared::Existed)
            }
            Err(error) => Err(self.shared.fail(&error, queue)),
        }
    }

    /// Declares the queue even if it exists: a passive declaration does not compare the arguments. Binds it even if it
    /// exists: it may be older than its exchange. With an error: the broker's reply code, 0 if it has none.
    async fn declare_found(
        &self,
        queue: &str,
        kind: &QueueKind,
        channel: &Channel,
    ) -> Result<(), (u16, BrokerError)> {
        let arguments = arguments(&self.prefix, queue, kind);
        channel.queue_declare(queue.into(), options(kind), arguments).await.map_err(|e| {
            let error = match self.shared.fail(&e, queue) {
                BrokerError::Refused(why) => BrokerError::Refused(explain_refusal(&why)),
                // RabbitMQ 3.10 does not name the permission.
                BrokerError::Forbidden(why) => BrokerError::Forbidden(format!(
                    "{why}; a user that declares it needs the permission to configure it"
                )),
                other => other,
            };
            (code(&e), error)
        })?;
        let bound = async {
            self.ensure_exchanges(queue).await?;
            self.bind_by_key(queue, (&self.topology.exchange_of(queue), queue)).await?;
            if *kind != QueueKind::Exclusive {
                self.publisher.expect_queue(queue).await?;
            }
            Ok(())
        };
        bound.await.map_err(|error| (0, error))
    }

    pub(super) async fn depth_of(&self, queue: &str) -> Result<Depth, BrokerError> {
        let seen = match self.asking.look(queue).await {
            Ok(seen) => seen,
            Err(error) => match code(&error) {
                // Only the connection that declared an exclusive queue can query it.
                RESOURCE_LOCKED => self.look(queue).await.map_err(|error| self.shared.fail(&error, queue))?,
                0 => return Err(unanswered(queue, &error)),
                _ => return Err(self.shared.fail(&error, queue)),
            },
        };
        Ok(Depth { ready: seen.message_count(), consumers: seen.consumer_count() })
    }

    /// Deletes a queue in which nothing is.
    pub(super) async fn delete_queue(&self, queue: &str) -> Result<(), BrokerError> {
        self.depth_of(queue).await?.check_idle(queue)?;
        let channel = self.asking.channel().await.map_err(|error| unanswered(queue, &error))?;
        // A quorum queue refuses `if-unused` and `if-empty`.
        let deleting = channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        let deleted = tokio::time::timeout(DELETE_TIMEOUT, deleting).await;
        let deleted = deleted.map_err(|_| BrokerError::Silent(queue.to_owned()))?;
        deleted.map(drop).map_err(|error| self.shared.fail(&error, queue))
    }

    pub(super) async fn fate_of(&self, queue: &str) -> Result<OwnerLiveness, BrokerError> {
        match self.asking.look(queue).await {
            Ok(_) => Ok(OwnerLiveness::Alive),
            Err(error) => match code(&error) {
                RESOURCE_LOCKED => Ok(OwnerLiveness::Alive),
                NOT_FOUND => Ok(OwnerLiveness::Gone),
                _ => Err(unanswered(queue, &error)),
            },
        }
    }

    /// Uses a temporary channel: the broker closes the channel if the queue does not exist.
    async fn look(&self, queue: &str) -> lapin::Result<Queue> {
        let channel = open_channel(&self.consume).await?;
        let options = QueueDeclareOptions::default().passive();
        channel.queue_declare(queue.into(), options, FieldTable::default()).await
    }
}
