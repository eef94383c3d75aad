//! Preemption: which runs give their slots to observers of a higher priority that have waited for a slot long enough.
//!
//! The obvious way ends as many runs as observers wait. But messages that are ready in the queue would take the slots of
//! those runs: the queue knows no priority. So managers first recall the ready messages of lower priorities, and end runs
//! when that is over. And runs that are ending already count as slots, or each look would end further ones.

use crate::capacity::admission::{Offers, PoolCount, Selection};
use crate::capacity::limits::{self, KeyCounts};
use crate::clock::Timestamp;
use crate::id::{Kind, Pool, ServiceId};
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::record::service::{ServiceRow, ServiceState};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most runs that one look ends. [`pause`] follows, so that no minute sees more than twice as many.
pub const AT_ONCE: usize = 30;
/// The most admitted observers that one look reads, and the most that it recalls.
pub const READ_MAX: usize = 500;
/// How long a recall may take before runs end in spite of it.
const RECALLS: Duration = Duration::from_secs(10);
/// A pool is looked at this often while no run ends.
pub const EVERY: Duration = Duration::from_secs(1);

/// The pause after a look: two seconds for each run that it ended, thirty a minute. A recall ends no run.
#[must_use]
pub fn pause(preempted: &[Preempted]) -> Duration {
    let ended = preempted.iter().filter(|it| !it.recalled).count();
    EVERY.max(Duration::from_secs(2) * u32::try_from(ended).unwrap_or(u32::MAX))
}

/// One look at the waiting observers of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    pub pool: &'a Pool,
    /// The living services of all pools.
    pub services: &'a [ServiceRow],
    /// What the active services of the pool offer.
    pub offers: &'a Offers,
    /// How long an observer must have waited for a slot.
    pub after: Duration,
    pub now: Timestamp,
}

/// A run that gives its slot to another observer, or a message that is recalled for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Preempted {
    pub before: Row,
    pub after: Row,
    /// No living service holds it, although its row may still name the last one: its message may be ready in the queue.
    pub recalled: bool,
}

impl Look<'_> {
    fn of_pool(&self) -> impl Iterator<Item = &ServiceRow> {
        self.services.iter().filter(|it| it.registration.pool == *self.pool)
    }

    /// Whether runs may be ended now. The observers of a suspect service may return to the queue at any moment. Where
    /// observers have weights, a freed slot does not tell which observer can use it.
    #[must_use]
    pub fn may_end_runs(&self) -> bool {
        let certain =
            |it: &ServiceRow| it.state() != ServiceState::Suspect && it.registration.weight_max == 1;
        self.of_pool().all(certain)
    }

    /// Which waiting observers to read.
    #[must_use]
    pub fn selections(&self, count: &PoolCount) -> Vec<Selection> {
        let waits = |kind: &&Kind| count.kinds.get(*kind).is_some_and(|it| it.waiting.number > 0);
        let first = |kind: &Kind| Selection::of_any_weight(kind.clone(), AT_ONCE as u64);
        self.offers.keys().filter(waits).map(first).collect()
    }

    /// Rows with an earlier place in the order of preemption have a lower priority than one of these waiting rows, if that
    /// has waited long enough. `None`: none has.
    #[must_use]
    pub fn below(&self, waiting: &[Row]) -> Option<i64> {
        let long_enough = waiting.iter().filter(|row| self.has_waited(row));
        long_enough.map(|row| Row::first_of_priority(row.definition.priority)).max()
    }

    fn has_waited(&self, row: &Row) -> bool {
        row.waiting.is_some_and(|it| self.now.since(it.since) >= self.after)
    }

    /// Decides about the admitted observers of the pool, which come in the order of [`Row::preemption_rank`].
    #[must_use]
    pub fn decide(
        &self,
        count: &PoolCount,
        (mut waiting, mut keys): (Vec<Row>, KeyCounts),
        admitted: &[Row],
        policy: &RowPolicy,
    ) -> Vec<Preempted> {
        if !self.may_end_runs() {
            return Vec::new();
        }
        // What a cordoned service holds uses no slot of the others, so its end would free none.
        let admitted: Vec<&Row> = admitted.iter().filter(|row| !self.is_cordoned(row)).collect();
        waiting.retain(Row::is_waiting);
        waiting.sort_by_cached_key(|row| (row.rank(policy), row.id));
        // An observer behind a limit cannot use a slot.
        waiting.retain(|row| {
            let free = limits::obstacle(row, &keys, policy).is_none();
            if free {
                limits::take(row, &mut keys);
            }
            free
        });
        let mut pairs = Vec::new();
        for group in self.groups(&waiting) {
            pairs.extend(self.pairs(group.as_ref(), count, &waiting, &admitted));
        }
        let recalled: Vec<Pair<'_>> = match pairs.first() {
            None => return Vec::new(),
            Some((_, first)) => {
                let ready = admitted.iter().filter(|row| self.is_ready(row) && is_below(row, first));
                ready.filter(|row| !row.gives_slot_back()).map(|row| (*row, *first)).collect()
            }
        };
        let is_recalled = |row: &&&Row| row.gives_slot_back() && self.is_ready(row);
        let chosen = if !recalled.is_empty() {
            recalled
        } else if admitted.iter().filter(is_recalled).any(|row| self.now.since(row.modified_at) < RECALLS) {
            Vec::new()
        } else {
            pairs.truncate(AT_ONCE);
            pairs
        };
        chosen.into_iter().filter_map(|(row, by)| self.preempted(row, by, policy)).collect()
    }

    fn preempted(&self, before: &Row, by: &Row, policy: &RowPolicy) -> Option<Preempted> {
        let mut after = before.clone();
        let recalled = self.is_ready(before);
        after.give_way_to(by, self.now, policy).then(|| Preempted { before: before.clone(), after, recalled })
    }

    /// Whether no living service holds it: its message may be ready in the queue.
    fn is_ready(&self, row: &Row) -> bool {
        let lives = |id: ServiceId| self.services.iter().any(|it| it.id == id);
        !row.holder().is_some_and(lives)
    }

    fn is_cordoned(&self, row: &Row) -> bool {
        let holder = row.holder().and_then(|holder| self.services.iter().find(|it| it.id == holder));
        holder.is_some_and(|it| it.state() == ServiceState::Cordoned && !it.registration.pool_single)
    }

    /// The kinds that are compared on their own. `None` stands for all: if the services of a pool offer the same kinds,
    /// any run frees a slot for any observer. Otherwise only a run of its own kind surely does.
    fn groups(&self, waiting: &[Row]) -> Vec<Option<Kind>> {
        let kinds = |it: &ServiceRow| -> BTreeSet<Kind> {
            it.registration.kinds.iter().map(|info| info.name.clone()).collect()
        };
        let mut offers = self.of_pool().filter(|it| it.state() == ServiceState::Active).map(kinds);
        let first = offers.next();
        if offers.all(|it| Some(it) == first) {
            return vec![None];
        }
        let mut groups = Vec::new();
        for row in waiting {
            let kind = Some(row.definition.kind.clone());
            if !groups.contains(&kind) {
                groups.push(kind);
            }
        }
        groups
    }

    /// The runs of this group that give their slots to waiting observers, and to whom. Free slots and those of runs that
    /// are ending go to the first waiting ones. The search stops at the first one that gets no slot: those behind it
    /// would lose theirs to it.
    fn pairs<'a>(
        &self,
        group: Option<&Kind>,
        count: &PoolCount,
        waiting: &'a [Row],
        admitted: &[&'a Row],
    ) -> Vec<Pair<'a>> {
        let is_of_group = |row: &&'a Row| group.is_none_or(|kind| row.definition.kind == *kind);
        let of_group: Vec<&Row> = admitted.iter().copied().filter(is_of_group).collect();
        let with_ending = |free: i64, rows: &[&Row]| {
            let ending = rows.iter().filter(|row| row.gives_slot_back()).count();
            free.saturating_add_unsigned(ending as u64)
        };
        let of_pool = with_ending(count.free(), admitted);
        let mut slots = match group {
            None => of_pool,
            Some(kind) => of_pool.min(with_ending(count.free_for(kind, self.offers), &of_group)),
        };
        let mut victims = of_group.into_iter().filter(|row| !row.gives_slot_back());
        let mut pairs = Vec::new();
        for by in waiting.iter().filter(is_of_group) {
            slots -= 1;
            while slots < 0 {
                let victim = victims.next().filter(|row| self.has_waited(by) && is_below(row, by));
                let Some(victim) = victim else { return pairs };
                pairs.push((victim, by));
                slots += 1;
            }
        }
        pairs
    }
}

/// A run, and the waiting observer that gets its slot.
type Pair<'a> = (&'a Row, &'a Row);

fn is_below(row: &Row, other: &Row) -> bool {
    row.definition.priority < other.definition.priority
}

#[cfg(test)]
#[path = "preemption_tests.rs"]
mod tests;
