//! Log lines of observers as they travel over HTTP.

use super::ServiceName;
use everwatch_core::clock::Timestamp;
use everwatch_core::wire::logs::Line;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of the log of an observer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Epoch and number within it: higher for later lines, on any service.
    #[schema(example = "3.2.57")]
    pub id: String,
    /// By the clock of the service's host.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `stdout`, `stderr`, or `log` for lines of its code or its service.
    #[schema(example = "stdout")]
    pub stream: String,
    /// The line without its line break. A line of more than 4,096 bytes is cut, and ends with `…`.
    pub text: String,
}

impl LogLine {
    #[must_use]
    pub fn of(line: Line) -> Self {
        let Line { place, at, stream, text } = line;
        Self { id: place.to_string(), at, stream: stream.as_str().to_owned(), text: text.into() }
    }
}

/// The recent log lines of an observer, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// At most `tail` lines.
    pub items: Vec<LogLine>,
    /// Lines between the requested position and the first of these lines that are no longer kept.
    pub missed: u64,
    /// The service that keeps the lines: the one that runs the observer, or ran it last.
    pub service: Option<ServiceName>,
    /// Why there are no lines, or no more for now; may be empty.
    pub reason: String,
}

/// A note to a follower between lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogNote {
    #[schema(example = "moved to b (epoch 3.2)")]
    pub text: String,
}
