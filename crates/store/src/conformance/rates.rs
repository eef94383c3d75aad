//! Checks of rates: what is granted, to whom, and when.

use super::*;
use everwatch_core::capacity::rate::Rate;
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAsk, PermitRequest};
use std::time::Duration;

fn key(text: &str) -> RateKey {
    RateKey::new(text).unwrap()
}

/// So slow that nothing is refilled during a check; the bucket holds this many permits.
fn slow(bucket: u32) -> Rate {
    Rate { permits: 1, per: Duration::from_secs(24 * 3600), burst: bucket + 1 }
}

fn request(of: u128, permits: &[(&str, u32)], count: u32) -> PermitRequest {
    let permits = permits.iter().map(|(name, cost)| (key(name), *cost)).collect();
    PermitRequest { service: service_id(of), number: 1, asks: vec![PermitAsk { turn: 1, permits, count }] }
}

/// How many acquires each of these requests is granted.
async fn granted(store: &dyn Store, requests: &[PermitRequest]) -> Vec<u32> {
    let answers = store.grant_permits(requests).await.unwrap();
    assert_eq!(answers.len(), requests.len());
    let count = |(answer, request): (_, &PermitRequest)| {
        let answer: &everwatch_core::wire::permits::PermitAnswers = answer;
        assert_eq!(answer.service, request.service);
        answer.granted.iter().map(|it| it.count).sum()
    };
    answers.iter().zip(requests).map(count).collect()
}

async fn available(store: &dyn Store, name: &str) -> u32 {
    let row = store.rate(&key(name)).await.unwrap().unwrap();
    row.bucket.available(&row.rate, store.now().await.unwrap())
}

pub async fn rates_are_set_listed_and_deleted(store: &dyn Store) {
    assert_eq!(store.rate(&key("b")).await.unwrap(), None);
    for name in ["b", "a", "C"] {
        let row = store.set_rate(&key(name), slow(9)).await.unwrap();
        assert_eq!((row.key, row.rate), (key(name), slow(9)));
    }
    let page = store.rates(None, 2).await.unwrap();
    let keys: Vec<&str> = page.rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!((keys, page.total), (vec!["C", "a"], 3));
    let page = store.rates(Some(&key("a")), 2).await.unwrap();
    assert_eq!((page.rows.len(), page.total), (1, 3));
    assert_eq!(Some(page.rows[0].clone()), store.rate(&key("b")).await.unwrap());
    assert!(store.delete_rate(&key("a")).await.unwrap());
    assert!(!store.delete_rate(&key("a")).await.unwrap());
    assert_eq!(store.rates(None, 10).await.unwrap().total, 2);
}

pub async fn permits_are_granted_until_the_bucket_is_empty(store: &dyn Store) {
    store.set_rate(&key("a"), slow(9)).await.unwrap();
    assert_eq!(available(store, "a").await, 9);
    assert_eq!(granted(store, &[request(1, &[("a", 2)], 3)]).await, [3]);
    assert_eq!(granted(store, &[request(1, &[("a", 1)], 1), request(2, &[("a", 1)], 5)]).await, [1, 2]);
    assert_eq!(available(store, "a").await, 0);
    let row = store.rate(&key("a")).await.unwrap().unwrap();
    assert_eq!(row.bucket.waiting(store.now().await.unwrap()), 3);
    let answers = store.grant_permits(&[request(1, &[("nothing", 1)], 1)]).await.unwrap();
    assert!(answers[0].refused[0].error.contains("there is no rate `nothing`"), "{answers:?}");
}

pub async fn several_rates_are_granted_together(store: &dyn Store) {
    store.set_rate(&key("a"), slow(2)).await.unwrap();
    store.set_rate(&key("b"), slow(1)).await.unwrap();
    assert_eq!(granted(store, &[request(1, &[("a", 1), ("b", 2)], 1)]).await, [0]);
    assert_eq!((available(store, "a").await, available(store, "b").await), (2, 1));
    assert_eq!(granted(store, &[request(1, &[("a", 1), ("b", 1)], 2)]).await, [1]);
    assert_eq!((available(store, "a").await, available(store, "b").await), (1, 0));
}

pub async fn a_bucket_refills_by_the_clock_of_the_database(store: &dyn Store) {
    let fast = Rate { permits: 1000, per: Duration::from_secs(1), burst: 4000 };
    store.set_rate(&key("a"), fast).await.unwrap();
    let (begun, mut all) = (store.now().await.unwrap(), 0);
    while all < 2200 {
        all += granted(store, &[request(1, &[("a", 1)], 1000)]).await[0];
    }
    let took = store.now().await.unwrap().since(begun);
    assert!(took >= Duration::from_millis(199), "200 permits beyond the bucket take 200 ms, not {took:?}");
    // A change keeps what is left.
    store.set_rate(&key("a"), slow(5000)).await.unwrap();
    assert!(available(store, "a").await < 2000);
    store.empty_rates().await.unwrap();
    assert_eq!(available(store, "a").await, 0);
    assert_eq!(store.rate(&key("a")).await.unwrap().unwrap().bucket.waiting(store.now().await.unwrap()), 0);
}

pub async fn managers_side_by_side_do_not_grant_a_permit_twice(store: &dyn Store) {
    store.set_rate(&key("a"), slow(40)).await.unwrap();
    store.set_rate(&key("b"), slow(40)).await.unwrap();
    let grants = (0..10_u128).map(|of| async move {
        let mut all = 0;
        for _ in 0..5 {
            // The lists of keys overlap, in either order.
            all += granted(store, &[request(2 * of, &[("b", 1), ("a", 1)], 1)]).await[0];
            all += granted(store, &[request(2 * of + 1, &[("a", 1)], 1)]).await[0];
        }
        all
    });
    let all: u32 = futures::future::join_all(grants).await.into_iter().sum();
    assert_eq!(all, 40);
    assert_eq!(available(store, "a").await, 0);
}
