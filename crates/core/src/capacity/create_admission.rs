//! Admission of creates: which observers of a batch get their name, and which of those a slot at once. The databases supply the facts; this
//! module decides.

use crate::capacity::admission::PoolCount;
use crate::observer::definition::OnFull;
use crate::record::row::{Row, Slot};
use crate::record::status::Status;
use std::borrow::Cow;
use std::collections::HashMap;

/// The result of one create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It is stored as it was sent.
    Done,
    /// It is stored as [`Row::created_waiting`]: its pool has no free slot for it.
    Waits,
    /// A live observer has the name.
    NameTaken,
    /// The observer with this name is being deleted.
    NameEnding,
    /// The pool has no free slot, and the observer does not wait for one.
    NoCapacity,
}

impl Created {
    /// Whether the observer is stored.
    #[must_use]
    pub fn is_stored(self) -> bool {
        match self {
            Self::Done | Self::Waits => true,
            Self::NameTaken | Self::NameEnding | Self::NoCapacity => false,
        }
    }

    /// The row as it is stored; `None` if it is refused.
    #[must_use]
    pub fn stored(self, row: &Row) -> Option<Cow<'_, Row>> {
        match self {
            Self::Done => Some(Cow::Borrowed(row)),
            Self::Waits => Some(Cow::Owned(row.clone().created_waiting())),
            Self::NameTaken | Self::NameEnding | Self::NoCapacity => None,
        }
    }
}

/// The facts in the database before the batch.
#[derive(Debug, Clone, Default)]
pub struct Occupancy {
    /// The status of the observer that holds each name of the batch, if one does.
    pub holders: HashMap<String, Status>,
    /// The counts of pools; a pool without services and observers is missing.
    pub pools: HashMap<String, PoolCount>,
}

/// The slots of a pool while a batch is decided.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    free: i64,
    /// Free slots, and what may be published beyond them.
    open: i64,
    waiting: i64,
}

/// Decides in order: the first observer with a name gets it, and each admitted observer uses a slot. None passes
/// observers that wait already.
#[must_use]
pub fn admit(rows: &[Row], occupancy: Occupancy) -> Vec<Created> {
    let Occupancy { mut holders, pools } = occupancy;
    let room = |count: PoolCount| Room {
        free: count.free(),
        open: count.open(),
        waiting: i64::try_from(count.waiting()).unwrap_or(i64::MAX),
    };
    let mut rooms = pools.into_iter().map(|(pool, count)| (pool, room(count))).collect();
    rows.iter().map(|row| admit_one(row, &mut holders, &mut rooms)).collect()
}

/// Whether it takes a slot. An observer that a manager has adopted has a message, and so a slot.
fn needs_slot(row: &Row) -> bool {
    row.slot() == Slot::Admitted && row.publish_lease.is_some()
}

fn admit_one(row: &Row, holders: &mut HashMap<String, Status>, rooms: &mut HashMap<String, Room>) -> Created {
    let name = row.definition.name.as_str();
    if let Some(holder) = holders.get(name) {
        return refused_by(Some(*holder));
    }
    let mut created = Created::Done;
    if needs_slot(row) {
        let room = rooms.entry(row.definition.pool.to_string()).or_default();
        if room.free <= room.waiting && row.definition.on_full == OnFull::Reject {
            return Created::NoCapacity;
        }
        if room.open <= 0 || room.waiting > 0 {
            room.waiting += 1;
            created = Created::Waits;
        } else {
            (room.free, room.open) = (room.free - 1, room.open - 1);
        }
    }
    holders.insert(name.to_owned(), row.verdict().status);
    created
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

/// The pools whose counts the decision needs: those of observers that take a slot at once.
#[must_use]
pub fn counted_pools(rows: &[Row]) -> Vec<String> {
    let mut pools: Vec<String> =
        rows.iter().filter(|row| needs_slot(row)).map(|row| row.definition.pool.to_string()).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::admission::KindCount;
    use crate::clock::Timestamp;
    use crate::id::{Kind, Name, ObserverId};
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
    /// A pool with these free slots, in which so many observers wait.
    fn occupancy(free: u64, waiting: u64) -> Occupancy {
        let kinds = [(Kind::new("ticker").unwrap(), KindCount { admitted: 4, waiting })].into();
        let pools =
            HashMap::from([("default".to_owned(), PoolCount { capacity: free + 4, ahead: 0, kinds })]);
        Occupancy { pools, ..Occupancy::default() }
    }

    #[test]
    fn the_first_observer_with_a_name_gets_it() {
        let rows = [queue("a"), queue("a"), queue("b")];
        assert_eq!(admit(&rows, occupancy(5, 0)), [Created::Done, Created::NameTaken, Created::Done]);
        let mut held = occupancy(5, 0);
        held.holders.insert("a".to_owned(), Status::OnDeleting);
        held.holders.insert("b".to_owned(), Status::Processing);
        assert_eq!(admit(&rows, held), [Created::NameEnding, Created::NameEnding, Created::NameTaken]);
    }

    #[test]
    fn observers_without_a_slot_wait_or_are_refused() {
        use Created::{Done, NoCapacity, Waits};
        let rows = [reject("a"), queue("b"), reject("c"), queue("d")];
        assert_eq!(admit(&rows, occupancy(4, 0)), [Done; 4]);
        assert_eq!(admit(&rows, occupancy(3, 0)), [Done, Done, Done, Waits]);
        assert_eq!(admit(&rows, occupancy(2, 0)), [Done, Done, NoCapacity, Waits]);
        assert_eq!(admit(&rows, occupancy(0, 0)), [NoCapacity, Waits, NoCapacity, Waits]);
        let after_a_loss = PoolCount { capacity: 0, ..occupancy(0, 0).pools["default"].clone() };
        let over = Occupancy { pools: [("default".to_owned(), after_a_loss)].into(), ..Occupancy::default() };
        assert_eq!(admit(&rows, over), [NoCapacity, Waits, NoCapacity, Waits]);
    }

    #[test]
    fn what_is_published_ahead_leaves_no_slot_for_those_that_do_not_wait() {
        use Created::{Done, NoCapacity, Waits};
        let mut ahead = occupancy(1, 0);
        ahead.pools.get_mut("default").unwrap().ahead = 2;
        let rows = [queue("a"), queue("b"), reject("c"), queue("d"), queue("e")];
        assert_eq!(admit(&rows, ahead), [Done, Done, NoCapacity, Done, Waits]);
    }

    /// Of three free slots, two belong to those that wait.
    #[test]
    fn a_create_does_not_pass_observers_that_wait() {
        use Created::{NoCapacity, Waits};
        let rows = [queue("a"), reject("b"), queue("c")];
        assert_eq!(admit(&rows, occupancy(3, 2)), [Waits, NoCapacity, Waits]);
        assert_eq!(
            admit(&rows[1..], occupancy(3, 2)),
            [Waits, Waits],
            "the manager admits the first one next"
        );
    }

    #[test]
    fn a_pool_without_services_and_a_refused_name_take_no_slot() {
        assert_eq!(
            admit(&[reject("a"), queue("b")], Occupancy::default()),
            [Created::NoCapacity, Created::Waits]
        );
        let rows = [reject("a"), reject("a"), reject("b")];
        assert_eq!(admit(&rows, occupancy(2, 0)), [Created::Done, Created::NameTaken, Created::Done]);
    }

    #[test]
    fn observers_that_need_no_slot_are_stored_as_they_are() {
        let paused = row("d", &json!({"on_full": "reject", "pool": "x"})).created_paused();
        let mut adopted = row("e", &json!({"pool": "y"}));
        adopted.confirmed(1, Timestamp(1));
        let rows = [queue("a"), reject("b"), paused, adopted];
        assert_eq!(counted_pools(&rows), ["default"]);
        assert_eq!(admit(&rows[2..], Occupancy::default()), [Created::Done; 2]);
    }

    #[test]
    fn what_waits_is_stored_without_a_publish() {
        let row = queue("a");
        assert_eq!(Created::Done.stored(&row).as_deref(), Some(&row));
        let waits = Created::Waits.stored(&row).unwrap();
        assert_eq!((waits.generation, waits.publish_lease, waits.is_waiting()), (0, None, true));
        assert_eq!(Created::NameTaken.stored(&row), None);
    }
}
