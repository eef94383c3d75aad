//! A service that stands still, as its process would after SIGSTOP: for trying out what a frozen host does.
//! Every part of the service that has a thread or a task of its own asks here before it goes on.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Stands a service still and lets it go on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Frost(Arc<Inner>);

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
    /// Of code that wanted to go on meanwhile: one for each that runs.
    waiting: Vec<Waker>,
}

impl Frost {
    /// From now on nothing of the service goes on. Answers which freeze this is, or `None` if it was frozen.
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

    /// Lets it go on; whether it was frozen.
    pub fn thaw(&self) -> bool {
        let mut state = self.state();
        let was_frozen = std::mem::take(&mut state.frozen);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.thawed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
        was_frozen
    }

    /// Whether this freeze still lasts.
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

    /// Blocks the runtime that it is polled on whenever it is frozen: all that shares its one thread stands still.
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
