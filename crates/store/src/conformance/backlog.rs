//! Observers that wait for a slot.

use super::*;
use crate::port::{Admission, Decided, Place};
use everwatch_core::capacity::admission::{Offers, PoolCount, Selection, offers};
use everwatch_core::capacity::preemption::Look;
use everwatch_core::capacity::supply::{Load, Supply};
use everwatch_core::id::{Kind, Pool, ServiceRef};
use everwatch_core::record::due::{DueStep, due_step};
use everwatch_core::record::row::Slot;
use everwatch_core::record::status::Status;
use everwatch_core::wire::heartbeat::{Heartbeat, Intent};
use std::time::Duration;

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn of_priority(number: u128, priority: i8) -> Row {
    new(
        number,
        json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue", "priority": priority}),
    )
}

/// Admits up to `most` observers. `offers`: the slots of the services that offer each kind.
async fn admitted_of(store: &dyn Store, offers: &[(&str, u32)], most: u64) -> Vec<Decided> {
    let offers: Offers =
        offers.iter().map(|(name, slots)| (kind(name), Supply::of(*slots, 1).into())).collect();
    let pool = Pool::default();
    let admission =
        Admission { pool: &pool, offers: &offers, now: Timestamp(NOW.0 + 9000), holds_restored: false, most };
    store.admit(&admission).await.unwrap()
}

async fn admitted(store: &dyn Store, most: u64) -> Vec<u128> {
    let admitted = admitted_of(store, &[("ticker", 1000)], most).await;
    admitted.iter().map(|it| it.after.id.0.as_u128()).collect()
}

async fn numbers_waiting(store: &dyn Store) -> u64 {
    store.waiting_pools().await.unwrap().pools.get(&Pool::default()).map_or(0, PoolCount::waiting)
}

pub async fn observers_without_a_slot_wait_until_one_is_free(store: &dyn Store) {
    assert_eq!(store.save_services(&[service(1, "s1", 2)]).await.unwrap(), []);
    let rows: Vec<Row> = (1..=5).map(|number| patient(number, &format!("o{number}"))).collect();
    let (done, waits) = (Created::Done, Created::Waits);
    assert_eq!(create(store, &rows).await.unwrap(), [done, done, waits, waits, waits]);
    assert_eq!(numbers_waiting(store).await, 3);
    assert_eq!(admitted(store, 100).await, [], "no slot is free");
    // No worklist contains the waiting ones: managers publish none of them, and search for no message of them.
    let lasts = Timestamp(i64::MAX);
    let due: Vec<u128> = store.due(lasts, 100).await.unwrap().iter().map(|row| row.id.0.as_u128()).collect();
    assert_eq!(due, [1, 2]);
    assert_eq!(store.unheld(&Pool::default(), &[], 100).await.unwrap().len(), 2);

    change(store, 1, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    let saved = admitted_of(store, &[("ticker", 2)], 100).await;
    assert_eq!(saved.len(), 1);
    let Decided { before, after } = &saved[0];
    assert_eq!((before.id, before.slot(), after.slot()), (id(3), Slot::Waiting, Slot::Admitted));
    assert_eq!(loaded(store, 3).await, Row { version: before.version + 1, ..after.clone() });
    assert_eq!((after.generation, numbers_waiting(store).await), (1, 2));
    assert_eq!(admitted(store, 100).await, []);
}

pub async fn the_first_in_order_are_admitted(store: &dyn Store) {
    let rows =
        [of_priority(1, 0), of_priority(2, -5), of_priority(3, 7), of_priority(4, 7), of_priority(5, 0)];
    assert_eq!(create(store, &rows).await.unwrap(), [Created::Waits; 5]);
    let place = async |number| store.place(&loaded(store, number).await).await.unwrap().unwrap();
    assert_eq!(place(3).await, Place { ahead: 0, waiting: 5 });
    assert_eq!(place(2).await, Place { ahead: 4, waiting: 5 });
    let order: Vec<u128> = store
        .waiting(&Pool::default(), &Selection::of_any_weight(kind("ticker"), 4))
        .await
        .unwrap()
        .iter()
        .map(|row| row.id.0.as_u128())
        .collect();
    assert_eq!(order, [3, 4, 1, 5]);
    // A change of the priority changes the place, a change of the observer itself does not.
    change(store, 5, |row| {
        let definition = ObserverDefinition { priority: 50, ..ObserverDefinition::clone(&row.definition) };
        assert_eq!(row.update(definition, NOW, &RowPolicy::default()), Ok(true));
    })
    .await;
    assert_eq!(store.save_services(&[service(1, "s1", 4)]).await.unwrap(), []);
    assert_eq!(admitted(store, 1).await, [5], "one at a time");
    assert_eq!(admitted(store, 100).await, [3, 4, 1]);
    assert_eq!(store.place(&loaded(store, 3).await).await.unwrap(), None);
    change(store, 2, |row| assert!(row.delete(NOW, &RowPolicy::default()))).await;
    assert_eq!(numbers_waiting(store).await, 0);
}

pub async fn a_create_takes_no_slot_of_those_that_wait(store: &dyn Store) {
    assert_eq!(create(store, &[patient(1, "a")]).await.unwrap(), [Created::Waits]);
    assert_eq!(store.save_services(&[service(1, "s1", 2)]).await.unwrap(), []);
    let rows = [patient(2, "b"), hasty(3, "c")];
    assert_eq!(create(store, &rows).await.unwrap(), [Created::Waits, Created::NoCapacity]);
    assert_eq!(admitted(store, 100).await, [1, 2]);
}

pub async fn a_kind_takes_only_slots_of_services_that_offer_it(store: &dyn Store) {
    let of_kind = |number: u128, kind: &str| {
        new(number, json!({"name": format!("o{number}"), "kind": kind, "on_full": "queue"}))
    };
    let rows = [
        of_kind(1, "exec"),
        of_kind(2, "exec"),
        of_kind(3, "exec"),
        of_kind(4, "ticker"),
        of_kind(5, "http"),
    ];
    assert_eq!(create(store, &rows).await.unwrap(), [Created::Waits; 5]);
    assert_eq!(store.save_services(&[service(1, "s1", 10)]).await.unwrap(), []);
    let offers = [("exec", 2), ("ticker", 10)];
    let mut found: Vec<ObserverId> =
        admitted_of(store, &offers, 100).await.iter().map(|it| it.after.id).collect();
    found.sort_unstable();
    assert_eq!(found, [id(1), id(2), id(4)]);
    assert_eq!(admitted_of(store, &offers, 100).await, []);
    let counted = store.waiting_pools().await.unwrap().pools.remove(&Pool::default()).unwrap();
    assert_eq!((counted.supply.slots, counted.free(), counted.waiting()), (10, 7, 2));
    let exec = counted.kinds[&kind("exec")];
    assert_eq!((exec.admitted.number, exec.waiting.number), (2, 1));
}

/// The service, with a heartbeat.
fn holding(mut service: ServiceRow, held: u32, state: Intent) -> ServiceRow {
    let heartbeat = Heartbeat {
        service: service.id,
        seq: service.heartbeat.as_ref().map_or(0, |it| it.seq) + 1,
        state,
        capacity: service.registration.capacity,
        held,
        loop_lag_ms: 0,
        rss_bytes: 0,
        sent_at: None,
        stalled: Vec::new(),
    };
    assert!(service.on_heartbeat(&heartbeat, NOW));
    service
}

pub async fn what_a_cordoned_service_holds_uses_no_slot_of_others(store: &dyn Store) {
    assert_eq!(store.save_services(&[service(1, "s1", 2)]).await.unwrap(), []);
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    change(store, 1, |row| hear(row, 2, 1, started())).await;
    assert_eq!(create(store, &[patient(3, "c")]).await.unwrap(), [Created::Waits], "both slots are in use");
    let cordoned = holding(service(2, "s2", 5), 1, Intent::Cordoned);
    assert_eq!(store.save_services(&[cordoned]).await.unwrap(), []);
    assert_eq!(admitted(store, 100).await, [3]);
}

pub async fn a_single_pool_has_the_slots_of_one_service(store: &dyn Store) {
    let single = |number: u128, capacity: u32| {
        let mut service = service(number, &format!("s{number}"), capacity);
        service.registration.pool_single = true;
        service
    };
    let saved = async |all: &[ServiceRow]| assert_eq!(store.save_services(all).await.unwrap(), []);
    saved(&[single(1, 3), single(2, 2), single(3, 9)]).await;
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    assert_eq!(
        create(store, &[patient(3, "c")]).await.unwrap(),
        [Created::Waits],
        "any may be the active one"
    );
    change(store, 1, |row| hear(row, 1, 1, started())).await;
    let heard = async |number: u128, state: Intent| {
        let service = store.service(&ServiceRef::Id(service_id(number))).await.unwrap().unwrap();
        saved(&[holding(service, 1, state)]).await;
    };
    heard(1, Intent::Active).await;
    assert_eq!(admitted(store, 100).await, [3], "the active service has three slots");
    assert_eq!(create(store, &[patient(4, "d")]).await.unwrap(), [Created::Waits]);
    heard(1, Intent::Cordoned).await;
    assert_eq!(admitted(store, 100).await, [], "it hands over what it holds, and any may be the next");
    heard(3, Intent::Active).await;
    assert_eq!(admitted(store, 100).await, [4]);
}

pub async fn admissions_side_by_side_do_not_give_a_slot_twice(store: &dyn Store) {
    let rows: Vec<Row> = (1..=60).map(|number| patient(number, &format!("o{number}"))).collect();
    assert_eq!(create(store, &rows).await.unwrap(), vec![Created::Waits; 60]);
    assert_eq!(store.save_services(&[service(1, "s1", 40)]).await.unwrap(), []);
    let late: Vec<Row> = (101..=120).map(|number| patient(number, &format!("o{number}"))).collect();
    let (one, two, made, three) =
        tokio::join!(admitted(store, 25), admitted(store, 25), create(store, &late), admitted(store, 25));
    let mut all = [one, two, three].concat();
    assert!(made.unwrap().iter().all(|created| *created == Created::Waits));
    all.sort_unstable();
    assert_eq!(all, (1..=40).collect::<Vec<u128>>());
}

fn of_weight(number: u128, weight: u16) -> Row {
    new(number, json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue", "weight": weight}))
}

/// A service with 12 slots that takes weights up to 4.
fn strong(number: u128, text: &str) -> ServiceRow {
    let mut row = service(number, text, 12);
    row.registration.weight_max = 4;
    let kinds = json!([{"name": "ticker"}]);
    row.registration.kinds = serde_json::from_value(kinds).unwrap();
    row
}

pub async fn weights_count_as_slots(store: &dyn Store) {
    let services = [strong(1, "s1"), service(2, "s2", 3)];
    assert_eq!(store.save_services(&services).await.unwrap(), []);
    let (done, waits) = (Created::Done, Created::Waits);
    let offers = offers(&services);
    let rows = [of_weight(1, 4), of_weight(2, 4), of_weight(3, 3), of_weight(4, 4), of_weight(5, 1)];
    let made = store.create(&rows, &offers).await.unwrap();
    assert_eq!(
        made,
        [done, done, done, waits, waits],
        "three of any weight find room on the one that takes them"
    );
    let counted = async || store.waiting_pools().await.unwrap().pools[&Pool::default()].clone();
    let load = |number, weight| Load { number, weight };
    let supply = Supply { slots: 15, certain_slots: 12, certain_messages: 6 };
    let now = counted().await;
    assert_eq!(
        (now.supply, now.admitted(), now.kinds[&kind("ticker")].waiting),
        (supply, load(3, 11), load(2, 5))
    );

    // Another weight of a waiting one, and the delete of one that was admitted.
    change(store, 4, |row| {
        let definition = ObserverDefinition { weight: 2, ..ObserverDefinition::clone(&row.definition) };
        assert_eq!(row.update(definition, NOW, &RowPolicy::default()), Ok(true));
    })
    .await;
    assert_eq!(store.held_weights().await.unwrap(), [].into(), "no service has reported a run");
    change(store, 1, |row| hear(row, 1, 1, started())).await;
    change(store, 3, |row| hear(row, 1, 1, started())).await;
    change(store, 2, |row| hear(row, 2, 1, started())).await;
    let held = [(service_id(1), 7), (service_id(2), 4)];
    assert_eq!(store.held_weights().await.unwrap(), held.into());
    change(store, 1, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    change(store, 2, |row| hear(row, 2, 2, RunEvent::HandedOver)).await;
    assert_eq!(store.held_weights().await.unwrap(), [(service_id(1), 3)].into());
    let now = counted().await;
    assert_eq!((now.admitted(), now.kinds[&kind("ticker")].waiting), (load(2, 7), load(2, 3)));
    let of = async |status| store.counts().await.unwrap().get(&(Pool::default(), status)).copied();
    assert_eq!(of(Status::Completed).await, Some(load(1, 4)));
    change(store, 1, |row| assert!(row.delete(NOW, &RowPolicy::default()))).await;
    assert_eq!(of(Status::Deleted).await, Some(load(1, 4)));
    store.forget(&[(id(1), loaded(store, 1).await.version)]).await.unwrap();
    assert_eq!(of(Status::Deleted).await, None);
}

pub async fn slots_are_kept_for_a_heavy_observer_in_every_other_minute(store: &dyn Store) {
    let services = [strong(1, "s1")];
    assert_eq!(store.save_services(&services).await.unwrap(), []);
    let offers = offers(&services);
    let light: Vec<Row> = (1..=7).map(|number| of_weight(number, 1)).collect();
    store.create(&light, &offers).await.unwrap();
    let rows = [of_weight(8, 4), of_weight(9, 1)];
    assert_eq!(store.create(&rows, &offers).await.unwrap(), [Created::Waits; 2]);
    let (pool, since) = (Pool::default(), loaded(store, 8).await.waiting.unwrap().since);
    for (weights, most, expected) in [(1..=1, 9, [9]), (1..=4, 1, [8]), (2..=1000, 9, [8])] {
        let selected =
            store.waiting(&pool, &Selection { kind: kind("ticker"), weights, most }).await.unwrap();
        assert_eq!(selected.iter().map(|row| row.id.0.as_u128()).collect::<Vec<_>>(), expected);
    }
    let admitted = async |second: i64| {
        let (now, offers) = (Timestamp(since.0 + second * 1000), &offers[&pool]);
        let admission = Admission { pool: &pool, offers, now, holds_restored: false, most: 100 };
        let decided = store.admit(&admission).await.unwrap();
        decided.iter().map(|it| it.after.id.0.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!((admitted(59).await, admitted(60).await), (vec![], vec![9]));
    for number in 1..=5 {
        change(store, number, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    }
    assert_eq!(admitted(130).await, [8]);
}

pub async fn runs_give_their_slots_to_a_higher_priority(store: &dyn Store) {
    let services = [strong(1, "s1")].map(|mut it| {
        it.registration.weight_max = 1;
        it.registration.capacity = 3;
        it
    });
    assert_eq!(store.save_services(&services).await.unwrap(), []);
    let offers = offers(&services);
    let low = [of_priority(1, 0), of_priority(2, -5), of_priority(3, 7)];
    assert_eq!(store.create(&low, &offers).await.unwrap(), [Created::Done; 3]);
    let high = [of_priority(4, 5), of_priority(5, 5), of_priority(6, -9)];
    assert_eq!(store.create(&high, &offers).await.unwrap(), [Created::Waits; 3]);
    for number in 1..=3 {
        change(store, number, |row| hear(row, 1, 1, started())).await;
    }
    let (pool, since) = (Pool::default(), loaded(store, 6).await.waiting.unwrap().since);
    let preempted = async |second: i64| {
        let (now, after) = (Timestamp(since.0 + second * 1000), Duration::from_secs(10));
        let look = Look { pool: &pool, services: &services, offers: &offers[&pool], after, now };
        let preempted = store.preempt(&look).await.unwrap();
        for it in &preempted {
            let saved = loaded(store, it.after.id.0.as_u128()).await;
            assert_eq!(saved, Row { version: it.before.version + 1, ..it.after.clone() });
        }
        preempted.iter().map(|it| it.after.id.0.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(preempted(9).await, []);
    assert_eq!(preempted(10).await, [2, 1], "priority 7 keeps its slot, and -9 gets none");
    assert_eq!(preempted(11).await, [], "both are ending");
    change(store, 1, |row| {
        hear(row, 2, 1, RunEvent::Stopped);
        let next = due_step(row, Timestamp(since.0 + 12_000), &RowPolicy::default());
        assert!(matches!(next, Some(DueStep::Save(_))), "{next:?}");
        if let Some(DueStep::Save(waits)) = next {
            *row = waits;
        }
    })
    .await;
    let counted = store.waiting_pools().await.unwrap().pools[&pool].clone();
    assert_eq!((counted.free(), counted.waiting()), (1, 4), "it waits and uses no slot");
}
