//! One attempt: what its code, its context and its service share, in one allocation.

use crate::error::Error;
use crate::tasks::logs::{LogBuffer, SessionLogs};
use async_trait::async_trait;
use everwatch_core::epoch::Epoch;
use everwatch_core::wire::logs::Stream;
use everwatch_core::wire::work::Work;
use everwatch_trace::Trace;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use serde_json::Value;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use tokio::sync::Notify;

/// State that all observers of a service share, by its type.
pub(crate) type Shared = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The outlet for the values and the progress of observers.
#[async_trait]
pub(crate) trait Outlet: Send + Sync {
    async fn emit(&self, work: &Work, epoch: Epoch, value: Value) -> Result<(), Error>;
    fn progress(&self, work: &Work, epoch: Epoch, text: String);
}

/// What all attempts of one session use.
pub(crate) struct Outlets {
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) logs: SessionLogs,
}

/// One start of the code of an observer.
pub(crate) struct Attempt {
    pub(crate) work: Arc<Work>,
    pub(crate) epoch: Epoch,
    pub(crate) number: u32,
    pub(crate) trace: Option<Trace>,
    pub(crate) outlets: Arc<Outlets>,
    /// Since when its code has held a thread, in ms of the fence's clock; 0 if it does not.
    pub(crate) on_thread: AtomicU64,
    /// Tells the code to stop.
    pub(crate) stop: Stop,
    /// Ends the code, not the task: the task waits for what the code leaves behind.
    pub(crate) abort: Abort,
    /// Whether the code has ended, and only what it left behind remains.
    pub(crate) let_go: AtomicBool,
    pub(crate) leftovers: Leftovers,
    /// Whether its task has ended.
    over: AtomicBool,
    /// Its log, from its first line on.
    book: OnceLock<Arc<LogBuffer>>,
}

impl Attempt {
    pub(crate) fn new(
        (work, epoch, number): (Arc<Work>, Epoch, u32),
        trace: Option<Trace>,
        outlets: Arc<Outlets>,
    ) -> Self {
        // A log of an earlier run that is still here belongs to an observer that is held from now on.
        let book = outlets.logs.resume(work.id, epoch).map_or_else(OnceLock::new, OnceLock::from);
        Self {
            work,
            epoch,
            number,
            trace,
            outlets,
            on_thread: AtomicU64::new(0),
            stop: Stop::default(),
            abort: Abort::default(),
            let_go: AtomicBool::new(false),
            leftovers: Leftovers::default(),
            over: AtomicBool::new(false),
            book,
        }
    }

    /// Adds each line of the text to the log of the observer.
    pub(crate) fn say(&self, stream: Stream, text: &str) {
        let open = || self.outlets.logs.open(self.work.id, self.epoch, &self.over);
        self.book.get_or_init(open).write(self.epoch, stream, text);
    }

    /// Its task has ended: a first line from now on is not kept.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Whether code must stop. A `CancellationToken` would take a node in a tree for each attempt.
#[derive(Default)]
pub(crate) struct Stop {
    told: AtomicBool,
    waiting: Notify,
}

impl Stop {
    pub(crate) fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }
    pub(crate) async fn told(&self) {
        // A stop between the check and the wait would be missed, but it wakes every wait that exists already.
        let waiting = self.waiting.notified();
        if !self.told.load(Ordering::Acquire) {
            waiting.await;
        }
    }
}

/// Whether code was aborted.
#[derive(Default)]
pub(crate) struct Abort {
    done: AtomicBool,
    task: AtomicWaker,
}

impl Abort {
    pub(crate) fn abort(&self) {
        self.done.store(true, Ordering::Release);
        self.task.wake();
    }
    pub(crate) fn is_aborted(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
    /// Wakes this task at an abort. An abort before this call wakes nothing: check for it afterwards.
    pub(crate) fn wakes(&self, task: &Waker) {
        self.task.register(task);
    }
}

/// What code leaves behind when it ends or is aborted, such as processes that take a moment to die: its run is over
/// only after that. At most one entry for each thing that the code was waiting for.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Leftovers {
    pub(crate) fn push(&self, ends: BoxFuture<'static, ()>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ends);
    }
    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
