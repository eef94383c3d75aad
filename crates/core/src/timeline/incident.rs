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

    fn add_all(&mut self, other: Self) {
        for (key, (count, longest)) in other.similar {
            let similar = self.similar.entry(key).or_default();
            *similar = (similar.0 + count, similar.1.max(longest));
        }
        self.all += other.all;
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

    fn add(
        &mut self,
        at: Timestamp,
        to: &str,
        Moved { gap, gap_is_bound, overlap, .. }: Moved,
        cause: Cause,
    ) {
        self.moved += 1;
        if self.cause == Cause::Unknown {
            self.cause = cause;
        }
        match self.to.get_mut(to) {
            Some(moved) => *moved += 1,
            None => _ = self.to.insert(to.to_owned(), 1),
        }
        (self.since, self.until) = (self.since.min(at.minus(gap)), self.until.max(at));
        (self.gap_max, self.overlap_max) = (self.gap_max.max(gap), self.overlap_max.max(overlap));
        self.gap_is_bound |= gap_is_bound;
        self.gaps.add(gap);
    }

    /// Adds the moves of an incident with the same cause.
    fn absorb(&mut self, other: Self) {
        self.moved += other.moved;
        for (name, moved) in other.to {
            *self.to.entry(name).or_default() += moved;
        }
        (self.since, self.until) = (self.since.min(other.since), self.until.max(other.until));
        (self.gap_max, self.overlap_max) =
            (self.gap_max.max(other.gap_max), self.overlap_max.max(other.overlap_max));
        self.gap_is_bound |= other.gap_is_bound;
        self.gaps.add_all(other.gaps);
    }

    /// The cause as far as it is known at this time.
    pub(super) fn conclude(&mut self, now: Timestamp) {
        if self.cause == Cause::Unknown && now.since(self.until) >= CONCLUDED {
            self.cause = Cause::HandedOver;
        }
    }

    /// Whether a gap of an observer of its service that begins at this time, with this cause, belongs to it.
    pub(super) fn has(&self, from: ServiceId, since: Timestamp, cause: Cause) -> bool {
        // A service that is lost soon after an observer was moved from it is another incident.
        let is_explained = matches!(cause, Cause::HandedOver | Cause::Stopped);
        let is_other = self.cause == Cause::HandedOver && !is_explained;
        let are_handovers = self.cause == Cause::HandedOver && cause == Cause::HandedOver;
        let quiet = if are_handovers { QUIET_OF_HANDOVERS } else { QUIET };
        self.from == from && !is_other && self.until.plus(quiet) >= since
    }
}

/// The incidents, in the order of their first moves.
#[derive(Debug, Default)]
pub(super) struct Incidents(VecDeque<Incident>);

impl Incidents {
    pub(super) fn all(&self) -> impl Iterator<Item = &Incident> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, at: Timestamp, (from_name, to): (String, &str), moved: Moved, cause: Cause) {
        let since = at.minus(moved.gap);
        if let Some(place) = self.0.iter().rposition(|it| it.has(moved.from, since, cause)) {
            if let Some(it) = self.0.get_mut(place) {
                it.add(at, to, moved, cause);
            }
            return self.join(place);
        }
        let mut it = Incident::opened((moved.from, from_name), cause, since);
        it.add(at, to, moved, cause);
        if self.0.len() >= INCIDENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(it);
    }

    /// The end of a service explains the moves from it that have just happened: observers start elsewhere before a manager
    /// concludes that their service is lost.
    pub(super) fn explain(&mut self, service: ServiceId, at: Timestamp, cause: Cause) {
        // A handover that was told late may have explained moves that the end of the service caused.
        let is_unexplained = |it: &Incident| {
            it.from == service && it.gap_is_bound && it.until.plus(QUIET) >= at && it.cause != cause
        };
        let found = self.0.iter().rposition(|it| it.has(service, at, cause));
        let found = found.or_else(|| self.0.iter().rposition(is_unexplained));
        if let Some(it) = found.and_then(|place| self.0.get_mut(place)) {
            it.cause = cause;
        }
    }

    /// A service has handed over an observer that had started elsewhere before this was known.
    pub(super) fn handed_over(&mut self, service: ServiceId, at: Timestamp) {
        let is_it = |it: &Incident| it.cause == Cause::Unknown && it.has(service, at, Cause::HandedOver);
        let Some(place) = self.0.iter().rposition(is_it) else { return };
        if let Some(it) = self.0.get_mut(place) {
            it.cause = Cause::HandedOver;
        }
        self.join(place);
    }

    /// Joins the incident at this place to an earlier one, if both turn out to be handovers of the same service at about the same
    /// time.
    fn join(&mut self, place: usize) {
        let Some(later) = self.0.get(place).filter(|it| it.cause == Cause::HandedOver) else { return };
        let is_earlier = |it: &Incident| {
            it.from == later.from
                && it.cause == Cause::HandedOver
                && it.until.plus(QUIET_OF_HANDOVERS) >= later.since
        };
        let Some(earlier) = self.0.iter().take(place).rposition(is_earlier) else { return };
        let Some(later) = self.0.remove(place) else { return };
        if let Some(it) = self.0.get_mut(earlier) {
            it.absorb(later);
        }
    }

    pub(super) fn forget(&mut self, before: Timestamp) {
        self.0.retain(|it| it.until >= before);
    }
}
