//! What ends runs that may no longer be this service's: the fence and its proofs, child watchdogs, freezes.

pub(crate) mod child_watchdog;
pub(crate) mod fence;
pub(crate) mod liveness_probe;
