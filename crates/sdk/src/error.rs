//! The error type of observers.

/// Any error: the retry policy decides what follows it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
