//! The trait of observers.

use crate::error::Error;
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::readiness::Readiness;
use crate::tasks::threads::Threads;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::time::Duration;

/// Code that watches something until it is cancelled. The type is also its `spec`: it is read from the
/// observer's JSON arguments.
///
/// ```
/// use everwatch::{Context, Error, Exit, Observer, testing::Trial};
/// use std::time::Duration;
///
/// /// Says hello once.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Hello {
///     /// Whom it greets.
///     to: String,
/// }
///
/// impl Observer for Hello {
///     const KIND: &'static str = "hello";
///     const ALIVE_WITHIN: Option<Duration> = Some(Duration::from_secs(60));
///     async fn run(self, ctx: Context) -> Result<Exit, Error> {
///         ctx.emit(format!("hello {}", self.to)).await?;
///         Ok(Exit::Done)
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut trial = Trial::from_spec::<Hello>(&serde_json::json!({"to": "you"})).unwrap().start();
/// assert_eq!(trial.emitted().await.unwrap(), "hello you");
/// # });
/// ```
pub trait Observer: DeserializeOwned + JsonSchema + Send + 'static {
    /// The kind that names this code in definitions: 1 to 64 of `a-z 0-9 . _ -`.
    const KIND: &'static str;

    /// When the code is ready. Until then, the observer does not count as running.
    const READINESS: Readiness = Readiness::AtStart;

    /// If set, the code calls [`Context::alive`] at least this often. Code that is silent for longer is aborted, and
    /// starts again as the retry policy says. At most a second late.
    const ALIVE_WITHIN: Option<Duration> = None;

    /// The threads on which the code runs. Code that must not block the threads of others, and cannot move its blocking
    /// calls to `tokio::task::spawn_blocking`, asks for threads of its own.
    const THREADS: Threads = Threads::Shared;

    /// Runs until it is done or [`Context::cancelled`]; returning `Ok` soon after a cancel is a clean end.
    ///
    /// # Errors
    /// After an error or a panic, the code starts again as the retry policy of the observer says, unless the error is
    /// [`crate::Permanent`].
    fn run(self, ctx: Context) -> impl Future<Output = Result<Exit, Error>> + Send;
}
