//! The limits of what HTTP requests may hold open.

use everwatch_core::id::{Pool, RateKey};
use everwatch_door::quota::{Limit, Quota};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Clients that follow the events.
const STREAMS_MAX: Limit = Limit { total: 2_000, per_client: 1_000 };
/// Clients that follow the lines of an observer, each with a question per second.
const LOG_STREAMS_MAX: Limit = Limit { total: 200, per_client: 100 };
/// Requests that wait for a change, each with four reads of a row per second.
const WAITS_MAX: Limit = Limit { total: 1_000, per_client: 500 };
/// Bytes of bodies that are being received.
const BODIES_MAX: usize = 256 * 1024 * 1024;

pub(crate) struct RequestLimits {
    pub(crate) streams: Arc<Quota>,
    pub(crate) log_streams: Arc<Quota>,
    pub(crate) waits: Arc<Quota>,
    pub(crate) bodies: Arc<Semaphore>,
    /// Pools that metrics were given for. A pool that has emptied is shown as 0 instead of missing.
    pub(crate) shown_pools: Mutex<BTreeSet<Pool>>,
    /// The same for limits.
    pub(crate) shown_limits: Mutex<BTreeSet<String>>,
    /// The same for rates.
    pub(crate) shown_rates: Mutex<BTreeSet<RateKey>>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            streams: Quota::new(STREAMS_MAX),
            log_streams: Quota::new(LOG_STREAMS_MAX),
            waits: Quota::new(WAITS_MAX),
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            shown_pools: Mutex::default(),
            shown_limits: Mutex::default(),
            shown_rates: Mutex::default(),
        }
    }
}
