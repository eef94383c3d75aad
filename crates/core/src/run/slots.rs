//! All decisions of a service about the observers that it holds: inputs in, effects out. The loop around this module
//! only carries out the effects.
//!
//! One slot holds one unsettled message. Its phases:
//! waiting → running ⇄ backoff → ending → settling → (acknowledged), or ending → (given back).

mod admission;
mod arrival;
mod handover;
mod inventory;
mod io;
mod phase;
mod serial_start;
mod start_rate;
mod times;

pub use io::{CancelReason, Effect, Input, Now, Outcome, SlotPolicy};
pub use start_rate::Pace;

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::ObserverId;
use crate::observer::retry::Verdict;
use crate::run::database_clock::DatabaseClock;
use crate::wire::command::{Revocation, RevocationCause};
use crate::wire::hold_reasons;
use crate::wire::report::{RunEvent, RunReport};
use crate::wire::work::Work;
use arrival::{Arrival, Leftover, acknowledge, arrival};
use phase::{Phase, Why, started};
use serial_start::Suspects;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The number of remembered revocations; the answer to a registration repeats those of the last ten minutes.
const REVOCATIONS_MAX: usize = 100_000;
/// The longest error text that is reported, in characters.
const ERROR_MAX: usize = 4_000;

#[derive(Debug)]
struct Slot<R> {
    receipt: R,
    epoch: Epoch,
    /// `None` if only its header is readable here.
    work: Option<Arc<Work>>,
    phase: Phase,
    /// Until when an older run may still be stopping on another service, if runs must not overlap.
    apart_until: Duration,
    /// A later copy of the same observer; it starts when this one is settled.
    successor: Option<Box<Arrival<R>>>,
}

/// The slots of one session.
#[derive(Debug)]
pub struct Slots<R> {
    policy: SlotPolicy,
    /// Ordered, so that equal inputs always have equal effects in the same order.
    /// Boxed, because the nodes of the map are half empty.
    slots: BTreeMap<ObserverId, Box<Slot<R>>>,
    /// Older copies whose end is reported but not confirmed yet.
    leftovers: HashMap<(ObserverId, Epoch), Leftover<R>>,
    timers: BTreeSet<(Duration, ObserverId)>,
    /// When held observers end, by the database's clock.
    finishes: BTreeSet<(Timestamp, ObserverId)>,
    clock: DatabaseClock,
    revocations: HashMap<ObserverId, Epoch>,
    revocation_order: VecDeque<ObserverId>,
    /// How often each observer was refused, and when last.
    refusals: HashMap<ObserverId, (u32, Duration)>,
    suspects: Suspects,
    pace: Pace,
    draining: bool,
}

impl<R: Copy + std::fmt::Debug> Slots<R> {
    #[must_use]
    pub fn new(policy: SlotPolicy) -> Self {
        Self {
            policy,
            slots: BTreeMap::new(),
            leftovers: HashMap::new(),
            timers: BTreeSet::new(),
            finishes: BTreeSet::new(),
            clock: DatabaseClock::default(),
            revocations: HashMap::new(),
            revocation_order: VecDeque::new(),
            refusals: HashMap::new(),
            suspects: Suspects::default(),
            pace: Pace::default(),
            draining: false,
        }
    }

    /// Limits the start rate.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// The number of held messages, that is, of slots in use.
    #[must_use]
    pub fn held(&self) -> usize {
        let successors = self.slots.values().filter(|slot| slot.successor.is_some()).count();
        self.slots.len() + successors + self.leftovers.len()
    }

    /// Whether no message is held. Unlike [`Slots::held`], it reads no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.leftovers.is_empty()
    }

    /// The inventory: each held observer as the report of its current phase.
    #[must_use]
    pub fn list(&self) -> Vec<RunReport> {
        let entry = |id: &ObserverId, slot: &Slot<R>| {
            let event = match slot.phase {
                Phase::Running { attempt, started_at, is_ready, .. } => {
                    started(attempt, started_at, is_ready)
                }
                Phase::Announced => {
                    RunEvent::Held { reason: hold_reasons::SUSPECTED.to_owned(), refuses: false }
                }
                Phase::Waiting { why, .. } => RunEvent::Held { reason: why.to_owned(), refuses: false },
                Phase::Backoff { attempt, ref error, next_at, .. } => {
                    RunEvent::Errored { attempt, error: error.clone(), next_at }
                }
                Phase::Ending { .. } | Phase::Over { .. } => {
                    RunEvent::Held { reason: hold_reasons::ENDING.to_owned(), refuses: false }
                }
                Phase::Refusing { ref why, .. } => RunEvent::Held { reason: why.clone(), refuses: true },
                // Its settlement was reported before.
                Phase::Settling => return None,
            };
            Some(RunReport { id: *id, epoch: slot.epoch, event })
        };
        self.slots.iter().filter_map(|(id, slot)| entry(id, slot)).collect()
    }

    /// Takes one input and returns the effects to carry out.
    pub fn step(&mut self, input: Input<R>, now: Now) -> Vec<Effect<R>> {
        let mut effects = Vec::new();
        match input {
            Input::Delivered { receipt, read, acquisitions } => {
                self.on_arrival(arrival(receipt, read, acquisitions), now, &mut effects);
            }
            Input::Revocations(revocations) => {
                for revocation in revocations {
                    self.on_revocation(revocation, now, &mut effects);
                }
            }
            Input::Ended { id, epoch, outcome } => self.on_ended(id, epoch, outcome, now, &mut effects),
            Input::Ready { id, epoch, attempt } => self.on_ready((id, epoch, attempt), &mut effects),
            Input::Confirmed { id, epoch } => self.on_confirmed(id, epoch, now, &mut effects),
            Input::Time(time) => self.clock.announce(time, now.mono),
            Input::CrashLooping(ids) => self.on_crash_looping(&ids, now),
            Input::Announced { id, epoch } => self.on_announced(id, epoch, now),
            Input::Wake => self.on_wake(now, &mut effects),
            Input::HandOver(ids, cause) => self.hand_over(ids, Some(cause), now, &mut effects),
            Input::HandOverDownTo(most, cause) => {
                let ids = self.beyond(most);
                self.hand_over(ids, Some(cause), now, &mut effects);
            }
            Input::Drain(cause) => self.on_drain(cause, now, &mut effects),
            Input::AbortAll => self.on_abort_all(&mut effects),
        }
        effects
    }

    fn on_arrival(&mut self, arrival: Arrival<R>, now: Now, effects: &mut Vec<Effect<R>>) {
        let id = arrival.id;
        let Some(slot) = self.slots.get_mut(&id) else { return self.admit(arrival, now, effects) };
        let held = slot.successor.as_ref().map_or(slot.epoch, |successor| successor.epoch);
        if [slot.epoch, held].iter().any(|held| held.generation() == arrival.epoch.generation()) {
            // The obvious way settles the earlier run here, and with it the generation of the later one. But the
            // broker redelivers a message only after it took it from this session: the session has lost it.
            effects.push(Effect::Lost { id, epoch: slot.epoch });
            return;
        }
        if arrival.epoch <= slot.epoch {
            return self.settle_unstarted(&arrival, RunEvent::Stopped, effects);
        }
        // Two copies: the later one waits until the earlier one is settled, and is never acknowledged in its place.
        let below = arrival.epoch;
        if let Some(older) = slot.successor.replace(Box::new(arrival)) {
            self.settle_unstarted(&older, RunEvent::Stopped, effects);
        }
        self.end_run(id, (below, None), now, effects);
    }

    fn put(&mut self, id: ObserverId, slot: Slot<R>) {
        if let Some(at) = slot.phase.deadline() {
            self.timers.insert((at, id));
        }
        if let Some(at) = slot.work.as_ref().and_then(|work| work.ends_at()) {
            self.finishes.insert((at, id));
        }
        self.slots.insert(id, Box::new(slot));
    }

    fn set_phase(&mut self, id: ObserverId, phase: Phase) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if let Some(at) = slot.phase.deadline() {
            self.timers.remove(&(at, id));
        }
        if let Some(at) = phase.deadline() {
            self.timers.insert((at, id));
        }
        slot.phase = phase;
    }

    fn start(&mut self, id: ObserverId, attempt: u32, now: Now, effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get(&id) else { return };
        let Some(work) = slot.work.clone() else { return };
        let (epoch, kind, timeout) = (slot.epoch, work.kind.clone(), work.attempt_timeout);
        effects.push(Effect::Start { epoch, attempt, work });
        let is_ready = !self.policy.announce_readiness.contains(&kind);
        let event = started(attempt, now.wall, is_ready);
        effects.push(Effect::Report(RunReport { id, epoch, event }));
        let timeout_at = timeout.map(|timeout| now.mono + timeout);
        let (since, started_at) = (now.mono, now.wall);
        self.set_phase(id, Phase::Running { attempt, since, started_at, is_ready, timeout_at });
    }

    /// The code of an attempt is ready. A late announcement of an earlier attempt is ignored.
    fn on_ready(&mut self, (id, epoch, ready): (ObserverId, Epoch, u32), effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.epoch == epoch) else { return };
        if let Phase::Running { attempt, started_at, is_ready, .. } = &mut slot.phase
            && *attempt == ready
            && !*is_ready
        {
            *is_ready = true;
            let event = RunEvent::Started { attempt: ready, started_at: *started_at };
            effects.push(Effect::Report(RunReport { id, epoch, event }));
        }
    }

    /// Settles a message whose code was never started here and must not start: it is revoked, or its time has passed.
    fn settle_unstarted(&mut self, arrival: &Arrival<R>, event: RunEvent, effects: &mut Vec<Effect<R>>) {
        let report = RunReport { id: arrival.id, epoch: arrival.epoch, event };
        let leftover = Leftover { receipt: arrival.receipt, counts: arrival.counts() };
        self.leftovers.insert((arrival.id, arrival.epoch), leftover);
        effects.push(Effect::Settle(report));
    }

    fn settle(&mut self, id: ObserverId, event: RunEvent, effects: &mut Vec<Effect<R>>) {
        let Some(epoch) = self.slots.get(&id).map(|slot| slot.epoch) else { return };
        self.set_phase(id, Phase::Settling);
        effects.push(Effect::Settle(RunReport { id, epoch, event }));
    }

    fn on_revocation(&mut self, revocation: Revocation, now: Now, effects: &mut Vec<Effect<R>>) {
        match self.revocations.get_mut(&revocation.id) {
            Some(known) if *known >= revocation.below => {}
            Some(known) => *known = revocation.below,
            None => {
                self.revocations.insert(revocation.id, revocation.below);
                self.revocation_order.push_back(revocation.id);
                if self.revocation_order.len() > REVOCATIONS_MAX
                    && let Some(oldest) = self.revocation_order.pop_front()
                {
                    self.revocations.remove(&oldest);
                }
            }
        }
        self.end_run(revocation.id, (revocation.below, revocation.cause), now, effects);
    }

    /// Ends the held runs of the observer below `below`.
    fn end_run(
        &mut self,
        id: ObserverId,
        (below, cause): (Epoch, Option<RevocationCause>),
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(slot) = self.slots.get(&id) else { return };
        if slot.epoch >= below {
            return;
        }
        match slot.phase {
            Phase::Announced | Phase::Waiting { .. } | Phase::Backoff { .. } | Phase::Refusing { .. } => {
                if slot.apart_until > now.mono {
                    // The obvious rule settles a run that never started at once. The next generation would then start
                    // beside the older run. Instead, the settlement waits as long as the start would have waited.
                    self.set_phase(id, Phase::Over { until: slot.apart_until, ends_at: None });
                } else {
                    self.settle(id, RunEvent::Stopped, effects);
                }
            }
            Phase::Running { attempt, .. } => {
                self.end_code(id, attempt, Why::Revocation(cause), now, effects);
            }
            Phase::Ending {
                attempt,
                abort_at,
                why: Why::HandOver(_) | Why::Timeout { .. } | Why::Finish(_) | Why::WindowClosed(_),
            } => {
                self.set_phase(id, Phase::Ending { attempt, why: Why::Revocation(cause), abort_at });
            }
            Phase::Over { until, ends_at: Some(_) } => {
                self.set_phase(id, Phase::Over { until, ends_at: None });
            }
            Phase::Ending { why: Why::Revocation(_), .. } | Phase::Over { .. } | Phase::Settling => {}
        }
    }

    fn end_code(&mut self, id: ObserverId, attempt: u32, why: Why, now: Now, effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get(&id) else { return };
        let grace = slot.work.as_ref().map_or(Duration::ZERO, |work| work.grace);
        self.set_phase(id, Phase::Ending { attempt, why, abort_at: Some(now.mono + grace) });
        effects.push(Effect::Cancel { id, reason: why.reason() });
    }

    fn on_ended(
        &mut self,
        id: ObserverId,
        epoch: Epoch,
        outcome: Outcome,
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(slot) = self.slots.get(&id).filter(|slot| slot.epoch == epoch) else { return };
        match slot.phase {
            Phase::Ending { why: Why::Revocation(_), .. } => self.settle(id, RunEvent::Stopped, effects),
            Phase::Ending { why: Why::HandOver(cause), .. } => {
                self.give_back(id, handover::handed_over(cause), now, effects);
            }
            Phase::Ending { why: Why::WindowClosed(at), .. } => {
                self.settle(id, RunEvent::Finished { at }, effects);
            }
            Phase::Ending { why: Why::Finish(at), .. } => {
                let event = match outcome {
                    Outcome::DoneWith(result) => RunEvent::CompletedWith { result },
                    _ => RunEvent::Finished { at },
                };
                self.settle(id, event, effects);
            }
            Phase::Ending { attempt, why: Why::Timeout { after, .. }, .. } => {
                self.retry(id, attempt, times::timed_out(after), now, effects);
            }
            Phase::Running { attempt, since, .. } => match outcome {
                Outcome::Done => self.settle(id, RunEvent::Completed, effects),
                Outcome::DoneWith(result) => self.settle(id, RunEvent::CompletedWith { result }, effects),
                Outcome::Failed(error) => {
                    let event = RunEvent::Failed { error: shortened(error), attempts: attempt };
                    self.settle(id, event, effects);
                }
                Outcome::Errored(error) => self.on_error(id, (attempt, since), error, now, effects),
                Outcome::Aborted => self.on_error(id, (attempt, since), "aborted".to_owned(), now, effects),
            },
            Phase::Announced
            | Phase::Waiting { .. }
            | Phase::Backoff { .. }
            | Phase::Refusing { .. }
            | Phase::Over { .. }
            | Phase::Settling => {}
        }
    }

    fn on_error(
        &mut self,
        id: ObserverId,
        (attempt, since): (u32, Duration),
        error: String,
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(slot) = self.slots.get(&id) else { return };
        let Some(work) = slot.work.clone() else { return };
        let healthy = now.mono.saturating_sub(since);
        let attempt = match work.retry.reset_after() {
            Some(reset_after) if healthy >= reset_after => 1,
            Some(_) | None => attempt,
        };
        self.retry(id, attempt, error, now, effects);
    }

    /// The retry policy decides after the error of an attempt.
    fn retry(&mut self, id: ObserverId, attempt: u32, error: String, now: Now, effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get(&id) else { return };
        let Some(work) = slot.work.clone() else { return };
        let error = shortened(error);
        match work.retry.after(attempt, now.chance) {
            Verdict::GiveUp => self.settle(id, RunEvent::Failed { error, attempts: attempt }, effects),
            Verdict::Again(pause) => {
                let (epoch, next_at) = (slot.epoch, now.wall.plus(pause));
                let event = RunEvent::Errored { attempt, error: error.clone(), next_at };
                effects.push(Effect::Report(RunReport { id, epoch, event }));
                self.set_phase(id, Phase::Backoff { attempt, until: now.mono + pause, error, next_at });
            }
        }
    }

    fn on_confirmed(&mut self, id: ObserverId, epoch: Epoch, now: Now, effects: &mut Vec<Effect<R>>) {
        if let Some(Leftover { receipt, counts }) = self.leftovers.remove(&(id, epoch)) {
            effects.push(acknowledge((receipt, counts), id, epoch));
            return;
        }
        let settling = self
            .slots
            .get(&id)
            .is_some_and(|slot| slot.epoch == epoch && matches!(slot.phase, Phase::Settling));
        if !settling {
            return;
        }
        if let Some(slot) = self.remove(id) {
            let counts = slot.work.as_ref().is_none_or(|work| !work.limits.is_empty());
            effects.push(acknowledge((slot.receipt, counts), id, epoch));
            self.refusals.remove(&id);
            if let Some(successor) = slot.successor {
                self.admit(*successor, now, effects);
            }
        }
    }

    fn remove(&mut self, id: ObserverId) -> Option<Box<Slot<R>>> {
        let slot = self.slots.remove(&id)?;
        if let Some(at) = slot.phase.deadline() {
            self.timers.remove(&(at, id));
        }
        if let Some(at) = slot.work.as_ref().and_then(|work| work.ends_at()) {
            self.finishes.remove(&(at, id));
        }
        Some(slot)
    }

    fn on_wake(&mut self, now: Now, effects: &mut Vec<Effect<R>>) {
        self.finish_due(now, effects);
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.timers.remove(&(at, id));
            let Some(slot) = self.slots.get(&id) else { continue };
            match slot.phase {
                Phase::Waiting { why: hold_reasons::START_RATE, .. } => self.take_turn(id, now, effects),
                Phase::Waiting { why: hold_reasons::SUSPECTED, .. } => self.start_a_suspect(id, now, effects),
                Phase::Waiting { attempt, .. } => self.start(id, attempt, now, effects),
                Phase::Backoff { attempt, .. } => {
                    self.start_again(id, attempt.saturating_add(1), now, effects);
                }
                Phase::Refusing { ref why, .. } => {
                    let why = why.clone();
                    self.give_back(id, RunEvent::Refused { why }, now, effects);
                }
                Phase::Ending { attempt, why, .. } => {
                    self.set_phase(id, Phase::Ending { attempt, why, abort_at: None });
                    effects.push(Effect::Abort { id });
                }
                Phase::Over { ends_at: Some(at), .. } => {
                    self.settle(id, RunEvent::Finished { at }, effects);
                }
                Phase::Over { ends_at: None, .. } => self.settle(id, RunEvent::Stopped, effects),
                Phase::Running { attempt, since, .. } => self.time_out(id, (attempt, since), now, effects),
                Phase::Announced | Phase::Settling => {}
            }
        }
    }
}

fn shortened(error: String) -> String {
    if error.chars().count() <= ERROR_MAX { error } else { error.chars().take(ERROR_MAX).collect() }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
#[cfg(test)]
#[path = "slots/times_tests.rs"]
mod times_tests;
