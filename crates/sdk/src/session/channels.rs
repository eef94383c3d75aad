//! The channels of one session: each has a task that consumes there, block after block, as it is told.

use super::{Incoming, Life};
use crate::fence::Fence;
use everwatch_broker::{BrokerError, Consume, Consumer, Session, advice};
use everwatch_core::blocks::{BlockEffect, BlockId, ChannelId};
use everwatch_core::message::Cause;
use everwatch_core::slots::Input;
use futures::FutureExt as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long the broker may take to open a block.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// Orders that a channel may be behind with.
const ORDERS_MAX: usize = 16;
/// Commands that may be on their way to the loop.
const COMMANDS_AHEAD: u16 = 100;

pub(super) type Channels = HashMap<ChannelId, mpsc::Sender<Order>>;

/// What a channel is told.
pub(super) enum Order {
    Cancel,
    Again(BlockId, Consume),
}

/// One channel at work.
struct Worker {
    session: Arc<dyn Session>,
    fence: Arc<Fence>,
    arrivals: mpsc::Sender<Incoming>,
    /// Nothing more is taken once it is cancelled.
    closing: CancellationToken,
    over: CancellationToken,
}

impl Life {
    /// Opens, cancels and closes blocks as they are wanted, and hands over what was asked for once nothing
    /// comes in any more: given back before, it would come straight back.
    pub(super) async fn follow_blocks(&mut self) {
        for effect in self.blocks.decide(self.started.elapsed()) {
            match effect {
                BlockEffect::Open { block, channel, prefetch, priority } => {
                    let queue = self.topology.work(&self.me.settings.pool);
                    self.open(channel, block, Consume { queue, prefetch, priority });
                }
                BlockEffect::Cancel { channel } => self.order(channel, Order::Cancel),
                BlockEffect::Close { channel } => drop(self.channels.remove(&channel)),
            }
        }
        if !self.ready && self.blocks.settled(self.started.elapsed()) {
            // Not at its birth: a rolling deploy goes on to the next service when this one is ready, and what
            // that one hands over is to find room here.
            self.ready = true;
            self.me.handle.set_ready(true);
        }
        if self.blocks.closed() && !self.to_hand_over.is_empty() {
            let ids = std::mem::take(&mut self.to_hand_over);
            self.step(Input::HandOver(ids, Cause::Move)).await;
        }
        let surplus = self.blocks.surplus_over(self.started.elapsed());
        if let Some(most) = surplus.filter(|_| surplus != self.shed_to) {
            // Below what it may hold by itself it was asked to.
            let cause = if most < self.blocks.capacity() { self.asked_for } else { Cause::Resize };
            self.step(Input::HandOverDownTo(most, cause)).await;
        }
        self.shed_to = surplus;
    }

    fn open(&mut self, channel: ChannelId, block: BlockId, consume: Consume) {
        if self.channels.contains_key(&channel) {
            return self.order(channel, Order::Again(block, consume));
        }
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        self.channels.insert(channel, sender);
        let worker = self.worker(self.closing.clone());
        self.tracker.spawn(async move {
            match worker.within(&consume, worker.session.consume(&consume)).await {
                Ok(consumer) => worker.serve(consumer, block, orders).await,
                Err(error) => worker.fence.fall(&error.to_string()),
            }
        });
    }

    fn order(&self, channel: ChannelId, order: Order) {
        let told = self.channels.get(&channel).map(|orders| orders.try_send(order));
        if !matches!(told, Some(Ok(()))) {
            self.fence.fall("a channel to the broker does not do as it is told");
        }
    }

    fn worker(&self, closing: CancellationToken) -> Worker {
        Worker {
            session: self.me.session.clone(),
            fence: self.fence.clone(),
            arrivals: self.arrivals.clone(),
            closing,
            over: self.helpers.clone(),
        }
    }

    /// Takes commands until the session is over.
    pub(super) async fn listen(&self, queue: String) -> Result<(), BrokerError> {
        let worker = self.worker(CancellationToken::new());
        let consume = Consume { queue, prefetch: COMMANDS_AHEAD, priority: 0 };
        let mut consumer = worker.within(&consume, worker.session.consume(&consume)).await?;
        self.tracker.spawn(async move {
            while let Some(Some(command)) = worker.over.run_until_cancelled(consumer.next()).await {
                if worker.arrivals.send(Incoming::Command(command)).await.is_err() {
                    return;
                }
            }
            if !worker.over.is_cancelled() {
                worker.fell();
            }
        });
        Ok(())
    }
}

impl Worker {
    async fn within<T>(
        &self,
        consume: &Consume,
        opened: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        // A quorum queue without a leader never answers: naively, that is waited for.
        tokio::time::timeout(OPEN_WITHIN, opened).await.unwrap_or_else(|_| {
            let queue = &consume.queue;
            let why = format!("queue {queue} has not answered within {OPEN_WITHIN:?}: has it a leader?");
            Err(BrokerError::Lost(why))
        })
    }

    async fn serve(
        self,
        mut consumer: Box<dyn Consumer>,
        mut block: BlockId,
        mut orders: mpsc::Receiver<Order>,
    ) {
        let (mut open, mut closing) = (true, false);
        loop {
            let order = tokio::select! {
                next = consumer.next(), if open => {
                    let incoming = match next {
                        Some(delivery) => Incoming::Work(block, delivery),
                        None if consumer.cancelled_here() => {
                            open = false;
                            Incoming::Ended(block)
                        }
                        None => return self.fell(),
                    };
                    if self.arrivals.send(incoming).await.is_err() {
                        return;
                    }
                    continue;
                }
                order = orders.recv() => match order {
                    Some(order) => order,
                    None => return,
                },
                () = self.closing.cancelled(), if !closing => {
                    closing = true;
                    Order::Cancel
                }
                () = self.over.cancelled() => return,
            };
            let done = match order {
                Order::Cancel => consumer.cancel().await,
                Order::Again(next, consume) => {
                    (block, open) = (next, true);
                    self.within(&consume, consumer.again(&consume)).await
                }
            };
            if let Err(error) = done {
                return self.fence.fall(&error.to_string());
            }
        }
    }

    /// A consumer that lost its channel tells the session why first.
    fn fell(&self) {
        let why = self.session.lost().now_or_never();
        self.fence.fall(why.as_deref().unwrap_or(advice::ENDED_CONSUMER));
    }
}
