//! Admission from the backlog: which of the observers that wait for a slot get one. The databases supply the counts of a
//! pool in the transaction that saves the admitted rows; this module decides.
//!
//! The obvious way publishes every observer at once and lets it wait in the work queue. But a queue delivers in the order
//! of arrival: it knows neither a priority nor a time, and what was published cannot be taken back without a search.

use crate::capacity::limits::{self, KeyCounts};
use crate::id::{Kind, LimitKey, Pool};
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::record::service::ServiceRow;
use crate::record::taking::taking;
use crate::wire::message::VERSION;
use std::collections::{BTreeMap, BTreeSet};

/// The observers of one kind in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindCount {
    /// Those that use a slot, apart from those on services that are cordoned: their slots are not for others.
    pub admitted: u64,
    /// Those that wait in the backlog.
    pub waiting: u64,
}

/// The slots of a pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolCount {
    /// Slots of the pool's active services.
    pub capacity: u64,
    /// Observers that may be published beyond the free slots.
    pub ahead: u64,
    pub kinds: BTreeMap<Kind, KindCount>,
}

/// How many observers of each kind the active services of a pool can run at once.
pub type Offers = BTreeMap<Kind, u64>;

/// The offers of each pool that has an active service.
pub type PoolOffers = BTreeMap<Pool, Offers>;

/// The decision about a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Admit,
    /// This limit has no free place for it.
    WaitBehind(LimitKey),
}

impl PoolCount {
    /// Free slots; below zero while fewer slots exist than observers use.
    #[must_use]
    pub fn free(&self) -> i64 {
        let admitted = self.kinds.values().map(|it| it.admitted).sum();
        i64::try_from(self.capacity).unwrap_or(i64::MAX).saturating_sub_unsigned(admitted)
    }

    /// Free slots, and what may be published beyond them.
    #[must_use]
    pub fn open(&self) -> i64 {
        self.free().saturating_add_unsigned(self.ahead)
    }

    /// The observers that wait in the backlog.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.kinds.values().map(|it| it.waiting).sum()
    }

    /// How many observers of each kind may be admitted now: the free slots, as far as services that offer the kind can
    /// have them. Kinds of which none waits are missing.
    #[must_use]
    pub fn room(&self, offers: &Offers, most: u64) -> BTreeMap<Kind, u64> {
        let open = u64::try_from(self.open()).unwrap_or(0).min(most);
        let waiting = self.kinds.iter().filter(|(_, count)| count.waiting > 0);
        let room =
            waiting.map(|(kind, count)| (kind.clone(), open.min(self.left(kind, offers)).min(count.waiting)));
        room.filter(|(_, room)| *room > 0).collect()
    }

    /// How many more observers of this kind the services that offer it can have, and what may be published beyond.
    pub(crate) fn left(&self, kind: &Kind, offers: &Offers) -> u64 {
        let admitted = self.kinds.get(kind).map_or(0, |count| count.admitted);
        offers.get(kind).copied().unwrap_or(0).saturating_add(self.ahead).saturating_sub(admitted)
    }

    /// The number of waiting observers whose kind has room: free slots go to them first.
    pub(crate) fn claims(&self, offers: &Offers) -> u64 {
        self.kinds.iter().map(|(kind, count)| count.waiting.min(self.left(kind, offers))).sum()
    }

    /// The kinds that observers wait for and no living service offers, unless the pool has no service at all.
    #[must_use]
    pub fn unoffered(&self, offered: &BTreeSet<Kind>) -> Vec<Kind> {
        if offered.is_empty() {
            return Vec::new();
        }
        let waiting = self.kinds.iter().filter(|(_, count)| count.waiting > 0);
        waiting.map(|(kind, _)| kind).filter(|kind| !offered.contains(*kind)).cloned().collect()
    }

    /// Decides about candidates, of which each kind of [`Self::room`] has contributed its first ones. An observer whose
    /// limits have no free place leaves its slot to the next one.
    #[must_use]
    pub fn choose(
        &self,
        mut candidates: Vec<Row>,
        mut keys: KeyCounts,
        policy: &RowPolicy,
    ) -> Vec<(Row, Choice)> {
        candidates.retain(Row::is_waiting);
        candidates.sort_by_cached_key(|row| (row.rank(policy), row.id));
        let mut open = self.open();
        let mut chosen = Vec::new();
        for row in candidates {
            if open <= 0 {
                break;
            }
            let choice = match limits::obstacle(&row, &keys, policy) {
                Some(key) => Choice::WaitBehind(key),
                None => {
                    limits::take(&row, &mut keys);
                    open -= 1;
                    Choice::Admit
                }
            };
            chosen.push((row, choice));
        }
        chosen
    }
}

/// What the active services of each pool offer.
#[must_use]
pub fn offers(services: &[ServiceRow]) -> PoolOffers {
    let mut pools = PoolOffers::new();
    for service in taking(services) {
        // In an upgrade, older services may not be able to read what a manager publishes.
        let reads = service.registration.message_version >= VERSION;
        if reads {
            let offers = pools.entry(service.registration.pool.clone()).or_default();
            for info in &service.registration.kinds {
                let offered = offers.entry(info.name.clone()).or_default();
                *offered += u64::from(service.capacity());
            }
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::limits::KeyCount;
    use crate::clock::Timestamp;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::test_services::service;
    use serde_json::json;
    use std::sync::Arc;
    use uuid::Uuid;

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }
    fn count(capacity: u64, kinds: &[(&str, u64, u64)]) -> PoolCount {
        let kinds = kinds.iter().map(|(name, admitted, waiting)| {
            (kind(name), KindCount { admitted: *admitted, waiting: *waiting })
        });
        PoolCount { capacity, ahead: 0, kinds: kinds.collect() }
    }
    fn offered(kinds: &[(&str, u64)]) -> Offers {
        kinds.iter().map(|(name, slots)| (kind(name), *slots)).collect()
    }
    fn waiting(number: u128, kind: &str, priority: i8) -> Row {
        let body = json!({"kind": kind, "priority": priority});
        let definition = ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap();
        let at = Timestamp(i64::try_from(number).unwrap());
        Row::created(ObserverId(Uuid::from_u128(number)), definition, at, &RowPolicy::default())
            .created_waiting()
    }
    #[test]
    fn only_free_slots_are_given_and_none_while_too_many_are_in_use() {
        let offers = offered(&[("ticker", 10)]);
        assert_eq!(count(10, &[("ticker", 7, 5)]).room(&offers, 500), offered(&[("ticker", 3)]));
        assert_eq!(count(10, &[("ticker", 7, 2)]).room(&offers, 500), offered(&[("ticker", 2)]));
        assert_eq!(count(10, &[("ticker", 0, 9)]).room(&offers, 4), offered(&[("ticker", 4)]));
        assert_eq!(count(10, &[("ticker", 10, 5)]).room(&offers, 500), offered(&[]));
        let after_a_loss = count(10, &[("ticker", 15, 5)]);
        assert_eq!((after_a_loss.free(), after_a_loss.room(&offers, 500)), (-5, offered(&[])));
    }

    #[test]
    fn some_may_be_published_before_they_have_a_slot() {
        let it = PoolCount { ahead: 5, ..count(2, &[("ticker", 2, 9)]) };
        assert_eq!((it.free(), it.open()), (0, 5));
        assert_eq!(it.room(&offered(&[("ticker", 2)]), 500), offered(&[("ticker", 5)]));
        let later = PoolCount { ahead: 5, ..count(2, &[("ticker", 7, 4)]) };
        assert_eq!(later.room(&offered(&[("ticker", 2)]), 500), offered(&[]));
        let no_service = PoolCount { ahead: 5, ..count(0, &[("ticker", 0, 9)]) };
        assert_eq!(no_service.room(&Offers::new(), 500), offered(&[("ticker", 5)]));
    }

    #[test]
    fn no_kind_blocks_another() {
        // Of 20 slots, 5 can run `exec`, and they are in use.
        let offers = offered(&[("ticker", 20), ("exec", 5)]);
        let busy = count(20, &[("exec", 5, 100), ("ticker", 2, 7)]);
        assert_eq!(busy.room(&offers, 500), offered(&[("ticker", 7)]));
        let living: BTreeSet<Kind> = offers.keys().cloned().collect();
        assert_eq!(busy.unoffered(&living), []);
        let none = count(20, &[("http", 0, 3), ("ticker", 2, 0)]);
        assert_eq!((none.room(&offers, 500), none.unoffered(&living)), (offered(&[]), vec![kind("http")]));
        assert_eq!(none.unoffered(&BTreeSet::new()), [], "they wait for the first service");
    }

    #[test]
    fn the_first_of_all_kinds_are_chosen() {
        let it = count(4, &[("ticker", 1, 2), ("exec", 0, 2)]);
        let rows = vec![
            waiting(1, "ticker", 0),
            waiting(2, "ticker", 0),
            waiting(3, "exec", 5),
            waiting(4, "exec", 0),
        ];
        let chosen = it.choose(rows, KeyCounts::new(), &RowPolicy::default());
        assert_eq!(chosen.iter().map(|(row, _)| row.id.0.as_u128()).collect::<Vec<_>>(), [3, 1, 2]);
    }

    /// The places of key a: maximum, used, and the number of the first observer that waits for one.
    fn chosen(rows: &[(u128, &[&str])], slots: u64, (max, used, first): (u32, u64, Option<u128>)) -> String {
        let rows = rows.iter().map(|(number, keys)| limited(*number, keys));
        let first_behind = first.map(|number| {
            let row = limited(number, &["a"]);
            (row.rank(&RowPolicy::default()).unwrap(), row.id)
        });
        let key = |name: &str| LimitKey::new(name).unwrap();
        let b = KeyCount { max: Some(1), ..KeyCount::default() };
        let keys =
            KeyCounts::from([(key("a"), KeyCount { max: Some(max), used, first_behind }), (key("b"), b)]);
        let chosen = count(slots, &[("ticker", 0, 9)]).choose(rows.collect(), keys, &RowPolicy::default());
        let shown = |(row, choice): &(Row, Choice)| match choice {
            Choice::Admit => format!("{}", row.id.0.as_u128()),
            Choice::WaitBehind(key) => format!("{} behind {key}", row.id.0.as_u128()),
        };
        chosen.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
    fn limited(number: u128, keys: &[&str]) -> Row {
        let mut row = waiting(number, "ticker", 0);
        let keys = keys.iter().map(|key| LimitKey::new(key).unwrap());
        Arc::make_mut(&mut row.definition).limits = keys.collect();
        row
    }

    #[test]
    fn an_observer_without_a_free_place_leaves_its_slot_to_the_next_one() {
        let rows: [(u128, &[&str]); 4] = [(1, &["a"]), (2, &["a"]), (3, &[]), (4, &["a"])];
        assert_eq!(chosen(&rows, 4, (2, 1, None)), "1, 2 behind a, 3, 4 behind a");
        assert_eq!(chosen(&rows, 2, (2, 1, None)), "1, 2 behind a, 3");
        assert_eq!(chosen(&rows, 4, (2, 5, None)), "1 behind a, 2 behind a, 3, 4 behind a");
        assert_eq!(chosen(&[(1, &["c"])], 4, (2, 0, None)), "1 behind c", "no limit applies to it");
    }

    #[test]
    fn places_of_all_keys_are_taken_or_none() {
        let rows: [(u128, &[&str]); 4] = [(1, &["a", "b"]), (2, &["a", "b"]), (3, &["b"]), (4, &["a"])];
        assert_eq!(chosen(&rows, 4, (2, 0, None)), "1, 2 behind b, 3 behind b, 4");
    }

    #[test]
    fn those_that_wait_for_a_place_come_before_later_ones() {
        let rows: [(u128, &[&str]); 2] = [(1, &["a"]), (7, &["a"])];
        assert_eq!(chosen(&rows, 4, (9, 0, Some(5))), "1, 7 behind a");
        assert_eq!(chosen(&rows, 4, (9, 0, Some(8))), "1, 7");
    }

    #[test]
    fn active_services_of_the_pool_offer_their_slots() {
        let mut suspect = service("a", 100, &["ticker"]);
        suspect.suspect(Timestamp(1));
        let services = [
            service("a", 5, &["ticker", "exec"]),
            service("a", 7, &["ticker"]),
            service("b", 1, &["http"]),
            suspect,
        ];
        let pool = |name: &str| Pool::new(name).unwrap();
        let found = offers(&services);
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), [pool("a"), pool("b")]);
        assert_eq!(found[&pool("a")], offered(&[("ticker", 12), ("exec", 5)]));
    }
}
