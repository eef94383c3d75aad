//! The trait of observers.

use crate::error::Error;
use crate::tasks::context::Context;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::time::Duration;

/// How the code of an observer may end on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It is finished: the observer becomes `Completed` and never runs again.
    Done,
    /// The same, with a result for whoever reads the observer; see [`Exit::done_with`].
    DoneWith(serde_json::Value),
    /// It was told to stop and has stopped. Without a cancel, this is an error.
    Stopped,
    /// A retry is useless: the observer becomes `Failed` at once. [`crate::Permanent`] does the same with `?`.
    Failed(String),
}

impl Exit {
    /// Finished, with a result of at most 64 KiB of JSON.
    ///
    /// # Errors
    /// If the result cannot be written as JSON.
    pub fn done_with(result: impl Serialize) -> Result<Self, Error> {
        Ok(Self::DoneWith(serde_json::to_value(result)?))
    }
}

/// Code that watches something until it is cancelled. The type is also its `spec`: it is read from the
/// observer's JSON arguments.
pub trait Observer: DeserializeOwned + JsonSchema + Send + 'static {
    /// The kind that names this code in definitions: 1 to 64 of `a-z 0-9 . _ -`.
    const KIND: &'static str;

    /// If set, the code announces with [`Context::ready`] when it is ready, for example when it is connected. Until
    /// then, the observer does not count as running. Code that is not ready in time is aborted, and starts again as the
    /// retry policy says. At most a second late.
    const READY_WITHIN: Option<Duration> = None;

    /// If set, the code calls [`Context::alive`] at least this often. Code that is silent for longer is aborted, and
    /// starts again as the retry policy says. At most a second late.
    const ALIVE_WITHIN: Option<Duration> = None;

    /// Runs until it is done or [`Context::cancelled`]; returning `Ok` soon after a cancel is a clean end.
    ///
    /// # Errors
    /// After an error or a panic, the code starts again as the retry policy of the observer says, unless the error is
    /// [`crate::Permanent`].
    fn run(self, ctx: Context) -> impl Future<Output = Result<Exit, Error>> + Send;
}
