//! The channels of one session: each has a task that consumes block after block.

use super::{Incoming, ServiceSession};
use crate::boot_clock::millis;
use crate::safety::fence::Fence;
use everwatch_broker::{BrokerError, Consume, Consumer, Session, ack_timeout};
use everwatch_core::capacity::blocks::{BlockId, ChannelId};
use futures::FutureExt as _;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time limit for opening a block on a queue that has delivered nothing to this session.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// The same on a queue that has, counted from its latest delivery.
///
/// With the short limit, sessions gave up while the queue served the other services, and returned thousands of messages,
/// which the queue delivered again: five services began 20 sessions within 40 s of a restart of a broker with 100,000
/// observers.
/// While a queue has no leader, it redelivers nothing, so a session that waits for it loses nothing.
const OPEN_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// The most orders that a channel may be behind with.
const ORDERS_MAX: usize = 16;
/// The most commands in transit to the loop.
const COMMANDS_AHEAD: u16 = 100;

pub(super) type Channels = HashMap<ChannelId, mpsc::Sender<Order>>;

/// An order to a channel.
pub(super) enum Order {
    Cancel,
    Again(BlockId, Consume),
}

/// The task of one channel.
struct Worker {
    session: Arc<dyn Session>,
    fence: Arc<Fence>,
    arrivals: mpsc::Sender<Incoming>,
    /// Cancelled when no more work may be taken.
    closing: CancellationToken,
    over: CancellationToken,
    latest: Arc<LatestDelivery>,
    opening: Arc<Semaphore>,
}

/// Blocks that a session opens at the same time.
///
/// The obvious way opens a block as soon as the allocator says so, which is every 50 ms. But a queue serves a new
/// consumer completely before it answers the next one, and after a restart of the broker it reads each message from its
/// disk. With a hundred blocks of five services, the last ones would wait for half a minute without a delivery.
pub(super) const OPENING_MAX: usize = 1;

/// When a queue last delivered a message to this session.
///
/// The obvious way gives a consumer a fixed time to open. But after a restart of a broker with many messages, the answer
/// waits behind deliveries to other consumers. Services would give up, return all messages and start over, with the same
/// result. Instead, the time starts over with each delivery: a queue that delivers has a leader.
pub(super) struct LatestDelivery {
    began: Instant,
    /// In milliseconds since then.
    after: AtomicU64,
}

impl Default for LatestDelivery {
    fn default() -> Self {
        Self { began: Instant::now(), after: AtomicU64::new(0) }
    }
}

impl LatestDelivery {
    fn note(&self) {
        self.after.store(millis(self.began.elapsed()).max(1), Ordering::Relaxed);
    }

    /// The time limit for an answer of the queue.
    fn limit(&self) -> Duration {
        if self.after.load(Ordering::Relaxed) == 0 { OPEN_WITHIN } else { OPEN_AGAIN_WITHIN }
    }

    /// The output of the future; `None` if it takes longer than the limit after the latest delivery.
    async fn wait<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let asked = Instant::now();
        let mut future = std::pin::pin!(future);
        loop {
            let latest = self.began + Duration::from_millis(self.after.load(Ordering::Relaxed));
            let deadline = latest.max(asked) + self.limit();
            if deadline <= Instant::now() {
                return None;
            }
            if let Ok(output) = tokio::time::timeout_at(deadline, &mut future).await {
                return Some(output);
            }
        }
    }
}

impl ServiceSession {
    pub(super) fn open(&mut self, channel: ChannelId, block: BlockId, consume: Consume) {
        if self.channels.contains_key(&channel) {
            return self.order(channel, Order::Again(block, consume));
        }
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        self.channels.insert(channel, sender);
        let worker = self.worker(self.closing.clone());
        self.helpers.tracker.spawn(worker.run((block, consume), orders));
    }

    pub(super) fn cancel_block(&self, channel: ChannelId) {
        self.order(channel, Order::Cancel);
    }

    fn order(&self, channel: ChannelId, order: Order) {
        let told = self.channels.get(&channel).map(|orders| orders.try_send(order));
        if !matches!(told, Some(Ok(()))) {
            self.fence.trip("a channel to the broker does not do as it is told");
        }
    }

    fn worker(&self, closing: CancellationToken) -> Worker {
        Worker {
            session: self.me.session.clone(),
            fence: self.fence.clone(),
            arrivals: self.arrivals.clone(),
            closing,
            over: self.helpers.end.clone(),
            latest: self.latest_delivery.clone(),
            opening: self.opening.clone(),
        }
    }

    /// Consumes commands until the session is over.
    pub(super) async fn listen(&self, queue: String) -> Result<(), BrokerError> {
        let worker = self.worker(CancellationToken::new());
        let consume = Consume { queue, prefetch: COMMANDS_AHEAD, priority: 0 };
        let mut consumer = worker.answered(&consume, worker.session.consume(&consume)).await?;
        self.helpers.tracker.spawn(async move {
            while let Some(Some(command)) = worker.over.run_until_cancelled(consumer.next()).await {
                if worker.arrivals.send(Incoming::Command(command)).await.is_err() {
                    return;
                }
            }
            if !worker.over.is_cancelled() {
                worker.report_loss();
            }
        });
        Ok(())
    }
}

impl Worker {
    async fn run(self, first: (BlockId, Consume), orders: mpsc::Receiver<Order>) {
        if let Err(error) = self.serve(first, orders).await {
            self.fence.trip(&error.to_string());
        }
    }

    /// Consumes one block after the other, as ordered.
    async fn serve(
        &self,
        first: (BlockId, Consume),
        mut orders: mpsc::Receiver<Order>,
    ) -> Result<(), BrokerError> {
        let mut consumer = None;
        let mut next = Some(first);
        while let Some((block, consume)) = next {
            if let Some(turn) = self.turn(&mut orders).await {
                let consumer = self.open(&mut consumer, &consume).await?;
                drop(turn);
                if self.deliver(consumer, block, &mut orders).await?.is_break() {
                    break;
                }
            }
            if self.arrivals.send(Incoming::Ended(block)).await.is_err() {
                break;
            }
            next = self.next_block(&mut orders).await;
        }
        Ok(())
    }

    /// Waits for this channel's turn to open a block; `None` if the block is cancelled meanwhile.
    async fn turn(&self, orders: &mut mpsc::Receiver<Order>) -> Option<SemaphorePermit<'_>> {
        tokio::select! {
            biased;
            _cancelled = orders.recv() => None,
            () = self.closing.cancelled() => None,
            () = self.over.cancelled() => None,
            turn = self.opening.acquire() => turn.ok(),
        }
    }

    async fn open<'a>(
        &self,
        consumer: &'a mut Option<Box<dyn Consumer>>,
        consume: &Consume,
    ) -> Result<&'a mut Box<dyn Consumer>, BrokerError> {
        Ok(match consumer {
            Some(consumer) => {
                self.answered(consume, consumer.again(consume)).await?;
                consumer
            }
            None => consumer.insert(self.answered(consume, self.session.consume(consume)).await?),
        })
    }

    async fn answered<T>(
        &self,
        consume: &Consume,
        opened: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        // A quorum queue without a leader never answers.
        self.latest.wait(opened).await.unwrap_or_else(|| {
            let (queue, limit) = (&consume.queue, self.latest.limit());
            let why = format!("queue {queue} has not answered within {limit:?}: has it a leader?");
            Err(BrokerError::Lost(why))
        })
    }

    /// Hands on the deliveries of an open block until it has ended (`Continue`) or the session is over (`Break`).
    async fn deliver(
        &self,
        consumer: &mut Box<dyn Consumer>,
        block: BlockId,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<ControlFlow<()>, BrokerError> {
        let mut closing = false;
        loop {
            tokio::select! {
                next = consumer.next() => match next {
                    Some(delivery) => {
                        self.latest.note();
                        if self.arrivals.send(Incoming::Work(block, delivery)).await.is_err() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    None if consumer.cancelled_here() => return Ok(ControlFlow::Continue(())),
                    None => {
                        self.report_loss();
                        return Ok(ControlFlow::Break(()));
                    }
                },
                order = orders.recv() => match order {
                    Some(Order::Cancel) => consumer.cancel().await?,
                    Some(Order::Again(..)) => {
                        return Err(BrokerError::Lost("a channel got a second block".to_owned()));
                    }
                    None => return Ok(ControlFlow::Break(())),
                },
                () = self.closing.cancelled(), if !closing => {
                    closing = true;
                    consumer.cancel().await?;
                }
                () = self.over.cancelled() => return Ok(ControlFlow::Break(())),
            }
        }
    }

    async fn next_block(&self, orders: &mut mpsc::Receiver<Order>) -> Option<(BlockId, Consume)> {
        loop {
            match self.over.run_until_cancelled(orders.recv()).await?? {
                Order::Again(block, consume) => return Some((block, consume)),
                // The block had ended already.
                Order::Cancel => {}
            }
        }
    }

    /// A consumer has lost its channel: trips the fence with the reason of the session, if it has one.
    fn report_loss(&self) {
        let why = self.session.lost().now_or_never();
        self.fence.trip(why.as_deref().unwrap_or(ack_timeout::ENDED_CONSUMER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waits(answers_after: u64, last_delivery: u64) -> (Option<()>, u64) {
        let latest = LatestDelivery::default();
        let begun = Instant::now();
        let deliveries = async {
            for _ in 0..last_delivery {
                tokio::time::sleep(Duration::from_secs(1)).await;
                latest.note();
            }
            std::future::pending::<()>().await;
        };
        let answer = tokio::time::sleep(Duration::from_secs(answers_after));
        let ended = tokio::select! {
            ended = latest.wait(answer) => ended,
            () = deliveries => None,
        };
        (ended, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_opens_late_on_a_queue_that_delivers() {
        assert_eq!(waits(29, 0).await, (Some(()), 29), "the queue serves other services first");
        assert_eq!(waits(60, 0).await, (None, 30), "the queue is silent");
        assert_eq!(waits(58, 1).await, (Some(()), 58), "the queue serves other services");
        assert_eq!(waits(90, 88).await, (Some(()), 90), "the queue delivers");
        assert_eq!(waits(90, 20).await, (None, 80), "the queue has become silent");
    }
}
