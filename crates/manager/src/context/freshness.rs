//! How current this manager's view of its queues is: the send times of the newest watermarks it has read. What may be
//! concluded from it is decided by `core::failure::queue_freshness`.

use crate::clock::DbClock;
use crate::lock::lock;
use everwatch_core::clock::Timestamp;
use everwatch_core::failure::queue_freshness::{QueueFreshness, slowest};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A queue in which managers leave watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatermarkQueue {
    /// The state queue of this index.
    State(u16),
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
    /// One for each state queue that this manager reads.
    state_watermarks: Mutex<Vec<Option<Timestamp>>>,
    heartbeats_watermark: AtomicI64,
    store_answers: AtomicBool,
}

impl Freshness {
    pub(crate) fn new(clock: Arc<DbClock>) -> Self {
        Self {
            clock,
            connected: Mutex::new(None),
            state_watermarks: Mutex::new(vec![None]),
            heartbeats_watermark: AtomicI64::new(NONE),
            store_answers: AtomicBool::new(false),
        }
    }

    /// It now reads this many state queues.
    pub(crate) fn on_connect(&self, state_queues: u16) {
        lock(&self.state_watermarks).resize(state_queues.into(), None);
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
        match queue {
            WatermarkQueue::State(index) => {
                if let Some(newest) = lock(&self.state_watermarks).get_mut(usize::from(index)) {
                    *newest = (*newest).max(Some(sent_at));
                }
            }
            WatermarkQueue::Heartbeats => {
                self.heartbeats_watermark.fetch_max(sent_at.0, Ordering::Relaxed);
            }
        }
    }

    /// The number of state queues that this manager reads.
    pub(crate) fn state_queues(&self) -> u16 {
        u16::try_from(lock(&self.state_watermarks).len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn now(&self) -> QueueFreshness {
        let heartbeats = self.heartbeats_watermark.load(Ordering::Relaxed);
        let state_watermark = slowest(lock(&self.state_watermarks).iter().copied());
        let mut connected = lock(&self.connected);
        let now = QueueFreshness {
            connected_at: connected.as_ref().map(|it| it.at(&self.clock)),
            state_watermark,
            heartbeats_watermark: (heartbeats != NONE).then_some(Timestamp(heartbeats)),
            store_answers: self.store_answers.load(Ordering::Relaxed),
        };
        if let Some(connected) = connected.as_mut().filter(|_| now.has_caught_up()) {
            connected.caught_up = connected.caught_up.or(now.connected_at);
        }
        now
    }

    /// Whether the newest watermarks read from all queues are at most this old.
    pub(crate) fn is_within(&self, age: Duration) -> bool {
        self.now().is_within(age, self.clock.now())
    }

    /// Whether the newest watermarks read from all state queues are at most this old.
    pub(crate) fn state_is_within(&self, age: Duration) -> bool {
        self.now().state_is_within(age, self.clock.now())
    }

    /// The age of the newest watermark read from the state queue that lags most; zero before the first.
    pub(crate) fn state_lag(&self) -> Duration {
        let slowest = lock(&self.state_watermarks).iter().flatten().min().copied();
        slowest.map_or(Duration::ZERO, |read| self.clock.now().since(read))
    }
}
