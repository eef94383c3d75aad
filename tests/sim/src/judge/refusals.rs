//! Checks refusals: while nothing is wrong, managers withdraw the messages of observers that no service can
//! run, so that they take no slots.

use super::capacity::Capacity;
use super::gaps::could_run;
use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use everwatch_core::capacity::placement::WITHDRAW_AFTER;
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::{Desired, Row};
use std::collections::BTreeMap;

/// How long a refused observer's message may stay in the queue, in ms. A manager checks once a second, once
/// it has applied the reports of the services.
fn refused_max() -> u64 {
    2 * u64::try_from(WITHDRAW_AFTER.as_millis()).unwrap_or(u64::MAX)
}

/// How long the first managers listen before they conclude from heartbeats what services can run, in ms.
const LISTENS: u64 = 20_000;

#[derive(Default)]
pub(super) struct Refusals {
    /// The time since which each observer has been refused and no service could run it.
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
        // In safe mode, managers withdraw nothing.
        let is_safe_mode = known.safe_mode_since.is_some();
        if now < LISTENS || is_safe_mode || !known.is_untroubled(now) || known.may_be_crash_looping() {
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
