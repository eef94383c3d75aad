//! Checks of events: the store numbers them in order, filters them and deletes the oldest first.

use super::*;
use crate::events::{By, Event, EventFilter, EventRange, Named};
use crate::port::{Filter, Parked};
use everwatch_core::record::bursts::Burst;
use everwatch_core::record::events::EventKind;

fn event(number: u128, kind: EventKind) -> Event {
    let named = |id: Uuid| {
        Some(Named { id, name: format!("n-{number} \u{0}"), namespace: Namespace::new("team").ok() })
    };
    Event {
        id: 0,
        at: Timestamp(NOW.0 + i64::try_from(number).unwrap()),
        kind,
        observer: named(id(number).0),
        service: if kind == EventKind::Started { named(service_id(1).0) } else { None },
        epoch: Some(1 << 32),
        text: String::new(),
        from: None,
        gap_ms: None,
        gap_is_bound: number == 4,
        overlap_ms: None,
        by: (number == 3).then(|| By { who: Some("ada@laptop".into()), from: None, with: None }),
        burst: None,
        detail: false,
    }
}

async fn numbers(store: &dyn Store, filter: &EventFilter, stretch: EventRange) -> Vec<u128> {
    let page = store.events(filter, stretch, 10).await.unwrap();
    // Filtering in memory gives the same result.
    let details = EventFilter { details: true, ..EventFilter::default() };
    let every = store.events(&details, stretch, 10).await.unwrap().events;
    let kept: Vec<Event> = every.into_iter().filter(|event| filter.keeps(event)).collect();
    assert_eq!(kept, page.events);
    page.events.iter().map(|event| event.observer.as_ref().unwrap().id.as_u128()).collect()
}

/// `execute` runs a statement in the store's database.
pub async fn an_unreadable_event_hides_no_other(store: &dyn Store, execute: impl AsyncFn(String)) {
    let events: Vec<Event> = (1..=3).map(|number| event(number, EventKind::Started)).collect();
    store.record(&events).await.unwrap();
    let newer = r#"REPLACE(document, '"started"', '"of_a_newer_version"')"#;
    execute(format!("UPDATE events SET document = {newer} WHERE at = {}", events[1].at.0)).await;
    for (range, order) in [(EventRange::After(0), [0, 1, 2]), (EventRange::Before(i64::MAX), [2, 1, 0])] {
        let found = store.events(&EventFilter::default(), range, 10).await.unwrap().events;
        let seen: Vec<_> = found.iter().map(|it| (it.at, it.kind)).collect();
        let kinds = [EventKind::Started, EventKind::Unreadable, EventKind::Started];
        assert_eq!(seen, order.map(|number| (events[number].at, kinds[number])));
        assert!(found[1].text.contains("of_a_newer_version"), "{}", found[1].text);
    }
}

pub async fn events_are_told_in_order_and_by_filter(store: &dyn Store) {
    assert_eq!(store.event_ends().await.unwrap(), (0, 0));
    store
        .record(&[event(1, EventKind::Created), event(1, EventKind::Started), event(2, EventKind::Created)])
        .await
        .unwrap();
    store.record(&[event(3, EventKind::Failed)]).await.unwrap();
    let all = EventFilter::default();
    assert_eq!(numbers(store, &all, EventRange::Before(i64::MAX)).await, [3, 2, 1, 1]);
    assert_eq!(numbers(store, &all, EventRange::After(0)).await, [1, 1, 2, 3]);
    let page = store.events(&all, EventRange::Before(i64::MAX), 2).await.unwrap();
    assert_eq!((page.events.len(), page.total), (2, 4));
    assert_eq!(Event { id: 0, ..page.events[0].clone() }, event(3, EventKind::Failed));
    let rest = EventRange::Before(page.events[1].id);
    assert_eq!(numbers(store, &all, rest).await, [1, 1]);
    let of = |observer, service, kinds| EventFilter { observer, service, kinds, ..EventFilter::default() };
    assert_eq!(numbers(store, &of(Some(id(1)), None, vec![]), EventRange::After(0)).await, [1, 1]);
    assert_eq!(numbers(store, &of(None, Some(service_id(1)), vec![]), EventRange::After(0)).await, [1]);
    let two = vec![EventKind::Failed, EventKind::Started];
    assert_eq!(numbers(store, &of(None, None, two), EventRange::After(0)).await, [1, 3]);
    assert_eq!(
        numbers(store, &of(Some(id(2)), None, vec![EventKind::Failed]), EventRange::After(0)).await,
        []
    );
}

/// Both ends of a span are in it, and the total counts what the span has.
pub async fn a_span_of_time_selects_events(store: &dyn Store) {
    store.record(&(1..=5).map(|number| event(number, EventKind::Created)).collect::<Vec<_>>()).await.unwrap();
    let at = |number: i64| Some(Timestamp(NOW.0 + number));
    for (since, until, expected) in [
        (None, None, vec![1, 2, 3, 4, 5]),
        (at(4), None, vec![4, 5]),
        (None, at(2), vec![1, 2]),
        (at(2), at(4), vec![2, 3, 4]),
        (at(6), None, vec![]),
    ] {
        let span = EventFilter { since, until, ..EventFilter::default() };
        assert_eq!(numbers(store, &span, EventRange::After(0)).await, expected);
        let page = store.events(&span, EventRange::Before(i64::MAX), 1).await.unwrap();
        let newest = page.events.first().map(|event| event.at);
        let last = expected.last().map(|last| Timestamp(NOW.0 + i64::try_from(*last).unwrap()));
        assert_eq!((page.total, newest), (expected.len() as u64, last));
    }
}

/// A page is read while a writer is active. A total that does not match the events of its page would come
/// from another moment.
pub async fn a_page_and_its_total_are_of_one_moment(store: &dyn Store) {
    let written = async {
        for number in 1..=60 {
            store.record(&[event(number, EventKind::Created)]).await.unwrap();
            all_created(store, &[published(number, &format!("n-{number}"))]).await;
            let (queue, reason, body) = ("q".to_owned(), "r".to_owned(), b"x".to_vec());
            store.park(&[Parked { id: 0, queue, reason, body, at: NOW }]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let read = async {
        loop {
            let events =
                store.events(&EventFilter::default(), EventRange::Before(i64::MAX), 99).await.unwrap();
            assert_eq!(events.events.len() as u64, events.total);
            let rows = store.list(&Filter::default(), None, 99).await.unwrap();
            assert_eq!(rows.rows.len() as u64, rows.total);
            let (parked, total) = store.parked(None, 99).await.unwrap();
            assert_eq!(parked.len() as u64, total);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = written => {}
        () = read => {}
    }
}

pub async fn details_are_listed_for_their_observer_and_counted_apart(store: &dyn Store) {
    let of = |number, detail| Event { detail, ..event(number, EventKind::Started) };
    let burst = Burst { count: 3, since: NOW, until: Timestamp(NOW.0 + 9), moves: None };
    let summary =
        Event { burst: Some(burst), from: Some(Named::service(ServiceId(id(9).0), "b")), ..of(6, false) };
    let all = [of(1, false), of(2, true), of(3, true), of(4, true), of(5, false), summary.clone()];
    store.record(&all).await.unwrap();
    let (single, observer) =
        (EventFilter::default(), EventFilter { observer: Some(id(3)), ..EventFilter::default() });
    let everything = EventFilter { details: true, ..EventFilter::default() };
    assert_eq!(numbers(store, &single, EventRange::After(0)).await, [1, 5, 6]);
    assert_eq!(numbers(store, &observer, EventRange::After(0)).await, [3]);
    assert_eq!(numbers(store, &everything, EventRange::After(0)).await, [1, 2, 3, 4, 5, 6]);
    let of_service = EventFilter { service: Some(service_id(1)), ..EventFilter::default() };
    assert_eq!(numbers(store, &of_service, EventRange::After(0)).await, [1, 2, 3, 4, 5, 6]);
    let page = store.events(&single, EventRange::Before(i64::MAX), 1).await.unwrap();
    assert_eq!((page.total, Event { id: 0, ..page.events[0].clone() }), (3, summary));
    // The newest two of each class are kept.
    assert_eq!(store.forget_events(Timestamp(0), 2).await.unwrap(), 2);
    assert_eq!(numbers(store, &everything, EventRange::After(0)).await, [3, 4, 5, 6]);
}

pub async fn more_events_than_one_statement_deletes_are_forgotten(store: &dyn Store) {
    for _ in 0..5 {
        let many: Vec<Event> = (1..=1000).map(|number| event(number, EventKind::Created)).collect();
        store.record(&many).await.unwrap();
    }
    assert_eq!(store.forget_events(Timestamp(0), 500).await.unwrap(), 4500);
    let page = store.events(&EventFilter::default(), EventRange::Before(i64::MAX), 1).await.unwrap();
    assert_eq!(page.total, 500);
    assert_eq!(store.forget_events(Timestamp(i64::MAX), 500).await.unwrap(), 499);
}

pub async fn the_oldest_events_are_forgotten(store: &dyn Store) {
    let all = EventFilter::default();
    store.record(&(1..=6).map(|number| event(number, EventKind::Created)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(store.forget_events(Timestamp(NOW.0 + 3), 100).await.unwrap(), 2);
    assert_eq!(store.forget_events(Timestamp(0), 3).await.unwrap(), 1);
    assert_eq!(numbers(store, &all, EventRange::After(0)).await, [4, 5, 6]);
    let (oldest, newest) = store.event_ends().await.unwrap();
    assert_eq!(newest - oldest, 2);
    // The numbers go on even if everything is old.
    store.forget_events(Timestamp(i64::MAX), 0).await.unwrap();
    store.record(&[event(7, EventKind::Created)]).await.unwrap();
    assert_eq!(numbers(store, &all, EventRange::After(newest)).await, [7]);
}

pub async fn a_reader_that_follows_the_numbers_misses_nothing(store: &dyn Store) {
    let all = EventFilter::default();
    let write = async |from: u128| {
        for number in from..from + 25 {
            store
                .record(&[event(number, EventKind::Created), event(number, EventKind::Started)])
                .await
                .unwrap();
        }
    };
    let follow = async {
        let (mut last, mut seen) = (0, 0);
        while seen < 100 {
            let page = store.events(&all, EventRange::After(last), 7).await.unwrap();
            seen += page.events.len();
            last = page.events.last().map_or(last, |event| event.id);
            tokio::task::yield_now().await;
        }
        last
    };
    let ((), (), last) = tokio::join!(write(100), write(200), follow);
    assert_eq!(store.event_ends().await.unwrap().1, last);
}
