//! Ends that are known beforehand: the `attempt_timeout` of an attempt, and the `finish_at` or the window of an observer.

use super::phase::{Phase, Why};
use super::{Effect, Now, Slots};
use crate::clock::{Timestamp, show};
use crate::id::ObserverId;
use crate::run::database_clock::DatabaseClock;
use crate::wire::report::RunEvent;
use std::time::Duration;

/// The error of an attempt that has run for its `attempt_timeout`.
pub(super) fn timed_out(after: Duration) -> String {
    format!("timed out after {} (attempt_timeout)", show(after))
}

impl<R: Copy + std::fmt::Debug> Slots<R> {
    /// Goes by this clock until a manager announces the time.
    #[must_use]
    pub fn with_clock(mut self, clock: DatabaseClock) -> Self {
        self.clock = clock;
        self
    }

    #[must_use]
    pub fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    /// When [`Input::Wake`] is due.
    #[must_use]
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let finish = self.finishes.first();
        let finish = finish.map(|(at, _)| now.mono + self.clock.until(*at, now.mono, now.wall));
        [timer, finish].into_iter().flatten().min()
    }

    /// The attempt that began at `since` has run for its `attempt_timeout`.
    pub(super) fn time_out(
        &mut self,
        id: ObserverId,
        (attempt, since): (u32, Duration),
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let after = self.slots.get(&id).and_then(|slot| slot.work.as_ref()?.attempt_timeout);
        let why = Why::Timeout { since, after: after.unwrap_or_default() };
        self.end_code(id, attempt, why, now, effects);
    }

    /// Ends the runs whose `finish_at` or window has passed.
    pub(super) fn finish_due(&mut self, now: Now, effects: &mut Vec<Effect<R>>) {
        let time = self.clock.time(now.mono, now.wall);
        while let Some((at, id)) = self.finishes.first().copied().filter(|(at, _)| *at <= time) {
            self.finishes.remove(&(at, id));
            self.finish(id, at, now, effects);
        }
    }

    fn finish(&mut self, id: ObserverId, at: Timestamp, now: Now, effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get(&id) else { return };
        let is_finish = slot.work.as_ref().is_some_and(|work| work.finish_at == Some(at));
        let why = if is_finish { Why::Finish(at) } else { Why::WindowClosed(at) };
        match slot.phase {
            Phase::Announced | Phase::Waiting { .. } | Phase::Backoff { .. } | Phase::Refusing { .. } => {
                if slot.apart_until > now.mono {
                    self.set_phase(id, Phase::Over { until: slot.apart_until, ends_at: Some(at) });
                } else {
                    self.settle(id, RunEvent::Finished { at }, effects);
                }
            }
            Phase::Running { attempt, .. } => self.end_code(id, attempt, why, now, effects),
            Phase::Ending { attempt, abort_at, why: Why::HandOver(_) | Why::Timeout { .. } } => {
                self.set_phase(id, Phase::Ending { attempt, why, abort_at });
            }
            Phase::Ending { .. } | Phase::Over { .. } | Phase::Settling => {}
        }
    }
}
