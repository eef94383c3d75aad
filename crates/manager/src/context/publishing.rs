//! What publishes share: the permits for those in progress, their leases, and the queue of their results.

use crate::context::leases::Leases;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Publishes in progress at once.
const PUBLISHES_MAX: usize = 1000;
/// Results that wait to be written to the database.
const RESULTS_MAX: usize = 4000;

/// The result of one publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published {
    pub(crate) id: ObserverId,
    pub(crate) generation: u32,
    pub(crate) result: PublishResult,
    /// When it ended.
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishResult {
    /// The broker has it.
    Confirmed,
    /// The session was lost before the broker answered: the message may be in the queue.
    Unsure,
}

pub(crate) struct Publishing {
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) leases: Leases,
    pub(crate) results: mpsc::Sender<Published>,
}

impl Publishing {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Published>) {
        let (results, results_in) = mpsc::channel(RESULTS_MAX);
        let permits = Arc::new(Semaphore::new(PUBLISHES_MAX));
        (Self { permits, leases: Leases::default(), results }, results_in)
    }
}
