//! Since when code holds a thread: the start of its present poll.

use crate::boot_clock::{boottime, millis};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The start of the present poll, in ms of the fence's clock; 0 if the code is not polled.
#[derive(Default)]
pub(crate) struct PollClock(AtomicU64);

impl PollClock {
    /// Runs a poll of the code, or a part of it.
    pub(crate) fn during<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.0.store(millis(boottime()).max(1), Ordering::Relaxed);
        let _stops = StopsAtEnd(&self.0);
        poll()
    }
    pub(crate) fn since(&self) -> Option<Duration> {
        let since = self.0.load(Ordering::Relaxed);
        (since > 0).then(|| Duration::from_millis(since))
    }
}

/// Stops the clock even if the poll panics.
struct StopsAtEnd<'a>(&'a AtomicU64);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The clocks of several tasks.
#[derive(Default)]
pub(crate) struct PollClocks(Mutex<Vec<Weak<PollClock>>>);

impl PollClocks {
    /// A clock for one more task, counted as long as the task keeps it.
    pub(crate) fn add(&self) -> Arc<PollClock> {
        let clock = Arc::new(PollClock::default());
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Clocks of ended tasks are removed before the list would grow, so it is at most twice as long as it needs.
        if clocks.len() == clocks.capacity() {
            clocks.retain(|clock| clock.strong_count() > 0);
        }
        clocks.push(Arc::downgrade(&clock));
        clock
    }
    /// The earliest start of a present poll.
    pub(crate) fn since(&self) -> Option<Duration> {
        let clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.iter().filter_map(|clock| clock.upgrade()?.since()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_during_a_poll_and_stops_at_its_end_even_by_a_panic() {
        let clock = PollClock::default();
        assert_eq!(clock.since(), None);
        assert!(clock.during(|| clock.since()).is_some());
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clock.during(|| panic!("no"))));
        assert!(panicked.is_err() && clock.since().is_none());
    }

    #[test]
    fn clocks_of_ended_tasks_are_forgotten() {
        let clocks = PollClocks::default();
        let kept = clocks.add();
        for _ in 0..1000 {
            drop(clocks.add());
        }
        assert!(clocks.0.lock().unwrap().capacity() <= 16);
        assert!(kept.during(|| clocks.since()).is_some() && clocks.since().is_none());
    }
}
