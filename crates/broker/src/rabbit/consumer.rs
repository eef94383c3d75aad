//! Consumers: one at a time on a channel of their own.

use crate::port::{BrokerError, Consume, Consumer, Delivery, still_open};
use crate::rabbit::acceptance::REQUEUE;
use crate::rabbit::channel::{Shared, open_channel};
use crate::rabbit::receipts::Block;
use async_trait::async_trait;
use futures::StreamExt;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct RabbitConsumer {
    shared: Arc<Shared>,
    block: Arc<Block>,
    stream: lapin::Consumer,
    cancelled_here: bool,
    over: bool,
}

impl RabbitConsumer {
    pub(super) async fn start(
        connection: &Connection,
        shared: Arc<Shared>,
        consume: &Consume,
    ) -> lapin::Result<Self> {
        let channel = open_channel(connection).await?;
        let stream = begin(&channel, consume).await?;
        Ok(Self {
            shared,
            block: Block::new(channel, &consume.queue),
            stream,
            cancelled_here: false,
            over: false,
        })
    }

    fn on_end(&mut self) {
        self.over = true;
        if !self.cancelled_here {
            self.block.given_away.store(true, Ordering::Release);
        }
    }
}

async fn begin(channel: &Channel, consume: &Consume) -> lapin::Result<lapin::Consumer> {
    channel.basic_qos(consume.prefetch, BasicQosOptions { global: false }).await?;
    let mut arguments = FieldTable::default();
    if consume.priority != 0 {
        arguments.insert("x-priority".into(), AMQPValue::LongInt(consume.priority));
    }
    // RabbitMQ 3.10 closes the whole connection if a consumer tag is used twice.
    let tag = uuid::Uuid::new_v4().to_string();
    let options = BasicConsumeOptions::default();
    channel.basic_consume(consume.queue.as_str().into(), tag.into(), options, arguments).await
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        if self.over {
            return None;
        }
        // Checks for the loss first: lapin's buffer may still contain deliveries of a lost session.
        let next = tokio::select! {
            biased;
            _ = self.shared.loss.wait() => None,
            next = self.stream.next() => next,
        };
        match next {
            Some(Ok(delivery)) => Some(self.shared.receipts.keep(delivery, &self.block)),
            Some(Err(error)) => {
                self.shared.loss.lose(format!("a consumer lost its channel: {error}"));
                self.on_end();
                None
            }
            None => {
                self.on_end();
                None
            }
        }
    }

    async fn cancel(&mut self) -> Result<(), BrokerError> {
        if self.over || self.cancelled_here {
            return Ok(());
        }
        let cancelling = self.block.channel.basic_cancel(self.stream.tag(), BasicCancelOptions::default());
        self.cancelled_here = true;
        let loss = &self.shared.loss;
        loss.guard(async { cancelling.await.map_err(|e| self.shared.fail(&e, "")) }).await
    }

    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError> {
        if !self.over || !self.cancelled_here {
            return Err(still_open());
        }
        let (channel, shared) = (self.block.channel.clone(), Arc::clone(&self.shared));
        let begun = async { begin(&channel, consume).await.map_err(|e| shared.fail(&e, &consume.queue)) };
        self.stream = self.shared.loss.guard(begun).await?;
        (self.cancelled_here, self.over) = (false, false);
        Ok(())
    }

    fn cancelled_here(&self) -> bool {
        self.cancelled_here
    }
}

impl Drop for RabbitConsumer {
    /// Returns the unread deliveries in lapin's buffer to the queue at once. The channel may stay open for
    /// long, because it holds the deliveries that were read.
    fn drop(&mut self) {
        if self.over || self.shared.loss.is_lost() {
            return;
        }
        let (block, mut stream, loss) =
            (Arc::clone(&self.block), self.stream.clone(), self.shared.loss.clone());
        let cancelled = self.cancelled_here;
        self.shared.spawn(async move {
            let giving_back = async {
                if !cancelled {
                    block.channel.basic_cancel(stream.tag(), BasicCancelOptions::default()).await?;
                }
                while let Some(delivery) = stream.next().await {
                    delivery?.acker.nack(REQUEUE).await?;
                }
                lapin::Result::Ok(())
            };
            tokio::select! {
                _ = loss.wait() => {}
                given = giving_back => if let Err(error) = given {
                    loss.lose(format!("a consumer could not be ended: {error}"));
                },
            }
        });
    }
}
