//! A number that changes over time, by second.

use crate::clock::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// The second of a time.
pub(super) fn second(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

/// The changes of a number, by second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// The number before the first change.
    before: i64,
    changes: BTreeMap<i64, i64>,
}

impl Steps {
    pub(super) const fn new() -> Self {
        Self { before: 0, changes: BTreeMap::new() }
    }

    /// Whether it is always zero.
    pub(super) fn is_empty(&self) -> bool {
        self.before == 0 && self.changes.is_empty()
    }

    /// Adds to the number before the first change.
    pub(super) fn add_before(&mut self, change: i64) {
        self.before += change;
    }

    pub(super) fn add(&mut self, at: Timestamp, change: i64) {
        self.add_at(second(at), change);
    }

    fn add_at(&mut self, second: i64, change: i64) {
        if change == 0 {
            return;
        }
        let step = self.changes.entry(second).or_default();
        *step += change;
        if *step == 0 {
            self.changes.remove(&second);
        }
    }

    /// Subtracts one that was added at `since`, at least one second later: otherwise the two changes would cancel each other, and the
    /// number would never show them.
    pub(super) fn end(&mut self, since: Option<Timestamp>, until: Timestamp) {
        let first = since.map_or(i64::MIN, |since| second(since) + 1);
        self.add_at(second(until).max(first), -1);
    }

    /// Adds one from `since` to `until`, for at least one second.
    pub(super) fn span(&mut self, since: Timestamp, until: Timestamp) {
        self.add(since, 1);
        self.end(Some(since), until);
    }

    /// Adds the changes of another number.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.before += other.before;
        for (second, change) in &other.changes {
            self.add_at(*second, *change);
        }
    }

    /// Adds the changes of another number between these seconds.
    pub(super) fn add_part(&mut self, other: &Self, (from, to): (i64, i64)) {
        if to < from {
            return;
        }
        let mut now = other.before + other.changes.range(..=from).map(|(_, change)| change).sum::<i64>();
        let mut added = now.max(0);
        if from == i64::MIN {
            self.before += added;
        } else {
            self.add_at(from, added);
        }
        for (second, change) in other.changes.range((Bound::Excluded(from), Bound::Included(to))) {
            now += change;
            self.add_at(*second, now.max(0) - added);
            added = now.max(0);
        }
        if to < i64::MAX {
            self.add_at(to + 1, -added);
        }
    }

    /// The number at a time, after all changes of its second.
    pub(super) fn at(&self, at: Timestamp) -> u64 {
        let changes = self.changes.range(..=second(at)).map(|(_, change)| change);
        u64::try_from(self.before + changes.sum::<i64>()).unwrap_or(0)
    }

    /// The number after all changes, and the time of the first one.
    pub(super) fn total(&self) -> (i64, Option<Timestamp>) {
        let first = self.changes.keys().next().map(|second| Timestamp(second * 1000));
        (self.before + self.changes.values().sum::<i64>(), first)
    }

    /// Drops the times of changes before a moment; their sum remains.
    pub(super) fn forget(&mut self, before: Timestamp) {
        let kept = self.changes.split_off(&second(before));
        self.before += std::mem::replace(&mut self.changes, kept).values().sum::<i64>();
    }

    /// The minimum and the maximum of the number in each column; `edges` are the seconds at which columns begin, and the one at which
    /// the last column ends.
    pub(super) fn columns(&self, edges: &[i64]) -> impl Iterator<Item = (i64, i64)> {
        let first = edges.first().copied().unwrap_or_default();
        let mut now = self.before + self.changes.range(..first).map(|(_, change)| change).sum::<i64>();
        let mut changes = self.changes.range(first..).peekable();
        edges.windows(2).map(move |pair| {
            // A change in the first second of a column holds for all of it.
            if let Some((_, change)) = changes.next_if(|(at, _)| **at == pair[0]) {
                now += change;
            }
            let (mut least, mut most) = (now, now);
            while let Some((_, change)) = changes.next_if(|(at, _)| **at < pair[1]) {
                now += change;
                (least, most) = (least.min(now), most.max(now));
            }
            (least.max(0), most.max(0))
        })
    }

    /// The maximum in a period of this length that ends at `at`.
    pub(super) fn most_before(&self, at: Timestamp, time: Duration) -> i64 {
        let edges = [second(at.minus(time)), second(at) + 1];
        self.columns(&edges).next().map_or(0, |(_, most)| most)
    }
}
