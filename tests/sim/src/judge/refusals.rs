//! Refusals: while nothing is wrong, what no service can run leaves the queue, so that it takes no slots.

use super::capacity::Capacity;
use super::gaps::could_run;
use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use everwatch_core::capacity::placement::WITHDRAW_AFTER;
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::{Desired, Row};
use std::collections::BTreeMap;

/// How long a refused observer may be in the queue, in ms: a manager looks once a second, when it has caught up with
/// what services have told.
fn refused_max() -> u64 {
    2 * u64::try_from(WITHDRAW_AFTER.as_millis()).unwrap_or(u64::MAX)
}

/// The first managers listen for so long before they conclude from heartbeats what services can run, in ms.
const LISTENS: u64 = 20_000;

#[derive(Default)]
pub(super) struct Refusals {
    /// Since when each observer is refused and no service could run it.
    since: BTreeMap<ObserverId, u64>,
}

impl Refusals {
    pub(super) fn tick(
        &mut self,
        now: u64,
        known: &Knowledge,
        capacity: &Capacity,
        exercised: &mut Exercised,
    ) -> Verdict {
        if now < LISTENS || !known.is_untroubled(now) || known.may_be_crash_looping() {
            self.since.clear();
            return Ok(());
        }
        for row in known.rows().iter() {
            if !is_refused(row) || could_run(now, row, known, capacity) {
                self.since.remove(&row.id);
                continue;
            }
            *exercised.entry("refusals").or_default() += 1;
            let for_ms = now - *self.since.entry(row.id).or_insert(now);
            if for_ms > refused_max() {
                let name = &row.definition.name;
                return breach(
                    "refusals",
                    format!("{name} was refused {for_ms} ms ago and is still in the queue"),
                );
            }
        }
        Ok(())
    }
}

fn is_refused(row: &Row) -> bool {
    let definition = row.desired == Desired::Running && row.observed.settled.is_none() && !row.awaits_end();
    definition && row.observed.refusal().is_some()
}
