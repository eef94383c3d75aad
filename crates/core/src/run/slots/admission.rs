//! Admission of a message without conflict with another copy of its observer: started, delayed or refused.

use super::{Arrival, Effect, Now, Phase, Slot, Slots};
use crate::id::ObserverId;
use crate::observer::definition::Overlap;
use crate::wire::hold_reasons::{REDELIVERED_APART, START_RATE, SUSPECTED};
use crate::wire::report::{RunEvent, RunReport};
use crate::wire::work::Work;
use std::sync::Arc;
use std::time::Duration;

/// The number of observers whose refusals are counted; beyond it, all counts restart.
const REFUSALS_MAX: usize = 10_000;
/// For this long after a service gave back a redelivered message, the queue serves all other services first. Otherwise
/// a service that can run the observer, but has just come back and is served last, would never get the message.
const STEPS_BACK: Duration = Duration::from_secs(2);
/// The pause stays short for this many rounds: a service that can run the observer may appear at any moment, and within
/// these seconds managers withdraw a message that no service can run. Then it doubles, because no manager is active.
const SHORT_ROUNDS: u32 = 8;
/// A start that waits longer is reported; after a redelivery, every start that waits.
const TOLD_AFTER: Duration = Duration::from_secs(1);

impl<R: Copy + std::fmt::Debug> Slots<R> {
    pub(super) fn admit(&mut self, arrival: Arrival<R>, now: Now, effects: &mut Vec<Effect<R>>) {
        let redelivered = arrival.epoch.acquisitions() > 0;
        let apart = redelivered && arrival.work.as_ref().is_ok_and(|work| work.overlap == Overlap::Forbid);
        let apart_until = if apart { now.mono + self.policy.fence_grace * 2 } else { now.mono };
        let is_revoked = self.revocations.get(&arrival.id).is_some_and(|below| arrival.epoch < *below);
        if is_revoked && !apart {
            return self.settle_unstarted(&arrival, RunEvent::Stopped, effects);
        }
        let ends_at = arrival.work.as_ref().ok().and_then(|work| work.ends_at());
        let ended_at = ends_at.filter(|at| *at <= self.clock.time(now.mono, now.wall));
        if let Some(at) = ended_at.filter(|_| !is_revoked && !apart && !self.draining) {
            return self.settle_unstarted(&arrival, RunEvent::Finished { at }, effects);
        }
        let Arrival { receipt, id, epoch, work } = arrival;
        let put = |slots: &mut Self, work, phase| {
            slots.put(id, Slot { receipt, epoch, work, phase, apart_until, successor: None });
        };
        if is_revoked {
            return put(self, work.ok(), Phase::Over { until: apart_until, ends_at: None });
        }
        if self.draining {
            effects.push(Effect::Requeue(receipt));
            return;
        }
        if ended_at.is_some() {
            return put(self, work.ok(), Phase::Over { until: apart_until, ends_at: ended_at });
        }
        let taken = |reason: &str, refuses: bool| {
            let event = RunEvent::Held { reason: reason.to_owned(), refuses };
            RunReport { id, epoch, event }
        };
        let work = match self.fitting(work) {
            Ok(work) => work,
            Err((work, why)) => {
                let pause = self.refusal_pause(id, now);
                let until = now.mono + pause;
                effects.push(Effect::StepBack { until: until + STEPS_BACK });
                effects.push(Effect::Report(taken(&why, true)));
                return put(self, work, Phase::Refusing { until, why });
            }
        };
        if self.suspects.contains(id, now.mono) {
            effects.push(Effect::Announce(taken(SUSPECTED, false)));
            return put(self, Some(work), Phase::Announced);
        }
        let until = self.pace.turn(&work.kind, apart_until, now.chance);
        if until <= now.mono {
            let (since, started_at) = (now.mono, now.wall);
            let phase = Phase::Running { attempt: 1, since, started_at, is_ready: true, timeout_at: None };
            put(self, Some(work), phase);
            return self.start(id, 1, now, effects);
        }
        let why = if until > apart_until { START_RATE } else { REDELIVERED_APART };
        if redelivered || until > now.mono + TOLD_AFTER {
            effects.push(Effect::Report(taken(why, false)));
        }
        put(self, Some(work), Phase::Waiting { until, attempt: 1, why });
    }

    /// The work, if this service can run it; otherwise why not.
    fn fitting(&self, work: Result<Arc<Work>, String>) -> Result<Arc<Work>, (Option<Arc<Work>>, String)> {
        let work = work.map_err(|why| (None, why))?;
        let (weight, most) = (work.weight, self.policy.weight_max);
        let why = if weight > most {
            format!("weight {weight} is above this service's weight_max, {most}")
        } else if self.policy.kinds.contains(&work.kind) {
            return Ok(work);
        } else {
            format!("kind `{}` is not offered by this service", work.kind)
        };
        Err((Some(work), why))
    }

    /// Starts the next attempt of the same run when its turn comes.
    pub(super) fn start_again(
        &mut self,
        id: ObserverId,
        attempt: u32,
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(work) = self.slots.get(&id).and_then(|slot| slot.work.clone()) else { return };
        let until = self.pace.turn(&work.kind, now.mono, now.chance);
        if until <= now.mono {
            return self.start(id, attempt, now, effects);
        }
        self.set_phase(id, Phase::Waiting { until, attempt, why: START_RATE });
    }

    /// A turn has come: the oldest waiting observer of the kind takes it. The obvious order is that of arrival, but the
    /// broker redelivers the observers of a dead service block by block.
    pub(super) fn take_turn(&mut self, id: ObserverId, now: Now, effects: &mut Vec<Effect<R>>) {
        let Some(kind) = self.slots.get(&id).and_then(|slot| slot.work.as_ref()).map(|it| it.kind.clone())
        else {
            return;
        };
        // Ids are ordered by creation time.
        let oldest = self.slots.iter().find_map(|(other, slot)| match (&slot.phase, &slot.work) {
            (Phase::Waiting { until, attempt, why: START_RATE }, Some(work))
                if *other == id || work.kind == kind && work.overlap == Overlap::Allow =>
            {
                Some((*other, *until, *attempt))
            }
            _ => None,
        });
        let Some((oldest, until, attempt)) = oldest else { return };
        if oldest != id
            && let Some(Phase::Waiting { attempt, .. }) = self.slots.get(&id).map(|slot| &slot.phase)
        {
            let phase = Phase::Waiting { until, attempt: *attempt, why: START_RATE };
            self.set_phase(id, phase);
        }
        self.start(oldest, attempt, now, effects);
    }

    /// The obvious backoff waits longer at each refusal. But the broker delivers a message that one consumer gives
    /// back to the next one, which may belong to the same service: eight of them held a message for three minutes
    /// while another service was ready for it. Instead, a message passes all consumers first, then it waits.
    fn refusal_pause(&mut self, id: ObserverId, now: Now) -> Duration {
        if self.refusals.len() >= REFUSALS_MAX {
            self.refusals.clear();
        }
        let (times, last) = self.refusals.entry(id).or_insert((0, now.mono));
        // It has run elsewhere since, so the next refusal counts as the first.
        if now.mono.saturating_sub(*last) > self.policy.refuse_max * 2 {
            *times = 0;
        }
        *last = now.mono;
        let (round, turn) = (*times / self.policy.consumers.max(1), *times % self.policy.consumers.max(1));
        *times = times.saturating_add(1);
        if round == 0 || turn > 0 {
            return Duration::ZERO;
        }
        let factor = 1_u32.checked_shl(round.saturating_sub(SHORT_ROUNDS).min(16)).unwrap_or(u32::MAX);
        self.policy.refuse_first.saturating_mul(factor).min(self.policy.refuse_max)
    }
}
