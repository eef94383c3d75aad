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
fn count(capacity: u32, kinds: &[(&str, u64, u64)]) -> PoolCount {
    let kinds = kinds.iter().map(|(name, admitted, waiting)| {
        (kind(name), KindCount { admitted: light(*admitted), waiting: light(*waiting) })
    });
    PoolCount { supply: Supply::of(capacity, 1), ahead: 0, kinds: kinds.collect() }
}
/// This number of observers of weight 1.
fn light(number: u64) -> Load {
    Load { number, weight: number }
}
fn offered(kinds: &[(&str, u32)]) -> Offers {
    kinds.iter().map(|(name, slots)| (kind(name), Supply::of(*slots, 1).into())).collect()
}
/// How many candidates of any weight to read.
fn selections(kinds: &[(&str, u64)]) -> Vec<Selection> {
    let any = |(name, most): &(&str, u64)| Selection::of_any_weight(kind(name), *most);
    kinds.iter().map(any).collect()
}
fn choose(count: &PoolCount, rows: Vec<Row>, keys: KeyCounts) -> Vec<(Row, Choice)> {
    let offers = offered(&[("ticker", 99), ("exec", 99)]);
    count.choose(rows, keys, (&offers, Timestamp(0)), &RowPolicy::default())
}
fn waiting(number: u128, kind: &str, priority: i8) -> Row {
    let body = json!({"kind": kind, "priority": priority});
    let definition = ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap();
    let at = Timestamp(i64::try_from(number).unwrap());
    Row::created(ObserverId(Uuid::from_u128(number)), definition, at, &RowPolicy::default()).created_waiting()
}
#[test]
fn only_free_slots_are_given_and_none_while_too_many_are_in_use() {
    let offers = offered(&[("ticker", 10)]);
    assert_eq!(count(10, &[("ticker", 7, 5)]).selections(&offers, 500), selections(&[("ticker", 3)]));
    assert_eq!(count(10, &[("ticker", 7, 2)]).selections(&offers, 500), selections(&[("ticker", 2)]));
    assert_eq!(count(10, &[("ticker", 0, 9)]).selections(&offers, 4), selections(&[("ticker", 4)]));
    assert_eq!(count(10, &[("ticker", 10, 5)]).selections(&offers, 500), selections(&[]));
    let after_a_loss = count(10, &[("ticker", 15, 5)]);
    assert_eq!((after_a_loss.free(), after_a_loss.selections(&offers, 500)), (-5, selections(&[])));
}

#[test]
fn some_may_be_published_before_they_have_a_slot() {
    let it = PoolCount { ahead: 5, ..count(2, &[("ticker", 2, 9)]) };
    assert_eq!((it.free(), it.open()), (0, 5));
    assert_eq!(it.selections(&offered(&[("ticker", 2)]), 500), selections(&[("ticker", 5)]));
    let later = PoolCount { ahead: 5, ..count(2, &[("ticker", 7, 4)]) };
    assert_eq!(later.selections(&offered(&[("ticker", 2)]), 500), selections(&[]));
    let no_service = PoolCount { ahead: 5, ..count(0, &[("ticker", 0, 9)]) };
    assert_eq!(no_service.selections(&Offers::new(), 500), selections(&[("ticker", 5)]));
}

#[test]
fn no_kind_blocks_another() {
    // Of 20 slots, 5 can run `exec`, and they are in use.
    let offers = offered(&[("ticker", 20), ("exec", 5)]);
    let busy = count(20, &[("exec", 5, 100), ("ticker", 2, 7)]);
    assert_eq!(busy.selections(&offers, 500), selections(&[("ticker", 7)]));
    let living: BTreeSet<Kind> = offers.keys().cloned().collect();
    assert_eq!(busy.unoffered(&living), []);
    let none = count(20, &[("http", 0, 3), ("ticker", 2, 0)]);
    assert_eq!(
        (none.selections(&offers, 500), none.unoffered(&living)),
        (selections(&[]), vec![kind("http")])
    );
    assert_eq!(none.unoffered(&BTreeSet::new()), [], "they wait for the first service");
}

#[test]
fn the_first_of_all_kinds_are_chosen() {
    let it = count(4, &[("ticker", 1, 2), ("exec", 0, 2)]);
    let rows =
        vec![waiting(1, "ticker", 0), waiting(2, "ticker", 0), waiting(3, "exec", 5), waiting(4, "exec", 0)];
    let chosen = choose(&it, rows, KeyCounts::new());
    assert_eq!(chosen.iter().map(|(row, _)| row.id.0.as_u128()).collect::<Vec<_>>(), [3, 1, 2]);
}

/// The places of key a: maximum, used, and the number of the first observer that waits for one.
fn chosen(rows: &[(u128, &[&str])], slots: u32, (max, used, first): (u32, u64, Option<u128>)) -> String {
    let rows = rows.iter().map(|(number, keys)| limited(*number, keys));
    let first_behind = first.map(|number| {
        let row = limited(number, &["a"]);
        (row.rank(&RowPolicy::default()).unwrap(), row.id)
    });
    let key = |name: &str| LimitKey::new(name).unwrap();
    let b = KeyCount { max: Some(1), ..KeyCount::default() };
    let keys = KeyCounts::from([(key("a"), KeyCount { max: Some(max), used, first_behind }), (key("b"), b)]);
    let chosen = choose(&count(slots, &[("ticker", 0, 9)]), rows.collect(), keys);
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

/// One service with 12 slots and a `weight_max` of 4, and these admitted observers: number and weight.
fn heavy_pool(admitted: (u64, u64)) -> (PoolCount, Offers) {
    let service = Supply::of(12, 4);
    let admitted = Load { number: admitted.0, weight: admitted.1 };
    let kinds = [(kind("ticker"), KindCount { admitted, waiting: Load { number: 9, weight: 20 } })].into();
    let offers = [(kind("ticker"), KindSupply([(4, service)].into()))].into();
    (PoolCount { supply: service, ahead: 0, kinds }, offers)
}
/// The observers of these weights that are admitted at this second; the first one has waited since second 0.
fn admitted(used: (u64, u64), weights: &[u16], second: i64) -> Vec<u16> {
    let (count, offers) = heavy_pool(used);
    let rows = (1..).zip(weights).map(|(number, weight)| {
        let mut row = waiting(number, "ticker", 0);
        Arc::make_mut(&mut row.definition).weight = *weight;
        row
    });
    let now = Timestamp(second * 1000 + 10);
    let chosen = count.choose(rows.collect(), KeyCounts::new(), (&offers, now), &RowPolicy::default());
    chosen.iter().map(|(row, _)| row.definition.weight).collect()
}

#[test]
fn heavy_observers_need_certain_room() {
    assert_eq!(admitted((0, 0), &[4, 4, 4, 1], 0), [4, 4, 4], "three of any weight find room in any order");
    assert_eq!(admitted((0, 0), &[4, 4, 1, 1], 0), [4, 4, 1], "9 slots are certain");
    assert_eq!(admitted((5, 5), &[4], 0), [4]);
    assert_eq!(admitted((6, 6), &[4], 0), [0; 0], "the queue may leave it only three slots");
    assert_eq!(admitted((2, 8), &[4], 0), [4], "two hold at most 8 of 12");
    assert_eq!(admitted((0, 0), &[5, 1], 0), [1], "no service takes 5");
}

#[test]
fn in_every_other_minute_free_slots_are_kept_for_the_first_that_does_not_fit() {
    for (second, expected) in [(0, vec![]), (59, vec![]), (60, vec![1, 2]), (119, vec![1, 2]), (120, vec![])]
    {
        assert_eq!(admitted((6, 6), &[4, 1, 2], second), expected, "second {second}");
    }
    // A second heavy one, whose minutes are the others, keeps nothing for itself.
    let (count, offers) = heavy_pool((6, 6));
    let mut rows = vec![waiting(1, "ticker", 0), waiting(60_000, "ticker", 0), waiting(60_001, "ticker", 0)];
    rows[..2].iter_mut().for_each(|row| Arc::make_mut(&mut row.definition).weight = 4);
    let now = Timestamp(70_000);
    let chosen = count.choose(rows, KeyCounts::new(), (&offers, now), &RowPolicy::default());
    assert_eq!(chosen.len(), 1, "the light one passes");
}

#[test]
fn a_heavy_observer_beside_its_kind_keeps_slots_from_its_kind_only() {
    let (mut count, mut offers) = heavy_pool((6, 6));
    count.supply = count.supply.and(Supply::of(12, 4));
    offers.insert(kind("exec"), KindSupply([(4, Supply::of(12, 4))].into()));
    let mut rows = vec![waiting(1, "ticker", 0), waiting(2, "ticker", 0), waiting(3, "exec", 0)];
    Arc::make_mut(&mut rows[0].definition).weight = 4;
    let chosen = |second: i64| {
        let now = Timestamp(second * 1000 + 10);
        let chosen = count.choose(rows.clone(), KeyCounts::new(), (&offers, now), &RowPolicy::default());
        chosen.iter().map(|(row, _)| row.id.0.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!((chosen(0), chosen(60)), (vec![3], vec![2, 3]));
}

#[test]
fn what_fits_now_and_the_first_that_does_not_are_read() {
    let read = |used, most| {
        let (count, offers) = heavy_pool(used);
        let selections = count.selections(&offers, most);
        selections.iter().map(|it| format!("{:?}: {}", it.weights, it.most)).collect::<Vec<_>>()
    };
    assert_eq!(read((6, 6), 500), ["1..=3: 3", "4..=4: 1"]);
    assert_eq!(read((6, 6), 2), ["1..=3: 2", "4..=4: 1"]);
    assert_eq!(read((2, 8), 500), ["1..=4: 1"], "a third one of any weight finds room");
    assert_eq!(read((9, 9), 500), [""; 0]);
}

#[test]
fn only_services_that_take_the_weight_count() {
    let mut heavy = service("a", 12, &["ticker"]);
    heavy.registration.weight_max = 4;
    let offers = &offers(&[heavy, service("a", 5, &["ticker"])])[&Pool::new("a").unwrap()][&kind("ticker")];
    assert_eq!(offers.for_weight(1), Supply { slots: 17, certain_slots: 14, certain_messages: 8 });
    assert_eq!((offers.for_weight(2), offers.for_weight(5)), (Supply::of(12, 4), Supply::default()));
}
