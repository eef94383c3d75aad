//! I3 and I8: what must be so some time after the last fault.

use crate::service::{Service, Stage};
use crate::sweeping::label;
use crate::users::{edition, observer_name};
use crate::world::World;
use everwatch_core::message::Intent;
use everwatch_core::row::{Desired, Row};
use everwatch_core::seen::Settlement;
use everwatch_core::status::Status;

type Verdict = Result<(), String>;

impl World {
    /// Whether everything is as people want it, nothing is under way and rows tell the truth.
    pub(crate) fn settled_down(&self) -> Verdict {
        if self.db.hold {
            return Err("managers are held back".to_owned());
        }
        if self.nobody_takes() {
            // Of a queue without consumers the broker cannot say what is in it: what is missing there is missed
            // once somebody takes again.
            return self.orders_are_followed();
        }
        self.promises_kept()?;
        let mut live = 0;
        for row in self.db.rows.values() {
            live += usize::from(is_live(row));
        }
        let room = self.room();
        let crowded = live > room;
        for row in self.db.rows.values() {
            self.is_as_wanted(row, crowded)?;
        }
        self.no_leftovers(live, room)?;
        self.services_are_known()?;
        self.orders_are_followed()?;
        self.unread().map_or(Ok(()), Err)
    }

    fn promises_kept(&self) -> Verdict {
        for (observer, intent) in self.users.intents.iter().enumerate() {
            let name = observer_name(observer);
            if intent.open > 0 {
                return Err(format!("a request about {name} is not answered"));
            }
            let row = self.db.rows.values().find(|row| row.wanted.name == name);
            match row {
                None if intent.created => return Err(format!("{name} was promised and is not there")),
                Some(row) if intent.deleted && row.desired != Desired::Deleted => {
                    return Err(format!("the delete of {name} was promised and is forgotten"));
                }
                Some(row) if row.desired == Desired::Running && row.generation <= intent.begun_anew_after => {
                    return Err(format!("the restart of {name} was promised and never came"));
                }
                Some(row) if edition(row) != intent.wanted_edition => {
                    return Err(format!("the change of {name} was promised and is forgotten"));
                }
                Some(row)
                    if row.desired != Desired::Deleted
                        && intent.paused != (row.desired == Desired::Paused) =>
                {
                    return Err(format!("{name} was told to rest or to run and is {:?}", row.desired));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_as_wanted(&self, row: &Row, crowded: bool) -> Verdict {
        let name = &row.wanted.name;
        let runs: Vec<_> =
            self.check.alive.iter().map(|it| &self.check.starts[*it]).filter(|it| it.id == row.id).collect();
        let verdict = row.verdict();
        if !is_live(row) {
            if !runs.is_empty() {
                return Err(format!("{name} is {} and runs", verdict.status));
            }
            return match (row.desired, verdict.status) {
                (Desired::Deleted, Status::Deleted)
                | (Desired::Paused, Status::Paused | Status::Completed | Status::Failed)
                | (Desired::Running, _) => Ok(()),
                (_, status) => Err(format!("{name} is {status}: {}", verdict.reason)),
            };
        }
        match runs.as_slice() {
            [] if crowded || !self.has_room_for(row) => Ok(()),
            [_] if self.is_poison(row.id) => Err(format!("{name} ends its services and goes on")),
            [run] if run.edition != edition(row) => {
                Err(format!("{name} runs in edition {}, not as it was changed", run.edition))
            }
            [run] if verdict.status == Status::Processing => {
                let told = (row.epoch(), row.seen.holder());
                if told == (run.epoch, Some(run.service)) && row.mark.is_none() {
                    Ok(())
                } else {
                    Err(format!("{name} runs as {} and its row says {told:?}", run.epoch))
                }
            }
            runs => Err(format!(
                "{name} is {} ({}) and runs {} times",
                verdict.status,
                verdict.reason,
                runs.len()
            )),
        }
    }

    /// Whether a service that can run it has a free slot.
    fn has_room_for(&self, row: &Row) -> bool {
        let takes =
            |(s, it): (usize, &Service)| it.setup.kinds.contains(&row.wanted.kind) && self.may_take(s);
        self.services.iter().enumerate().any(takes)
    }

    /// Every message that is held is of the present generation of an observer that is wanted, and none
    /// waits while there is room. Without a free slot, older ones may wait for their end.
    fn no_leftovers(&self, live: usize, room: usize) -> Verdict {
        let held = self.broker.held_work().map(|(_, body, _)| body);
        let waiting = self.broker.waiting_work().filter(|_| live < room);
        for body in waiting.chain(held) {
            let (id, generation) = label(body);
            let wanted =
                self.db.rows.get(&id).is_some_and(|row| is_live(row) && row.generation == generation);
            if !wanted {
                return Err(format!(
                    "generation {generation} of {} is still in the queue",
                    self.observer(id)
                ));
            }
        }
        let (held, expected) = (self.broker.held_work().count(), live.min(room));
        if held == expected { Ok(()) } else { Err(format!("{held} messages are held, not {expected}")) }
    }

    fn services_are_known(&self) -> Verdict {
        for (s, service) in self.services.iter().enumerate() {
            let known = self.db.services.get(&service.id).filter(|row| row.end.is_none());
            let settled = known.is_some_and(|row| row.suspect_since.is_none());
            if service.stage != Stage::Living || !settled {
                return Err(format!("{} lives and is not known to", self.name(s)));
            }
        }
        let alive = self.db.services.values().filter(|row| row.end.is_none()).count();
        if alive == self.services.len() {
            Ok(())
        } else {
            Err("a service that ended is not known to".to_owned())
        }
    }

    /// I8: whatever the broker has is run by somebody, without any manager.
    pub(crate) fn runs_without_managers(&self) -> Verdict {
        // Whoever was born since the managers left knows of no orders.
        let room = self.services.iter().enumerate().any(|(s, it)| {
            let takes = it.taking.intent() == Intent::Active;
            self.hosts[s].up && takes && self.held_by(s) < it.taking.blocks.capacity() as usize
        });
        if room && self.broker.waiting_work().next().is_some() {
            return Err("a message waits while there is room".to_owned());
        }
        for (conn, body, acquisitions) in self.broker.held_work() {
            let (id, generation) = label(body);
            let host = self.net.conns[conn].owner.host;
            let holds = self.services.get(host).is_some_and(|it| it.slots.held() > 0);
            let erring = self.check.errors.keys().any(|(erring, _)| *erring == id);
            let runs = self.check.alive.iter().any(|it| {
                let start = &self.check.starts[*it];
                start.id == id && start.epoch.generation() == generation
            });
            if !(holds && (runs || erring || self.is_doomed(id) || self.is_refused(host, id))) {
                return Err(format!("{} {generation}.{acquisitions} is held and not run", self.observer(id)));
            }
        }
        Ok(())
    }

    /// It goes round until it meets a service that has its kind.
    fn is_refused(&self, host: usize, id: everwatch_core::id::ObserverId) -> bool {
        let kind = self.db.rows.get(&id).map(|row| &row.wanted.kind);
        kind.is_some_and(|kind| !self.services[host].setup.kinds.contains(kind))
    }

    fn is_doomed(&self, id: everwatch_core::id::ObserverId) -> bool {
        self.db.rows.get(&id).is_none_or(Row::awaits_end)
    }
}

fn is_live(row: &Row) -> bool {
    let over = matches!(
        row.seen.settled.as_ref().map(|it| &it.how),
        Some(Settlement::Completed | Settlement::Failed { .. })
    );
    row.desired == Desired::Running && !over
}
