//! Checks limits: the observers that name a key never execute at once in a greater number than its maximum, and no observer
//! waits for a place that is free.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::history::limit_max;
use crate::record::{Fact, Start};
use everwatch_core::id::{LimitKey, ObserverId};
use everwatch_core::record::row::Row;
use std::collections::BTreeSet;

pub(super) fn hear(fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let Fact::Started(start) = fact else { return Ok(()) };
    let Some(row) = known.row(start.id).filter(|_| counts(start, known)) else { return Ok(()) };
    for key in &row.definition.limits {
        *exercised.entry("limits").or_default() += 1;
        let names_key = |id: ObserverId| known.row(id).is_some_and(|row| row.definition.limits.contains(key));
        let others = known.alive.iter().map(|number| &known.starts[number]);
        let others = others.filter(|start| counts(start, known) && names_key(start.id)).map(|start| start.id);
        let running: BTreeSet<ObserverId> = others.chain([start.id]).collect();
        let max = limit_max(key) as usize;
        if running.len() >= max {
            *exercised.entry("full limits").or_default() += 1;
        }
        if running.len() > max {
            let names: Vec<String> = running.into_iter().map(|id| known.name(id)).collect();
            return breach(
                "limits",
                format!("{key} has room for {max}, and these run: {}", names.join(", ")),
            );
        }
    }
    Ok(())
}

/// Whether a run counts. One that the broker has delivered elsewhere overlaps its own observer, as the rules of overlap
/// allow; one whose acknowledged message the broker has brought back from a backup is beyond any rule.
fn counts(start: &Start, known: &Knowledge) -> bool {
    let is_rewound = known.rewound.contains(&(start.id, start.epoch.generation()));
    !is_rewound && !known.taken_back.contains_key(&(start.id, start.epoch))
}

/// Once the faults are over.
pub(super) fn is_in_order(row: &Row, rows: &[Row]) -> Result<(), String> {
    let name = &row.definition.name;
    let users = |key: &LimitKey| {
        rows.iter().filter(|row| row.used_limits().is_some_and(|it| it.contains(key))).count()
    };
    if row.awaits_release() {
        return Err(format!("{name} has ended, and its message is not known to be gone"));
    }
    match row.behind.as_ref().filter(|_| row.is_behind_limit()) {
        Some(key) if users(key) < limit_max(key) as usize => {
            Err(format!("{name} waits for {key}, which has a free place"))
        }
        _ => Ok(()),
    }
}
