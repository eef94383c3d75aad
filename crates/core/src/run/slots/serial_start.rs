//! Observers that are suspected of ending their services: a service announces each one before it starts it, and starts
//! the next one only when a death can no longer be blamed on both.

use super::{Effect, Now, Phase, Slot, Slots};
use crate::epoch::Epoch;
use crate::failure::quarantine::{BLAME_WITHIN, WINDOW};
use crate::id::ObserverId;
use crate::observer::definition::Overlap;
use crate::wire::hold_reasons::{START_RATE, SUSPECTED};
use crate::wire::message::BATCH_MAX;
use std::collections::BTreeMap;
use std::time::Duration;

/// The broker redelivers the suspects of a dead service within this time. The first one starts only after it, so that
/// chance can choose among all of them.
const GATHER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Each with the time at which the suspicion ends.
    known: BTreeMap<ObserverId, Duration>,
    /// No suspect starts before this.
    next_start: Duration,
}

impl Suspects {
    /// The observers that are currently suspected.
    pub(super) fn learn(&mut self, ids: &[ObserverId], now: Duration) {
        self.known = ids.iter().take(BATCH_MAX).map(|id| (*id, now + WINDOW)).collect();
    }
    pub(super) fn contains(&self, id: ObserverId, now: Duration) -> bool {
        self.known.get(&id).is_some_and(|until| *until > now)
    }
    /// The turn of another suspect, at `earliest` or later.
    fn turn(&mut self, earliest: Duration) -> Duration {
        let at = self.next_start.max(earliest);
        self.next_start = at + BLAME_WITHIN;
        at
    }
}

impl<R: Copy + std::fmt::Debug> Slots<R> {
    /// The managers' list of suspects. An observer that is no longer on it does not wait for its turn: once the
    /// managers have found the cause of the deaths, the others that started beside it are innocent.
    pub(super) fn on_crash_looping(&mut self, ids: &[ObserverId], now: Now) {
        self.suspects.learn(ids, now.mono);
        let waits = |slot: &Slot<R>| matches!(slot.phase, Phase::Waiting { why: SUSPECTED, .. });
        let waiting: Vec<_> = self.slots.iter().filter(|(_, slot)| waits(slot)).map(|(id, _)| *id).collect();
        for id in waiting {
            if !self.suspects.contains(id, now.mono) {
                self.start_in_turn(id, now);
            }
        }
    }

    /// Starts an observer as its start rate allows.
    fn start_in_turn(&mut self, id: ObserverId, now: Now) {
        let Some(slot) = self.slots.get(&id) else { return };
        let Some(work) = slot.work.clone() else { return };
        let until = self.pace.turn(&work.kind, slot.apart_until.max(now.mono), now.chance);
        self.set_phase(id, Phase::Waiting { until, attempt: 1, why: START_RATE });
    }

    /// The broker has confirmed the announcement of a suspect's start.
    pub(super) fn on_announced(&mut self, id: ObserverId, epoch: Epoch, now: Now) {
        let Some(slot) = self.slots.get(&id) else { return };
        if slot.epoch != epoch || !matches!(slot.phase, Phase::Announced) {
            return;
        }
        if !self.suspects.contains(id, now.mono) {
            return self.start_in_turn(id, now);
        }
        let apart = slot.work.as_ref().is_some_and(|work| work.overlap == Overlap::Forbid);
        let pause = if apart { self.policy.fence_grace * 2 } else { Duration::ZERO };
        let until = self.suspects.turn(now.mono + pause.max(GATHER));
        self.set_phase(id, Phase::Waiting { until, attempt: 1, why: SUSPECTED });
    }

    /// Starts a random one of the waiting suspects. In a fixed order, the same suspect would start first each time. If
    /// its code also fails and restarts, it has always started shortly before the next suspect kills the service, and
    /// both are blamed for every death.
    pub(super) fn start_a_suspect(&mut self, id: ObserverId, now: Now, effects: &mut Vec<Effect<R>>) {
        let waiting = |id: &ObserverId, slot: &Slot<R>| match slot.phase {
            Phase::Waiting { until, why: SUSPECTED, .. } if slot.apart_until <= now.mono => {
                Some((*id, until))
            }
            _ => None,
        };
        let waiting: Vec<_> = self.slots.iter().filter_map(|(id, slot)| waiting(id, slot)).collect();
        let drawn = now.chance.clamp(0.0, 1.0) * waiting.len() as f64;
        let Some((drawn, until)) =
            waiting.get((drawn as usize).min(waiting.len().saturating_sub(1))).copied()
        else {
            return self.start(id, 1, now, effects);
        };
        if drawn != id {
            self.set_phase(id, Phase::Waiting { until, attempt: 1, why: SUSPECTED });
        }
        self.start(drawn, 1, now, effects);
    }
}
