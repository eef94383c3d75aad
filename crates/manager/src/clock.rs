//! The database's clock, as one manager knows it.

use everwatch_core::clock::{self, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

/// The database's clock. Between two looks at it, this machine's monotonic clock continues it: when this machine's wall
/// clock is set, this one does not change.
#[derive(Debug)]
pub(crate) struct DbClock {
    origin: Instant,
    /// What the database's clock said at `origin`, in ms; [`UNKNOWN`] before the first look.
    origin_ms: AtomicI64,
}

/// No moment of a database.
const UNKNOWN: i64 = i64::MIN;

impl Default for DbClock {
    fn default() -> Self {
        Self { origin: Instant::now(), origin_ms: AtomicI64::new(UNKNOWN) }
    }
}

impl DbClock {
    /// This machine's time as long as the database's is unknown: enough for a log, and for nothing that is stored.
    pub(crate) fn now(&self) -> Timestamp {
        match self.origin_ms.load(Ordering::Relaxed) {
            UNKNOWN => clock::now(),
            origin => Timestamp(origin).plus(self.origin.elapsed()),
        }
    }
    pub(crate) fn is_known(&self) -> bool {
        self.origin_ms.load(Ordering::Relaxed) != UNKNOWN
    }
    /// This machine's clock minus the database's.
    pub(crate) fn ahead_ms(&self) -> i64 {
        clock::now().0.saturating_sub(self.now().0)
    }
    pub(crate) fn set(&self, database: Timestamp) {
        self.origin_ms.store(database.minus(self.origin.elapsed()).0, Ordering::Relaxed);
    }
}
