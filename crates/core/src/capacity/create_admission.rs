//! Admission of creates: which observers of a batch get their name, and which of these get a slot immediately. The
//! databases supply the facts; this module decides.

use crate::capacity::admission::{Offers, PoolCount, PoolOffers};
use crate::capacity::namespace::NamespaceRoom;
use crate::capacity::supply::Load;
use crate::id::{Kind, LimitKey, Namespace, Pool};
use crate::observer::definition::OnFull;
use crate::record::row::{Row, Slot};
use crate::record::status::Status;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// The pool has no free slot for it, and the observer does not wait for one.
    NoCapacity,
    /// The pool has free slots, but no service that offers its kind has one, and the observer does not wait.
    NoCapacityForKind,
    /// A limit has no free place for it, and the observer does not wait for one.
    LimitReached,
    /// Its namespace does not exist.
    NamespaceMissing,
    /// Its namespace may not use its pool.
    PoolNotAllowed,
    /// Its namespace has as many observers as its quota permits.
    ObserversQuota,
    /// Its namespace has no creates left until some return.
    CreatesQuota,
}

impl Created {
    /// Whether the observer is stored.
    #[must_use]
    pub fn is_stored(self) -> bool {
        matches!(self, Self::Done | Self::Waits)
    }

    /// The row as it is stored; `None` if it is refused.
    #[must_use]
    pub fn stored(self, row: &Row) -> Option<Cow<'_, Row>> {
        match self {
            Self::Done => Some(Cow::Borrowed(row)),
            Self::Waits => Some(Cow::Owned(row.clone().created_waiting())),
            Self::NameTaken
            | Self::NameEnding
            | Self::NoCapacity
            | Self::NoCapacityForKind
            | Self::LimitReached
            | Self::NamespaceMissing
            | Self::PoolNotAllowed
            | Self::ObserversQuota
            | Self::CreatesQuota => None,
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
    /// The free places of the keys of [`counted_limits`] that no observer waits for.
    pub limits: BTreeMap<LimitKey, u64>,
    /// What is left of the namespaces of [`namespaces`]; a namespace that does not exist is missing.
    pub namespaces: BTreeMap<Namespace, NamespaceRoom>,
}

/// The slots of a pool while a batch is decided.
#[derive(Debug, Default)]
struct Room<'a> {
    count: PoolCount,
    /// `None` if no active service is known: then no kind has a limit of its own.
    offers: Option<&'a Offers>,
    /// The admitted observers.
    admitted: Load,
    /// What belongs to waiting observers of the free slots.
    claimed: Load,
    /// What this batch has used or claimed, by kind.
    taken: HashMap<Kind, Load>,
}

impl<'a> Room<'a> {
    fn of(count: PoolCount, offers: Option<&'a Offers>) -> Self {
        let waiting = || count.kinds.values().fold(Load::default(), |sum, it| sum.and(it.waiting));
        Self {
            admitted: count.admitted(),
            claimed: offers.map_or_else(waiting, |offers| count.claims(offers)),
            count,
            offers,
            taken: HashMap::new(),
        }
    }

    /// Whether the services that offer this kind can have one more. A kind that none offers was refused before, or its
    /// service registered a moment ago.
    fn has_room_for(&self, row: &Row) -> bool {
        let (kind, weight) = (&row.definition.kind, row.definition.weight);
        let Some(offers) = self.offers.filter(|offers| offers.contains_key(kind)) else { return true };
        let ahead = if row.definition.on_full == OnFull::Reject { 0 } else { self.count.ahead };
        let Some(offered) = self.count.offered(kind, weight, offers, ahead) else { return false };
        let known = self.count.kinds.get(kind).copied().unwrap_or_default();
        let taken = self.taken.get(kind).copied().unwrap_or_default();
        offered.holds(known.admitted.and(known.waiting).and(taken).and(Load::of(row)))
    }

    fn admit(&mut self, row: &Row) -> Created {
        let (kind, on_full, own) = (&row.definition.kind, row.definition.on_full, Load::of(row));
        let has_room = self.has_room_for(row);
        if on_full == OnFull::Reject && !self.count.supply.holds(self.admitted.and(self.claimed).and(own)) {
            return Created::NoCapacity;
        }
        if on_full == OnFull::Reject && !has_room {
            return Created::NoCapacityForKind;
        }
        let taken = self.taken.entry(kind.clone()).or_default();
        *taken = taken.and(own);
        if !has_room {
            return Created::Waits;
        }
        let open = self.count.supply.and_ahead(self.count.ahead);
        if self.claimed != Load::default() || !open.holds(self.admitted.and(own)) {
            self.claimed = self.claimed.and(own);
            return Created::Waits;
        }
        self.admitted = self.admitted.and(own);
        Created::Done
    }
}

/// Decides in order: the first observer with a name gets it, and each admitted observer uses a slot. None takes a slot
/// that a waiting observer can have.
#[must_use]
pub fn admit(rows: &[Row], occupancy: Occupancy, offers: &PoolOffers) -> Vec<Created> {
    let Occupancy { mut holders, mut pools, mut limits, mut namespaces } = occupancy;
    let mut rooms: HashMap<&Pool, Room<'_>> = HashMap::new();
    let mut decided = Vec::with_capacity(rows.len());
    for row in rows {
        let (name, pool) = (row.definition.name_key(), &row.definition.pool);
        if let Some(holder) = holders.get(&name) {
            decided.push(refused_by(Some(*holder)));
            continue;
        }
        let namespace = &row.definition.namespace;
        if let Some(refused) = refused_in(row, namespaces.get(namespace)) {
            decided.push(refused);
            continue;
        }
        let mut room = || {
            let mut count = || pools.remove(pool.as_str()).unwrap_or_default();
            let room = rooms.entry(pool).or_insert_with(|| Room::of(count(), offers.get(pool)));
            room.admit(row)
        };
        let created = if !needs_slot(row) {
            Created::Done
        } else if row.definition.limits.is_empty() {
            room()
        } else if row.definition.on_full == OnFull::Queue {
            // An admission gives it a slot and its places at the same time.
            Created::Waits
        } else if row.definition.limits.iter().any(|key| limits.get(key).is_none_or(|free| *free == 0)) {
            Created::LimitReached
        } else {
            match room() {
                Created::Done | Created::Waits => {
                    row.definition.limits.iter().for_each(|key| take(&mut limits, key));
                    Created::Waits
                }
                refused => refused,
            }
        };
        if created.is_stored() {
            holders.insert(name, row.verdict().status);
            if let Some(room) = namespaces.get_mut(namespace).filter(|_| !is_adopted(row)) {
                room.take();
            }
        }
        decided.push(created);
    }
    decided
}

/// The refusal of an observer by its namespace. One that a manager has adopted exists already.
fn refused_in(row: &Row, room: Option<&NamespaceRoom>) -> Option<Created> {
    if is_adopted(row) {
        return None;
    }
    let Some(room) = room else {
        return (!row.definition.namespace.is_default()).then_some(Created::NamespaceMissing);
    };
    if !room.has_pool(&row.definition.pool) {
        return Some(Created::PoolNotAllowed);
    }
    if room.observers == Some(0) {
        return Some(Created::ObserversQuota);
    }
    (room.creates == Some(0)).then_some(Created::CreatesQuota)
}

fn is_adopted(row: &Row) -> bool {
    row.slot() == Slot::Admitted && row.publish_lease.is_none()
}

/// The number of creates in each namespace that are stored and count towards its quotas.
#[must_use]
pub fn counted_creates(rows: &[Row], created: &[Created]) -> BTreeMap<Namespace, u64> {
    let mut counts = BTreeMap::new();
    let stored = rows.iter().zip(created).filter(|(row, created)| created.is_stored() && !is_adopted(row));
    for (row, _) in stored {
        *counts.entry(row.definition.namespace.clone()).or_default() += 1;
    }
    counts
}

fn take(limits: &mut BTreeMap<LimitKey, u64>, key: &LimitKey) {
    if let Some(free) = limits.get_mut(key) {
        *free -= 1;
    }
}

/// Whether it takes a slot. An observer that a manager has adopted has a message, and so a slot.
fn needs_slot(row: &Row) -> bool {
    row.slot() == Slot::Admitted && row.publish_lease.is_some()
}

/// The refusal of a name whose holder has this status; `None` if the holder is unknown.
#[must_use]
pub fn refused_by(holder: Option<Status>) -> Created {
    match holder {
        Some(Status::OnDeleting) => Created::NameEnding,
        _ => Created::NameTaken,
    }
}

/// The names whose holders the decision needs, each qualified by its namespace.
#[must_use]
pub fn names(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.definition.name_key()).collect()
}

/// The namespaces whose quotas the decision needs, in order: two transactions lock them in the same order.
#[must_use]
pub fn namespaces(rows: &[Row]) -> Vec<Namespace> {
    let all: BTreeSet<&Namespace> = rows.iter().map(|row| &row.definition.namespace).collect();
    all.into_iter().cloned().collect()
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

/// The keys whose places must be counted for the decision: those that observers with `on_full = reject` name.
#[must_use]
pub fn counted_limits(rows: &[Row]) -> Vec<String> {
    let counted = rows.iter().filter(|row| needs_slot(row) && row.definition.on_full == OnFull::Reject);
    let keys: BTreeSet<&LimitKey> = counted.flat_map(|row| &row.definition.limits).collect();
    keys.into_iter().map(LimitKey::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::admission::KindCount;
    use crate::capacity::supply::Supply;
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
    fn light(number: u64) -> Load {
        Load { number, weight: number }
    }
    /// A pool with this number of free slots and of waiting observers.
    fn occupancy(free: u32, waiting: u64) -> Occupancy {
        let kinds =
            [(Kind::new("ticker").unwrap(), KindCount { admitted: light(4), waiting: light(waiting) })]
                .into();
        let supply = Supply::of(free + 4, 1);
        let pools = HashMap::from([("default".to_owned(), PoolCount { supply, ahead: 0, kinds })]);
        Occupancy { pools, ..Occupancy::default() }
    }

    /// The services of the default pool offer this number of slots for tickers.
    fn offered(slots: u32) -> PoolOffers {
        [(Pool::default(), [(Kind::new("ticker").unwrap(), Supply::of(slots, 1).into())].into())].into()
    }

    #[test]
    fn observers_of_a_full_kind_wait_and_block_no_other_kind() {
        use Created::{Done, NoCapacityForKind, Waits};
        // Of ten free slots, none can run `exec`, and three observers wait for one that can.
        let mut busy = occupancy(10, 0);
        let exec = Kind::new("exec").unwrap();
        let count = busy.pools.get_mut("default").unwrap();
        count.kinds.insert(exec.clone(), KindCount { admitted: light(2), waiting: light(3) });
        count.supply = count.supply.and(Supply::of(2, 1));
        let mut offers = offered(16);
        offers.get_mut(&Pool::default()).unwrap().insert(exec, Supply::of(2, 1).into());
        let exec = |name: &str, on_full: &str| row(name, &json!({"kind": "exec", "on_full": on_full}));
        let rows = [reject("a"), queue("b"), exec("c", "queue"), exec("d", "reject"), reject("e")];
        assert_eq!(admit(&rows, busy, &offers), [Done, Done, Waits, NoCapacityForKind, Done]);
        // A batch counts its own observers, too.
        let rows = [reject("a"), reject("b"), queue("c")];
        assert_eq!(admit(&rows, occupancy(9, 0), &offered(5)), [Done, NoCapacityForKind, Waits]);
    }

    #[test]
    fn the_first_observer_with_a_name_gets_it() {
        let rows = [queue("a"), queue("a"), queue("b")];
        assert_eq!(
            admit(&rows, occupancy(5, 0), &offered(100)),
            [Created::Done, Created::NameTaken, Created::Done]
        );
        let mut held = occupancy(5, 0);
        held.holders.insert("a".to_owned(), Status::OnDeleting);
        held.holders.insert("b".to_owned(), Status::Processing);
        assert_eq!(
            admit(&rows, held, &offered(100)),
            [Created::NameEnding, Created::NameEnding, Created::NameTaken]
        );
    }

    #[test]
    fn observers_without_a_slot_wait_or_are_refused() {
        use Created::{Done, NoCapacity, Waits};
        let rows = [reject("a"), queue("b"), reject("c"), queue("d")];
        assert_eq!(admit(&rows, occupancy(4, 0), &offered(100)), [Done; 4]);
        assert_eq!(admit(&rows, occupancy(3, 0), &offered(100)), [Done, Done, Done, Waits]);
        assert_eq!(admit(&rows, occupancy(2, 0), &offered(100)), [Done, Done, NoCapacity, Waits]);
        assert_eq!(admit(&rows, occupancy(0, 0), &offered(100)), [NoCapacity, Waits, NoCapacity, Waits]);
        let after_a_loss =
            PoolCount { supply: Supply::default(), ..occupancy(0, 0).pools["default"].clone() };
        let over = Occupancy { pools: [("default".to_owned(), after_a_loss)].into(), ..Occupancy::default() };
        assert_eq!(admit(&rows, over, &offered(100)), [NoCapacity, Waits, NoCapacity, Waits]);
    }

    #[test]
    fn what_is_published_ahead_leaves_no_slot_for_those_that_do_not_wait() {
        use Created::{Done, NoCapacity, Waits};
        let mut ahead = occupancy(1, 0);
        ahead.pools.get_mut("default").unwrap().ahead = 2;
        let rows = [queue("a"), queue("b"), reject("c"), queue("d"), queue("e")];
        assert_eq!(admit(&rows, ahead, &offered(100)), [Done, Done, NoCapacity, Done, Waits]);
    }

    /// Of three free slots, two belong to those that wait.
    #[test]
    fn a_create_does_not_pass_observers_that_wait() {
        use Created::{NoCapacity, Waits};
        let rows = [queue("a"), reject("b"), queue("c")];
        assert_eq!(admit(&rows, occupancy(3, 2), &offered(100)), [Waits, NoCapacity, Waits]);
        assert_eq!(
            admit(&rows[1..], occupancy(3, 2), &offered(100)),
            [Waits, Waits],
            "the manager admits the first one next"
        );
    }

    #[test]
    fn a_pool_without_services_and_a_refused_name_take_no_slot() {
        assert_eq!(
            admit(&[reject("a"), queue("b")], Occupancy::default(), &offered(100)),
            [Created::NoCapacity, Created::Waits]
        );
        let rows = [reject("a"), reject("a"), reject("b")];
        assert_eq!(
            admit(&rows, occupancy(2, 0), &offered(100)),
            [Created::Done, Created::NameTaken, Created::Done]
        );
    }

    #[test]
    fn observers_that_need_no_slot_are_stored_as_they_are() {
        let paused = row("d", &json!({"on_full": "reject", "pool": "x"})).created_paused();
        let mut adopted = row("e", &json!({"pool": "y"}));
        adopted.confirmed(1, Timestamp(1));
        let rows = [queue("a"), reject("b"), paused, adopted];
        assert_eq!(counted_pools(&rows), ["default"]);
        assert_eq!(admit(&rows[2..], Occupancy::default(), &offered(100)), [Created::Done; 2]);
    }

    #[test]
    fn what_waits_is_stored_without_a_publish() {
        let row = queue("a");
        assert_eq!(Created::Done.stored(&row).as_deref(), Some(&row));
        let waits = Created::Waits.stored(&row).unwrap();
        assert_eq!((waits.generation, waits.publish_lease, waits.is_waiting()), (0, None, true));
        assert_eq!(Created::NameTaken.stored(&row), None);
    }

    #[test]
    fn a_create_gets_a_slot_only_if_its_weight_surely_finds_room() {
        use Created::{Done, NoCapacity, Waits};
        let service = Supply::of(12, 4);
        let ticker = || Kind::new("ticker").unwrap();
        let mut info = crate::record::test_services::service("default", 12, &["ticker"]);
        info.registration.weight_max = 4;
        let offers = crate::capacity::admission::offers(&[info]);
        let created = |admitted: (u64, u64), weights: &[u16], on_full: &str| {
            let (number, weight) = admitted;
            let count = KindCount { admitted: Load { number, weight }, ..KindCount::default() };
            let pool = PoolCount { supply: service, ahead: 0, kinds: [(ticker(), count)].into() };
            let pools = HashMap::from([("default".to_owned(), pool)]);
            let rows: Vec<Row> = (0..)
                .zip(weights)
                .map(|(number, weight)| {
                    row(&format!("o{number}"), &json!({"weight": weight, "on_full": on_full}))
                })
                .collect();
            admit(&rows, Occupancy { pools, ..Occupancy::default() }, &offers)
        };
        assert_eq!(created((0, 0), &[4, 4, 1, 1], "queue"), [Done, Done, Done, Waits]);
        assert_eq!(created((2, 8), &[4, 1], "reject"), [Done, NoCapacity]);
        assert_eq!(
            created((6, 6), &[4, 1], "queue"),
            [Waits, Waits],
            "the light one is behind the heavy one"
        );
        assert_eq!(created((6, 6), &[4, 1], "reject"), [NoCapacity, Done]);
    }
}
