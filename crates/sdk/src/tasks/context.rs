//! The context of running code: its identity, when to stop, and its outlets.

use crate::boot_clock::{boottime, millis};
use crate::error::{Error, OrPermanent as _, Permanent};
use crate::tasks::attempt::{Attempt, Emission, StopOrder};
use crate::tasks::exit::Exit;
use crate::tasks::measures::{Counter, Gauge};
use everwatch_core::clock::Timestamp;
use everwatch_core::run::slots::CancelReason;
use everwatch_core::wire::logs::Stream;
use everwatch_trace::Trace;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Handed to [`crate::Observer::run`]; cheap to clone.
#[derive(Clone)]
pub struct Context(pub(in crate::tasks) Arc<Attempt>);

/// A checkpoint of an earlier run or attempt: [`Context::restored`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored<T> {
    /// What was saved.
    pub value: T,
    /// The epoch of the run that saved it.
    pub epoch: u64,
}

/// A value that is not published yet: [`Context::emission`].
#[must_use = "a value is published by `send`"]
pub struct PendingEmission<'a> {
    ctx: &'a Context,
    emission: Emission,
}

impl<'a> PendingEmission<'a> {
    /// The routing key, instead of `<kind>.<name>`: at most 255 bytes.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.emission.key = Some(key.into());
        self
    }
    /// One more header. Names that begin with `everwatch-` are refused by [`PendingEmission::send`].
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.emission.headers.push((name.into(), value.into()));
        self
    }
    /// Publishes the value; returns when the broker has it.
    ///
    /// # Errors
    /// If the key is too long or a header has a reserved name, which is permanent, or if the session with the broker is
    /// lost.
    pub async fn send(self) -> Result<(), Error> {
        self.sending()?.await
    }
    /// Not asynchronous: the value would take room in the future of code that waits for something else.
    fn sending(self) -> Result<BoxFuture<'a, Result<(), Error>>, Error> {
        if let Some(key) = self.emission.key.as_ref().filter(|key| key.len() > 255) {
            let text = format!("the key `{key}` has {} bytes; at most 255", key.len());
            return Err(Permanent::new(text).into());
        }
        let reserved = |(name, _): &&(String, String)| name.starts_with("everwatch-");
        if let Some((name, _)) = self.emission.headers.iter().find(reserved) {
            let text = format!("the header `{name}` is reserved: choose a name without everwatch-");
            return Err(Permanent::new(text).into());
        }
        let Attempt { outlets, work, epoch, .. } = &*self.ctx.0;
        Ok(outlets.outlet.emit(work, *epoch, self.ctx.0.masked_emission(self.emission)?))
    }
}

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self(attempt)
    }
    /// Resolves when the code must stop.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// tokio::select! {
    ///     () = ctx.cancelled() => {}
    ///     () = std::future::ready(()) => println!("the work is done first"),
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub async fn cancelled(&self) {
        self.0.stop.told().await;
    }
    /// Why the code must stop; `None` if it need not.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// use everwatch::CancelReason;
    ///
    /// match ctx.cancel_reason() {
    ///     Some(CancelReason::Deleted) => println!("the observer does not run again: delete its files"),
    ///     Some(reason) => println!("told to stop: {reason:?}"),
    ///     None => println!("the code may continue"),
    /// }
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.0.stop.order().map(|order| order.reason)
    }
    /// How long the code may still take to stop, until it is aborted; `None` if it need not stop.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// if ctx.grace_left().is_some_and(|left| left < std::time::Duration::from_secs(1)) {
    ///     println!("no time left for a last checkpoint");
    /// }
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn grace_left(&self) -> Option<Duration> {
        let left = |order: StopOrder| order.deadline.saturating_sub(millis(boottime()));
        self.0.stop.order().map(|order| Duration::from_millis(left(order)))
    }
    /// Announces that the code is ready, for example connected. The observer counts as running from then on, if its
    /// kind announces its readiness ([`crate::Observer::READINESS`]); otherwise, it does so from its start.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// // connected, and subscribed
    /// ctx.ready();
    /// # Ok(())
    /// # });
    /// ```
    pub fn ready(&self) {
        self.0.set_alive();
        if !self.0.is_ready.swap(true, Ordering::Relaxed) {
            self.0.outlets.outlet.ready(&self.0.work, self.0.epoch, self.0.number);
        }
    }
    /// Gives a sign of life ([`crate::Observer::ALIVE_WITHIN`]); cheap.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// for _message in ["one", "two"] {
    ///     ctx.alive();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn alive(&self) {
        self.0.set_alive();
    }
    /// Runs a future beside the code, until it ends or this attempt does, whichever comes first. A panic or an error in it
    /// does not end the attempt; wait for the handle to learn of it. The log of the observer shows a panic. Dropping the handle does not stop the future.
    ///
    /// Unlike tasks of `tokio::spawn`, the future cannot outlive the run and work for an observer that runs elsewhere.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// let spawned = ctx.spawn(async { 6 * 7 });
    /// assert_eq!(spawned.await?, Some(42));
    /// # Ok(())
    /// # });
    /// ```
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<Option<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn_beside(future)
    }
    /// Calls `round` again and again, with this pause between the end of one call and the start of the next, until the
    /// code must stop. The first call comes after a random part of the pause, so that a service that takes over many
    /// observers does not run all of them at the same moment. Each round counts as a sign of life.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    ///
    /// let rounds = ctx.counter("rounds");
    /// let ended = ctx.periodic(Duration::from_millis(1), || {
    ///     rounds.add(1);
    ///     let last = rounds.value() == 3;
    ///     async move { if last { Err("the third round fails".into()) } else { Ok(()) } }
    /// });
    /// assert!(ended.await.is_err());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// The first error of a round.
    pub async fn periodic<F, R>(&self, pause: Duration, mut round: F) -> Result<Exit, Error>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<(), Error>>,
    {
        let mut next = pause.mul_f64(rand::random());
        while self.until_cancelled(tokio::time::sleep(next)).await.is_some() {
            match self.until_cancelled(round()).await {
                Some(done) => done?,
                None => break,
            }
            self.alive();
            next = pause;
        }
        Ok(Exit::Stopped)
    }
    /// The output of the future, or `None` if the code must stop first.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    ///
    /// while ctx.until_cancelled(tokio::time::sleep(Duration::from_millis(1))).await.is_some() {
    ///     // one round
    ///     break;
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub async fn until_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.0.stop.told() => None,
            output = future => Some(output),
        }
    }
    /// The fencing token of this run: a store that keeps the highest epoch it has seen can refuse the writes of
    /// replaced runs.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// let sql = "UPDATE prices SET value = $1, epoch = $2 WHERE market = $3 AND epoch <= $2";
    /// println!("{sql} with $2 = {}", ctx.epoch());
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch.into()
    }
    /// The number of this start within the run; 1 is the first.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// assert_eq!(ctx.attempt(), 1);
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.number
    }
    /// The time of its schedule for which this execution was started; `None` if the observer has no schedule, or if a
    /// request started the execution.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// assert_eq!(ctx.scheduled_for(), None);
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn scheduled_for(&self) -> Option<SystemTime> {
        self.0.work.scheduled_for.map(|at| UNIX_EPOCH + at.since(Timestamp(0)))
    }
    /// The id of the observer.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// assert_eq!(ctx.id().len(), 36);
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn id(&self) -> String {
        self.0.work.id.to_string()
    }
    /// The observer's name.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// assert_eq!(ctx.name(), "trial");
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.work.name.as_str()
    }
    /// The observer's labels.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// let region = ctx.labels().get("region").map_or("anywhere", String::as_str);
    /// assert_eq!(region, "anywhere");
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.work.labels
    }
    /// Publishes a value as JSON to the topic exchange `everwatch.output` under `<kind>.<name>`, with the
    /// headers `everwatch-observer` and `everwatch-epoch`; returns when the broker has it. While the broker accepts
    /// nothing, this waits: code that emits one value after the other never has more than one in memory.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.emit(serde_json::json!({"price": 42})).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// If the value cannot be written as JSON, or if the session with the broker is lost.
    pub async fn emit(&self, value: impl Serialize) -> Result<(), Error> {
        self.emission(value)?.sending()?.await
    }
    /// A value to publish under another key, or with more headers.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.emission(&[1, 2, 3])?.key("prices.eur").header("unit", "cent").send().await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn emission(&self, value: impl Serialize) -> Result<PendingEmission<'_>, Error> {
        let body = serde_json::to_vec(&value)?;
        Ok(PendingEmission { ctx: self, emission: Emission { body, key: None, headers: Vec::new() } })
    }
    /// Saves the state from which the next run or attempt continues, at most 64 KiB of JSON; returns when a manager has
    /// stored it, or a later one. While no manager responds, this waits, and the observer goes on running.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.checkpoint(&17).await?;
    /// let restored = ctx.restored::<u64>().await?.unwrap();
    /// assert_eq!((restored.value, restored.epoch), (17, ctx.epoch()));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// If the value cannot be written as JSON, is too large or has a secret, which is permanent, or if the session with the
    /// broker is lost.
    pub async fn checkpoint(&self, value: &(impl Serialize + Sync + ?Sized)) -> Result<(), Error> {
        let text = serde_json::to_string(value).or_permanent()?;
        self.0.check_checkpoint(&text)?;
        self.0.outlets.outlet.checkpoint(&self.0.work, self.0.epoch, text).await
    }
    /// The newest checkpoint that a manager has stored, and the epoch under which it was saved; `None` if there is none.
    /// From then on, no checkpoint of an earlier run is stored. Waits until a manager responds: an observer that calls
    /// this needs a manager for a failover, others do not.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// let mut offset = ctx.restored::<u64>().await?.map_or(0, |restored| restored.value);
    /// offset += 1;
    /// ctx.checkpoint(&offset).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// If the checkpoint does not have this type, which is permanent, or if the session with the broker is lost.
    pub async fn restored<T: DeserializeOwned>(&self) -> Result<Option<Restored<T>>, Error> {
        let Some(saved) = self.0.outlets.outlet.restored(&self.0.work, self.0.epoch).await? else {
            return Ok(None);
        };
        let value = serde_json::from_str(&saved.value)
            .map_err(|error| format!("the checkpoint of epoch {} has another type: {error}", saved.epoch))
            .or_permanent()?;
        Ok(Some(Restored { value, epoch: saved.epoch.into() }))
    }
    /// Shows a short text beside the observer (at most 200 characters are kept).
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.status("connected to 3 of 4 exchanges");
    /// # Ok(())
    /// # });
    /// ```
    pub fn status(&self, text: &str) {
        let text = self.0.masked(text).chars().take(200).collect();
        self.0.outlets.outlet.progress(&self.0.work, self.0.epoch, text);
    }
    /// Shows the progress, as "37 of 120".
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.progress(37, 120);
    /// # Ok(())
    /// # });
    /// ```
    pub fn progress(&self, done: u64, of: u64) {
        self.status(&format!("{done} of {of}"));
    }
    /// A counter of this attempt, which starts at 0. If `service.listen` is set, `/metrics` of the service shows the
    /// sum over all observers of a kind as `everwatch_observer_counted_total{kind="…",name="…"}`, for at most 20 names
    /// of a kind. The exported sum keeps what ended attempts have counted.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// let messages = ctx.counter("messages");
    /// messages.add(1);
    /// assert_eq!(messages.value(), 1);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Panics
    /// If the name is not 1 to 64 of `a-z 0-9 _`, or if this attempt already uses 20 other counters.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        self.0.measures().counter(name, (&self.0.work.kind, &self.0.outlets.exported))
    }
    /// A gauge of this attempt, which starts at 0. If `service.listen` is set, `/metrics` of the service shows the sum
    /// over all running observers of a kind as `everwatch_observer_gauged{kind="…",name="…"}`, for at most 20 names of a
    /// kind.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.gauge("bytes_behind").set(4096.0);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Panics
    /// If the name is not 1 to 64 of `a-z 0-9 _`, or if this attempt already uses 20 other gauges.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Gauge {
        self.0.measures().gauge(name, (&self.0.work.kind, &self.0.outlets.exported))
    }
    /// Adds lines to the logs that `everwatch observer logs` shows. The service keeps the newest lines of each
    /// observer, each cut at 4 KiB. `tracing` events of the code are added too, as far as `[log] filter` lets them
    /// pass; events of tasks that the code spawns are not.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// ctx.log("the exchange closed the connection");
    /// tracing::info!(code = 1001, "the same, as an event");
    /// # Ok(())
    /// # });
    /// ```
    pub fn log(&self, text: &str) {
        self.say(Stream::Log, text);
    }
    pub(crate) fn say(&self, stream: Stream, text: &str) {
        self.0.say(stream, text);
    }
    /// The run is over only when this has ended too, even if the code is aborted.
    pub(crate) fn leave_behind(&self, ends: BoxFuture<'static, ()>) {
        self.0.leave_behind(ends);
    }
    /// The headers `traceparent` and `tracestate` (W3C Trace Context) for requests of the code, so that they belong to
    /// the trace of this run. Its own `tracing` spans belong to it anyway.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// for (name, value) in ctx.trace_headers() {
    ///     println!("{name}: {value}");
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn trace_headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let trace = self.0.trace.as_ref().and_then(Trace::context);
        trace.into_iter().flat_map(|trace| trace.headers().collect::<Vec<_>>())
    }
    /// The value of this type that [`crate::Service::share`] or [`crate::Service::share_with`] gave to the service;
    /// `None` if there is none.
    ///
    /// ```
    /// use everwatch::{Exit, testing::Trial};
    ///
    /// struct Greeting(&'static str);
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let greet = |ctx: everwatch::Context| async move {
    ///     let greeting = ctx.shared::<Greeting>().ok_or("no greeting is shared")?;
    ///     Exit::done_with(greeting.0)
    /// };
    /// let mut trial = Trial::of(greet).share(Greeting("hello")).start();
    /// assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::done_with("hello").unwrap());
    /// # });
    /// ```
    #[must_use]
    pub fn shared<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.outlets.shared.get(&TypeId::of::<T>()).cloned().and_then(|it| it.downcast().ok())
    }
}
