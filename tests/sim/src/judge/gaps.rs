//! Gaps: while nothing is wrong and a slot is free, an observer that is to run runs within a second, whatever
//! operators ask for meanwhile.

use super::capacity::Capacity;
use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::Overlap;
use everwatch_core::record::row::{Desired, Row};
use std::collections::{BTreeMap, BTreeSet};

/// The longest gap, in ms: a second, and a second more where overlap is forbidden (twice the fence's grace).
const GAP_MAX: u64 = 1000;
/// The pause between two looks, in ms.
pub(crate) const LOOK: u64 = 250;

#[derive(Default)]
pub(super) struct Gaps {
    /// Since when each observer could run and does not.
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
            // A service that cannot run it holds its message for a second before another one has it.
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

/// Whether one that does not run is to run, and nothing of its own holds it up.
pub(super) fn could_run(now: u64, row: &Row, known: &Knowledge, capacity: &Capacity) -> bool {
    let definition = row.desired == Desired::Running && row.observed.settled.is_none() && !row.awaits_end();
    if !definition || known.setup.services.iter().any(|it| it.start_rate > 0.0) {
        return false;
    }
    // Code that waits for its next attempt or has ended by itself.
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
