//! Reports about runs, as intake hands them on.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::wire::report::RunReport;

/// One report about one run, with who said it and when.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) service: ServiceId,
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    pub(super) report: RunReport,
    pub(super) told: RunSource,
}

/// What makes a service tell of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunSource {
    /// Something happened to it.
    Event,
    /// It lists all that it holds.
    List,
    /// It was asked what it holds there.
    HeldMessages,
}
