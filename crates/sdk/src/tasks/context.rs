//! The context of running code: its identity, when to stop, and its outlets.

use crate::error::Error;
use crate::tasks::attempt::Attempt;
use everwatch_core::wire::logs::Stream;
use everwatch_trace::Trace;
use futures::future::BoxFuture;
use serde_json::Value;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// Handed to [`crate::Observer::run`]; cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Attempt>);

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self(attempt)
    }
    /// Resolves when the code must stop.
    pub async fn cancelled(&self) {
        self.0.stop.told().await;
    }
    /// The output of the future, or `None` if the code must stop first.
    pub async fn until_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.0.stop.told() => None,
            output = future => Some(output),
        }
    }
    /// The fencing token of this run: a store that keeps the highest epoch it has seen can refuse the writes of
    /// replaced runs.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch.into()
    }
    /// The number of this start within the run; 1 is the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.number
    }
    /// The id of the observer.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.work.id.to_string()
    }
    /// The observer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.work.name.as_str()
    }
    /// The observer's labels.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.work.labels
    }
    /// Publishes a value to the topic exchange `everwatch.output` under `<kind>.<name>`, with the
    /// headers `everwatch-observer` and `everwatch-epoch`; returns when the broker has it.
    ///
    /// # Errors
    /// If the session with the broker is lost.
    pub async fn emit(&self, value: Value) -> Result<(), Error> {
        self.0.outlets.outlet.emit(&self.0.work, self.0.epoch, value).await
    }
    /// Shows a short text beside the observer (at most 200 characters are kept).
    pub fn status(&self, text: &str) {
        self.0.outlets.outlet.progress(&self.0.work, self.0.epoch, text.chars().take(200).collect());
    }
    /// Shows the progress, as "37 of 120".
    pub fn progress(&self, done: u64, of: u64) {
        self.status(&format!("{done} of {of}"));
    }
    /// Adds lines to the logs that `everwatch observer logs` shows. The service keeps the newest lines of each
    /// observer, each cut at 4 KiB. `tracing` events of the code are added too, as far as `[log] filter` lets them
    /// pass; events of tasks that the code spawns are not.
    pub fn log(&self, text: &str) {
        self.say(Stream::Log, text);
    }
    pub(crate) fn say(&self, stream: Stream, text: &str) {
        self.0.say(stream, text);
    }
    /// The run is over only when this has ended too, even if the code is aborted.
    pub(crate) fn leave_behind(&self, ends: BoxFuture<'static, ()>) {
        self.0.leftovers.push(ends);
    }
    /// The headers `traceparent` and `tracestate` (W3C Trace Context) for requests of the code, so that they belong to
    /// the trace of this run. Its own `tracing` spans belong to it anyway.
    pub fn trace_headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let trace = self.0.trace.as_ref().and_then(Trace::context);
        trace.into_iter().flat_map(|trace| trace.headers().collect::<Vec<_>>())
    }
    /// State that was given to the service with [`crate::Registry::share`].
    #[must_use]
    pub fn shared<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.outlets.shared.get(&TypeId::of::<T>()).cloned().and_then(|it| it.downcast().ok())
    }
}
