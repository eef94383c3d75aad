//! Incidents: the moves of observers from one service at about the same time.

use super::Moved;
use crate::clock::Timestamp;
use crate::id::{ObserverId, ServiceId};
use crate::wire::command::Cause as Reason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A gap that begins later than this after the last start of an incident belongs to another incident.
pub(super) const QUIET: Duration = Duration::from_secs(30);
/// If a service lives and hands over observers again later than this after the last start, the two handovers are two incidents.
const QUIET_OF_HANDOVERS: Duration = Duration::from_secs(10);
/// The clocks of a manager and of two services that are kept in step differ by less.
const CLOCKS: Duration = Duration::from_millis(300);
/// The maximum number of moves that wait for a report that explains them; beyond it, the oldest count as handed over.
const UNEXPLAINED_MAX: usize = 100_000;
/// The maximum number of incidents in a timeline, which drops the oldest first.
pub const INCIDENTS_MAX: usize = 1000;
/// The maximum number of observers that an incident names.
pub const NOWHERE_MAX: usize = 20;
/// Gaps below this time, in ms, are counted exactly, by the millisecond.
const EXACT_MS: u64 = 256;

/// Why observers moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Their service was lost: it was killed, or silent for too long.
    Lost,
    /// Their service stopped and handed them over.
    Stopped,
    /// Their service lives; the reason is a drain, a rebalance, a move, or a broken connection.
    HandedOver,
    /// Observers started elsewhere although their service has not handed them over, and no manager has concluded yet whether
    /// it lives.
    Unknown,
}

/// If a service still lives this long after the last start of an incident, it has only lost its connection.
const CONCLUDED: Duration = Duration::from_secs(60);

/// A histogram of gaps, with a resolution of 1/128 of each gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Gaps {
    /// The number and the longest of similar gaps, in ms.
    similar: BTreeMap<u64, (u64, u64)>,
    all: u64,
}

impl Gaps {
    fn add(&mut self, gap: Duration) {
        let ms = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        // The highest eight bits.
        let shift = (u64::BITS - (ms / EXACT_MS).leading_zeros()).min(u64::BITS - 8);
        let (count, longest) = self.similar.entry(ms >> shift << shift).or_default();
        (*count, *longest) = (*count + 1, ms.max(*longest));
        self.all += 1;
    }

    /// The gap that `percent` of the gaps do not exceed.
    fn part(&self, percent: u64) -> Duration {
        let (place, mut passed) = ((self.all * percent).div_ceil(100).max(1), 0);
        let found = self.similar.values().find(|(count, _)| {
            passed += count;
            passed >= place
        });
        Duration::from_millis(found.map_or(0, |(_, longest)| *longest))
    }
}

/// The moves of observers from one service at about the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    pub from: ServiceId,
    /// The name of that service.
    pub from_name: String,
    pub cause: Cause,
    /// If the cause is [`Cause::HandedOver`]: the reasons that the service reported.
    pub reasons: BTreeSet<Reason>,
    /// When its first gap began; without a gap, when the first of its observers started.
    pub since: Timestamp,
    /// When the last one started; without a move, `since`.
    pub until: Timestamp,
    pub moved: u64,
    /// The observers that still run nowhere: the incident is open while there is one.
    pub waiting: u64,
    /// Those observers, at most [`NOWHERE_MAX`].
    pub nowhere: Vec<ObserverId>,
    /// The names of the services that took over the observers, and how many each took.
    pub to: BTreeMap<String, u64>,
    gaps: Gaps,
    /// The longest gap, including gaps that have not ended.
    pub gap_max: Duration,
    /// Whether at least one of the gaps is an upper bound.
    pub gap_is_bound: bool,
    pub overlap_max: Duration,
}

impl Incident {
    /// An incident whose observers have not started yet.
    pub(super) fn opened((from, from_name): (ServiceId, String), cause: Cause, since: Timestamp) -> Self {
        Self {
            from,
            from_name,
            cause,
            reasons: BTreeSet::new(),
            since,
            until: since,
            moved: 0,
            waiting: 0,
            nowhere: Vec::new(),
            to: BTreeMap::new(),
            gaps: Gaps::default(),
            gap_max: Duration::ZERO,
            gap_is_bound: false,
            overlap_max: Duration::ZERO,
        }
    }

    /// Half of the moves had at most this gap.
    #[must_use]
    pub fn gap_median(&self) -> Duration {
        self.gaps.part(50)
    }

    /// 99 % of the moves had at most this gap.
    #[must_use]
    pub fn gap_p99(&self) -> Duration {
        self.gaps.part(99)
    }

    fn add(&mut self, it: &Move) {
        let (at, Moved { gap, gap_is_bound, overlap, .. }) = (it.at, it.moved);
        self.moved += 1;
        match self.to.get_mut(&it.to) {
            Some(moved) => *moved += 1,
            None => _ = self.to.insert(it.to.clone(), 1),
        }
        (self.since, self.until) = (self.since.min(at.minus(gap)), self.until.max(at));
        (self.gap_max, self.overlap_max) = (self.gap_max.max(gap), self.overlap_max.max(overlap));
        self.gap_is_bound |= gap_is_bound;
        self.gaps.add(gap);
    }

    /// The cause as far as it is known at this time.
    pub(super) fn conclude(&mut self, now: Timestamp) {
        if self.cause == Cause::Unknown && now.since(self.until) >= CONCLUDED {
            self.cause = Cause::HandedOver;
        }
    }

    /// Whether a gap of an observer of its service that begins at this time, with this cause, belongs to it, with the operations of all
    /// services.
    pub(super) fn has(&self, from: ServiceId, since: Timestamp, cause: Cause, all: &Operations) -> bool {
        if self.from != from {
            return false;
        }
        // A service that is lost soon after an observer was moved from it is another incident.
        let is_explained = matches!(cause, Cause::HandedOver | Cause::Stopped);
        let is_other = self.cause == Cause::HandedOver && !is_explained;
        let are_handovers = self.cause == Cause::HandedOver && cause == Cause::HandedOver;
        let quiet = if are_handovers { QUIET_OF_HANDOVERS } else { QUIET };
        let is_parted =
            are_handovers && (all.part(from, self.until, since) || all.part(from, since, self.since));
        !is_other && !is_parted && self.until.plus(quiet) >= since
    }
}

/// When drains, changes of the capacity and rebalances began: each begins another incident.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations {
    of_services: BTreeSet<(ServiceId, Timestamp)>,
    /// Of all services.
    rebalances: BTreeSet<Timestamp>,
}

impl Operations {
    /// Adds one; a rebalance has no service.
    fn add(&mut self, service: Option<ServiceId>, at: Timestamp) {
        match service {
            Some(service) => _ = self.of_services.insert((service, at)),
            None => _ = self.rebalances.insert(at),
        }
    }

    /// Whether one of this service, or a rebalance, began between these times.
    fn part(&self, service: ServiceId, earlier: Timestamp, later: Timestamp) -> bool {
        let (first, last) = (earlier.plus(CLOCKS), later.plus(CLOCKS));
        first < last
            && (self.of_services.range((service, first)..=(service, last)).next().is_some()
                || self.rebalances.range(first..=last).next().is_some())
    }

    fn forget(&mut self, before: Timestamp) {
        self.of_services.retain(|(_, at)| *at >= before);
        self.rebalances.retain(|at| *at >= before);
    }
}

/// A move of an observer from one service to another.
#[derive(Debug)]
struct Move {
    at: Timestamp,
    observer: ObserverId,
    from_name: String,
    to: String,
    moved: Moved,
}

/// The incidents, in the order of their first moves.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    explained: VecDeque<Incident>,
    /// Observers start elsewhere before a manager concludes that their service is lost, or before that service reports that it has
    /// handed them over.
    unexplained: VecDeque<Move>,
    operations: Operations,
}

impl Incidents {
    /// The incidents so far, with those whose cause is [`Cause::Unknown`].
    pub(super) fn all(&self) -> VecDeque<Incident> {
        let mut all = self.explained.clone();
        for it in &self.unexplained {
            add(&mut all, it, Cause::Unknown, &self.operations);
        }
        all
    }

    pub(super) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Adds the operations that the timeline of all observers has.
    pub(super) fn set_operations(&mut self, all: &Operations) {
        self.operations = all.clone();
    }

    /// Notes that an operation of a service began, or a rebalance.
    pub(super) fn operated(&mut self, service: Option<ServiceId>, at: Timestamp) {
        self.operations.add(service, at);
    }

    /// Adds a move of an observer: its time, the names of both services, the move and its cause.
    pub(super) fn add(
        &mut self,
        (at, observer): (Timestamp, ObserverId),
        (from_name, to): (String, String),
        moved: Moved,
        cause: Cause,
    ) {
        let it = Move { at, observer, from_name, to, moved };
        if cause != Cause::Unknown {
            return add(&mut self.explained, &it, cause, &self.operations);
        }
        if self.unexplained.len() >= UNEXPLAINED_MAX {
            self.conclude_first();
        }
        self.unexplained.push_back(it);
    }

    /// The end of a service explains the moves from it that have just happened.
    pub(super) fn explain(&mut self, service: ServiceId, at: Timestamp, cause: Cause) {
        let found = self.explained.iter_mut().rev().find(|it| it.has(service, at, cause, &self.operations));
        if let Some(it) = found {
            it.cause = cause;
        }
        let (mut begun, mut first) = (at, None);
        for it in self.unexplained.iter().rev().filter(|it| it.moved.from == service) {
            if it.at.plus(QUIET) < begun {
                break;
            }
            begun = begun.min(it.at.minus(it.moved.gap));
            first = Some(first.map_or(it.at, |first: Timestamp| first.min(it.at)));
        }
        let Some(first) = first else { return };
        let is_explained = |it: &Move| it.moved.from == service && it.at >= first;
        let (explained, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unexplained).into_iter().partition(is_explained);
        self.unexplained = others.into();
        for it in &explained {
            add(&mut self.explained, it, cause, &self.operations);
        }
    }

    /// A service has handed over an observer that had started elsewhere before this was known.
    pub(super) fn handed_over(&mut self, service: ServiceId, observer: ObserverId) {
        let is_it = |it: &Move| it.observer == observer && it.moved.from == service;
        if let Some(it) =
            self.unexplained.iter().position(is_it).and_then(|place| self.unexplained.remove(place))
        {
            add(&mut self.explained, &it, Cause::HandedOver, &self.operations);
        }
    }

    /// Concludes that services from which observers moved long before this time have only lost their connections.
    pub(super) fn conclude(&mut self, now: Timestamp) {
        while self.unexplained.front().is_some_and(|it| now.since(it.at) >= CONCLUDED) {
            self.conclude_first();
        }
    }

    fn conclude_first(&mut self) {
        if let Some(it) = self.unexplained.pop_front() {
            add(&mut self.explained, &it, Cause::HandedOver, &self.operations);
        }
    }

    pub(super) fn forget(&mut self, before: Timestamp) {
        self.explained.retain(|it| it.until >= before);
        self.unexplained.retain(|it| it.at >= before);
        self.operations.forget(before);
    }
}

/// Adds a move to the latest incident to which it belongs, or to a new one.
fn add(all: &mut VecDeque<Incident>, it: &Move, cause: Cause, operations: &Operations) {
    let (from, since) = (it.moved.from, it.at.minus(it.moved.gap));
    if let Some(incident) = all.iter_mut().rev().find(|incident| incident.has(from, since, cause, operations))
    {
        return incident.add(it);
    }
    let mut incident = Incident::opened((from, it.from_name.clone()), cause, since);
    incident.add(it);
    if all.len() >= INCIDENTS_MAX {
        all.pop_front();
    }
    all.push_back(incident);
}
