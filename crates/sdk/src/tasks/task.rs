//! Runs code: one task per observer, on the runtime for the code of observers.

use crate::boot_clock::{boottime, millis};
use crate::error::Error;
use crate::freeze::FreezeProof;
use crate::tasks::context::{Context, Inner, Leftovers, Outlet};
use crate::tasks::logs::{LogBuffer, Logs, as_speaker};
use crate::tasks::observer::Exit;
use crate::tasks::registry::{Registry, Running};
use crate::tasks::traces::describe;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::run::slots::Outcome;
use everwatch_core::wire::logs::Stream;
use everwatch_core::wire::trace::TraceContext;
use everwatch_core::wire::work::Work;
use everwatch_trace::{Kind, Span};
use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable, Aborted};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

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
    tasks: Handle,
    code: Code,
    ended: UnboundedSender<Ended>,
    /// Cancelled when everything must stop.
    all: CancellationToken,
    running: Arc<Mutex<HashMap<ObserverId, Unit>>>,
}

struct Unit {
    work: Arc<Work>,
    epoch: Epoch,
    /// Since when its code has held a thread, in ms of the fence's clock; 0 if it does not.
    on_thread: Arc<AtomicU64>,
    attempt: u32,
    token: CancellationToken,
    /// Ends the code, not the task: the task waits for what the code leaves behind.
    abort: AbortHandle,
    /// Whether the code has ended, and only what it left behind remains.
    let_go: Arc<AtomicBool>,
}

/// Reports the end of a unit in every case: return, panic or abort.
struct Guard {
    work: Arc<Work>,
    epoch: Epoch,
    attempt: u32,
    trace: Option<TraceContext>,
    outcome: Outcome,
    ended: UnboundedSender<Ended>,
    running: Arc<Mutex<HashMap<ObserverId, Unit>>>,
}

impl Guard {
    /// A separate span, because the span of the start was exported long ago.
    fn trace_end(&self) {
        let Some(trace) = self.trace.as_ref().filter(|trace| trace.is_sampled()) else { return };
        let span = Span::begin("attempt ended", Kind::Internal, Some(trace));
        describe(&span, &self.work, self.epoch);
        span.set("everwatch.attempt", i64::from(self.attempt));
        match &self.outcome {
            Outcome::Errored(error) => span.fail(error.clone()),
            Outcome::Failed(reason) => span.fail(reason.clone()),
            Outcome::Aborted => span.fail("aborted"),
            Outcome::Done => {}
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let id = self.work.id;
        if running.get(&id).is_some_and(|unit| unit.epoch == self.epoch && unit.attempt == self.attempt) {
            running.remove(&id);
        }
        drop(running);
        self.trace_end();
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Aborted);
        // The receiver is gone once the session is over.
        let _over = self.ended.send(Ended { id, epoch: self.epoch, outcome });
    }
}

impl Units {
    pub(crate) fn new(tasks: Handle, code: Code, ended: UnboundedSender<Ended>) -> Self {
        Self { tasks, code, ended, all: CancellationToken::new(), running: Arc::default() }
    }

    pub(crate) fn start(&self, work: Arc<Work>, epoch: Epoch, attempt: u32, trace: Option<TraceContext>) {
        let (id, token) = (work.id, self.all.child_token());
        let guard = Guard {
            work: work.clone(),
            epoch,
            attempt,
            trace: trace.clone(),
            outcome: Outcome::Aborted,
            ended: self.ended.clone(),
            running: self.running.clone(),
        };
        let (on_thread, let_go) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (abort, aborts) = AbortHandle::new_pair();
        let leftovers = Leftovers::default();
        let unit = Unit {
            work: work.clone(),
            epoch,
            on_thread: on_thread.clone(),
            attempt,
            token: token.clone(),
            abort,
            let_go: let_go.clone(),
        };
        self.lock().insert(id, unit);
        let (registry, outlet, book) =
            (self.code.registry.clone(), self.code.outlet.clone(), self.code.logs.open(id, epoch));
        let (shared, frost) = (registry.shared.clone(), self.code.frost.clone());
        let book_of = book.clone();
        let ctx = Context::new(Inner {
            work: work.clone(),
            epoch,
            attempt,
            token,
            outlet,
            shared,
            book: book_of,
            trace,
            leftovers: leftovers.clone(),
        });
        let task = async move {
            // The guard lives inside the task, so it is dropped only after the code has ended.
            let mut guard = guard;
            let code = AssertUnwindSafe(async {
                match registry.start(&work.kind, work.spec.get(), ctx) {
                    Ok(running) => outcome(timed(running, &on_thread, &frost).await),
                    Err(spec) => Outcome::Failed(spec),
                }
            });
            // Boxed, because each wrapper around it would reserve its size again.
            let code = as_speaker(book.clone(), epoch, Box::pin(code.catch_unwind()));
            let code = Abortable::new(code, aborts);
            let ended = match &guard.trace {
                Some(trace) => everwatch_trace::within(trace, code).await,
                None => code.await,
            };
            let_go.store(true, Ordering::Release);
            leftovers.end().await;
            guard.outcome = match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => Outcome::Errored(format!("panicked: {}", panic_text(panic.as_ref()))),
                Err(Aborted) => Outcome::Aborted,
            };
            note_end(&book, epoch, attempt, &guard.outcome);
        };
        self.tasks.spawn(task);
    }

    pub(crate) fn cancel(&self, id: ObserverId) {
        let token = self.lock().get(&id).map(|unit| unit.token.clone());
        if let Some(token) = token {
            token.cancel();
        }
    }
    pub(crate) fn abort(&self, id: ObserverId) {
        let abort = self.lock().get(&id).map(|unit| unit.abort.clone());
        if let Some(abort) = abort {
            abort.abort();
        }
    }
    pub(crate) fn cancel_all(&self) {
        self.all.cancel();
    }
    pub(crate) fn abort_all(&self) {
        let all: Vec<_> = self.lock().values().map(|unit| unit.abort.clone()).collect();
        all.iter().for_each(AbortHandle::abort);
    }
    /// Blocks the calling thread while the service is frozen.
    pub(crate) fn hold_thread(&self) {
        self.code.frost.hold_thread();
    }
    /// The number of runs that have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.lock().len()
    }
    /// The number of runs whose code has not ended.
    pub(crate) fn holding(&self) -> usize {
        self.lock().values().filter(|unit| !unit.let_go.load(Ordering::Acquire)).count()
    }

    /// Observers whose code has held a thread for at least this long, with their names.
    pub(crate) fn blocking(&self, least: Duration) -> Vec<(ObserverId, String)> {
        let before = millis(boottime()).saturating_sub(millis(least));
        let blocks = |unit: &Unit| (1..=before).contains(&unit.on_thread.load(Ordering::Relaxed));
        let units = self.lock();
        units.iter().filter(|(_, it)| blocks(it)).map(|(id, it)| (*id, it.work.name.to_string())).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObserverId, Unit>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls the code and records since when it holds a thread.
async fn timed(mut code: Running, on_thread: &AtomicU64, frost: &FreezeProof) -> Result<Exit, Error> {
    std::future::poll_fn(|context| {
        std::task::ready!(frost.hold_task(context));
        on_thread.store(millis(boottime()), Ordering::Relaxed);
        let polled = code.as_mut().poll(context);
        on_thread.store(0, Ordering::Relaxed);
        polled
    })
    .await
}

fn outcome(result: Result<Exit, Error>) -> Outcome {
    match result {
        Ok(Exit::Done) => Outcome::Done,
        Ok(Exit::Failed(reason)) => Outcome::Failed(reason),
        Err(error) => Outcome::Errored(chain(error.as_ref())),
    }
}

/// Writes why the code ended to the log of its observer.
fn note_end(book: &LogBuffer, epoch: Epoch, attempt: u32, outcome: &Outcome) {
    let text = match outcome {
        Outcome::Errored(error) => format!("start {attempt} ended with an error: {error}"),
        Outcome::Failed(reason) => format!("gave up: {reason}"),
        Outcome::Done | Outcome::Aborted => return,
    };
    book.write(epoch, Stream::Log, &text);
}

/// An error with everything that caused it.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
