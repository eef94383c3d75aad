//! The code of observers while it runs: tasks, their context, their logs, and the registry of kinds.

pub(crate) mod attempt;
pub(crate) mod context;
pub(crate) mod exit;
pub(crate) mod log_capture;
pub(crate) mod log_files;
pub(crate) mod logs;
pub(crate) mod mask;
pub(crate) mod measures;
mod namespace;
pub(crate) mod observer;
pub(crate) mod permits;
pub(crate) mod poll_clock;
pub(crate) mod readiness;
pub(crate) mod registry;
pub(crate) mod secrets;
pub(crate) mod task;
pub(crate) mod threads;
pub(crate) mod traces;
