//! Handover: giving messages back to the broker so that another service gets them.

use super::{Effect, Now, Phase, Slots, Why};
use crate::id::ObserverId;
use crate::wire::command::Cause;
use crate::wire::report::{RunEvent, RunReport};
use std::time::Duration;

pub(super) fn handed_over(cause: Option<Cause>) -> RunEvent {
    cause.map_or(RunEvent::HandedOver, |cause| RunEvent::HandedOverFor { cause })
}

impl<R: Copy + std::fmt::Debug> Slots<R> {
    pub(super) fn give_back(
        &mut self,
        id: ObserverId,
        event: RunEvent,
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(slot) = self.remove(id) else { return };
        effects.push(Effect::Report(RunReport { id, epoch: slot.epoch, event }));
        effects.push(Effect::Requeue(slot.receipt));
        if let Some(successor) = slot.successor {
            self.admit(*successor, now, effects);
        }
    }

    pub(super) fn on_drain(&mut self, cause: Option<Cause>, now: Now, effects: &mut Vec<Effect<R>>) {
        self.draining = true;
        let ids = self.slots.keys().copied().collect();
        self.hand_over(ids, cause, now, effects);
    }

    /// The observers to hand over when only `most` slots may stay in use: those that lose least. Those already ending
    /// count as gone.
    pub(super) fn beyond(&self, most: u32) -> Vec<ObserverId> {
        let mut staying: Vec<(Option<Duration>, ObserverId, u32)> = Vec::new();
        for (id, slot) in &self.slots {
            let weight = slot.work.as_ref().map_or(1, |work| work.weight.min(self.policy.weight_max).into());
            match slot.phase {
                Phase::Running { since, .. } | Phase::Ending { why: Why::Timeout { since, .. }, .. } => {
                    staying.push((Some(since), *id, weight));
                }
                Phase::Announced | Phase::Waiting { .. } | Phase::Backoff { .. } | Phase::Refusing { .. } => {
                    staying.push((None, *id, weight));
                }
                Phase::Ending { .. } | Phase::Over { .. } | Phase::Settling => {}
            }
        }
        staying.sort_by_key(|(since, id, _)| (since.is_some(), std::cmp::Reverse(*since), *id));
        let mut used: u32 = staying.iter().map(|(.., weight)| weight).sum();
        let is_beyond = |(.., weight): &(Option<Duration>, ObserverId, u32)| {
            let is_beyond = used > most;
            used = used.saturating_sub(*weight);
            is_beyond
        };
        staying.into_iter().take_while(is_beyond).map(|(_, id, _)| id).collect()
    }

    pub(super) fn hand_over(
        &mut self,
        ids: Vec<ObserverId>,
        cause: Option<Cause>,
        now: Now,
        effects: &mut Vec<Effect<R>>,
    ) {
        for id in ids {
            let Some(slot) = self.slots.get(&id) else { continue };
            match slot.phase {
                Phase::Running { attempt, .. } => {
                    self.end_code(id, attempt, Why::HandOver(cause), now, effects);
                }
                Phase::Announced
                | Phase::Waiting { .. }
                | Phase::Backoff { .. }
                | Phase::Refusing { .. }
                | Phase::Over { .. } => {
                    self.give_back(id, handed_over(cause), now, effects);
                }
                // The end of a timed-out attempt: another service makes the next one.
                Phase::Ending { attempt, abort_at, why: Why::Timeout { .. } } => {
                    self.set_phase(id, Phase::Ending { attempt, why: Why::HandOver(cause), abort_at });
                }
                Phase::Ending { .. } | Phase::Settling => {}
            }
        }
    }

    pub(super) fn on_abort_all(&mut self, effects: &mut Vec<Effect<R>>) {
        for (id, slot) in &mut self.slots {
            if let Phase::Ending { abort_at, .. } = &mut slot.phase {
                if let Some(at) = abort_at.take() {
                    self.timers.remove(&(at, *id));
                }
                effects.push(Effect::Abort { id: *id });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Timestamp;
    use crate::id::{Kind, Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::run::slots::{Effect, Input, Now, SlotPolicy, Slots};
    use crate::wire::command::Cause;
    use crate::wire::report::{RunEvent, RunReport};
    use crate::wire::work::{DecodedWork, Work};
    use serde_json::json;
    use std::time::Duration;
    use uuid::Uuid;

    fn at(seconds: u64) -> Now {
        Now { mono: Duration::from_secs(seconds), wall: Timestamp(0), chance: 0.5 }
    }
    fn id(number: u32) -> ObserverId {
        ObserverId(Uuid::from_u128(number.into()))
    }
    /// Number `n` runs since second `n`.
    fn five() -> Slots<u32> {
        weighing([1; 5])
    }
    fn weighing(weights: [u16; 5]) -> Slots<u32> {
        let policy = SlotPolicy {
            kinds: [Kind::new("ticker").unwrap()].into(),
            announce_readiness: [].into(),
            weight_max: 4,
            fence_grace: Duration::ZERO,
            consumers: 1,
            refuse_first: Duration::ZERO,
            refuse_max: Duration::ZERO,
        };
        let mut slots = Slots::new(policy);
        for (number, weight) in (1..).zip(weights) {
            let body = json!({"kind": "ticker", "weight": weight});
            let definition = ObserverDefinition::parse(body, &Name::new("w").unwrap()).unwrap();
            let work = Work::of(id(number), 1, &definition).unwrap();
            let read = DecodedWork::Ours(Box::new(work));
            slots.step(Input::Delivered { receipt: number, read, acquisitions: 0 }, at(number.into()));
        }
        slots
    }
    fn cancelled(effects: &[Effect<u32>]) -> Vec<ObserverId> {
        let ids = effects.iter().map(|effect| match effect {
            Effect::Cancel { id, .. } => *id,
            other => panic!("{other:?}"),
        });
        ids.collect()
    }

    #[test]
    fn the_observers_with_the_shortest_run_go_first() {
        let mut slots = five();
        let went = slots.step(Input::HandOverDownTo(3, Cause::Drain), at(9));
        assert_eq!(cancelled(&went), [id(5), id(4)]);
        assert!(
            slots.step(Input::HandOverDownTo(3, Cause::Drain), at(9)).is_empty(),
            "repeated, it has no further effect"
        );
        assert_eq!(cancelled(&slots.step(Input::HandOverDownTo(2, Cause::Drain), at(9))), [id(3)]);
    }

    #[test]
    fn a_surplus_is_counted_in_slots() {
        let mut slots = weighing([1, 4, 1, 3, 1]);
        assert_eq!(cancelled(&slots.step(Input::HandOverDownTo(6, Cause::Drain), at(9))), [id(5), id(4)]);
        assert_eq!(cancelled(&slots.step(Input::HandOverDownTo(5, Cause::Drain), at(9))), [id(3)]);
    }

    #[test]
    fn a_weight_above_the_greatest_is_refused() {
        let mut slots = weighing([1; 5]);
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker", "weight": 5}), &Name::new("w").unwrap())
                .unwrap();
        let work = Work::of(id(6), 1, &definition).unwrap();
        assert_eq!(work.v, 2, "an older service gives it back");
        let read = Work::read(&serde_json::to_vec(&work).unwrap()).unwrap();
        let effects = slots.step(Input::Delivered { receipt: 6, read, acquisitions: 0 }, at(9));
        let [
            Effect::StepBack { .. },
            Effect::Report(RunReport { event: RunEvent::Held { reason, refuses: true }, .. }),
        ] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!(reason, "weight 5 is above this service's weight_max, 4");
    }

    #[test]
    fn only_named_and_held_observers_are_handed_over() {
        let mut slots = five();
        assert_eq!(cancelled(&slots.step(Input::HandOver(vec![id(2), id(77)], Cause::Move), at(9))), [id(2)]);
    }
}
