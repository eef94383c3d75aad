//! Why a service holds an observer that it does not run: sentences on the wire that managers distinguish.

/// Its turn has not come.
pub const START_RATE: &str = "start rate";
/// It came from another service; the run there ends first.
pub const REDELIVERED: &str = "redelivered";
/// The same, and two runs must not overlap.
pub const REDELIVERED_APART: &str = "redelivered, may not overlap";
/// Services died while they ran it; it or an observer beside it is the cause.
pub const SUSPECTED: &str = "suspected of ending its services, started one at a time";
/// Its code was told to stop.
pub const ENDING: &str = "being ended";

/// All of them.
pub const ALL: [&str; 5] = [START_RATE, REDELIVERED, REDELIVERED_APART, SUSPECTED, ENDING];

/// Whether it came from another service.
#[must_use]
pub fn is_redelivery(reason: &str) -> bool {
    [REDELIVERED, REDELIVERED_APART].contains(&reason)
}
