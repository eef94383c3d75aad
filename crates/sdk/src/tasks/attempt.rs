//! One attempt: what its code, its context and its service share, in one allocation.

use crate::boot_clock::{boottime, millis};
use crate::error::{Error, Permanent};
use crate::tasks::logs::{LogBuffer, SessionLogs};
use crate::tasks::mask::Mask;
use crate::tasks::measures::{Exported, Measures};
use crate::tasks::poll_clock::{PollClock, PollClocks};
use async_trait::async_trait;
use everwatch_core::epoch::Epoch;
use everwatch_core::run::permits::Permits;
use everwatch_core::run::slots::{CancelReason, Outcome};
use everwatch_core::run::vigil::Fault;
use everwatch_core::wire::checkpoint::SavedCheckpoint;
use everwatch_core::wire::logs::Stream;
use everwatch_core::wire::work::Work;
use everwatch_trace::Trace;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State that all observers of a service share, by its type.
pub(crate) type Shared = HashMap<TypeId, SharedValue>;
pub(crate) type SharedValue = Arc<dyn Any + Send + Sync>;

/// A value that is emitted.
pub(crate) struct Emission {
    /// JSON text.
    pub(crate) body: Vec<u8>,
    /// `None`: `<kind>.<name>`.
    pub(crate) key: Option<String>,
    /// In addition to those of every value.
    pub(crate) headers: Vec<(String, String)>,
}

/// The outlet for the values and the progress of observers.
#[async_trait]
pub(crate) trait Outlet: Send + Sync {
    async fn emit(&self, work: &Work, epoch: Epoch, value: Emission) -> Result<(), Error>;
    async fn checkpoint(&self, work: &Work, epoch: Epoch, value: String) -> Result<(), Error>;
    async fn restored(&self, work: &Work, epoch: Epoch) -> Result<Option<SavedCheckpoint>, Error>;
    async fn acquire(&self, permits: Permits) -> Result<(), Error>;
    fn ready(&self, work: &Work, epoch: Epoch, attempt: u32);
    fn progress(&self, work: &Work, epoch: Epoch, text: String);
}

/// What all attempts of one session use.
pub(crate) struct Outlets {
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) logs: SessionLogs,
    pub(crate) exported: Arc<Exported>,
}

/// One start of the code of an observer.
pub(crate) struct Attempt {
    pub(crate) work: Arc<Work>,
    pub(crate) epoch: Epoch,
    pub(crate) number: u32,
    pub(crate) trace: Option<Trace>,
    pub(crate) outlets: Arc<Outlets>,
    /// When it was started, in ms of the fence's clock.
    pub(crate) started_at: u64,
    /// When its code last gave a sign of life, in ms of the fence's clock: its start, `ready` or `alive`.
    pub(crate) alive_at: AtomicU64,
    pub(crate) is_ready: AtomicBool,
    /// Since when its code, without its spawned tasks, has held a thread.
    pub(crate) poll_clock: PollClock,
    /// Tells the code to stop.
    pub(crate) stop: Stop,
    /// Ends the code, not the task: the task waits for what the code leaves behind.
    pub(crate) abort: Abort,
    /// Whether the code has ended, and only what it left behind remains.
    pub(crate) let_go: AtomicBool,
    /// What most code does not use; made by the first use.
    extras: OnceLock<Box<Extras>>,
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
        let now = millis(boottime());
        let book = outlets.logs.resume(work.id, epoch).map_or_else(OnceLock::new, OnceLock::from);
        Self {
            work,
            epoch,
            number,
            trace,
            outlets,
            started_at: now,
            alive_at: AtomicU64::new(now),
            is_ready: AtomicBool::new(false),
            poll_clock: PollClock::default(),
            stop: Stop::default(),
            abort: Abort::default(),
            let_go: AtomicBool::new(false),
            extras: OnceLock::new(),
            over: AtomicBool::new(false),
            book,
        }
    }

    /// Adds each line of the text to the log of the observer.
    pub(crate) fn say(&self, stream: Stream, text: &str) {
        let open = || self.outlets.logs.open(self.work.id, self.epoch, &self.over);
        self.book.get_or_init(open).write(self.epoch, stream, &self.masked(text));
    }

    /// From now on, its output hides these secrets.
    pub(crate) fn set_mask(&self, mask: Option<Mask>) {
        if let Some(mask) = mask {
            let _first = self.extras().mask.set(mask);
        }
    }
    fn mask(&self) -> Option<&Mask> {
        self.extras.get()?.mask.get()
    }
    pub(crate) fn masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.mask().map_or(Cow::Borrowed(text), |mask| mask.text(text))
    }
    pub(crate) fn masked_emission(&self, emission: Emission) -> Result<Emission, Error> {
        let Some(mask) = self.mask() else { return Ok(emission) };
        let Emission { body, key, headers } = emission;
        let headers = headers.into_iter().map(|(name, value)| (name, mask.text(&value).into_owned()));
        Ok(Emission {
            body: mask.json(body)?,
            key: key.map(|key| mask.text(&key).into_owned()),
            headers: headers.collect(),
        })
    }
    pub(crate) fn masked_outcome(&self, outcome: Outcome) -> Outcome {
        let Some(mask) = self.mask() else { return outcome };
        match outcome {
            Outcome::Errored(error) => Outcome::Errored(mask.text(&error).into_owned()),
            Outcome::Failed(reason) => Outcome::Failed(mask.text(&reason).into_owned()),
            Outcome::DoneWith(result) => match mask.json(result.into_bytes()).map(String::from_utf8) {
                Ok(Ok(result)) => Outcome::DoneWith(result),
                _ => Outcome::Done,
            },
            Outcome::Done | Outcome::Aborted => outcome,
        }
    }
    /// Whether a checkpoint may be stored. A masked one would be of no use to the next attempt.
    ///
    /// # Errors
    /// If it has a secret, which is permanent.
    pub(crate) fn check_checkpoint(&self, checkpoint: &str) -> Result<(), Permanent> {
        if self.mask().is_some_and(|mask| mask.is_in(checkpoint)) {
            return Err(Permanent::new(
                "the checkpoint contains a secret of the spec and is not stored: remove the secret from it",
            ));
        }
        Ok(())
    }

    /// Spawns a future, which ends with the code. A panic in it is logged, because nothing may wait for it.
    pub(crate) fn spawn_beside<F>(self: &Arc<Self>, future: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let tasks = &self.extras().spawned_tasks;
        let (clock, attempt) = (tasks.clocks.add(), self.clone());
        tasks.spawn(async move {
            let mut future = std::pin::pin!(future);
            poll_fn(|context| {
                let poll = AssertUnwindSafe(|| clock.during(|| future.as_mut().poll(context)));
                catch_unwind(poll).unwrap_or_else(|panic| {
                    let text = panic_text(panic.as_ref());
                    attempt.say(Stream::Log, &format!("a spawned task panicked: {text}"));
                    resume_unwind(panic)
                })
            })
            .await
        })
    }
    fn extras(&self) -> &Extras {
        self.extras.get_or_init(Box::default)
    }
    pub(crate) fn measures(&self) -> &Measures {
        &self.extras().measures
    }
    /// The run is over only when this has ended too.
    pub(crate) fn leave_behind(&self, ends: BoxFuture<'static, ()>) {
        self.extras().leftovers.push(ends);
    }
    /// What the code has left behind until now.
    pub(crate) fn take_leftovers(&self) -> Vec<BoxFuture<'static, ()>> {
        self.extras.get().map(|extras| extras.leftovers.take()).unwrap_or_default()
    }
    /// Aborts code that does not do what its kind promises; returns whether this is the first time.
    pub(crate) fn abort_for(&self, fault: Fault) -> bool {
        let is_first = self.extras().fault.set(fault).is_ok();
        self.abort.abort();
        is_first
    }
    /// Why its code was aborted, if that counts as an error of the code.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.extras.get()?.fault.get().copied()
    }
    /// Ends all spawned tasks: the code has ended.
    pub(crate) fn end_spawned_tasks(&self) -> Option<BoxFuture<'static, ()>> {
        self.extras.get().map(|extras| extras.spawned_tasks.end().boxed())
    }

    /// Since when its code or one of its spawned tasks has held a thread.
    pub(crate) fn holds_thread_since(&self) -> Option<Duration> {
        let beside = self.extras.get().and_then(|extras| extras.spawned_tasks.clocks.since());
        self.poll_clock.since().into_iter().chain(beside).min()
    }

    /// Its code gives a sign of life.
    pub(crate) fn set_alive(&self) {
        self.alive_at.store(millis(boottime()), Ordering::Relaxed);
    }

    /// Its task has ended: a first line from now on is not kept.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }
}

#[derive(Default)]
struct Extras {
    spawned_tasks: SpawnedTasks,
    leftovers: Leftovers,
    /// Why it was aborted, if that counts as an error of the code.
    fault: OnceLock<Fault>,
    measures: Measures,
    /// Of the secrets in its spec.
    mask: OnceLock<Mask>,
}

/// Whether code must stop, why, and until when. A `CancellationToken` would take a node in a tree for each attempt.
#[derive(Default)]
pub(crate) struct Stop {
    told: AtomicBool,
    order: OnceLock<StopOrder>,
    waiting: Notify,
}

#[derive(Clone, Copy)]
pub(crate) struct StopOrder {
    pub(crate) reason: CancelReason,
    /// When the code is aborted, in ms of the fence's clock.
    pub(crate) deadline: u64,
}

impl Stop {
    /// The first order counts.
    pub(crate) fn tell(&self, reason: CancelReason, grace: Duration) {
        let deadline = millis(boottime()).saturating_add(millis(grace));
        self.order.get_or_init(|| StopOrder { reason, deadline });
        self.told.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }
    pub(crate) fn order(&self) -> Option<StopOrder> {
        self.order.get().copied()
    }
    pub(crate) async fn told(&self) {
        // A stop between the check and the wait would be missed, but it wakes every wait that exists already.
        let waiting = self.waiting.notified();
        if !self.told.load(Ordering::Acquire) {
            waiting.await;
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
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

/// Tasks that code has spawned. They end with it.
#[derive(Default)]
pub(crate) struct SpawnedTasks {
    over: CancellationToken,
    tracker: TaskTracker,
    clocks: PollClocks,
}

impl SpawnedTasks {
    fn spawn<F>(&self, future: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let over = self.over.clone();
        self.tracker.spawn(async move { over.run_until_cancelled_owned(future).await })
    }
    fn end(&self) -> impl Future<Output = ()> + use<> {
        self.over.cancel();
        self.tracker.close();
        let tracker = self.tracker.clone();
        async move { tracker.wait().await }
    }
}

/// What code leaves behind when it ends or is aborted, such as processes that take a moment to die: its run is over
/// only after that. At most one entry for each thing that the code was waiting for.
#[derive(Default)]
struct Leftovers(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Leftovers {
    fn push(&self, ends: BoxFuture<'static, ()>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ends);
    }
    /// Takes all of them.
    fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
