//! How the code of an observer ends.

use crate::error::Error;
use serde::Serialize;

/// How the code of an observer may end on its own.
///
/// ```
/// use everwatch::{Exit, testing::Trial};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let trial = Trial::of(|ctx| async move {
///     ctx.cancelled().await;
///     Ok(Exit::Stopped)
/// });
/// assert_eq!(trial.start().stop().await.unwrap().unwrap(), Exit::Stopped);
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It is finished: the observer becomes `Completed` and never runs again.
    Done,
    /// The same, with a result that users can read; see [`Exit::done_with`].
    DoneWith(serde_json::Value),
    /// It was told to stop and has stopped. Without a cancel, this is an error.
    Stopped,
    /// A retry is useless: the observer becomes `Failed` at once. [`crate::Permanent`] does the same with `?`.
    Failed(String),
}

impl Exit {
    /// Finished, with a result of at most 64 KiB of JSON.
    ///
    /// ```
    /// use everwatch::Exit;
    ///
    /// assert_eq!(Exit::done_with([1, 2]).unwrap(), Exit::DoneWith(serde_json::json!([1, 2])));
    /// ```
    ///
    /// # Errors
    /// If the result cannot be written as JSON.
    pub fn done_with(result: impl Serialize) -> Result<Self, Error> {
        Ok(Self::DoneWith(serde_json::to_value(result)?))
    }
}
