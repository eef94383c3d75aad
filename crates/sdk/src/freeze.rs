//! Freezes a service as SIGSTOP freezes its process, to try out a frozen host. Every part of the service with its own
//! thread or task asks here before it continues.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Freezes and thaws a service. Cheap to clone.
///
/// ```
/// let frost = everwatch::Handle::default().frost;
/// let freeze = frost.freeze().unwrap();
/// assert!(frost.lasts(freeze) && frost.thaw());
/// ```
#[derive(Debug, Clone, Default)]
pub struct FreezeProof(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    thawed: Condvar,
    frozen: Notify,
}

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    /// How often it was frozen.
    times: u64,
    /// The wakers of code that was polled while frozen: at most one for each observer.
    waiting: Vec<Waker>,
}

impl FreezeProof {
    /// Freezes the service. Returns the number of this freeze, or `None` if it was frozen already.
    #[must_use]
    pub fn freeze(&self) -> Option<u64> {
        let mut state = self.state();
        if std::mem::replace(&mut state.frozen, true) {
            return None;
        }
        state.times += 1;
        self.0.frozen.notify_one();
        Some(state.times)
    }

    /// Thaws the service; returns whether it was frozen.
    pub fn thaw(&self) -> bool {
        let mut state = self.state();
        let was_frozen = std::mem::take(&mut state.frozen);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.thawed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
        was_frozen
    }

    /// Whether this freeze is not over.
    #[must_use]
    pub fn lasts(&self, freeze: u64) -> bool {
        let state = self.state();
        state.frozen && state.times == freeze
    }

    /// Blocks the calling thread while it is frozen.
    pub(crate) fn hold_thread(&self) {
        let waited = self.0.thawed.wait_while(self.state(), |state| state.frozen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Pending while it is frozen.
    pub(crate) fn hold_task(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if !state.frozen {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Blocks the runtime that polls it while frozen: everything on its one thread stands still.
    pub(crate) async fn hold_runtime(&self) -> std::convert::Infallible {
        loop {
            self.0.frozen.notified().await;
            self.hold_thread();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
