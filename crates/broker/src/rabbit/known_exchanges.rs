//! The exchanges of which a session knows that they exist.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// What a session has learned about exchanges, and about the permissions of its user.
#[derive(Default)]
pub(super) struct KnownExchanges {
    /// Those that exist. Nobody deletes an exchange while the deployment runs.
    exist: RwLock<HashSet<String>>,
    /// One look or declaration at a time: publishes that wait for it stay in order.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// The user may not declare the queues and exchanges that all share. RabbitMQ logs each refusal as an error, so the
    /// session tries once.
    restricted: AtomicBool,
}

impl KnownExchanges {
    pub(super) fn is_restricted(&self) -> bool {
        self.restricted.load(Ordering::Relaxed)
    }

    pub(super) fn set_restricted(&self) {
        self.restricted.store(true, Ordering::Relaxed);
    }

    pub(super) fn has(&self, exchange: &str) -> bool {
        self.exist.read().unwrap_or_else(PoisonError::into_inner).contains(exchange)
    }

    pub(super) fn add(&self, exchange: &str) {
        self.exist.write().unwrap_or_else(PoisonError::into_inner).insert(exchange.to_owned());
    }
}
