//! What users request: the definition of an observer, its retry policy, and operations on it.

pub mod definition;
pub mod difference;
pub mod labels;
mod members;
pub mod patch;
pub mod retry;
pub mod schedule;
pub mod secret;
mod time_zone;
pub mod windows;
