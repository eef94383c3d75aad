//! People's code on a service: what its spec says it does, how long it takes to stop.

use crate::net::Ending;
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
    /// Its process ends of it so long after each start.
    EndsItsService(u64),
}

/// A spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Code {
    pub(crate) does: Does,
    /// From being cancelled to having let go.
    pub(crate) stops_in: u64,
    /// Counts what people made of it.
    pub(crate) edition: u32,
}

impl Code {
    pub(crate) fn of(spec: &str) -> Self {
        serde_json::from_str(spec).unwrap()
    }
    pub(crate) fn is_poison(&self) -> bool {
        matches!(self.does, Does::EndsItsService(_))
    }
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
        let code = Code::of(work.spec.get());
        let start = self.on_started(s, (work, code.edition), epoch, attempt);
        let unit = Unit { epoch, attempt, start, code, cancelled: false };
        self.services[s].units.insert(work.id, unit);
        self.observe_executions();
        let id = work.id;
        let ends = match code.does {
            Does::CompletesAfter(after) => Some((after, Outcome::Done)),
            Does::FailsAfter(after) => Some((after, Outcome::Failed("bad business".to_owned()))),
            Does::Errs { times, after } if attempt <= times => {
                Some((after, Outcome::Erred("bad luck".to_owned())))
            }
            Does::RunsForEver | Does::Errs { .. } => None,
            Does::EndsItsService(after) => {
                self.after(after, s, move |world| world.code_kills(s, id, start));
                None
            }
        };
        if let Some((after, outcome)) = ends {
            self.after(after, s, move |world| world.code_ends(s, id, start, outcome));
        }
        if self.services[s].stage == crate::service::Stage::Fenced {
            self.cancel_code(s, id);
        }
    }

    /// Whoever looks after the host starts the service again.
    fn code_kills(&mut self, s: usize, id: ObserverId, start: usize) {
        if self.services[s].units.get(&id).is_some_and(|unit| unit.start == start && !unit.cancelled) {
            self.tell(|world| format!("{} takes {} down", world.observer(id), world.name(s)));
            self.check.poisoned += 1;
            self.kill(s, Ending::Killed);
            let back_in = self.roll(200, 3000);
            self.later(back_in, move |world| world.boot(s));
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
