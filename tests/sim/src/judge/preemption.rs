//! Checks preemption: a run gives its slot only to an observer of a higher priority that has waited for one long enough,
//! and no more runs end than such observers wait.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::record::row::{Row, Slot};
use everwatch_core::record::service::ServiceState;
use std::collections::BTreeSet;

/// Checks against the rows right after the commit.
pub(super) fn hear(fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let Fact::Saved { before: Some(before), after, .. } = fact else { return Ok(()) };
    let Some(preempted) = after.preempted.as_ref().filter(|_| before.preempted.is_none()) else {
        return Ok(());
    };
    *exercised.entry("preemptions").or_default() += 1;
    let name = &after.definition.name;
    let Some(by) = &preempted.by else {
        return breach("preemption", format!("{name} gives way to an observer that is not named"));
    };
    let Some(needed) = known.setup.preempt_after_ms else {
        return breach("preemption", format!("{name} gives way to {by}, and preemption is off"));
    };
    let rows = known.rows();
    let of_pool: Vec<&Row> = rows.iter().filter(|row| row.definition.pool == after.definition.pool).collect();
    let is_above = |row: &&&Row| row.is_waiting() && row.definition.priority > after.definition.priority;
    let above: Vec<&&Row> = of_pool.iter().filter(is_above).collect();
    let waited = |row: &Row| row.waiting.map(|it| after.modified_at.since(it.since).as_millis());
    let has_waited = |row: &Row| waited(row).is_some_and(|waited| waited >= u128::from(needed));
    if !above.iter().filter(|row| row.definition.name == *by).any(|row| has_waited(row)) {
        let text = format!("{name} gives way to {by}, which has no higher priority or has not waited");
        return breach("preemption", text);
    }
    if known.safe_mode_since.is_some() {
        return breach("preemption", format!("{name} gives way in safe mode"));
    }
    let services = known.services();
    let of_state = |state: ServiceState| {
        services.iter().filter(move |it| it.registration.pool == after.definition.pool && it.state() == state)
    };
    let cordoned: BTreeSet<_> = of_state(ServiceState::Cordoned).map(|it| it.id).collect();
    let slots: usize = of_state(ServiceState::Active).map(|it| it.capacity() as usize).sum();
    let uses = |row: &&&Row| {
        row.slot() == Slot::Admitted && !row.holder().is_some_and(|holder| cordoned.contains(&holder))
    };
    let used = of_pool.iter().filter(uses).count();
    let ending = of_pool.iter().filter(uses).filter(|row| row.gives_slot_back()).count();
    if slots + ending > used + above.len() {
        let text = format!(
            "{name} gives way: {ending} of {used} runs in {slots} slots are ending for {} observers",
            above.len()
        );
        return breach("preemption", text);
    }
    Ok(())
}
