//! Checks admission: an observer gets a slot only while its pool has one, and none gets it before another one of its
//! kind that comes first in the backlog.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::id::Pool;
use everwatch_core::record::row::{Row, Slot};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::{ServiceRow, ServiceState};
use std::collections::BTreeSet;

pub(super) fn hear(fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let Fact::Saved { request, before, after, .. } = fact else { return Ok(()) };
    let was_waiting = before.as_ref().is_some_and(|before| before.is_waiting());
    let is_admitted = after.slot() == Slot::Admitted && after.publish_lease.is_some();
    let is_new = before.is_none() && is_admitted;
    // A report of a later generation ends a wait, too: the database is an old copy.
    if !(is_new || was_waiting && is_admitted && request.is_none()) {
        return Ok(());
    }
    *exercised.entry("slots").or_default() += 1;
    has_slot(after, known)?;
    match before {
        Some(before) => is_first(before, known, exercised),
        None => Ok(()),
    }
}

/// Checks against the rows right after the commit.
fn has_slot(admitted: &Row, known: &Knowledge) -> Verdict {
    let pool: &Pool = &admitted.definition.pool;
    let services = known.services();
    let of_pool = |state: ServiceState| {
        services.iter().filter(move |it| it.registration.pool == *pool && it.state() == state)
    };
    // Not by the function of the manager, which may be wrong.
    let certain_slots =
        |it: &ServiceRow| (u64::from(it.capacity()) + 1).saturating_sub(it.registration.weight_max.into());
    let certain_messages = |it: &ServiceRow| u64::from(it.capacity()) / u64::from(it.registration.weight_max);
    let slots: u64 = of_pool(ServiceState::Active).map(certain_slots).sum();
    let messages: u64 = of_pool(ServiceState::Active).map(certain_messages).sum();
    let cordoned: BTreeSet<_> = of_pool(ServiceState::Cordoned).map(|it| it.id).collect();
    let rows = known.rows();
    let uses = |row: &&Row| {
        row.definition.pool == *pool
            && row.slot() == Slot::Admitted
            && !row.holder().is_some_and(|holder| cordoned.contains(&holder))
    };
    let weights: Vec<u64> = rows.iter().filter(uses).map(|row| row.definition.weight.into()).collect();
    let (number, weight) = (weights.len() as u64, weights.iter().sum::<u64>());
    if weight > slots && number > messages {
        let name = &admitted.definition.name;
        let text = format!(
            "{name} is admitted to pool {pool}: {number} of {messages} with {weight} of {slots} slots"
        );
        return breach("slots", text);
    }
    Ok(())
}

fn is_first(admitted: &Row, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let (policy, definition) = (RowPolicy::default(), &admitted.definition);
    let rows = known.rows();
    let mut others = rows.iter().filter(|row| {
        row.is_waiting()
            && row.definition.pool == definition.pool
            && row.definition.kind == definition.kind
            // A lighter one passes in every other minute.
            && row.definition.weight <= definition.weight
            && known.told_waiting.contains(&row.id)
            && !row.waits_for_lists()
            && (known.safe_mode_since.is_none() || row.definition.limits.is_empty())
    });
    if others.clone().next().is_some() {
        *exercised.entry("order").or_default() += 1;
    }
    match others.find(|other| (other.rank(&policy), other.id) < (admitted.rank(&policy), admitted.id)) {
        Some(other) => {
            let text = format!("{} is admitted before {}", definition.name, other.definition.name);
            breach("order", text)
        }
        None => Ok(()),
    }
}
