//! The trait of observers.

use crate::error::Error;
use crate::tasks::context::Context;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::time::Duration;

/// How the code of an observer may end on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It is finished; the observer becomes `Completed`.
    Done,
    /// A retry is useless; the observer becomes `Failed` at once.
    Failed(String),
}

/// Code that watches something until it is cancelled. The type is also its `spec`: it is read from the
/// observer's JSON arguments.
pub trait Observer: DeserializeOwned + JsonSchema + Send + 'static {
    /// The kind that names this code in definitions: 1 to 64 of `a-z 0-9 . _ -`.
    const KIND: &'static str;
    /// For a kind that announces its readiness: how long it may take. `None`: it is ready once it has started.
    const READY_WITHIN: Option<Duration> = None;

    /// Runs until it is done or [`Context::cancelled`]; returning `Ok` soon after a cancel is a clean end.
    ///
    /// # Errors
    /// After an error or a panic, the code starts again as the retry policy of the observer says.
    fn run(self, ctx: Context) -> impl Future<Output = Result<Exit, Error>> + Send;
}
