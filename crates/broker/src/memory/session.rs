//! Sessions and consumers of the broker in memory. The shared state, not the session, owns the messages.

use super::queue::Outlet;
use super::{Confirm, Held, Inner};
use crate::loss::Loss;
use crate::port::{
    BrokerError, Consume, Consumer, Declare, Declared, Delivery, Depth, Message, OwnerLiveness, QueueKind,
    Receipt, Session, Settle, Target, still_open,
};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(super) struct MemorySession {
    id: u64,
    loss: Loss,
    inner: Arc<Inner>,
}

impl MemorySession {
    pub(super) fn new(id: u64, loss: Loss, inner: Arc<Inner>) -> Self {
        Self { id, loss, inner }
    }

    fn alive(&self) -> Result<(), BrokerError> {
        if self.loss.is_lost() { Err(self.loss.error()) } else { Ok(()) }
    }

    fn owns(&self, receipt: Receipt) -> bool {
        self.inner.state().held.get(&receipt).is_some_and(|held| held.session == self.id)
    }
}

#[async_trait]
impl Declare for MemorySession {
    async fn declare(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        self.alive()?;
        self.inner.state().declare(self.id, queue, kind)
    }
    async fn declare_exchange(&self, target: &Target) -> Result<(), BrokerError> {
        self.alive()?;
        if let Target::Fanout(exchange) | Target::Topic { exchange, .. } = target {
            self.inner.state().exchanges.entry(exchange.clone()).or_default();
        }
        Ok(())
    }
    async fn bind(&self, queue: &str, to: &[Target]) -> Result<(), BrokerError> {
        self.alive()?;
        let mut state = self.inner.state();
        state.reach(self.id, queue)?;
        for target in to {
            let bound = match target {
                Target::Queue(_) => continue,
                Target::Direct { exchange, key } => {
                    state.directs.entry((exchange.clone(), key.clone())).or_default()
                }
                Target::Fanout(exchange) | Target::Topic { exchange, .. } => {
                    state.bound(exchange)?;
                    state.exchanges.entry(exchange.clone()).or_default()
                }
            };
            bound.insert(queue.to_owned());
        }
        Ok(())
    }
}

#[async_trait]
impl Session for MemorySession {
    async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError> {
        self.alive()?;
        if self.is_blocked() {
            let mut blocked = self.inner.blocked.subscribe();
            let waiting = async {
                // The sender lives in `inner`, so the wait ends only when publishers are unblocked.
                blocked.wait_for(|blocked| !blocked).await.map(drop).map_err(|_| self.loss.error())
            };
            self.loss.guard(waiting).await?;
        }
        let confirm = self.inner.state().publish(target, &message)?;
        match confirm {
            Confirm::Sent => Ok(()),
            Confirm::Lost => {
                self.loss.wait().await;
                Err(self.loss.error())
            }
        }
    }
    async fn consume(&self, consume: &Consume) -> Result<Box<dyn Consumer>, BrokerError> {
        self.alive()?;
        let (id, deliveries) = begin(&self.inner, self.id, consume)?;
        Ok(Box::new(MemoryConsumer {
            id,
            session: self.id,
            queue: consume.queue.clone(),
            deliveries,
            loss: self.loss.clone(),
            inner: Arc::clone(&self.inner),
            cancelled_here: false,
        }))
    }
    async fn get(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        self.alive()?;
        let mut state = self.inner.state();
        if state.reach(self.id, queue)?.kind == QueueKind::SingleActive {
            return Err(BrokerError::Refused(format!("{queue}: it serves one consumer, and no `get`")));
        }
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(stored) = state.reach(self.id, queue)?.pop() else { break };
            let receipt = Receipt(state.next_id());
            taken.push(stored.delivery(receipt));
            let held = Held { session: self.id, queue: queue.to_owned(), consumer: None, stored };
            state.held.insert(receipt, held);
        }
        Ok(taken)
    }
    async fn ack(&self, receipt: Receipt) -> Settle {
        if !self.owns(receipt) {
            return Settle::NotOurs;
        }
        let mut state = self.inner.state();
        match state.release(receipt) {
            Some(held) => {
                state.dispatch(&held.queue);
                Settle::Done
            }
            None => Settle::NotOurs,
        }
    }
    async fn requeue(&self, receipt: Receipt) -> Settle {
        if !self.owns(receipt) {
            return Settle::NotOurs;
        }
        let mut state = self.inner.state();
        match state.give_back(receipt) {
            Some(queue) => {
                state.dispatch(&queue);
                Settle::Done
            }
            None => Settle::NotOurs,
        }
    }
    async fn probe(&self) -> Result<(), BrokerError> {
        self.alive()
    }
    async fn depth(&self, queue: &str) -> Result<Depth, BrokerError> {
        self.alive()?;
        Ok(self.inner.state().reach(self.id, queue)?.depth())
    }
    async fn delete(&self, queue: &str) -> Result<(), BrokerError> {
        self.alive()?;
        let mut state = self.inner.state();
        state.reach(self.id, queue)?.depth().check_idle(queue)?;
        state.queues.remove(queue);
        state.held.retain(|_, held| held.queue != queue);
        Ok(())
    }
    async fn fate(&self, exclusive_queue: &str) -> Result<OwnerLiveness, BrokerError> {
        self.alive()?;
        let there = self.inner.state().queues.contains_key(exclusive_queue);
        Ok(if there { OwnerLiveness::Alive } else { OwnerLiveness::Gone })
    }
    fn is_blocked(&self) -> bool {
        *self.inner.blocked.borrow()
    }
    fn heartbeat(&self) -> Option<Duration> {
        None
    }
    async fn lost(&self) -> String {
        self.loss.wait().await
    }
    async fn close(&self) {
        self.inner.state().end(self.id, "closed by this side");
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.inner.state().end(self.id, "dropped by this side");
    }
}

fn begin(
    inner: &Inner,
    session: u64,
    consume: &Consume,
) -> Result<(u64, UnboundedReceiver<Delivery>), BrokerError> {
    let (out, deliveries) = unbounded_channel();
    let mut state = inner.state();
    let id = state.next_id();
    let prefetch = usize::from(consume.prefetch);
    let outlet = Outlet { id, session, out, prefetch, held: 0, priority: consume.priority };
    state.reach(session, &consume.queue)?.consumers.push(outlet);
    state.dispatch(&consume.queue);
    Ok((id, deliveries))
}

struct MemoryConsumer {
    id: u64,
    session: u64,
    queue: String,
    deliveries: UnboundedReceiver<Delivery>,
    loss: Loss,
    inner: Arc<Inner>,
    cancelled_here: bool,
}

impl MemoryConsumer {
    /// Removes this consumer from its queue; the stream ends after the deliveries that were already sent.
    fn detach(&self) {
        let mut state = self.inner.state();
        if let Some(queue) = state.queues.get_mut(&self.queue) {
            queue.consumers.retain(|outlet| outlet.id != self.id);
            if queue.kind == QueueKind::SingleActive {
                state.dispatch(&self.queue);
            }
        }
    }
}

#[async_trait]
impl Consumer for MemoryConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        tokio::select! {
            biased;
            _ = self.loss.wait() => None,
            next = self.deliveries.recv() => next,
        }
    }

    async fn cancel(&mut self) -> Result<(), BrokerError> {
        if self.loss.is_lost() {
            return Err(self.loss.error());
        }
        self.cancelled_here = true;
        self.detach();
        Ok(())
    }

    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError> {
        if self.loss.is_lost() {
            return Err(self.loss.error());
        }
        if !self.cancelled_here || !self.deliveries.is_closed() || !self.deliveries.is_empty() {
            return Err(still_open());
        }
        (self.id, self.deliveries) = begin(&self.inner, self.session, consume)?;
        self.queue.clone_from(&consume.queue);
        self.cancelled_here = false;
        Ok(())
    }

    fn cancelled_here(&self) -> bool {
        self.cancelled_here
    }
}

impl Drop for MemoryConsumer {
    /// Returns the messages that were not read to the queue at once; the others stay held.
    fn drop(&mut self) {
        self.detach();
        let mut touched = BTreeSet::new();
        let mut state = self.inner.state();
        while let Ok(unread) = self.deliveries.try_recv() {
            touched.extend(state.give_back(unread.receipt));
        }
        for queue in touched {
            state.dispatch(&queue);
        }
    }
}
