//! What the requests for moves to a service share.

use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// How many observers on their way a manager follows at most.
const FOLLOWED: usize = 100;

pub(crate) struct Moves {
    /// Held while a move is checked and noted.
    pub(crate) checked: Mutex<()>,
    followed: Arc<Semaphore>,
}

impl Moves {
    /// A turn to follow an observer; `None` if the manager follows as many as it may.
    pub(crate) fn follow(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.followed).try_acquire_owned().ok()
    }
}

impl Default for Moves {
    fn default() -> Self {
        Self { checked: Mutex::default(), followed: Arc::new(Semaphore::new(FOLLOWED)) }
    }
}
