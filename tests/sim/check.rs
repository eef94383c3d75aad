//! The invariants, judged at each step with knowledge that no part of the system has. What it counts
//! as true it sees itself: starts of code, deliveries, confirms, commits.

use crate::history::History;
use crate::net::Loss;
use crate::onlooker::Told;
use crate::sweeping::label;
use crate::users::observer_name;
use crate::world::World;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{Floor, Report, RunReport, StateMessage, Work, decode};
use everwatch_core::observer::Overlap;
use everwatch_core::seen::{Heard, Key};
use everwatch_core::slots::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// What starts so soon after a thaw does not know yet what the broker said meanwhile.
const JUST_THAWED: u64 = 100;

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

/// One start of code.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) service: ServiceId,
    pub(crate) id: ObserverId,
    pub(crate) epoch: Epoch,
    pub(crate) forbids_overlap: bool,
    /// Which edition of its code this is.
    pub(crate) edition: u32,
}

#[derive(Default)]
pub(crate) struct Check {
    pub(crate) breach: Option<Breach>,
    pub(crate) healthy: bool,
    pub(crate) starts: Vec<Start>,
    /// Code that has not ended, whoever still knows of it.
    pub(crate) alive: BTreeSet<usize>,
    pub(crate) overlaps: crate::overlap::Overlaps,
    /// How the broker came to take a delivery away.
    pub(crate) taken_away: BTreeMap<(ObserverId, Epoch), Loss>,
    /// Everything that was said and kept by the broker.
    pub(crate) told: BTreeMap<ObserverId, Vec<(u32, Heard)>>,
    names: BTreeMap<ObserverId, usize>,
    runs: BTreeMap<(ObserverId, Epoch), ServiceId>,
    published: BTreeSet<(ObserverId, u32)>,
    assigned: BTreeMap<(ObserverId, u32), u32>,
    floors: BTreeMap<(ServiceId, ObserverId), Epoch>,
    pub(crate) told_to: BTreeMap<ServiceId, Told>,
    settlements: BTreeSet<(usize, ObserverId, Epoch)>,
    pub(crate) errors: BTreeMap<(ObserverId, Epoch), u32>,
    /// Runs whose code ended by itself for good.
    pub(crate) finished: BTreeMap<(ObserverId, Epoch), Outcome>,
    requests: BTreeSet<u64>,
    numbered: u64,
    /// Generations that the broker left with nobody, or has turned back.
    pub(crate) orphaned: BTreeSet<(ObserverId, u32)>,
    turned_back: BTreeSet<(ObserverId, u32)>,
    /// Since when nothing may be concluded from silence.
    pub(crate) held_since: Option<u64>,
    /// Deaths of service processes: all that said no goodbye, and those by code.
    pub(crate) deaths: u32,
    pub(crate) poisoned: u32,
}

impl Check {
    pub(crate) fn new(history: &History) -> Self {
        Self { healthy: history.is_healthy(), ..Self::default() }
    }
    /// Of this generation the broker counts again what it has counted already.
    pub(crate) fn turn_back(&mut self, id: ObserverId, generation: u32) {
        self.assigned.remove(&(id, generation));
        self.turned_back.insert((id, generation));
    }
    pub(crate) fn is_turned_back(&self, id: ObserverId, generation: u32) -> bool {
        self.turned_back.contains(&(id, generation))
    }
    pub(crate) fn next_request(&mut self) -> u64 {
        self.numbered += 1;
        self.requests.insert(self.numbered);
        self.numbered
    }
    /// `true` for the first answer to a request that was not given up.
    pub(crate) fn answer(&mut self, number: u64) -> bool {
        self.requests.remove(&number)
    }
    pub(crate) fn give_up(&mut self, number: u64) -> bool {
        self.requests.remove(&number)
    }
    pub(crate) fn knows(&mut self, id: ObserverId, observer: usize) {
        self.names.insert(id, observer);
    }
    pub(crate) fn fail(&mut self, rule: &'static str, text: String) {
        self.breach.get_or_insert(Breach { rule, text });
    }
}

impl World {
    pub(crate) fn observer(&self, id: ObserverId) -> String {
        let row = self.db.rows.get(&id).map(|row| row.wanted.name.clone());
        let known = row.or_else(|| self.check.names.get(&id).map(|observer| observer_name(*observer)));
        known.map_or_else(|| id.to_string(), |name| name.to_string())
    }

    /// A work message comes into the queue.
    pub(crate) fn on_published(&mut self, body: &[u8]) {
        let (id, generation) = label(body);
        self.tell(|world| format!("published: {} generation {generation}", world.observer(id)));
        if !self.check.published.insert((id, generation)) {
            let text = format!("{} was published twice as generation {generation}", self.observer(id));
            self.check.fail("I1", text);
        }
    }

    /// Reports come into the state queue.
    pub(crate) fn on_told(&mut self, body: &[u8]) {
        let Ok(StateMessage::Reports(reports)) = decode(body) else { return };
        for entry in reports.entries {
            let runs = match entry.report {
                Report::Run(run) => vec![run],
                Report::List(list) => list.entries,
                Report::ServiceBorn(_)
                | Report::ServiceGone
                | Report::Described(_)
                | Report::WorkQueueCreated { .. }
                | Report::Unknown(_) => Vec::new(),
            };
            for RunReport { id, epoch, event } in runs {
                let key = Key { acquisitions: epoch.acquisitions(), seq: entry.seq };
                let heard = Heard { service: reports.service, key, at: entry.at, event };
                self.check.told.entry(id).or_default().push((epoch.generation(), heard));
            }
        }
    }

    /// The broker gives a work message to a service.
    pub(crate) fn on_assigned(&mut self, conn: usize, body: &[u8], acquisitions: u32) {
        let (id, generation) = label(body);
        let host = self.net.conns[conn].owner.host;
        self.tell(|world| {
            let epoch = Epoch::new(generation, acquisitions);
            format!("delivered: {} {epoch} to {}", world.observer(id), world.name(host))
        });
        if self.check.assigned.insert((id, generation), acquisitions).is_some_and(|it| it >= acquisitions) {
            self.check.fail("I1", format!("the count of {} did not go up", self.observer(id)));
        }
        let held = self.broker.held_work().filter(|(holder, _, _)| *holder == conn).count();
        if self.services[host].conns.contains(&conn) {
            self.judge_taking(host, id, held);
        }
    }

    /// A service gives a message back.
    pub(crate) fn on_requeued(&mut self, conn: usize, body: &[u8]) {
        let owner = self.net.conns[conn].owner;
        if let Some(service) = self.services.get(owner.host).filter(|it| it.conns.contains(&conn)) {
            self.on_given_back(service.id, label(body).0);
        }
    }

    pub(crate) fn on_taken_away(&mut self, conn: usize, body: &[u8], acquisitions: u32, loss: Loss) {
        let (id, generation) = label(body);
        let epoch = Epoch::new(generation, acquisitions);
        if self.net.conns[conn].owner.host < self.services.len() {
            self.check.taken_away.insert((id, epoch), loss);
        }
        self.tell(|world| format!("back to the queue: {} {epoch} ({loss:?})", world.observer(id)));
    }

    pub(crate) fn on_settlement_confirmed(&mut self, s: usize, report: &RunReport) {
        let conn = self.services[s].conns[0];
        self.check.settlements.insert((conn, report.id, report.epoch));
    }

    /// The broker ends a work message.
    pub(crate) fn on_acked(&mut self, conn: usize, body: &[u8], acquisitions: u32) {
        let (id, generation) = label(body);
        let epoch = Epoch::new(generation, acquisitions);
        let host = self.net.conns[conn].owner.host;
        self.tell(|world| format!("acknowledged: {} {epoch} by {}", world.observer(id), world.name(host)));
        let allowed = if host < self.services.len() {
            self.check.settlements.contains(&(conn, id, epoch))
        } else {
            self.db.rows.get(&id).is_some_and(|row| {
                row.generation > generation || (row.generation == generation && row.seen.settled.is_some())
            })
        };
        if !allowed {
            let text =
                format!("{} {epoch} was acknowledged without a confirmed settlement", self.observer(id));
            self.check.fail("I7", text);
        }
    }

    /// A service has received floors.
    pub(crate) fn on_floors(&mut self, s: usize, floors: &[Floor]) {
        let service = self.services[s].id;
        for floor in floors {
            let known = self.check.floors.entry((service, floor.id)).or_default();
            *known = (*known).max(floor.below);
            self.tell(|world| {
                format!("{} hears: {} not under {}", world.name(s), world.observer(floor.id), floor.below)
            });
        }
    }

    /// Code starts; answers its number.
    pub(crate) fn on_started(
        &mut self,
        s: usize,
        (work, edition): (&Work, u32),
        epoch: Epoch,
        attempt: u32,
    ) -> usize {
        let (id, service) = (work.id, self.services[s].id);
        self.tell(|world| {
            format!("{} starts {} {epoch}, attempt {attempt}", world.name(s), world.observer(id))
        });
        if self.check.floors.get(&(service, id)).is_some_and(|below| epoch < *below) {
            let text = format!("{} started {} {epoch} under a floor", self.name(s), self.observer(id));
            self.check.fail("I5", text);
        }
        let first = *self.check.runs.entry((id, epoch)).or_insert(service);
        if first != service && !self.check.is_turned_back(id, epoch.generation()) {
            let text = format!("two runs of {} have the epoch {epoch}", self.observer(id));
            self.check.fail("I1", text);
        }
        let life = self.hosts[s].life;
        let forbids_overlap = self.setup_of(id).is_some_and(|overlap| overlap == Overlap::Forbid);
        self.check.starts.push(Start { host: s, life, service, id, epoch, forbids_overlap, edition });
        let start = self.check.starts.len() - 1;
        self.check.alive.insert(start);
        if self.hosts[s].thawed_at.is_some_and(|at| self.now - at <= JUST_THAWED) {
            self.check.overlaps.frozen.insert(start);
        }
        start
    }

    fn setup_of(&self, id: ObserverId) -> Option<Overlap> {
        self.db.rows.get(&id).map(|row| row.wanted.overlap)
    }

    pub(crate) fn on_ended(
        &mut self,
        s: usize,
        (id, start): (ObserverId, usize),
        (epoch, attempt): (Epoch, u32),
        own: Option<&Outcome>,
    ) {
        self.check.alive.remove(&start);
        match own {
            Some(outcome @ (Outcome::Done | Outcome::Failed(_))) => {
                self.check.finished.insert((id, epoch), outcome.clone());
            }
            Some(Outcome::Erred(_)) => *self.check.errors.entry((id, epoch)).or_default() += 1,
            Some(Outcome::Aborted) | None => {}
        }
        self.tell(|world| {
            let (host, name) = (world.name(s), world.observer(id));
            format!("{name} {epoch} attempt {attempt} ends on {host}: {own:?}")
        });
    }
}
