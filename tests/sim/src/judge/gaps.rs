//! Checks gaps: while nothing is wrong and a slot is free, every observer that should run does so within a
//! second, whatever operators request.

use super::capacity::Capacity;
use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::machine::EPOCH_MS;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::Overlap;
use everwatch_core::record::row::{Desired, Row};
use std::collections::{BTreeMap, BTreeSet};

/// The longest gap, in ms. Where overlap is forbidden, a second more (twice the grace period of the fence) is
/// allowed.
const GAP_MAX: u64 = 1000;
/// The pause between two looks, in ms.
pub(crate) const LOOK: u64 = 250;

#[derive(Default)]
pub(super) struct Gaps {
    /// The time since which each observer could run but does not.
    since: BTreeMap<ObserverId, u64>,
}

impl Gaps {
    pub(super) fn tick(
        &mut self,
        now: u64,
        known: &Knowledge,
        capacity: &Capacity,
        exercised: &mut Exercised,
    ) -> Verdict {
        if !known.is_untroubled(now) || known.may_be_crash_looping() {
            self.since.clear();
            return Ok(());
        }
        let running: BTreeSet<ObserverId> = known.alive.iter().map(|start| known.starts[start].id).collect();
        for row in known.rows().iter() {
            if running.contains(&row.id) || !could_run(now, row, known, capacity) {
                self.since.remove(&row.id);
                continue;
            }
            *exercised.entry("gaps").or_default() += 1;
            let gap = now - *self.since.entry(row.id).or_insert(now);
            let forbids = row.definition.overlap == Overlap::Forbid;
            // A service that cannot run the observer holds its message for a second before another service
            // receives it.
            let refused = known.setup.may_be_refused(&row.definition);
            let most = if forbids || refused { 2 * GAP_MAX } else { GAP_MAX };
            if gap > most + LOOK {
                let text = format!(
                    "{} has not run for {gap} ms, and a slot is free for it: {}",
                    row.definition.name,
                    row.verdict().reason
                );
                return breach("gaps", text);
            }
        }
        Ok(())
    }
}

/// Whether an observer that does not run should run and could: its code waits for nothing, and a capable
/// service has a free slot.
pub(super) fn could_run(now: u64, row: &Row, known: &Knowledge, capacity: &Capacity) -> bool {
    let is_live = row.desired == Desired::Running && row.observed.settled.is_none() && !row.awaits_end();
    let is_over = row.is_past_finish(Timestamp(EPOCH_MS + i64::try_from(now).unwrap()));
    if !is_live
        || is_over
        || row.waiting.is_some()
        || known.setup.services.iter().any(|it| it.start_rate > 0.0)
    {
        return false;
    }
    // The code waits for its next attempt or has ended by itself.
    if known.stopped_at.get(&row.id).is_some_and(|(_, own)| own.is_some()) {
        return false;
    }
    (1..=known.setup.services.len()).any(|host| {
        let setup = &known.setup.services[host - 1];
        let (state, offers) =
            (&known.hosts[host], setup.pool == row.definition.pool && setup.can_run(&row.definition));
        offers && state.up && !state.frozen && !state.stopping && capacity.free_slots(now, host, known) > 0
    })
}
