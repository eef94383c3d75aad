//! Services and unreadable messages.

use super::*;
use crate::port::{PARKED_HEAD, Parked};

pub async fn a_service_is_born_once_and_found(store: &dyn Store) {
    let row = service(1, "s", 4);
    assert_eq!(store.save_services(std::slice::from_ref(&row)).await.unwrap(), []);
    assert_eq!(store.service(&row.id.into()).await.unwrap(), Some(row.clone()));
    assert_eq!(store.service(&name("s").into()).await.unwrap(), Some(row));
    assert_eq!(store.service(&name("t").into()).await.unwrap(), None);
    // Two incarnations have the same name: the lookup by name returns the newer one.
    let mut younger = service(2, "s", 4);
    younger.registered_at = Timestamp(NOW.0 + 1);
    assert_eq!(store.save_services(&[younger]).await.unwrap(), []);
    assert_eq!(store.service(&name("s").into()).await.unwrap().unwrap().id, service_id(2));
    assert_eq!(store.service(&service_id(1).into()).await.unwrap().unwrap().id, service_id(1));
}

pub async fn services_are_loaded_by_id(store: &dyn Store) {
    let mut ended = service(1, "s", 4);
    ended.on_gone(NOW);
    assert_eq!(store.save_services(&[ended, service(2, "t", 1), service(3, "u", 1)]).await.unwrap(), []);
    let found = store.load_services(&[1, 3, 4].map(service_id)).await.unwrap();
    let mut ids: Vec<ServiceId> = found.rows.iter().map(|row| row.id).collect();
    ids.sort_unstable();
    assert_eq!((ids, found.unreadable), (vec![service_id(1), service_id(3)], vec![]));
}

pub async fn services_are_found_by_their_names(store: &dyn Store) {
    let mut ended = service(1, "s", 4);
    ended.on_gone(Timestamp(NOW.0 + 10));
    let rows = [ended, service(2, "s", 1), service(3, "t", 1), service(4, "u", 1)];
    assert_eq!(store.save_services(&rows).await.unwrap(), []);
    let found = async |names: &[&str], since: i64| -> Vec<ServiceId> {
        let names: Vec<Name> = names.iter().map(|it| name(it)).collect();
        let rows = store.namesakes(&names, Timestamp(NOW.0 + since)).await.unwrap();
        let mut ids: Vec<ServiceId> = rows.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(found(&["s", "t"], 10).await, [1, 2, 3].map(service_id));
    assert_eq!(found(&["s"], 11).await, [service_id(2)]);
    assert!(found(&[], 0).await.is_empty() && found(&["v"], 0).await.is_empty());
}

pub async fn a_service_is_saved_by_compare_and_set(store: &dyn Store) {
    let mut row = service(1, "s", 4);
    assert_eq!(store.save_services(std::slice::from_ref(&row)).await.unwrap(), []);
    row.suspect(NOW);
    // A known and a new service in the same batch.
    assert_eq!(store.save_services(&[row.clone(), service(2, "t", 1)]).await.unwrap(), []);
    let stored = store.service(&row.id.into()).await.unwrap().unwrap();
    assert_eq!((stored.version, stored.suspect_since), (2, Some(NOW)));
    assert_eq!(store.save_services(std::slice::from_ref(&row)).await.unwrap(), [row.id]);
    // A row with version > 1 that is not in the database: the store has deleted it.
    let forgotten = ServiceRow { version: 7, ..service(3, "u", 1) };
    assert_eq!(store.save_services(&[forgotten]).await.unwrap(), [service_id(3)]);
}

pub async fn ended_services_are_shown_for_a_while(store: &dyn Store) {
    let mut ended = service(1, "a", 1);
    ended.on_gone(Timestamp(NOW.0 + 10));
    assert_eq!(store.save_services(&[ended, service(2, "b", 1)]).await.unwrap(), []);
    let shown = async |since: i64| -> Vec<ServiceId> {
        let rows = store.services(Timestamp(NOW.0 + since)).await.unwrap().rows;
        rows.iter().map(|row| row.id).collect()
    };
    assert_eq!(shown(10).await, [service_id(1), service_id(2)]);
    assert_eq!(shown(11).await, [service_id(2)]);
    assert_eq!(store.forget_services(Timestamp(NOW.0 + 10)).await.unwrap(), 0);
    assert_eq!(store.forget_services(Timestamp(NOW.0 + 11)).await.unwrap(), 1);
    assert_eq!(shown(0).await, [service_id(2)]);
}

pub async fn the_ends_of_services_are_known_by_id(store: &dyn Store) {
    let mut ended = service(1, "a", 4);
    ended.on_gone(Timestamp(NOW.0 + 5));
    assert_eq!(store.save_services(&[ended, service(2, "b", 4)]).await.unwrap(), []);
    let ends = store.ends(&[service_id(1), service_id(2), service_id(3)]).await.unwrap();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [(service_id(1), Timestamp(NOW.0 + 5))]);
    assert!(store.ends(&[]).await.unwrap().is_empty());
}

pub async fn parked_messages_are_shown_newest_first(store: &dyn Store) {
    let parked = |number: u8| Parked {
        id: 0,
        queue: "states".into(),
        reason: format!("no JSON: \u{1F600} {number}"),
        body: vec![0, 255, number],
        at: NOW,
    };
    store.park(&[parked(1), parked(2)]).await.unwrap();
    store.park(&[parked(3)]).await.unwrap();
    let (page, total) = store.parked(None, 2).await.unwrap();
    assert_eq!((page.len(), total), (2, 3));
    assert!(page[0].id > page[1].id && page[1].id > 0);
    assert_eq!((page[0].head.as_slice(), page[0].size, page[0].at), (&[0, 255, 3][..], 3, NOW));
    let whole = store.parked_one(page[0].id).await.unwrap().unwrap();
    assert_eq!(Parked { id: 0, ..whole }, parked(3));
    let (rest, total) = store.parked(Some(page[1].id), 2).await.unwrap();
    assert_eq!((rest.len(), total), (1, 3));
    assert_eq!(rest[0].head, [0, 255, 1]);
    assert!(store.unpark(rest[0].id).await.unwrap() && !store.unpark(rest[0].id).await.unwrap());
    assert_eq!(store.parked_one(rest[0].id).await.unwrap(), None);
    assert_eq!(store.parked(None, 9).await.unwrap().1, 2);
    let large = Parked { body: vec![7; PARKED_HEAD + 1], ..parked(4) };
    store.park(std::slice::from_ref(&large)).await.unwrap();
    let (page, _) = store.parked(None, 1).await.unwrap();
    assert_eq!((page[0].head.len(), page[0].size), (PARKED_HEAD, PARKED_HEAD as u64 + 1));
    assert_eq!(store.parked_one(page[0].id).await.unwrap().unwrap().body, large.body);
}

pub async fn a_parked_reason_may_hold_a_nul(store: &dyn Store) {
    let odd = Parked { id: 0, queue: "q".into(), reason: "at \u{0}".into(), body: vec![], at: NOW };
    store.park(&[odd]).await.unwrap();
    assert_eq!(store.parked(None, 1).await.unwrap().0[0].reason, "at \u{fffd}");
}

pub async fn the_oldest_parked_messages_are_forgotten(store: &dyn Store) {
    let parked = |number: i64| Parked {
        id: 0,
        queue: "q".into(),
        reason: "r".into(),
        body: number.to_string().into_bytes(),
        at: Timestamp(NOW.0 + number),
    };
    assert_eq!(store.forget_parked(NOW, 1).await.unwrap(), 0);
    store.park(&(0..6).map(parked).collect::<Vec<_>>()).await.unwrap();
    let kept = async || {
        let (page, total) = store.parked(None, 9).await.unwrap();
        assert_eq!(total, page.len() as u64);
        page.into_iter().map(|it| String::from_utf8(it.head).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(store.forget_parked(Timestamp(NOW.0 + 2), 100).await.unwrap(), 2);
    assert_eq!(kept().await, ["5", "4", "3", "2"]);
    assert_eq!(store.forget_parked(NOW, 3).await.unwrap(), 1);
    assert_eq!(kept().await, ["5", "4", "3"]);
}
