//! Handing over: messages that go back to the broker so that another service gets them.

use super::{Effect, Now, Phase, Slots, Why};
use crate::id::ObserverId;
use crate::message::{RunEvent, RunReport};

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

    pub(super) fn on_drain(&mut self, now: Now, effects: &mut Vec<Effect<R>>) {
        self.draining = true;
        let ids: Vec<_> = self.slots.keys().copied().collect();
        for id in ids {
            let Some(slot) = self.slots.get(&id) else { continue };
            match slot.phase {
                Phase::Running { attempt, .. } => self.end_code(id, attempt, Why::HandOver, now, effects),
                Phase::Announced | Phase::Waiting { .. } | Phase::Backoff { .. } | Phase::Refusing { .. } => {
                    self.give_back(id, RunEvent::HandedOver, now, effects);
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
