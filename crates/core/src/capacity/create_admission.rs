//! Admission of creates: which observers of a batch get their name and a slot. The databases supply the facts; this
//! module decides.

use crate::observer::definition::OnFull;
use crate::record::row::Row;
use crate::record::status::Status;
use std::collections::HashMap;

/// The result of one create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Done,
    /// A live observer has the name.
    NameTaken,
    /// The observer with this name is being deleted.
    NameEnding,
    /// The pool has no free slot, and the observer does not wait for one.
    NoCapacity,
}

/// The facts in the database before the batch.
#[derive(Debug, Clone, Default)]
pub struct Occupancy {
    /// The status of the observer that holds each name of the batch, if one does.
    pub holders: HashMap<String, Status>,
    /// Free slots by pool; a pool without services is missing.
    pub free: HashMap<String, i64>,
}

/// Decides in order: the first observer with a name gets it, and each admitted observer uses a slot.
#[must_use]
pub fn admit(rows: &[Row], mut occupancy: Occupancy) -> Vec<Created> {
    rows.iter().map(|row| admit_one(row, &mut occupancy)).collect()
}

fn admit_one(row: &Row, occupancy: &mut Occupancy) -> Created {
    let name = row.definition.name.as_str();
    if let Some(holder) = occupancy.holders.get(name) {
        return refused_by(Some(*holder));
    }
    if row.verdict().status.uses_slot() {
        let free = occupancy.free.entry(row.definition.pool.to_string()).or_insert(0);
        if *free <= 0 && row.definition.on_full == OnFull::Reject {
            return Created::NoCapacity;
        }
        *free -= 1;
    }
    occupancy.holders.insert(name.to_owned(), row.verdict().status);
    Created::Done
}

/// The refusal of a name whose holder has this status; `None` if the holder is unknown.
#[must_use]
pub fn refused_by(holder: Option<Status>) -> Created {
    match holder {
        Some(Status::OnDeleting) => Created::NameEnding,
        _ => Created::NameTaken,
    }
}

/// The names whose holders the decision needs.
#[must_use]
pub fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.definition.name.as_str()).collect()
}

/// The pools whose free slots the decision needs: those of observers that need a slot at once.
#[must_use]
pub fn counted_pools(rows: &[Row]) -> Vec<String> {
    let needs_slot =
        |row: &&Row| row.definition.on_full == OnFull::Reject && row.verdict().status.uses_slot();
    let mut pools: Vec<String> =
        rows.iter().filter(needs_slot).map(|row| row.definition.pool.to_string()).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row_policy::RowPolicy;
    use serde_json::{Value, json};
    use uuid::Uuid;

    fn row(name: &str, more: &Value) -> Row {
        let mut definition = json!({"kind": "ticker"});
        definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let definition = ObserverDefinition::parse(definition, &Name::new(name).unwrap()).unwrap();
        Row::created(ObserverId(Uuid::new_v4()), definition, Timestamp(0), &RowPolicy::default())
    }
    fn reject(name: &str) -> Row {
        row(name, &json!({"on_full": "reject"}))
    }
    fn queue(name: &str) -> Row {
        row(name, &json!({"on_full": "queue"}))
    }
    fn occupancy(free: i64) -> Occupancy {
        let free = HashMap::from([("default".to_owned(), free)]);
        Occupancy { free, ..Occupancy::default() }
    }

    #[test]
    fn the_first_observer_with_a_name_gets_it() {
        let rows = [queue("a"), queue("a"), queue("b")];
        assert_eq!(admit(&rows, occupancy(5)), [Created::Done, Created::NameTaken, Created::Done]);
        let mut held = occupancy(5);
        held.holders.insert("a".to_owned(), Status::OnDeleting);
        held.holders.insert("b".to_owned(), Status::Processing);
        assert_eq!(admit(&rows, held), [Created::NameEnding, Created::NameEnding, Created::NameTaken]);
    }

    #[test]
    fn observers_that_wait_use_the_slots_of_those_that_do_not() {
        let rows = [reject("a"), queue("b"), reject("c"), queue("d")];
        let done = Created::Done;
        assert_eq!(admit(&rows, occupancy(3)), [done; 4]);
        assert_eq!(admit(&rows, occupancy(2)), [done, done, Created::NoCapacity, done]);
        assert_eq!(admit(&rows, occupancy(0)), [Created::NoCapacity, done, Created::NoCapacity, done]);
    }

    #[test]
    fn a_pool_without_services_and_a_refused_name_take_no_slot() {
        assert_eq!(admit(&[reject("a")], Occupancy::default()), [Created::NoCapacity]);
        let rows = [reject("a"), reject("a"), reject("b")];
        assert_eq!(admit(&rows, occupancy(2)), [Created::Done, Created::NameTaken, Created::Done]);
    }

    #[test]
    fn only_pools_of_observers_that_do_not_wait_are_counted() {
        let paused = row("d", &json!({"on_full": "reject", "pool": "x"})).created_paused();
        let rows = [
            queue("a"),
            reject("b"),
            reject("c"),
            row("e", &json!({"on_full": "queue", "pool": "y"})),
            paused,
        ];
        assert_eq!(counted_pools(&rows), ["default"]);
    }
}
