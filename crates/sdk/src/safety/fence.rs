//! The fence: a separate thread that stops every run when this service can no longer be sure that it owns its messages.
//! It depends on no runtime, so that blocked code cannot delay it. It writes no log itself: another thread does, and
//! lines are dropped if that thread is behind.

use crate::boot_clock::{boottime, millis};
use crate::host_info::FenceOn;
use crate::metric;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::tasks::task::Units;
use everwatch_broker::Session;
use everwatch_core::failure::fence::{Proofs, Silence};
use futures::FutureExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(100);
/// The number of checks between two pulses on the pipes.
const PULSE_EVERY: u32 = 5;
/// The time that killed processes may take to die.
const DEATHS_WITHIN: Duration = Duration::from_secs(30);
/// The time that the log has to take the last line before the process ends.
const LAST_WORDS: Duration = Duration::from_millis(20);
/// The most log lines that may wait.
const UNSAID: usize = 64;
/// The exit code of a process whose code could not be stopped, or that must be replaced.
pub(crate) const MUST_BE_REPLACED: u8 = 70;

/// The state that the probes write and the thread reads.
pub(crate) struct Fence {
    fence_after: Duration,
    fence_grace: Duration,
    /// When the newest answered round trip and the newest confirmed publish were *sent*, in ms.
    answered: AtomicU64,
    confirmed: AtomicU64,
    closed: AtomicBool,
    reason: Mutex<Option<String>>,
    /// Cancelled when the fence has tripped and all code has ended.
    pub(crate) tripped: CancellationToken,
    waker: OnceLock<Waker>,
    voice: Voice,
}

/// What the fence watches, and what it ends.
pub(crate) struct Watched {
    pub(crate) session: Arc<dyn Session>,
    pub(crate) units: Arc<Units>,
    pub(crate) pulses: ChildWatchdogs,
    pub(crate) end_process: fn(i32),
}

/// Ends a pause of the loop early.
enum Waker {
    Thread(std::thread::Thread),
    Task(Notify),
}

/// A log line of the fence.
enum Said {
    Fenced { observers: usize, reason: String },
    NotStopped { observers: usize },
}

/// Writes the log lines of the fence without delaying it.
enum Voice {
    /// Through a separate thread, which a log or a metrics recorder may block.
    Thread(SyncSender<Said>),
    /// Directly, where time is simulated and nothing blocks.
    Here,
}

impl Voice {
    fn of(on: FenceOn) -> std::io::Result<Self> {
        match on {
            FenceOn::ControlRuntime => Ok(Self::Here),
            FenceOn::Thread => {
                let (sender, said) = sync_channel::<Said>(UNSAID);
                let speak = move || said.into_iter().for_each(Said::tell);
                std::thread::Builder::new().name("fence-log".to_owned()).spawn(speak)?;
                Ok(Self::Thread(sender))
            }
        }
    }

    fn say(&self, said: Said) {
        match self {
            Self::Here => said.tell(),
            Self::Thread(sender) => {
                let _behind = sender.try_send(said);
            }
        }
    }
}

impl Said {
    fn tell(self) {
        match self {
            Self::Fenced { observers, reason } => {
                metrics::counter!(metric::FENCED).increment(observers as u64);
                tracing::warn!(observers, reason, "fenced: stopping every run on this service");
            }
            Self::NotStopped { observers } => {
                tracing::error!(observers, "code did not stop at the fence: ending the process");
            }
        }
    }
}

impl Fence {
    /// Starts watching; both proofs of life count as given now.
    pub(crate) fn watch(
        (fence_after, fence_grace): (Duration, Duration),
        watched: Watched,
        (on, tracker): (FenceOn, &TaskTracker),
    ) -> std::io::Result<Arc<Self>> {
        let now = millis(boottime());
        let fence = Arc::new(Self {
            fence_after,
            fence_grace,
            answered: AtomicU64::new(now),
            confirmed: AtomicU64::new(now),
            closed: AtomicBool::new(false),
            reason: Mutex::default(),
            tripped: CancellationToken::new(),
            waker: OnceLock::new(),
            voice: Voice::of(on)?,
        });
        let watcher = fence.clone();
        let waker = match on {
            FenceOn::Thread => {
                let watch = move || {
                    // A pause parks the thread, so the loop is never pending: one poll runs it to its end.
                    let parked = |time| {
                        std::thread::park_timeout(time);
                        std::future::ready(())
                    };
                    watcher.run(&watched, parked).now_or_never();
                };
                let started = std::thread::Builder::new().name("fence".to_owned()).spawn(watch)?;
                Waker::Thread(started.thread().clone())
            }
            FenceOn::ControlRuntime => {
                tracker.spawn(async move { watcher.run(&watched, |time| watcher.pause(time)).await });
                Waker::Task(Notify::new())
            }
        };
        let _first = fence.waker.set(waker);
        Ok(fence)
    }

    /// The broker answered a round trip that was sent at `sent`.
    pub(crate) fn answered(&self, sent: Duration) {
        self.answered.fetch_max(millis(sent), Ordering::Relaxed);
    }
    /// The broker confirmed a publish that was sent at `sent`.
    pub(crate) fn confirmed(&self, sent: Duration) {
        self.confirmed.fetch_max(millis(sent), Ordering::Relaxed);
    }
    /// The silence that fences.
    pub(crate) fn fence_after(&self) -> Duration {
        self.fence_after
    }
    /// Whether this service may still start and settle: no loss that it knows or should know.
    pub(crate) fn stands(&self) -> bool {
        self.proofs().are_fresh(boottime(), self.fence_after) && self.reason().is_none()
    }
    /// Whether no proof of life is overdue, and the fence has not tripped: after a freeze, an answer may be fresh before the fence looks
    /// at the confirms.
    pub(crate) fn has_proofs(&self) -> bool {
        self.stands() && self.silence().is_none()
    }
    /// Trips the fence now.
    pub(crate) fn trip(&self, reason: &str) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        self.wake();
    }
    /// The session has ended in order: the fence stops watching.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.wake();
    }
    /// Why it has tripped.
    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wake(&self) {
        match self.waker.get() {
            Some(Waker::Thread(thread)) => thread.unpark(),
            Some(Waker::Task(notify)) => notify.notify_one(),
            None => {}
        }
    }

    async fn pause(&self, time: Duration) {
        if let Some(Waker::Task(notify)) = self.waker.get() {
            let _woken = tokio::time::timeout(time, notify.notified()).await;
        }
    }

    async fn run<P: Future<Output = ()>>(&self, watched: &Watched, pause: impl Fn(Duration) -> P) {
        let Watched { session, units, pulses, .. } = watched;
        let mut looks = 0_u32;
        while !self.closed.load(Ordering::Relaxed) {
            units.hold_thread();
            if session.is_blocked() {
                // While the broker blocks publishers, it gives no message away, so a missing confirm is no silence.
                self.confirmed(boottime());
            }
            if let Some(silence) = self.silence() {
                self.trip(&silence);
            }
            if let Some(reason) = self.reason() {
                return self.enforce(&reason, watched, pause).await;
            }
            if looks.is_multiple_of(PULSE_EVERY) {
                pulses.heartbeat();
            }
            looks = looks.wrapping_add(1);
            pause(LOOK).await;
        }
    }

    fn proofs(&self) -> Proofs {
        let sent = |at: &AtomicU64| Duration::from_millis(at.load(Ordering::Relaxed));
        Proofs { answered: sent(&self.answered), confirmed: sent(&self.confirmed) }
    }

    fn silence(&self) -> Option<String> {
        let limit = millis(self.fence_after);
        self.proofs().silence(boottime(), self.fence_after).map(|silence| match silence {
            Silence::Answer => format!("the broker has not answered for {limit} ms"),
            Silence::Confirm => format!("the broker has not confirmed for {limit} ms"),
        })
    }

    async fn enforce<P: Future<Output = ()>>(
        &self,
        reason: &str,
        Watched { units, end_process, .. }: &Watched,
        pause: impl Fn(Duration) -> P,
    ) {
        let observers = units.alive();
        units.cancel_all(self.fence_grace);
        if observers > 0 {
            self.voice.say(Said::Fenced { observers, reason: reason.to_owned() });
        }
        let all_ended = || {
            units.hold_thread();
            units.alive() == 0
        };
        let let_go = || {
            units.hold_thread();
            units.holding() == 0
        };
        if !wait_until(self.fence_grace, all_ended, &pause).await {
            units.abort_all();
            // Killed processes may take longer than code: nothing could end them sooner.
            let ended = wait_until(self.fence_grace, let_go, &pause).await
                && wait_until(DEATHS_WITHIN, all_ended, &pause).await;
            if !ended {
                self.voice.say(Said::NotStopped { observers: units.alive() });
                if matches!(self.voice, Voice::Thread(_)) {
                    pause(LAST_WORDS).await;
                }
                end_process(MUST_BE_REPLACED.into());
                // A simulated process ends a moment after this call.
                return std::future::pending().await;
            }
        }
        self.tripped.cancel();
    }
}

async fn wait_until<P: Future<Output = ()>>(
    limit: Duration,
    done: impl Fn() -> bool,
    pause: impl Fn(Duration) -> P,
) -> bool {
    let deadline = boottime() + limit;
    while !done() {
        if boottime() >= deadline {
            return false;
        }
        pause(Duration::from_millis(5)).await;
    }
    true
}

#[cfg(test)]
#[path = "fence_tests.rs"]
mod tests;
