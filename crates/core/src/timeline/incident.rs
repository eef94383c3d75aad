//! Incidents: the moves of observers from one service at about the same time.

use super::Moved;
use crate::clock::Timestamp;
use crate::id::ServiceId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A gap that begins later than this after the last start of an incident belongs to another incident.
pub(super) const QUIET: Duration = Duration::from_secs(30);
/// As [`QUIET`], for a gap that no handover explains after an incident of handovers: a service that is lost soon after an observer was
/// moved from it is another incident.
const QUIET_AFTER_HANDOVER: Duration = Duration::from_secs(5);
/// The maximum number of incidents in a timeline, which drops the oldest first.
pub const INCIDENTS_MAX: usize = 1000;
/// Gaps below this time, in ms, are counted exactly, by the millisecond.
const EXACT_MS: u64 = 256;

/// Why observers moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Their service was lost: it was killed, or silent for too long.
    Lost,
    /// Their service stopped and handed them over.
    Stopped,
    /// Their service lives; the cause is a drain, a rebalance, a move, or a broken connection.
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
    /// When its first gap began; without a gap, when the first of its observers started.
    pub since: Timestamp,
    /// When the last one started; without a move, `since`.
    pub until: Timestamp,
    pub moved: u64,
    /// The observers that still run nowhere: the incident is open while there is one.
    pub waiting: u64,
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
            since,
            until: since,
            moved: 0,
            waiting: 0,
            to: BTreeMap::new(),
            gaps: Gaps::default(),
            gap_max: Duration::ZERO,
            gap_is_bound: cause == Cause::Lost,
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

    /// The cause as far as it is known at this time.
    pub(super) fn conclude(&mut self, now: Timestamp) {
        if self.cause == Cause::Unknown && now.since(self.until) >= CONCLUDED {
            self.cause = Cause::HandedOver;
        }
    }

    /// Whether a gap of an observer of its service that begins at this time, with this cause, belongs to it.
    pub(super) fn has(&self, from: ServiceId, since: Timestamp, cause: Cause) -> bool {
        let explained = matches!(cause, Cause::HandedOver | Cause::Stopped);
        let quiet = if self.cause == Cause::HandedOver && !explained { QUIET_AFTER_HANDOVER } else { QUIET };
        self.from == from && self.until.plus(quiet) >= since
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
        if let Some(it) = self.0.iter_mut().rev().find(|it| it.has(moved.from, since, cause)) {
            return it.add(at, to, moved, cause);
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
        if let Some(it) = self.0.iter_mut().rev().find(|it| it.has(service, at, cause)) {
            it.cause = cause;
        }
    }

    /// A service has handed over an observer that had started elsewhere before this was known.
    pub(super) fn handed_over(&mut self, service: ServiceId, at: Timestamp) {
        let known = self.0.iter_mut().rev().find(|it| it.has(service, at, Cause::HandedOver));
        if let Some(it) = known.filter(|it| it.cause == Cause::Unknown) {
            it.cause = Cause::HandedOver;
        }
    }

    pub(super) fn forget(&mut self, before: Timestamp) {
        self.0.retain(|it| it.until >= before);
    }
}
