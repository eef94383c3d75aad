//! The clock of the fence.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Monotonic, and it counts while the machine sleeps.
pub(crate) fn boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// Whole milliseconds of a moment.
pub(crate) fn millis(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}
