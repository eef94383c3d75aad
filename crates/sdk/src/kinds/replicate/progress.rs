//! What a pass and its observer tell each other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How far a pass has come, and whether it must stop.
#[derive(Debug, Default)]
pub(super) struct Progress {
    stop: AtomicBool,
    done: AtomicU64,
    of: AtomicU64,
    after: Mutex<Option<PathBuf>>,
}

impl Progress {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }
    /// Sets the number of files.
    pub(super) fn expect(&self, files: usize) {
        self.of.store(files as u64, Ordering::Relaxed);
    }
    pub(super) fn after(&self) -> Option<PathBuf> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    pub(super) fn passed(&self, path: &Path) {
        self.done.fetch_add(1, Ordering::Relaxed);
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
    }
}
