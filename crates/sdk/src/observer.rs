//! What a person implements to watch something.

use crate::context::Context;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::future::Future;

/// Any error: the retry policy decides what follows it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How an observer's code may end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It is finished; the observer becomes `Completed`.
    Done,
    /// Trying again is no use; the observer becomes `Failed` at once.
    Failed(String),
}

/// Code that watches something until it is cancelled. The type is also its `spec`: it is read from the
/// observer's JSON arguments.
pub trait Observer: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name under which observers ask for this code: 1 to 64 of `a-z 0-9 . _ -`.
    const KIND: &'static str;

    /// Runs until it is done or [`Context::cancelled`]; returning `Ok` soon after a cancel is a clean end.
    ///
    /// # Errors
    /// An error (or a panic) starts the code again by the observer's retry policy.
    fn run(self, ctx: Context) -> impl Future<Output = Result<Exit, Error>> + Send;
}
