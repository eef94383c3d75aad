//! Tries an observer without a broker: start it, read what it emits, stop it.
//!
//! ```
//! use everwatch::{Context, Error, Exit, Observer, testing::Trial};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greeter { to: String }
//! impl Observer for Greeter {
//!     const KIND: &'static str = "greeter";
//!     async fn run(self, ctx: Context) -> Result<Exit, Error> {
//!         ctx.emit(serde_json::json!({"hello": self.to})).await?;
//!         ctx.cancelled().await;
//!         Ok(Exit::Stopped)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mut trial = Trial::start(Greeter { to: "you".to_owned() });
//! assert_eq!(trial.emitted().await.unwrap()["hello"], "you");
//! assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Stopped);
//! # });
//! ```

use crate::error::Error;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::tasks::attempt::{Attempt, Emission, Outlet, Outlets, Shared};
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::log_capture::as_speaker;
use crate::tasks::logs::Logs;
use crate::tasks::observer::Observer;
use crate::tasks::registry::RunFuture;
use async_trait::async_trait;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::run::permits::Permits;
use everwatch_core::run::slots::CancelReason;
use everwatch_core::wire::checkpoint::SavedCheckpoint;
use everwatch_core::wire::work::Work;
use futures::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

/// How long a trial waits for what it is asked about.
const PATIENCE: Duration = Duration::from_secs(10);
/// Values that may wait to be read; then `emit` waits.
const UNREAD: usize = 1000;
/// The newest lines that are kept of it.
const LOG_LINES: u32 = 1000;

/// Nothing happened within 10 s.
#[derive(Debug, thiserror::Error)]
#[error("the observer has not {0} within 10 s")]
pub struct TooSlow(&'static str);

/// One observer that runs, seen from outside. It uses the clock of tokio, so tests that wait for hours end at once with
/// `#[tokio::test(start_paused = true)]` (the feature `test-util` of tokio).
///
/// ```
/// use everwatch::{CancelReason, Context, Exit, testing::Trial};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let code = |ctx: Context| async move {
///     ctx.ready();
///     ctx.status("connected");
///     ctx.log("hello");
///     ctx.counter("messages").add(1);
///     ctx.checkpoint(&7).await?;
///     ctx.emission("a price")?.key("prices.eur").header("unit", "cent").send().await?;
///     ctx.cancelled().await;
///     Ok(Exit::Stopped)
/// };
/// let mut trial = Trial::of(code).start();
/// let emitted = trial.emission().await.unwrap();
/// assert_eq!((emitted.value, emitted.key.as_str()), ("a price".into(), "prices.eur"));
/// assert!(trial.is_ready());
/// assert_eq!(trial.status().as_deref(), Some("connected"));
/// assert_eq!(trial.logged(), ["hello"]);
/// assert_eq!(trial.counters()["messages"], 1);
/// assert_eq!(trial.checkpointed::<u64>(), Some(7));
/// assert_eq!(trial.stop_for(CancelReason::Moved).await.unwrap().unwrap(), Exit::Stopped);
/// # });
/// ```
pub struct Trial {
    code: JoinSet<Result<Exit, Error>>,
    attempt: Arc<Attempt>,
    logs: Arc<Logs>,
    values: mpsc::Receiver<Emitted>,
    seen: Arc<Mutex<Seen>>,
}

/// A value that an observer has emitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    /// The value as JSON.
    pub value: Value,
    /// The routing key.
    pub key: String,
    /// The headers that the code has added.
    pub headers: Vec<(String, String)>,
}

/// What an observer has shown of itself.
#[derive(Default)]
pub(crate) struct Seen {
    status: Option<String>,
    pub(crate) is_ready: bool,
    pub(crate) checkpoint: Option<SavedCheckpoint>,
    checkpoints: u64,
    acquired: BTreeMap<String, u64>,
}

struct TestOutlet {
    values: mpsc::Sender<Emitted>,
    seen: Arc<Mutex<Seen>>,
}

impl TestOutlet {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Outlet for TestOutlet {
    async fn emit(&self, work: &Work, _epoch: Epoch, emission: Emission) -> Result<(), Error> {
        let Emission { body, key, headers } = emission;
        let key = key.unwrap_or_else(|| format!("{}.{}", work.kind, work.name));
        Ok(self.values.send(Emitted { value: serde_json::from_slice(&body)?, key, headers }).await?)
    }
    async fn checkpoint(&self, _work: &Work, epoch: Epoch, value: String) -> Result<(), Error> {
        let mut seen = self.seen();
        seen.checkpoints += 1;
        let number = seen.checkpoints;
        seen.checkpoint = Some(SavedCheckpoint { epoch, number, value });
        Ok(())
    }
    async fn restored(&self, _work: &Work, _epoch: Epoch) -> Result<Option<SavedCheckpoint>, Error> {
        Ok(self.seen().checkpoint.clone())
    }
    fn ready(&self, _work: &Work, _epoch: Epoch, _attempt: u32) {
        self.seen().is_ready = true;
    }
    async fn acquire(&self, permits: Permits) -> Result<(), Error> {
        let mut seen = self.seen();
        for (key, count) in permits {
            *seen.acquired.entry(key.to_string()).or_insert(0) += u64::from(count);
        }
        Ok(())
    }
    fn progress(&self, _work: &Work, _epoch: Epoch, text: String) {
        self.seen().status = Some(text);
    }
}

/// The circumstances of a [`Trial`].
///
/// ```
/// use everwatch::{Context, Exit, testing::Trial};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let code = |ctx: Context| async move {
///     let count = ctx.restored::<u64>().await?.map_or(0, |it| it.value);
///     Exit::done_with((count, ctx.attempt(), ctx.epoch(), ctx.labels()["region"].clone()))
/// };
/// let trial = Trial::of(code).checkpoint(41, 1 << 32).attempt(2).epoch(1 << 32 | 1).label("region", "eu");
/// let ended = trial.start().ended().await.unwrap().unwrap();
/// assert_eq!(ended, Exit::done_with((41, 2, 1_u64 << 32 | 1, "eu")).unwrap());
/// # });
/// ```
pub struct TrialBuilder {
    kind: &'static str,
    code: Box<dyn FnOnce(Context) -> RunFuture + Send>,
    attempt: u32,
    epoch: Epoch,
    labels: BTreeMap<String, String>,
    seen: Arc<Mutex<Seen>>,
    shared: Shared,
}

impl TrialBuilder {
    /// The number of the start within its run (default 1).
    #[must_use]
    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }
    /// The epoch of the run (default: that of the first run).
    #[must_use]
    pub fn epoch(self, epoch: u64) -> Self {
        Self { epoch: epoch.into(), ..self }
    }
    /// A label of the observer.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }
    /// A checkpoint that an earlier run has saved under this epoch.
    ///
    /// # Panics
    /// If the value cannot be written as JSON: that is a mistake in the test.
    #[must_use]
    pub fn checkpoint(self, value: impl Serialize, epoch: u64) -> Self {
        let value = serde_json::to_string(&value).expect("a checkpoint can be written as JSON");
        let saved = SavedCheckpoint { epoch: epoch.into(), number: 1, value };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).checkpoint = Some(saved);
        self
    }
    /// A value for [`Context::shared`].
    #[must_use]
    pub fn share<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.shared.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }
    /// Shows itself here: the next trial continues with what this one has saved.
    #[cfg(test)]
    pub(crate) fn keep_in(self, seen: Arc<Mutex<Seen>>) -> Self {
        Self { seen, ..self }
    }
    /// The same as [`TrialBuilder::share`] for values of several types.
    #[cfg(test)]
    pub(crate) fn share_all(mut self, shared: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>) -> Self {
        self.shared.extend(shared);
        self
    }
    /// Starts the observer. Needs a tokio runtime.
    ///
    /// # Panics
    /// If `O::KIND` is not a valid kind: that is a mistake in the program.
    #[must_use]
    pub fn start(mut self) -> Trial {
        let (sender, values) = mpsc::channel(UNREAD);
        let seen = self.seen;
        let watchdogs: Arc<dyn Any + Send + Sync> = Arc::new(ChildWatchdogs::default());
        self.shared.entry(TypeId::of::<ChildWatchdogs>()).or_insert(watchdogs);
        let logs = Arc::new(Logs::new(LOG_LINES));
        let outlets = Outlets {
            outlet: Arc::new(TestOutlet { values: sender, seen: seen.clone() }),
            shared: Arc::new(self.shared),
            logs: logs.session(),
            exported: Arc::default(),
        };
        let run = (Arc::new(work(self.kind, &self.labels)), self.epoch, self.attempt);
        let attempt = Arc::new(Attempt::new(run, None, Arc::new(outlets)));
        let mut code = JoinSet::new();
        let mut running = (self.code)(Context::new(attempt.clone()));
        let speaker = attempt.clone();
        code.spawn(async move {
            let ended = std::future::poll_fn(|context| {
                as_speaker(speaker.clone(), || running.as_mut().poll(context))
            });
            let ended = ended.await;
            if let Some(ends) = speaker.end_spawned_tasks() {
                ends.await;
            }
            futures::future::join_all(speaker.take_leftovers()).await;
            ended
        });
        Trial { code, attempt, logs, values, seen }
    }
}

impl Trial {
    /// Starts the observer as its first attempt in its first run, named `trial`. Needs a tokio runtime.
    ///
    /// # Panics
    /// If `O::KIND` is not a valid kind: that is a mistake in the program.
    pub fn start<O: Observer>(observer: O) -> Self {
        Self::builder(observer).start()
    }

    /// The same under other circumstances.
    ///
    /// ```
    /// # use everwatch::{Context, Error, Exit, Observer, testing::Trial};
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Counter {}
    /// impl Observer for Counter {
    ///     const KIND: &'static str = "counter";
    ///     async fn run(self, ctx: Context) -> Result<Exit, Error> {
    ///         let count = ctx.restored::<u64>().await?.map_or(0, |it| it.value);
    ///         ctx.checkpoint(&(count + 1)).await?;
    ///         Ok(Exit::Done)
    ///     }
    /// }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let mut trial = Trial::builder(Counter {}).checkpoint(41, 1 << 32).attempt(2).start();
    /// trial.ended().await.unwrap().unwrap();
    /// assert_eq!(trial.checkpointed::<u64>(), Some(42));
    /// # });
    /// ```
    pub fn builder<O: Observer>(observer: O) -> TrialBuilder {
        Self::of_kind(O::KIND, move |ctx| observer.run(ctx).boxed())
    }

    /// A function of the context, such as the code of [`crate::Service::observer_fn`] with its spec.
    ///
    /// ```
    /// use everwatch::{Exit, testing::Trial};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let mut trial = Trial::of(|ctx| async move { Exit::done_with(ctx.attempt()) }).attempt(3).start();
    /// assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::done_with(3).unwrap());
    /// # });
    /// ```
    pub fn of<F, R>(code: F) -> TrialBuilder
    where
        F: FnOnce(Context) -> R + Send + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        Self::of_kind("trial", move |ctx| code(ctx).boxed())
    }

    fn of_kind(kind: &'static str, code: impl FnOnce(Context) -> RunFuture + Send + 'static) -> TrialBuilder {
        TrialBuilder {
            kind,
            code: Box::new(code),
            attempt: 1,
            epoch: Epoch::new(1, 0),
            labels: BTreeMap::new(),
            seen: Arc::default(),
            shared: Shared::default(),
        }
    }

    /// An observer with this spec, as a service reads it.
    ///
    /// # Errors
    /// Why the spec does not fit the kind: what the reason of the failed observer would say.
    pub fn from_spec<O: Observer>(spec: &Value) -> Result<TrialBuilder, String> {
        serde_json::from_str::<O>(&spec.to_string()).map(Self::builder).map_err(|error| error.to_string())
    }

    /// The next value that it emits.
    ///
    /// # Errors
    /// After 10 s, or at once if the code has ended without another.
    pub async fn emitted(&mut self) -> Result<Value, TooSlow> {
        self.emission().await.map(|emitted| emitted.value)
    }

    /// The same with its key and headers.
    ///
    /// # Errors
    /// As [`Trial::emitted`].
    pub async fn emission(&mut self) -> Result<Emitted, TooSlow> {
        let next = tokio::time::timeout(PATIENCE, self.values.recv()).await;
        next.ok().flatten().ok_or(TooSlow("emitted anything"))
    }

    /// Whether it has announced that it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.seen().is_ready
    }

    /// The newest checkpoint, its own or the one that it was given.
    ///
    /// # Panics
    /// If the checkpoint has another type.
    #[must_use]
    pub fn checkpointed<T: DeserializeOwned>(&self) -> Option<T> {
        let saved = self.seen().checkpoint.clone()?;
        Some(serde_json::from_str(&saved.value).expect("the checkpoint has this type"))
    }

    /// What it said of itself last ([`Context::status`]).
    #[must_use]
    pub fn status(&self) -> Option<String> {
        self.seen().status.clone()
    }

    /// The permits of this rate that it has acquired ([`Context::acquire`]). A trial grants all permits at once.
    #[must_use]
    pub fn acquired(&self, rate: &str) -> u64 {
        self.seen().acquired.get(rate).copied().unwrap_or_default()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values of its counters ([`Context::counter`]), by name.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.attempt.measures().counters()
    }

    /// The values of its gauges ([`Context::gauge`]), by name.
    #[must_use]
    pub fn gauges(&self) -> BTreeMap<String, f64> {
        self.attempt.measures().gauges()
    }

    /// The newest lines that it has logged ([`Context::log`]), the last one last; at most 1000.
    #[must_use]
    pub fn logged(&self) -> Vec<String> {
        let lines =
            self.logs.in_memory(self.attempt.work.id, None, LOG_LINES as usize).unwrap_or_default().lines;
        lines.into_iter().map(|line| line.text.into()).collect()
    }

    /// Waits for the code to end by itself.
    ///
    /// # Errors
    /// After 10 s. A panic of the code comes back as its error.
    pub async fn ended(&mut self) -> Result<Result<Exit, Error>, TooSlow> {
        Self::end(&mut self.code).await
    }

    async fn end(code: &mut JoinSet<Result<Exit, Error>>) -> Result<Result<Exit, Error>, TooSlow> {
        match tokio::time::timeout(PATIENCE, code.join_next()).await {
            Ok(Some(Ok(ended))) => Ok(ended),
            Ok(Some(Err(panicked))) => Ok(Err(panicked.into())),
            Ok(None) => Ok(Err("it has ended before".into())),
            Err(_) => Err(TooSlow("ended")),
        }
    }

    /// Tells it to stop because its observer is deleted, and waits until it has.
    ///
    /// # Errors
    /// If it has not ended after 10 s.
    pub async fn stop(self) -> Result<Result<Exit, Error>, TooSlow> {
        self.stop_for(CancelReason::Deleted).await
    }

    /// Tells it to stop for this reason, and checks that the code stops within 10 s, whatever the grace of the
    /// observer.
    ///
    /// # Errors
    /// If it has not ended after 10 s.
    pub async fn stop_for(mut self, reason: CancelReason) -> Result<Result<Exit, Error>, TooSlow> {
        self.attempt.stop.tell(reason, PATIENCE);
        self.ended().await
    }

    /// Tells it to stop, and reads what it emits until it has: code may wait for a reader.
    #[cfg(test)]
    pub(crate) async fn stop_reading(mut self) -> Result<(Result<Exit, Error>, Vec<Value>), TooSlow> {
        self.attempt.stop.tell(CancelReason::Deleted, PATIENCE);
        let mut rest = Vec::new();
        loop {
            tokio::select! {
                biased;
                value = self.values.recv() => match value {
                    Some(emitted) => rest.push(emitted.value),
                    None => return Ok((self.ended().await?, rest)),
                },
                ended = Self::end(&mut self.code) => {
                    let ended = ended?;
                    while let Ok(emitted) = self.values.try_recv() {
                        rest.push(emitted.value);
                    }
                    return Ok((ended, rest));
                }
            }
        }
    }
}

/// Runs an example of the documentation.
#[doc(hidden)]
pub fn example<F, R>(code: F)
where
    F: FnOnce(Context) -> R + Send + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let code = |ctx| async move { code(ctx).await.map(|()| Exit::Done) };
        let mut trial = Trial::of(code).start();
        trial.ended().await.expect("an example ends").expect("an example works");
    });
}

fn work(kind: &str, labels: &BTreeMap<String, String>) -> Work {
    let definition = serde_json::json!({ "name": "trial", "kind": kind, "spec": {}, "labels": labels });
    serde_json::from_value::<ObserverDefinition>(definition)
        .and_then(|definition| Work::of(ObserverId(Uuid::nil()), 1, &definition))
        .expect("Observer::KIND is 1 to 64 of a-z 0-9 . _ -")
}

#[cfg(test)]
#[path = "testing_tests.rs"]
mod tests;
