//! Limits by key.

use super::*;
use crate::port::{Admission, Decided, LimitCounts, LimitDeleted, LimitsLookedAt};
use everwatch_core::capacity::admission::Offers;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::supply::{Load, Supply};
use everwatch_core::id::{Kind, LimitKey, LimitPattern, Pool};
use std::collections::BTreeMap;

const SOME: usize = 100;

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn pattern(text: &str) -> LimitPattern {
    LimitPattern::new(text).unwrap()
}

fn limit(text: &str, max: u32) -> Limit {
    Limit { key: pattern(text), max, enforce: false }
}

/// An observer that counts towards these limits.
fn limited(number: u128, keys: &[&str], more: &Value) -> Row {
    let mut body =
        json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue", "limits": keys});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    new(number, body)
}

async fn put(store: &dyn Store, limit: Limit) -> bool {
    store.put_limit(&limit).await.unwrap()
}

/// Room for `slots` observers in pools `default` and `other`.
async fn room(store: &dyn Store, slots: u32) {
    let mut other = service(2, "s2", slots);
    other.registration.pool = Pool::new("other").unwrap();
    assert_eq!(store.save_services(&[service(1, "s1", slots), other]).await.unwrap(), []);
}

/// One admission to a pool: the numbers of the admitted observers.
async fn admit_to(store: &dyn Store, pool: &str) -> Vec<u128> {
    let offers = Offers::from([(Kind::new("ticker").unwrap(), Supply::of(1000, 1).into())]);
    let pool = Pool::new(pool).unwrap();
    let admission = Admission { pool: &pool, offers: &offers, now: NOW, holds_restored: false, most: 500 };
    let decided = store.admit(&admission).await.unwrap();
    let admitted = |it: &Decided| it.after.places.is_some() || it.after.generation > it.before.generation;
    decided.iter().filter(|it| admitted(it)).map(|it| it.after.id.0.as_u128()).collect()
}

async fn look(store: &dyn Store) -> LimitsLookedAt {
    store.look_at_limits(NOW, SOME).await.unwrap()
}

/// Admissions and moves until nothing changes.
async fn settle(store: &dyn Store) -> Vec<u128> {
    let (mut all, mut rests) = (Vec::new(), false);
    for _ in 0..20 {
        let moved = look(store).await.goes_on;
        let admitted = [admit_to(store, "default").await, admit_to(store, "other").await].concat();
        rests = !moved && admitted.is_empty();
        all.extend(admitted);
        if rests {
            break;
        }
    }
    assert!(rests, "the backlog never rests: {all:?}");
    all
}

/// It ends, and its message is gone.
async fn release(store: &dyn Store, number: u128) {
    change(store, number, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    change(store, number, |row| hear(row, 1, 2, RunEvent::Released)).await;
}

pub async fn limits_are_kept_and_found_by_the_keys_that_they_cover(store: &dyn Store) {
    assert!(put(store, limit("account-*", 2)).await && put(store, limit("account-42", 5)).await);
    assert!(!put(store, limit("account-42", 7)).await, "it is changed");
    let of = async |keys: &[&str]| {
        let keys: Vec<LimitKey> = keys.iter().map(|text| key(text)).collect();
        store
            .limits_of(&keys)
            .await
            .unwrap()
            .into_iter()
            .map(|(key, limit)| (key, limit.max))
            .collect::<BTreeMap<_, _>>()
    };
    let expected = BTreeMap::from([(key("account-1"), 2), (key("account-42"), 7)]);
    assert_eq!(of(&["account-1", "account-42", "other", "account"]).await, expected);
    let page = store.limits(None, 1).await.unwrap();
    assert_eq!(page, [LimitCounts { limit: limit("account-*", 2), used: 0, waiting: 0 }]);
    assert_eq!(store.limits(Some(&pattern("account-*")), SOME).await.unwrap().len(), 1);
    assert_eq!(store.limit_count().await.unwrap(), 2);
    assert_eq!(store.limit(&pattern("other")).await.unwrap(), None);
}

pub async fn a_limit_is_deleted_once_no_observer_needs_it(store: &dyn Store) {
    put(store, limit("a-*", 1)).await;
    put(store, limit("a-1", 1)).await;
    create(store, &[limited(1, &["a-1"], &json!({})), limited(2, &["a-2"], &json!({}))]).await.unwrap();
    assert_eq!(store.delete_limit(&pattern("b")).await.unwrap(), LimitDeleted::Missing);
    assert_eq!(store.delete_limit(&pattern("a-*")).await.unwrap(), LimitDeleted::InUse(1));
    assert_eq!(store.delete_limit(&pattern("a-1")).await.unwrap(), LimitDeleted::Done, "a-* applies to it");
    assert_eq!(store.delete_limit(&pattern("a-*")).await.unwrap(), LimitDeleted::InUse(2));
    let rows = [loaded(store, 1).await, loaded(store, 2).await];
    store.forget(&rows.map(|row| (row.id, row.version))).await.unwrap();
    assert_eq!(store.delete_limit(&pattern("a-*")).await.unwrap(), LimitDeleted::Done);
}

pub async fn a_place_is_free_once_the_message_is_gone(store: &dyn Store) {
    room(store, 10).await;
    put(store, limit("a", 2)).await;
    let rows: Vec<Row> = (1..=4).map(|number| limited(number, &["a"], &json!({}))).collect();
    assert_eq!(create(store, &rows).await.unwrap(), [Created::Waits; 4]);
    assert_eq!(settle(store).await, [1, 2]);
    assert_eq!(store.limit_counts(&key("a")).await.unwrap(), (2, 2));
    let users = async |waits| {
        let users = store.limit_users(&key("a"), waits, SOME).await.unwrap();
        users.into_iter().map(|it| it.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((users(false).await.join(" "), users(true).await.join(" ")), ("o1 o2".into(), "o3 o4".into()));
    let load = Load { number: 2, weight: 2 };
    assert_eq!(store.behind_limits().await.unwrap(), BTreeMap::from([(Pool::default(), load)]));
    assert!(!store.waiting_pools().await.unwrap().limits_changed);

    change(store, 1, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    assert_eq!(settle(store).await, [], "its message may come back");
    let unreleased = store.unreleased(&Pool::default(), SOME).await.unwrap();
    assert_eq!(unreleased.iter().map(|row| row.id).collect::<Vec<_>>(), [id(1)]);
    assert_eq!(store.pools_with_unreleased().await.unwrap(), [Pool::default()]);
    change(store, 1, |row| hear(row, 1, 2, RunEvent::Released)).await;
    assert_eq!(store.unreleased(&Pool::default(), SOME).await.unwrap(), []);
    assert_eq!(store.pools_with_unreleased().await.unwrap(), []);
    assert_eq!(settle(store).await, [3]);
    put(store, limit("a", 3)).await;
    assert_eq!(settle(store).await, [4], "the maximum was raised");
    assert_eq!(store.limit_counts(&key("a")).await.unwrap(), (3, 0));
}

pub async fn the_first_in_order_gets_the_place(store: &dyn Store) {
    room(store, 10).await;
    put(store, limit("a", 1)).await;
    let of = |number, priority| limited(number, &["a"], &json!({"priority": priority}));
    create(store, &[of(1, 0), of(2, 1), of(3, 5), of(4, 5)]).await.unwrap();
    assert_eq!(settle(store).await, [3]);
    // A new one comes behind those that wait with a higher rank.
    create(store, &[of(5, 3), of(6, 9)]).await.unwrap();
    assert_eq!(settle(store).await, []);
    release(store, 3).await;
    create(store, &[of(7, 0)]).await.unwrap();
    for expected in [6, 4, 5, 2, 1, 7] {
        assert_eq!(settle(store).await, [expected]);
        release(store, expected).await;
    }
}

/// A lost wake-up would leave an observer behind a limit with free places for ever.
pub async fn a_place_that_is_not_used_goes_to_the_next_one(store: &dyn Store) {
    room(store, 10).await;
    put(store, limit("a", 1)).await;
    put(store, limit("b", 1)).await;
    let rows = [
        limited(1, &["a"], &json!({})),
        limited(2, &["b"], &json!({})),
        limited(3, &["a", "b"], &json!({})),
        limited(4, &["a"], &json!({})),
        limited(5, &["a"], &json!({})),
        limited(6, &["a"], &json!({"pool": "other"})),
        limited(7, &["a"], &json!({"pool": "other"})),
    ];
    create(store, &rows).await.unwrap();
    assert_eq!(settle(store).await, [1, 2]);
    release(store, 1).await;
    assert_eq!(settle(store).await, [6], "the third one waits for b, the next one of its pool comes later");
    release(store, 6).await;
    assert_eq!(settle(store).await, [4]);
    // Those that come forward may be deleted before they are admitted.
    change(store, 4, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    change(store, 4, |row| hear(row, 1, 2, RunEvent::Released)).await;
    assert!(look(store).await.goes_on);
    change(store, 5, |row| assert!(row.delete(NOW, &RowPolicy::default()))).await;
    assert_eq!(settle(store).await, [7]);
    release(store, 7).await;
    release(store, 2).await;
    assert_eq!(settle(store).await, [3]);
}

pub async fn admissions_to_two_pools_do_not_give_a_place_twice(store: &dyn Store) {
    room(store, 100).await;
    put(store, limit("a", 5)).await;
    let pool = |number: u128| if number.is_multiple_of(2) { "default" } else { "other" };
    let rows: Vec<Row> =
        (1..=40).map(|number| limited(number, &["a"], &json!({"pool": pool(number)}))).collect();
    create(store, &rows).await.unwrap();
    let (one, two, three, four) = tokio::join!(
        admit_to(store, "default"),
        admit_to(store, "other"),
        admit_to(store, "default"),
        admit_to(store, "other")
    );
    assert_eq!([one, two, three, four].concat().len(), 5);
    let mut admitted: Vec<u128> = Vec::new();
    for _ in 0..8 {
        let users = store.limit_users(&key("a"), false, SOME).await.unwrap();
        assert!(users.len() <= 5, "{users:?}");
        for user in users {
            admitted.push(user.id.0.as_u128());
            release(store, user.id.0.as_u128()).await;
        }
        settle(store).await;
    }
    admitted.sort_unstable();
    assert_eq!(admitted, (1..=40).collect::<Vec<_>>(), "each had its turn");
}

pub async fn a_create_that_does_not_wait_is_refused_at_a_full_limit(store: &dyn Store) {
    room(store, 2).await;
    put(store, limit("a", 1)).await;
    let hasty = |number, keys: &[&str]| limited(number, keys, &json!({"on_full": "reject"}));
    let (waits, full) = (Created::Waits, Created::LimitReached);
    assert_eq!(
        create(store, &[hasty(1, &["a"]), hasty(2, &["a"]), hasty(3, &["unknown"])]).await.unwrap(),
        [waits, full, full]
    );
    assert_eq!(
        create(store, &[hasty(4, &["a"])]).await.unwrap(),
        [full],
        "the first one waits for its admission"
    );
    assert_eq!(settle(store).await, [1]);
    assert_eq!(create(store, &[hasty(5, &["a"])]).await.unwrap(), [full]);
    let (one, two) = (hasty(6, &["b"]), hasty(7, &["b"]));
    put(store, limit("b", 1)).await;
    let (first, second) =
        tokio::join!(create(store, std::slice::from_ref(&one)), create(store, std::slice::from_ref(&two)));
    let mut answers = [first.unwrap()[0], second.unwrap()[0]];
    answers.sort_by_key(|answer| answer.is_stored());
    assert_eq!(answers, [full, waits]);
}

pub async fn an_enforced_limit_names_the_newest_beyond_it(store: &dyn Store) {
    room(store, 10).await;
    put(store, limit("a-*", 3)).await;
    let rows: Vec<Row> = (1..=3).map(|number| limited(number, &["a-1"], &json!({}))).collect();
    create(store, &rows).await.unwrap();
    assert_eq!(settle(store).await, [1, 2, 3]);
    put(store, limit("a-*", 1)).await;
    assert_eq!(look(store).await, LimitsLookedAt::default());
    put(store, Limit { enforce: true, ..limit("a-*", 1) }).await;
    let beyond = async || look(store).await.beyond.iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(beyond().await, [id(3), id(2)]);
    change(store, 3, |row| assert!(row.give_up_slot(NOW, &RowPolicy::default()))).await;
    change(store, 3, |row| assert!(!row.give_up_slot(NOW, &RowPolicy::default()))).await;
    assert_eq!(beyond().await, [id(3), id(2)], "it has not ended yet");
    put(store, limit("a-1", 9)).await;
    assert_eq!(beyond().await, [], "another limit applies to the key");
    assert!(!store.waiting_pools().await.unwrap().limits_changed);
}
