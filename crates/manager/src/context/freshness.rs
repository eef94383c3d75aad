//! How current this manager's view of its queues is: the send times of the newest watermarks it has read. What may be
//! concluded from it is decided by `core::failure::queue_freshness`.

use crate::clock::DbClock;
use crate::lock::lock;
use everwatch_core::clock::Timestamp;
use everwatch_core::failure::queue_freshness::QueueFreshness;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A queue in which managers leave watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatermarkQueue {
    State,
    Heartbeats,
}

/// No watermark was read yet.
const NONE: i64 = i64::MIN;

/// When this manager connected to the broker.
#[derive(Debug, Clone, Copy)]
struct Connected {
    since: Instant,
    /// The same by the database's clock, fixed when the state queue was read up to it: each look at the database's
    /// clock moves that clock by some milliseconds.
    caught_up: Option<Timestamp>,
}

impl Connected {
    /// By the database's clock. It is computed, as at the connect that clock may still be unknown.
    fn at(&self, clock: &DbClock) -> Timestamp {
        self.caught_up.unwrap_or_else(|| clock.now().minus(self.since.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct Freshness {
    clock: Arc<DbClock>,
    connected: Mutex<Option<Connected>>,
    state_watermark: AtomicI64,
    heartbeats_watermark: AtomicI64,
    store_answers: AtomicBool,
}

impl Freshness {
    pub(crate) fn new(clock: Arc<DbClock>) -> Self {
        Self {
            clock,
            connected: Mutex::new(None),
            state_watermark: AtomicI64::new(NONE),
            heartbeats_watermark: AtomicI64::new(NONE),
            store_answers: AtomicBool::new(false),
        }
    }

    pub(crate) fn on_connect(&self) {
        *lock(&self.connected) = Some(Connected { since: Instant::now(), caught_up: None });
    }

    pub(crate) fn on_disconnect(&self) {
        *lock(&self.connected) = None;
    }

    pub(crate) fn on_store_answer(&self, answers: bool) {
        self.store_answers.store(answers, Ordering::Relaxed);
    }

    /// A watermark came out of a queue: this manager has read the queue up to there.
    pub(crate) fn on_watermark(&self, queue: WatermarkQueue, sent_at: Timestamp) {
        let newest = match queue {
            WatermarkQueue::State => &self.state_watermark,
            WatermarkQueue::Heartbeats => &self.heartbeats_watermark,
        };
        newest.fetch_max(sent_at.0, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> QueueFreshness {
        let known = |at: &AtomicI64| {
            let at = at.load(Ordering::Relaxed);
            (at != NONE).then_some(Timestamp(at))
        };
        let mut connected = lock(&self.connected);
        let now = QueueFreshness {
            connected_at: connected.as_ref().map(|it| it.at(&self.clock)),
            state_watermark: known(&self.state_watermark),
            heartbeats_watermark: known(&self.heartbeats_watermark),
            store_answers: self.store_answers.load(Ordering::Relaxed),
        };
        if let Some(connected) = connected.as_mut().filter(|_| now.has_caught_up()) {
            connected.caught_up = connected.caught_up.or(now.connected_at);
        }
        now
    }

    /// Whether the newest watermarks read from both queues are at most this old.
    pub(crate) fn is_within(&self, age: Duration) -> bool {
        self.now().is_within(age, self.clock.now())
    }

    /// The age of the newest watermark read from the state queue; zero before the first.
    pub(crate) fn state_lag(&self) -> Duration {
        match self.state_watermark.load(Ordering::Relaxed) {
            NONE => Duration::ZERO,
            read => self.clock.now().since(Timestamp(read)),
        }
    }
}
