//! The pools that this manager knows, and those whose work queues it declared in the present session.

use crate::lock::lock;
use everwatch_core::id::Pool;
use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Pools {
    known: Mutex<BTreeSet<Pool>>,
    /// Whether those of the database are among them.
    loaded: AtomicBool,
    declared: Mutex<HashSet<Pool>>,
}

impl Pools {
    pub(crate) fn new(configured: &[Pool]) -> Self {
        Self {
            known: Mutex::new(configured.iter().cloned().collect()),
            loaded: AtomicBool::new(false),
            declared: Mutex::default(),
        }
    }

    pub(crate) fn on_connect(&self) {
        lock(&self.declared).clear();
        self.loaded.store(false, Ordering::Relaxed);
    }

    /// Configured, announced, published to or in the database.
    pub(crate) fn all(&self) -> Vec<Pool> {
        lock(&self.known).iter().cloned().collect()
    }

    pub(crate) fn is_declared(&self, pool: &Pool) -> bool {
        lock(&self.declared).contains(pool)
    }

    pub(crate) fn on_declared(&self, pool: &Pool) {
        lock(&self.declared).insert(pool.clone());
        lock(&self.known).insert(pool.clone());
    }

    pub(crate) fn forget(&self, pool: &Pool) {
        lock(&self.declared).remove(pool);
        lock(&self.known).remove(pool);
    }

    pub(crate) fn are_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }

    pub(crate) fn on_loaded(&self, pools: impl Iterator<Item = Pool>) {
        lock(&self.known).extend(pools);
        self.loaded.store(true, Ordering::Relaxed);
    }
}
