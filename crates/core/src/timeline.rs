//! The timeline: how many observers each service held, how many ran nowhere or twice, and the incidents in which they moved. It is
//! computed from events in their order, and covers a bounded time at a resolution of one second.

mod fact;
mod incident;
mod picture;
mod steps;
#[cfg(test)]
mod tests;

pub use fact::{Fact, Mark, Moved, Run};
pub use incident::{Cause, INCIDENTS_MAX, Incident, NOWHERE_MAX};
pub use picture::{
    CELLS_MAX, COLUMNS_MAX, LANES_MAX, Lane, MARKS_SHOWN_MAX, Others, Picture, Segment, Window,
};

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::record::events::EventKind;
use crate::wire::command::Cause as Reason;
use incident::{Incidents, QUIET};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use steps::{Steps, second};

/// The time that a timeline covers.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of marks in a timeline, which drops the oldest first.
pub const MARKS_MAX: usize = 10_000;
/// The maximum number of services in a timeline, living and ended; it drops those that ended first.
pub const SERVICES_MAX: usize = 10_000;

/// Shorter gaps count in incidents only: a lane has a resolution of one second, in which a handover of a few milliseconds would
/// look like a failure.
const GAP_DRAWN_MIN: Duration = Duration::from_millis(10);

/// The service that runs an observer, or that has handed it over while the observer runs nowhere.
#[derive(Debug, Clone, Copy)]
struct Place {
    service: ServiceId,
    epoch: Epoch,
    /// When the observer started there; `None`: before the first fact about it.
    since: Option<Timestamp>,
    /// When the service handed it over.
    left_at: Option<Timestamp>,
}

impl Place {
    /// Whether only the row of the observer names this place.
    fn is_from_row(&self) -> bool {
        self.since.is_none() && self.left_at.is_none()
    }
}

/// One incarnation of a service.
#[derive(Debug, Clone, Default)]
struct Incarnation {
    name: Option<String>,
    registered_at: Option<Timestamp>,
    /// The latest start of an observer on it.
    started_at: Option<Timestamp>,
    /// When it ended; a lost service, at its last sign of life, if that is known.
    ended: Option<(Timestamp, Cause)>,
    /// Whether it ended at its last sign of life, so that the gaps of its observers are upper bounds.
    is_end_bound: bool,
    held: Steps,
    /// The number of its observers that ran nowhere until they started elsewhere.
    gaps: Steps,
    /// The number of its observers that ran on their next service, too.
    overlaps: Steps,
    /// The observers that it handed over and that run nowhere yet: one step for each, at the time of its handover.
    left: Steps,
    /// Why it handed over observers, by second.
    reasons: BTreeSet<(i64, Reason)>,
    /// The number of observers that it runs.
    running: i64,
}

/// The history of services and observers, second by second.
#[derive(Debug, Default)]
pub struct Timeline {
    services: BTreeMap<ServiceId, Incarnation>,
    /// The places of observers that run, or that should run and run nowhere.
    places: HashMap<ObserverId, Place>,
    marks: VecDeque<Mark>,
    incidents: Incidents,
    /// The names of services that live although their incarnations here have ended.
    living: BTreeSet<String>,
    /// The time from which it is complete.
    since: Option<Timestamp>,
}

impl Timeline {
    /// An empty timeline whose facts begin at this time.
    #[must_use]
    pub fn new(since: Timestamp) -> Self {
        Self { since: Some(since), ..Self::default() }
    }

    /// The time from which it is complete.
    #[must_use]
    pub fn complete_since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Declares that facts before this time are incomplete.
    pub fn incomplete_before(&mut self, at: Timestamp) {
        self.since = self.since.max(Some(at));
    }

    /// Adds a fact.
    pub fn add(&mut self, at: Timestamp, fact: Fact) {
        match fact {
            Fact::Started { run, moved } => self.started(at, run, moved),
            Fact::Ended { run, moves, why } => {
                if let Some(why) = why {
                    self.service(run.service).reasons.insert((second(at), why));
                }
                self.ended(at, run, moves);
            }
            Fact::AtRest { observer } => self.at_rest(at, observer),
            Fact::Registered { service, name } => {
                let it = self.service(service);
                (it.name, it.registered_at) = (Some(name.clone()), Some(at));
                self.mark(Mark::of_service(at, EventKind::ServiceRegistered, (service, name)));
            }
            Fact::Gone { service, name, lost, heard_at, text } => {
                let (kind, cause) = if lost {
                    (EventKind::ServiceLost, Cause::Lost)
                } else {
                    (EventKind::ServiceGone, Cause::Stopped)
                };
                let it = self.service(service);
                // A start is a sign of life, too.
                let since =
                    heard_at.filter(|_| lost).map(|heard| heard.max(it.started_at.unwrap_or(heard)).min(at));
                (it.name, it.ended) = (Some(name.clone()), Some((since.unwrap_or(at), cause)));
                it.is_end_bound = since.is_some();
                self.incidents.explain(service, at, cause);
                self.mark(Mark { since, text, ..Mark::of_service(at, kind, (service, name)) });
            }
            Fact::Mark(mark) => {
                match (mark.kind, mark.service_id) {
                    (EventKind::ServiceDraining | EventKind::ServiceResized, Some(service)) => {
                        self.incidents.operated(Some(service), at);
                    }
                    (EventKind::Rebalanced, _) => self.incidents.operated(None, at),
                    _ => {}
                }
                self.mark(Mark { at, ..mark });
            }
        }
    }

    /// Adds the name of a service, if no fact has named it yet.
    pub fn name(&mut self, service: ServiceId, name: &str) {
        if !name.is_empty() {
            self.service(service).name.get_or_insert_with(|| name.to_owned());
        }
    }

    /// Adds a service that lives or has ended, if no fact has named it yet.
    pub fn service_known(
        &mut self,
        service: ServiceId,
        registered_at: Timestamp,
        ended: Option<(Timestamp, Cause)>,
    ) {
        let is_in = self.since.is_none_or(|since| registered_at >= since);
        let it = self.service(service);
        it.registered_at = it.registered_at.or(is_in.then_some(registered_at));
        it.ended = it.ended.or(ended);
    }

    /// Adds an observer that this service runs, according to its reports. If no fact contains this run, it began before the first
    /// fact about the observer.
    pub fn runs(&mut self, observer: ObserverId, service: ServiceId) {
        if self.places.contains_key(&observer) {
            return;
        }
        let place = Place { service, epoch: Epoch::default(), since: None, left_at: None };
        self.places.insert(observer, place);
        let it = self.service(service);
        it.held.add_before(1);
        it.running += 1;
    }

    fn service(&mut self, id: ServiceId) -> &mut Incarnation {
        self.services.entry(id).or_default()
    }

    fn started(&mut self, at: Timestamp, run: Run, moved: Option<Moved>) {
        let known = self.places.get(&run.observer).copied();
        if let Some(place) = known
            && run.epoch <= place.epoch
        {
            // The events of two managers may be stored out of order: this run ended before the known one started.
            if run.epoch < place.epoch && place.since.is_some_and(|since| at <= since) {
                self.service(run.service).held.span(at, place.since.unwrap_or(at));
            }
            return;
        }
        match (known, moved) {
            // The row of the observer named this place before this event was read.
            (Some(place), _) if place.is_from_row() && place.service == run.service => {
                self.leave(run.observer, None);
                self.service(run.service).held.add_before(-1);
                if let Some(moved) = moved {
                    self.service(moved.from).held.add_before(1);
                    self.moved(at, run, moved, None);
                }
            }
            (Some(place), Some(moved)) if place.service == moved.from => {
                self.moved(at, run, moved, Some(place));
            }
            (Some(place), None) => self.continued(at, run, place),
            (known, Some(moved)) => {
                // The events about the previous run are missing.
                if known.is_some() {
                    self.leave(run.observer, Some(at));
                }
                self.service(moved.from).held.add_before(1);
                self.moved(at, run, moved, None);
            }
            (None, None) => {}
        }
        let it = self.service(run.service);
        it.started_at = it.started_at.max(Some(at));
        it.held.add(at, 1);
        it.running += 1;
        let place = Place { service: run.service, epoch: run.epoch, since: Some(at), left_at: None };
        self.places.insert(run.observer, place);
    }

    /// Removes an observer from its place. Unless its run has ended before, the run ends `at` this time; without `at`, the number of
    /// observers held remains unchanged.
    fn leave(&mut self, observer: ObserverId, at: Option<Timestamp>) {
        let Some(place) = self.places.remove(&observer) else { return };
        let it = self.service(place.service);
        if let Some(left_at) = place.left_at {
            it.left.add(left_at, -1);
            return;
        }
        it.running -= 1;
        if let Some(at) = at {
            it.held.end(place.since, at);
        }
    }

    /// Adds a run after a run whose end no service reported and which the start does not name: a manager has published the observer again.
    fn continued(&mut self, at: Timestamp, run: Run, place: Place) {
        let ended = self.service(place.service).ended.map(|(ended_at, _)| ended_at);
        let end = place.left_at.or(ended).unwrap_or(at).min(at);
        let gap = at.since(place.since.map_or(end, |since| end.max(since)));
        let gap_is_bound = place.left_at.is_none();
        let moved = Moved { from: place.service, gap, gap_is_bound, overlap: Duration::ZERO };
        if place.service == run.service || place.left_at.is_none() && ended.is_none() {
            self.leave(run.observer, Some(end));
            self.stood_still(at, (moved.from, moved.gap));
        } else {
            self.moved(at, run, moved, Some(place));
        }
    }

    fn stood_still(&mut self, at: Timestamp, (from, gap): (ServiceId, Duration)) {
        if gap >= GAP_DRAWN_MIN {
            self.service(from).gaps.span(at.minus(gap), at);
        }
    }

    /// Adds the start of an observer on its next service; `place` is its previous place, if that is known.
    fn moved(&mut self, at: Timestamp, run: Run, moved: Moved, place: Option<Place>) {
        // A gap begins with the last sign of life of the service, which may be older than a run on it.
        let begun = place.and_then(|place| place.since).map_or(Duration::MAX, |since| at.since(since));
        let moved = Moved { gap: moved.gap.min(begun), ..moved };
        let end = at.minus(moved.gap).plus(moved.overlap);
        match place {
            Some(_) => self.leave(run.observer, Some(end)),
            None => self.service(moved.from).held.end(None, end),
        }
        self.stood_still(at, (moved.from, moved.gap));
        let to = self.name_of(run.service);
        let from_name = self.name_of(moved.from);
        let from = self.service(moved.from);
        if !moved.overlap.is_zero() {
            from.overlaps.span(at, at.plus(moved.overlap));
        }
        let is_handed_over = place.is_some_and(|place| place.left_at.is_some());
        let cause = match from.ended {
            // It was handed over before the service was lost.
            Some((_, Cause::Lost)) | None if is_handed_over => Cause::HandedOver,
            Some((_, cause)) => cause,
            None => Cause::Unknown,
        };
        self.incidents.add((at, run.observer), (from_name, to), moved, cause);
    }

    /// The name of a service, or its id if no fact names it.
    fn name_of(&self, id: ServiceId) -> String {
        let name = self.services.get(&id).and_then(|it| it.name.clone());
        name.unwrap_or_else(|| id.to_string())
    }

    fn ended(&mut self, at: Timestamp, run: Run, moves: bool) {
        let place = match self.places.get_mut(&run.observer) {
            // The next run is known: its start contains the end of this run.
            Some(place) if run.epoch < place.epoch => {
                if moves {
                    self.incidents.handed_over(run.service, run.observer);
                }
                return;
            }
            Some(place) if place.service == run.service => place,
            Some(_) => {
                self.leave(run.observer, Some(at));
                return self.ended(at, run, moves);
            }
            None => {
                let it = self.service(run.service);
                // Unless this run started before the first fact about its service, it never started.
                let since = it.registered_at.is_some().then_some(at);
                match since {
                    Some(_) if !moves => return,
                    Some(at) => it.held.add(at, 1),
                    None => it.held.add_before(1),
                }
                it.running += 1;
                let place = Place { service: run.service, epoch: run.epoch, since, left_at: None };
                self.places.entry(run.observer).or_insert(place)
            }
        };
        match (place.left_at, moves) {
            (Some(_), true) => return,
            (Some(_), false) => return self.at_rest(at, run.observer),
            (None, false) => return self.leave(run.observer, Some(at)),
            (None, true) => {}
        }
        (place.left_at, place.epoch) = (Some(at), run.epoch.max(place.epoch));
        let since = place.since;
        let it = self.service(run.service);
        it.running -= 1;
        it.held.end(since, at);
        it.left.add(at, 1);
    }

    /// Notes that an observer that ran nowhere should no longer run.
    fn at_rest(&mut self, at: Timestamp, observer: ObserverId) {
        let Some(place) = self.places.get(&observer).copied() else { return };
        let ended = self.service(place.service).ended.map(|(ended_at, _)| ended_at);
        let stopped = place.left_at.or(ended).unwrap_or(at).min(at);
        self.leave(observer, Some(stopped));
        self.stood_still(at, (place.service, at.since(stopped)));
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push_back(mark);
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// Concludes that services from which observers moved long before this time, and whose end no fact has contained until then, have
    /// only lost their connections.
    pub fn conclude(&mut self, now: Timestamp) {
        self.incidents.conclude(now);
    }

    /// Copies into the timeline of one observer, from the timeline of all observers, when drains, changes of the capacity and rebalances
    /// began: these times part the incidents that the next facts contribute.
    pub fn add_operations_of(&mut self, all: &Self) {
        self.incidents.set_operations(all.incidents.operations());
    }

    /// Copies into the timeline of one observer, from the timeline of all observers, the ends of its services, their marks while the
    /// observer was there, and which names live.
    pub fn add_services_of(&mut self, all: &Self) {
        let living = all.services.values().filter(|it| it.ended.is_none());
        self.living = living.filter_map(|it| it.name.clone()).collect();
        for (id, it) in &mut self.services {
            if let Some(known) = all.services.get(id) {
                it.name = it.name.take().or_else(|| known.name.clone());
                it.ended = it.ended.or(known.ended);
            }
            if let Some((at, cause)) = it.ended {
                self.incidents.explain(*id, at, cause);
            }
        }
        let concerns = |mark: &&Mark| {
            let it = mark.service_id.and_then(|id| self.services.get(&id));
            // An observer that left a lost service before its last sign of life was not lost with it.
            let late = mark.since.map_or(QUIET, |since| mark.at.since(since) + Duration::from_secs(1));
            mark.is_of_life() && it.is_some_and(|it| it.held.most_before(mark.at, late) > 0)
        };
        let marks =
            all.marks.iter().filter(concerns).map(|mark| Mark { text: String::new(), ..mark.clone() });
        let mut marks: Vec<Mark> = self.marks.iter().cloned().chain(marks).collect();
        marks.sort_by_key(|mark| mark.at);
        self.marks = marks.into();
    }

    /// Drops facts that are older than [`KEPT`].
    pub fn forget(&mut self, now: Timestamp) {
        let before = now.minus(KEPT);
        if self.since.is_some_and(|since| since >= before) {
            return;
        }
        self.since = Some(before);
        self.marks.retain(|mark| mark.at >= before);
        self.incidents.forget(before);
        for it in self.services.values_mut() {
            for steps in [&mut it.held, &mut it.gaps, &mut it.overlaps] {
                steps.forget(before);
            }
            it.reasons.retain(|(at, _)| *at >= second(before));
            it.registered_at = it.registered_at.filter(|at| *at >= before);
        }
        let known = self.services.len();
        self.services.retain(|_, it| it.ended.is_none_or(|(at, _)| at >= before));
        while self.services.len() > SERVICES_MAX {
            let ended = self.services.iter().filter_map(|(id, it)| Some((it.ended?.0, *id)));
            let Some((_, first)) = ended.min() else { break };
            self.services.remove(&first);
        }
        if self.services.len() < known {
            let services = &self.services;
            self.places.retain(|_, place| services.contains_key(&place.service));
        }
    }
}
