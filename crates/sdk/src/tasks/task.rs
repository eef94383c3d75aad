//! Runs code: one task per observer, on the runtime for the code of observers.

use crate::boot_clock::{boottime, millis};
use crate::error::{Error, is_permanent};
use crate::freeze::FreezeProof;
use crate::tasks::attempt::{Attempt, Outlet, Outlets, panic_text};
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::log_capture::as_speaker;
use crate::tasks::logs::Logs;
use crate::tasks::registry::{Registry, RunFuture};
use crate::tasks::secrets::Resolved;
use crate::tasks::threads::Runtimes;
use crate::tasks::traces::describe;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::run::slots::{CancelReason, Outcome};
use everwatch_core::run::stall::HeldThread;
use everwatch_core::run::vigil::Signs;
use everwatch_core::wire::checkpoint::CHECKPOINT_MAX_BYTES;
use everwatch_core::wire::logs::Stream;
use everwatch_core::wire::work::Work;
use everwatch_trace::{Kind, Span, Trace};
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The end of one unit. At most one for each unit that was started, so no more than the capacity.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: ObserverId,
    pub(crate) epoch: Epoch,
    pub(crate) outcome: Outcome,
}

/// The registry that creates code, and the outlets of that code.
pub(crate) struct Code {
    pub(crate) registry: Arc<Registry>,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) frost: FreezeProof,
}

/// The code that runs in one session.
pub(crate) struct Units {
    runtimes: Runtimes,
    shared: Arc<SessionTasks>,
}

/// What the tasks of one session share.
struct SessionTasks {
    registry: Arc<Registry>,
    outlets: Arc<Outlets>,
    frost: FreezeProof,
    ended: UnboundedSender<Ended>,
    running: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    attempts: HashMap<ObserverId, Arc<Attempt>>,
    /// Everything must stop within this time, including code that is started from now on.
    stopping: Option<Duration>,
}

impl SessionTasks {
    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one attempt. Reports its end in every case: return, panic or abort.
struct AttemptTask {
    attempt: Arc<Attempt>,
    shared: Arc<SessionTasks>,
    reported: bool,
}

impl AttemptTask {
    fn report(&mut self, outcome: Outcome) {
        self.reported = true;
        self.trace_end(&outcome);
        let (attempt, id) = (&self.attempt, self.attempt.work.id);
        attempt.set_over();
        let mut running = self.shared.lock();
        if running.attempts.get(&id).is_some_and(|newest| Arc::ptr_eq(newest, attempt)) {
            running.attempts.remove(&id);
        }
        // Sent under the lock: once no attempt runs, the ends of all attempts are reported. The receiver is
        // gone once the session is over.
        let _over = self.shared.ended.send(Ended { id, epoch: attempt.epoch, outcome });
    }

    /// A separate span, because the span of the start was exported long ago.
    fn trace_end(&self, outcome: &Outcome) {
        let attempt = &self.attempt;
        let Some(trace) = attempt.trace.as_ref().filter(|trace| trace.is_sampled()) else { return };
        let span = Span::begin("attempt ended", Kind::Internal, trace.context().as_ref());
        describe(&span, &attempt.work, attempt.epoch);
        span.set("everwatch.attempt", i64::from(attempt.number));
        match outcome {
            Outcome::Errored(error) => span.fail(error.clone()),
            Outcome::Failed(reason) => span.fail(reason.clone()),
            Outcome::Aborted => span.fail("aborted"),
            Outcome::Done | Outcome::DoneWith(_) => {}
        }
    }

    async fn run(mut self) {
        let outcome = {
            let mut code = None;
            poll_fn(|context| self.poll(&mut code, context)).await
        };
        self.attempt.let_go.store(true, Ordering::Release);
        if let Some(ends) = self.attempt.end_spawned_tasks() {
            // Before the leftovers: a spawned task may leave something behind when it is dropped.
            ends.await;
        }
        let leftovers = self.attempt.take_leftovers();
        if !leftovers.is_empty() {
            // Boxed, because every task would reserve room for it.
            Box::pin(futures::future::join_all(leftovers)).await;
        }
        let outcome = self.attempt.masked_outcome(outcome);
        note_end(&self.attempt, &outcome);
        self.report(outcome);
    }

    /// Polls the code until it ends, panics or is aborted, and drops it then.
    fn poll(&self, code: &mut Option<RunFuture>, context: &mut TaskContext<'_>) -> Poll<Outcome> {
        let attempt = &self.attempt;
        let polled = if attempt.abort.is_aborted() {
            Poll::Ready(aborted(attempt))
        } else {
            std::task::ready!(self.shared.frost.hold_task(context));
            let poll = || self.within(|| self.poll_code(code, context));
            attempt.poll_clock.during(|| caught(poll))
        };
        let outcome = match polled {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                attempt.abort.wakes(context.waker());
                if !attempt.abort.is_aborted() {
                    return Poll::Pending;
                }
                aborted(attempt)
            }
        };
        // Code may leave something behind, or log, when it is dropped.
        let ended = code.take();
        let drop_code = || {
            drop(ended);
            Poll::Pending
        };
        let dropped = attempt.poll_clock.during(|| caught(|| self.within(drop_code)));
        Poll::Ready(match (outcome, dropped) {
            (Outcome::Done | Outcome::DoneWith(_) | Outcome::Failed(_), Poll::Ready(panicked)) => panicked,
            (outcome, _) => outcome,
        })
    }

    /// Starts the code at the first poll.
    fn poll_code(&self, code: &mut Option<RunFuture>, context: &mut TaskContext<'_>) -> Poll<Outcome> {
        let attempt = &self.attempt;
        let code = match code {
            Some(code) => code,
            None => match self.start() {
                Ok(running) => code.insert(running),
                Err(outcome) => return Poll::Ready(outcome),
            },
        };
        code.as_mut().poll(context).map(|ended| outcome(ended, attempt.stop.order().is_some()))
    }

    fn start(&self) -> Result<RunFuture, Outcome> {
        let (attempt, registry) = (&self.attempt, &self.shared.registry);
        let (kind, spec, ctx) = (&attempt.work.kind, attempt.work.spec.get(), Context::new(attempt.clone()));
        match registry.secrets.resolve(spec).map_err(Outcome::Errored)? {
            None => registry.start(kind, spec, &ctx).map_err(Outcome::Failed),
            Some(Resolved { spec, mask }) => {
                attempt.set_mask(mask);
                // Not for good: the next attempt reads the secrets again.
                registry.start(kind, &spec, &ctx).map_err(Outcome::Errored)
            }
        }
    }

    /// Runs a piece of the code in the trace of its run, and with its log.
    fn within<T>(&self, code: impl FnOnce() -> T) -> T {
        let code = || as_speaker(self.attempt.clone(), code);
        match &self.attempt.trace {
            Some(trace) => trace.within(code),
            None => code(),
        }
    }
}

impl Drop for AttemptTask {
    fn drop(&mut self) {
        if !self.reported {
            self.report(Outcome::Aborted);
        }
    }
}

impl Units {
    pub(crate) fn new(runtimes: impl Into<Runtimes>, code: Code, ended: UnboundedSender<Ended>) -> Self {
        let Code { registry, outlet, logs, frost } = code;
        let (shared, exported) = (registry.shared.clone(), registry.exported.clone());
        let outlets = Outlets { outlet, shared, logs: logs.session(), exported };
        let (outlets, running) = (Arc::new(outlets), Mutex::default());
        let shared = Arc::new(SessionTasks { registry, outlets, frost, ended, running });
        Self { runtimes: runtimes.into(), shared }
    }

    pub(crate) fn start(&self, work: Arc<Work>, epoch: Epoch, number: u32, trace: Option<Trace>) {
        let (id, runtime) = (work.id, self.runtimes.of(&work.kind));
        let attempt = Arc::new(Attempt::new((work, epoch, number), trace, self.shared.outlets.clone()));
        let task = AttemptTask { attempt: attempt.clone(), shared: self.shared.clone(), reported: false };
        let mut running = self.lock();
        if let Some(grace) = running.stopping {
            attempt.stop.tell(CancelReason::Fenced, grace);
        }
        let former = running.attempts.insert(id, attempt);
        drop((running, former));
        runtime.spawn(task.run());
    }

    pub(crate) fn cancel(&self, id: ObserverId, reason: CancelReason) {
        let attempt = self.of(id);
        if let Some(attempt) = attempt {
            attempt.stop.tell(reason, attempt.work.grace);
        }
    }
    /// Aborts code that has broken a promise of its kind.
    pub(crate) fn abort_faulty(&self) {
        if !self.shared.registry.has_vigils() {
            return;
        }
        let now = millis(boottime());
        for attempt in self.all() {
            let since = |at: u64| Duration::from_millis(now.saturating_sub(at));
            let vigil = self.shared.registry.vigil(&attempt.work.kind);
            let signs = Signs {
                is_ready: attempt.is_ready.load(Ordering::Relaxed),
                since_start: since(attempt.started_at),
                since_alive: since(attempt.alive_at.load(Ordering::Relaxed)),
            };
            let is_told = attempt.stop.order().is_some();
            if let Some(fault) = vigil.fault(signs)
                && !is_told
                && attempt.abort_for(fault)
            {
                tracing::warn!(observer = attempt.work.name.as_str(), id = %attempt.work.id, %fault, "aborted");
            }
        }
    }
    pub(crate) fn abort(&self, id: ObserverId) {
        let attempt = self.of(id);
        if let Some(attempt) = attempt {
            attempt.abort.abort();
        }
    }
    /// Tells all code to stop, because another service may run its observers already.
    pub(crate) fn cancel_all(&self, grace: Duration) {
        self.lock().stopping = Some(grace);
        self.all().iter().for_each(|attempt| attempt.stop.tell(CancelReason::Fenced, grace));
    }
    pub(crate) fn abort_all(&self) {
        self.all().iter().for_each(|attempt| attempt.abort.abort());
    }
    /// Blocks the calling thread while the service is frozen.
    pub(crate) fn hold_thread(&self) {
        self.shared.frost.hold_thread();
    }
    /// The number of runs that have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.lock().attempts.len()
    }
    /// The number of runs whose code has not ended.
    pub(crate) fn holding(&self) -> usize {
        self.lock().attempts.values().filter(|attempt| !attempt.let_go.load(Ordering::Acquire)).count()
    }

    /// The code that holds a thread now, at most one entry for each thread.
    pub(crate) fn held_threads(&self) -> Vec<HeldThread> {
        let running = self.lock();
        let held = running.attempts.iter().filter_map(|(id, attempt)| {
            let is_shared = self.runtimes.is_shared(&attempt.work.kind);
            Some(HeldThread { id: *id, since: attempt.holds_thread_since()?, is_shared })
        });
        held.collect()
    }
    /// The definition of an observer that runs.
    pub(crate) fn work(&self, id: ObserverId) -> Option<Arc<Work>> {
        self.of(id).map(|attempt| attempt.work.clone())
    }

    fn of(&self, id: ObserverId) -> Option<Arc<Attempt>> {
        self.lock().attempts.get(&id).cloned()
    }
    fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().attempts.values().cloned().collect()
    }
    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.shared.lock()
    }
}

/// The outcome of a panic, if there is one.
fn caught(poll: impl FnOnce() -> Poll<Outcome>) -> Poll<Outcome> {
    std::panic::catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
        Poll::Ready(Outcome::Errored(format!("panicked: {}", panic_text(panic.as_ref()))))
    })
}

/// `is_told`: the code was told to stop.
fn outcome(result: Result<Exit, Error>, is_told: bool) -> Outcome {
    match result {
        Ok(Exit::Done) => Outcome::Done,
        Ok(Exit::DoneWith(result)) => done_with(&result),
        Ok(Exit::Stopped) if is_told => Outcome::Done,
        Ok(Exit::Stopped) => Outcome::Errored("stopped without being told to".to_owned()),
        Ok(Exit::Failed(reason)) => Outcome::Failed(reason),
        Err(error) if is_permanent(error.as_ref()) => Outcome::Failed(chain(error.as_ref())),
        Err(error) => Outcome::Errored(chain(error.as_ref())),
    }
}

fn done_with(result: &serde_json::Value) -> Outcome {
    let text = result.to_string();
    if text.len() <= CHECKPOINT_MAX_BYTES {
        return Outcome::DoneWith(text);
    }
    let size = text.len();
    Outcome::Failed(format!("its result has {size} bytes of JSON; at most {CHECKPOINT_MAX_BYTES} are kept"))
}

/// Aborted after its grace, or because its code has broken a promise of its kind.
fn aborted(attempt: &Attempt) -> Outcome {
    attempt.fault().map_or(Outcome::Aborted, |fault| Outcome::Errored(fault.to_string()))
}

/// Writes why the code ended to the log of its observer.
fn note_end(attempt: &Attempt, outcome: &Outcome) {
    let text = match outcome {
        Outcome::Errored(error) => format!("attempt {} ended with an error: {error}", attempt.number),
        Outcome::Failed(reason) => format!("gave up: {reason}"),
        Outcome::Done | Outcome::DoneWith(_) | Outcome::Aborted => return,
    };
    attempt.say(Stream::Log, &text);
}

/// An error with everything that caused it.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
