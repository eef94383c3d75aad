//! One queue in memory: its ready messages in order, and its consumers. It knows nothing of sessions.

use crate::port::{Delivery, Depth, HeaderValue, Message, QueueKind, Receipt};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// How long a queue of this kind keeps a message, and how many; `None`: all of them.
fn kept(kind: &QueueKind) -> Option<(Duration, usize)> {
    match kind {
        QueueKind::Heartbeats => Some((Duration::from_secs(15), 100_000)),
        QueueKind::Rates => Some((Duration::from_secs(2), 10_000)),
        QueueKind::Durable { .. } | QueueKind::SingleActive | QueueKind::Exclusive => None,
    }
}

#[derive(Debug, Clone)]
pub(super) struct Stored {
    number: u64,
    body: Bytes,
    headers: Vec<(String, HeaderValue)>,
    acquisitions: u32,
    redelivered: bool,
    since: Instant,
}

impl Stored {
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Marks the message as redelivered after it returned from a consumer.
    pub(super) fn redelivered(mut self) -> Self {
        self.acquisitions = self.acquisitions.saturating_add(1);
        self.redelivered = true;
        self
    }

    pub(super) fn delivery(&self, receipt: Receipt) -> Delivery {
        Delivery {
            receipt,
            body: self.body.clone(),
            acquisitions: self.acquisitions,
            redelivered: self.redelivered,
            headers: self.headers.clone(),
            refused: None,
        }
    }
}

pub(super) struct Outlet {
    pub(super) id: u64,
    pub(super) session: u64,
    pub(super) out: UnboundedSender<Delivery>,
    pub(super) prefetch: usize,
    pub(super) held: usize,
    pub(super) priority: i32,
}

pub(super) struct Queue {
    pub(super) kind: QueueKind,
    /// The session that owns an exclusive queue; the queue ends with it.
    pub(super) owner: Option<u64>,
    /// Round robin: the consumer that was served last is at the end. In a [`QueueKind::SingleActive`] queue, only the
    /// first is served.
    pub(super) consumers: Vec<Outlet>,
    ready: VecDeque<Stored>,
}

impl Queue {
    pub(super) fn new(kind: QueueKind, owner: Option<u64>) -> Self {
        Self { kind, owner, consumers: Vec::new(), ready: VecDeque::new() }
    }

    pub(super) fn depth(&self) -> Depth {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let consumers = match self.kind {
            QueueKind::SingleActive => self.consumers.len().min(1),
            _ => self.consumers.len(),
        };
        Depth { ready: count(self.ready.len()), consumers: count(consumers) }
    }

    /// Whether the message was accepted.
    pub(super) fn push(&mut self, number: u64, message: Message) -> bool {
        self.expire();
        if let QueueKind::Durable { max_length: Some(most) } = self.kind
            && self.ready.len() >= most as usize
        {
            return false;
        }
        if kept(&self.kind).is_some_and(|(_, most)| self.ready.len() >= most) {
            self.ready.pop_front();
        }
        let since = Instant::now();
        let Message { body, headers } = message;
        self.ready.push_back(Stored { number, body, headers, acquisitions: 0, redelivered: false, since });
        true
    }

    pub(super) fn ready_messages(&self) -> impl Iterator<Item = &Stored> {
        self.ready.iter()
    }

    /// Replaces all ready messages.
    pub(super) fn replace(&mut self, mut messages: Vec<Stored>) {
        messages.sort_by_key(|stored| stored.number);
        self.ready = messages.into();
    }

    /// Returns the message to its original position in the queue.
    pub(super) fn put_back(&mut self, stored: Stored) {
        let stored = stored.redelivered();
        let at = self.ready.partition_point(|other| other.number < stored.number);
        self.ready.insert(at, stored);
    }

    pub(super) fn pop(&mut self) -> Option<Stored> {
        self.expire();
        self.ready.pop_front()
    }

    pub(super) fn credit(&mut self, consumer: Option<u64>) {
        if let Some(outlet) = self.consumers.iter_mut().find(|outlet| Some(outlet.id) == consumer) {
            outlet.held -= 1;
        }
    }

    /// Takes the next message and picks its consumer, and takes one credit of that consumer. `None` if there
    /// is no message or no consumer with room.
    pub(super) fn next_handout(&mut self) -> Option<(Stored, usize)> {
        self.expire();
        if self.ready.is_empty() {
            return None;
        }
        let served = if self.kind == QueueKind::SingleActive { 1 } else { self.consumers.len() };
        // Picks the first consumer of the highest priority; `max_by_key` would pick the last.
        let free = self.consumers.iter().enumerate().take(served);
        let free = free.filter(|(_, outlet)| outlet.held < outlet.prefetch);
        let (at, _) = free.min_by_key(|(_, outlet)| std::cmp::Reverse(outlet.priority))?;
        let mut outlet = self.consumers.remove(at);
        outlet.held += 1;
        let at = if self.kind == QueueKind::SingleActive { 0 } else { self.consumers.len() };
        self.consumers.insert(at, outlet);
        Some((self.ready.pop_front()?, at))
    }

    pub(super) fn expire(&mut self) {
        let Some((ttl, _)) = kept(&self.kind) else { return };
        while self.ready.front().is_some_and(|oldest| oldest.since.elapsed() >= ttl) {
            self.ready.pop_front();
        }
    }
}
