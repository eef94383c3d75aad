//! The time limits for decisions about rows of observers.

use crate::clock::Timestamp;
use std::time::Duration;

/// A lease is renewed when less than this fraction of it is left.
const RENEW_BELOW: f64 = 0.7;

/// The time limits for decisions about rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPolicy {
    /// How long one manager may take to publish (default 30 s).
    pub lease: Duration,
    /// First and longest pause after an unconfirmed publish (defaults 1 s and 60 s).
    pub republish_first: Duration,
    pub republish_max: Duration,
    /// First and longest pause before a command is repeated (defaults 2 s and 60 s).
    pub resend_first: Duration,
    pub resend_max: Duration,
    /// How long services may refuse an observer before it fails (default 15 min).
    pub refused_max: Duration,
    /// The wait in the backlog that outweighs one point of priority (default `None`: no wait does).
    pub aging: Option<Duration>,
    /// The number of observers of a pool that may be published beyond its free slots: they start in the order of the
    /// queue, without a manager (default 0).
    pub admit_ahead: u32,
    /// How long an observer that is being deleted waits in its queue before a manager sweeps the queue (default 30 s).
    pub sweep_after: Duration,
    /// How long a deleted, a completed and a failed observer stays readable (defaults 1 h, 1 h and 3 days).
    pub retention_deleted: Duration,
    pub retention_completed: Duration,
    pub retention_failed: Duration,
}

impl RowPolicy {
    /// Whether the lease of a publish in progress must be renewed now. An expired lease may belong to another manager.
    #[must_use]
    pub fn renews(&self, until: Timestamp, now: Timestamp) -> bool {
        let left = until.since(now);
        !left.is_zero() && left < self.lease.mul_f64(RENEW_BELOW)
    }
}

impl Default for RowPolicy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            republish_first: Duration::from_secs(1),
            republish_max: Duration::from_secs(60),
            resend_first: Duration::from_secs(2),
            resend_max: Duration::from_secs(60),
            refused_max: Duration::from_secs(900),
            aging: None,
            admit_ahead: 0,
            sweep_after: Duration::from_secs(30),
            retention_deleted: Duration::from_secs(3600),
            retention_completed: Duration::from_secs(3600),
            retention_failed: Duration::from_secs(3 * 86_400),
        }
    }
}

/// A pause that doubles each time, up to a limit.
pub(crate) fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times.min(16)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(most)
}
