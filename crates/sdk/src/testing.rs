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
//!         Ok(Exit::Done)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mut trial = Trial::start(Greeter { to: "you".to_owned() });
//! assert_eq!(trial.emitted().await.unwrap()["hello"], "you");
//! assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
//! # });
//! ```

use crate::error::Error;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::tasks::attempt::{Attempt, Outlet, Outlets};
use crate::tasks::context::Context;
use crate::tasks::log_capture::as_speaker;
use crate::tasks::logs::Logs;
use crate::tasks::observer::{Exit, Observer};
use async_trait::async_trait;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::work::Work;
use serde_json::Value;
use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, PoisonError};
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

/// A value for [`Context::shared`], by its type.
pub(crate) type SharedValue = (TypeId, Arc<dyn Any + Send + Sync>);

/// One observer that runs, seen from outside.
pub struct Trial {
    code: JoinSet<Result<Exit, Error>>,
    attempt: Arc<Attempt>,
    logs: Arc<Logs>,
    values: mpsc::Receiver<Value>,
    status: Arc<Mutex<Option<String>>>,
}

struct TestOutlet {
    values: mpsc::Sender<Value>,
    status: Arc<Mutex<Option<String>>>,
}

#[async_trait]
impl Outlet for TestOutlet {
    async fn emit(&self, _work: &Work, _epoch: Epoch, value: Value) -> Result<(), Error> {
        Ok(self.values.send(value).await?)
    }
    fn progress(&self, _work: &Work, _epoch: Epoch, text: String) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

impl Trial {
    /// Starts the observer as its first attempt in epoch 1.0, named `trial`. Needs a tokio runtime.
    ///
    /// # Panics
    /// If `O::KIND` is not a valid kind: that is a mistake in the program.
    pub fn start<O: Observer>(observer: O) -> Self {
        Self::start_sharing(observer, ())
    }

    /// The same, with a value for [`Context::shared`].
    ///
    /// # Panics
    /// As [`Trial::start`].
    pub fn start_sharing<O: Observer, T: Any + Send + Sync>(observer: O, value: T) -> Self {
        Self::start_among(observer, vec![(TypeId::of::<T>(), Arc::new(value))])
    }

    /// The same, with several values.
    pub(crate) fn start_among<O: Observer>(observer: O, mut shared: Vec<SharedValue>) -> Self {
        let (sender, values) = mpsc::channel(UNREAD);
        let status = Arc::new(Mutex::new(None));
        shared.push((TypeId::of::<ChildWatchdogs>(), Arc::new(ChildWatchdogs::default())));
        let logs = Arc::new(Logs::new(LOG_LINES));
        let outlets = Outlets {
            outlet: Arc::new(TestOutlet { values: sender, status: status.clone() }),
            shared: Arc::new(shared.into_iter().collect()),
            logs: logs.session(),
        };
        let run = (Arc::new(work(O::KIND)), Epoch::new(1, 0), 1);
        let attempt = Arc::new(Attempt::new(run, None, Arc::new(outlets)));
        let mut code = JoinSet::new();
        let mut running = Box::pin(observer.run(Context::new(attempt.clone())));
        let speaker = attempt.clone();
        code.spawn(async move {
            let ended = std::future::poll_fn(|context| {
                as_speaker(speaker.clone(), || running.as_mut().poll(context))
            });
            let ended = ended.await;
            futures::future::join_all(speaker.leftovers.take()).await;
            ended
        });
        Self { code, attempt, logs, values, status }
    }

    /// The next value that it emits.
    ///
    /// # Errors
    /// After 10 s, or at once if the code has ended without another.
    pub async fn emitted(&mut self) -> Result<Value, TooSlow> {
        let next = tokio::time::timeout(PATIENCE, self.values.recv()).await;
        next.ok().flatten().ok_or(TooSlow("emitted anything"))
    }

    /// What it said of itself last ([`Context::status`]).
    #[must_use]
    pub fn status(&self) -> Option<String> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest lines that it has logged ([`Context::log`]), the last one last; at most 1000.
    #[must_use]
    pub fn logged(&self) -> Vec<String> {
        let lines = self.logs.read(self.attempt.work.id, None, LOG_LINES as usize).lines;
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

    /// Tells it to stop, and waits until it has.
    ///
    /// # Errors
    /// If it has not ended after 10 s.
    pub async fn stop(mut self) -> Result<Result<Exit, Error>, TooSlow> {
        self.attempt.stop.tell();
        self.ended().await
    }

    /// Tells it to stop, and reads what it emits until it has: code may wait for a reader.
    #[cfg(test)]
    pub(crate) async fn stop_reading(mut self) -> Result<(Result<Exit, Error>, Vec<Value>), TooSlow> {
        self.attempt.stop.tell();
        let mut rest = Vec::new();
        loop {
            tokio::select! {
                biased;
                value = self.values.recv() => match value {
                    Some(value) => rest.push(value),
                    None => return Ok((self.ended().await?, rest)),
                },
                ended = Self::end(&mut self.code) => {
                    let ended = ended?;
                    while let Ok(value) = self.values.try_recv() {
                        rest.push(value);
                    }
                    return Ok((ended, rest));
                }
            }
        }
    }
}

fn work(kind: &str) -> Work {
    let definition = serde_json::json!({ "name": "trial", "kind": kind, "spec": {} });
    serde_json::from_value::<ObserverDefinition>(definition)
        .and_then(|definition| Work::of(ObserverId(Uuid::nil()), 1, &definition))
        .expect("Observer::KIND is 1 to 64 of a-z 0-9 . _ -")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{ExecSettings, Ticker};

    #[tokio::test]
    async fn a_ticker_ticks_until_it_is_stopped() {
        let ticker: Ticker = serde_json::from_str(r#"{"every": "10ms"}"#).unwrap();
        let mut trial = Trial::start(ticker);
        assert_eq!(trial.emitted().await.unwrap()["tick"], 1);
        assert_eq!(trial.emitted().await.unwrap()["tick"], 2);
        assert_eq!(trial.logged()[..2], ["tick 1", "tick 2"]);
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    }

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Talks {}

    impl Observer for Talks {
        const KIND: &'static str = "talks";
        async fn run(self, ctx: Context) -> Result<Exit, Error> {
            ctx.log("said\nby itself");
            tracing::info!(size = 3, "looked");
            tracing::debug!("not asked for");
            tokio::task::yield_now().await;
            tracing::info!(target: crate::tasks::logs::OUTPUT, "kept already");
            tracing::warn!("it is late");
            Ok(Exit::Done)
        }
    }

    #[tokio::test]
    async fn what_is_logged_and_what_is_traced_are_lines() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let log = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        let _here = tracing::subscriber::set_default(log.with(crate::tasks::log_capture::LogCaptureLayer));
        let mut trial = Trial::start(Talks {});
        tracing::info!("by nobody");
        assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::Done);
        assert_eq!(trial.logged(), ["said", "by itself", "INFO looked size=3", "WARN it is late"]);
    }

    #[tokio::test]
    async fn exec_refuses_what_is_not_allowed_and_names_the_cure() {
        let exec: crate::kinds::Exec = serde_json::from_str(r#"{"argv": ["/bin/true"]}"#).unwrap();
        let settings = ExecSettings { allow: vec!["/bin/false".to_owned()], ..ExecSettings::default() };
        let mut trial = Trial::start_sharing(exec, settings);
        let Exit::Failed(reason) = trial.ended().await.unwrap().unwrap() else { panic!("it ran") };
        assert!(reason.contains("/bin/true") && reason.contains("[service.exec] allow"), "{reason}");
    }
}
