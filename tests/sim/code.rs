//! People's code on a service: what its spec says it does, how long it takes to stop.

use crate::world::World;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::message::Work;
use everwatch_core::slots::{Input, Outcome};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What an observer's code does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Does {
    RunsForEver,
    CompletesAfter(u64),
    FailsAfter(u64),
    /// Errs this often after so long, then runs for ever.
    Errs {
        times: u32,
        after: u64,
    },
}

/// A spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Code {
    pub(crate) does: Does,
    /// From being cancelled to having let go.
    pub(crate) stops_in: u64,
}

/// Code that is running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) epoch: Epoch,
    attempt: u32,
    /// Which start of code in the world this is.
    pub(crate) start: usize,
    code: Code,
    cancelled: bool,
}

impl World {
    pub(crate) fn start_code(&mut self, s: usize, work: &Arc<Work>, epoch: Epoch, attempt: u32) {
        let code: Code = serde_json::from_str(work.spec.get()).unwrap();
        let start = self.on_started(s, work, epoch, attempt);
        let unit = Unit { epoch, attempt, start, code, cancelled: false };
        self.services[s].units.insert(work.id, unit);
        self.observe_executions();
        let (after, outcome) = match code.does {
            Does::CompletesAfter(after) => (after, Outcome::Done),
            Does::FailsAfter(after) => (after, Outcome::Failed("bad business".to_owned())),
            Does::Errs { times, after } if attempt <= times => (after, Outcome::Erred("bad luck".to_owned())),
            Does::RunsForEver | Does::Errs { .. } => {
                if self.services[s].stage == crate::service::Stage::Fenced {
                    self.cancel_code(s, work.id);
                }
                return;
            }
        };
        let id = work.id;
        self.after(after, s, move |world| world.code_ends(s, id, start, outcome));
        if self.services[s].stage == crate::service::Stage::Fenced {
            self.cancel_code(s, work.id);
        }
    }

    pub(crate) fn cancel_code(&mut self, s: usize, id: ObserverId) {
        let Some(unit) = self.services[s].units.get_mut(&id) else { return };
        if !std::mem::replace(&mut unit.cancelled, true) {
            let (start, delay) = (unit.start, unit.code.stops_in);
            self.after(delay, s, move |world| world.code_ends(s, id, start, Outcome::Done));
        }
    }

    pub(crate) fn abort_code(&mut self, s: usize, id: ObserverId) {
        let Some(unit) = self.services[s].units.get(&id) else { return };
        let (start, delay) = (unit.start, self.roll(0, 3));
        self.after(delay, s, move |world| world.code_ends(s, id, start, Outcome::Aborted));
    }

    fn code_ends(&mut self, s: usize, id: ObserverId, start: usize, outcome: Outcome) {
        let units = &mut self.services[s].units;
        let Some(unit) = units.get(&id).copied().filter(|unit| unit.start == start) else { return };
        units.remove(&id);
        // What comes after a cancellation is not the code's own doing.
        let own = (!unit.cancelled).then_some(&outcome);
        self.on_ended(s, (id, start), (unit.epoch, unit.attempt), own);
        self.observe_executions();
        self.step(s, Input::Ended { id, epoch: unit.epoch, outcome });
    }
}
