//! Namespaces: names, lists, quotas.

use super::*;
use crate::port::{Filter, NamespaceDeleted, NamespaceWritten};
use everwatch_core::access::ScopePart;
use everwatch_core::capacity::limits::MAX_MAX;
use everwatch_core::capacity::namespace::{NamespaceSettings, Quotas};
use everwatch_core::clock;
use everwatch_core::id::{LimitKey, LimitPattern};

fn namespace(text: &str) -> Namespace {
    Namespace::new(text).unwrap()
}

/// An observer of this namespace whose message is in its queue.
fn of(number: u128, text: &str, called: &str) -> Row {
    observer(number, json!({"name": called, "namespace": text, "kind": "ticker"}))
}

/// A new observer of this namespace that waits.
fn waiting(number: u128, text: &str, called: &str) -> Row {
    new(number, json!({"name": called, "namespace": text, "kind": "ticker", "on_full": "queue"}))
        .created_waiting()
}

async fn put(store: &dyn Store, text: &str, quotas: Quotas) {
    let settings = NamespaceSettings { quotas, pools: None };
    store.put_namespace(&namespace(text), &settings).await.unwrap();
}

async fn found(store: &dyn Store, text: &str, called: &str) -> Option<ObserverId> {
    let which = ObserverRef::Name(namespace(text), name(called));
    store.find(&which).await.unwrap().map(|row| row.id)
}

pub async fn each_namespace_has_its_own_names(store: &dyn Store) {
    put(store, "a", Quotas::default()).await;
    put(store, "a-b", Quotas::default()).await;
    all_created(store, &[waiting(1, "default", "web"), waiting(2, "a", "web"), waiting(3, "a-b", "web")])
        .await;
    assert_eq!(create(store, &[waiting(4, "a", "web")]).await.unwrap(), [Created::NameTaken]);
    assert_eq!(found(store, "default", "web").await, Some(id(1)));
    assert_eq!(found(store, "a", "web").await, Some(id(2)));
    assert_eq!(found(store, "c", "web").await, None);
    let listed = |filter: Filter| async move {
        let page = store.list(&filter, None, 10).await.unwrap();
        assert_eq!(page.total, page.rows.len() as u64);
        page.rows.iter().map(|row| row.id.0.as_u128()).collect::<Vec<_>>()
    };
    let within = |text: &str| Filter { namespace: Some(namespace(text)), ..Filter::default() };
    assert_eq!(listed(Filter::default()).await, [1, 2, 3]);
    assert_eq!(listed(within("a")).await, [2]);
    assert_eq!(listed(within("default")).await, [1]);
    assert_eq!(listed(within("c")).await, [0; 0]);
    let part = |texts: &[&str]| ScopePart {
        namespaces: Some(texts.iter().map(|it| namespace(it)).collect()),
        ..ScopePart::default()
    };
    let scoped = |texts: &[&str]| Filter { scope: Some(vec![part(texts)]), ..Filter::default() };
    assert_eq!(listed(scoped(&["a", "default"])).await, [1, 2]);
    assert_eq!(listed(Filter { namespace: Some(namespace("a-b")), ..scoped(&["a"]) }).await, [0; 0]);
    // A change of the definition and the delete concern one namespace only.
    change(store, 2, |row| {
        std::sync::Arc::make_mut(&mut row.definition).priority = 7;
    })
    .await;
    assert_eq!(create(store, &[waiting(4, "a", "web")]).await.unwrap(), [Created::NameTaken]);
    change(store, 2, |row| {
        row.delete(NOW, &RowPolicy::default());
    })
    .await;
    all_created(store, &[waiting(4, "a", "web")]).await;
    assert_eq!(create(store, &[waiting(5, "default", "web")]).await.unwrap(), [Created::NameTaken]);
    let counts =
        store.namespace_counts(&[namespace("default"), namespace("a"), namespace("c")]).await.unwrap();
    assert_eq!(counts, [(namespace("a"), 1), (namespace("c"), 0), (namespace("default"), 1)].into());
}

pub async fn a_namespace_is_deleted_once_it_has_no_observers(store: &dyn Store) {
    let running = Quotas { running: Some(3), ..Quotas::default() };
    let settings = NamespaceSettings { quotas: running, pools: Some(vec!["gpu".parse().unwrap()]) };
    let team = namespace("team");
    assert_eq!(store.put_namespace(&team, &settings).await.unwrap(), NamespaceWritten::Created);
    assert_eq!(store.put_namespace(&team, &settings).await.unwrap(), NamespaceWritten::Replaced);
    let row = store.namespace(&team).await.unwrap().unwrap();
    assert_eq!(row.settings, settings);
    assert_eq!(store.namespaces().await.unwrap(), [row]);
    let key = LimitKey::of_namespace(&team).unwrap();
    let max =
        || async { store.limit(&LimitPattern::from(key.clone())).await.unwrap().map(|it| it.limit.max) };
    assert_eq!(max().await, Some(3));
    assert_eq!((store.limits(None, 9).await.unwrap().len(), store.limit_count().await.unwrap()), (1, 1));
    assert_eq!(create(store, &[waiting(1, "team", "a")]).await.unwrap(), [Created::PoolNotAllowed]);
    assert_eq!(create(store, &[waiting(1, "nobody", "a")]).await.unwrap(), [Created::NamespaceMissing]);
    // A manager adopts what already runs, also into a namespace that a restored database does not know.
    all_created(store, &[of(9, "nobody", "a")]).await;
    put(store, "team", Quotas::default()).await;
    assert_eq!(max().await, Some(MAX_MAX));
    // A namespace without a quota of running observers has no limit that anybody set.
    assert_eq!((store.limits(None, 9).await.unwrap().len(), store.limit_count().await.unwrap()), (0, 0));
    all_created(store, &[waiting(1, "team", "a")]).await;
    assert_eq!(store.delete_namespace(&team).await.unwrap(), NamespaceDeleted::InUse(1));
    change(store, 1, |row| {
        row.delete(NOW, &RowPolicy::default());
    })
    .await;
    assert_eq!(store.delete_namespace(&team).await.unwrap(), NamespaceDeleted::Done);
    assert_eq!(store.delete_namespace(&team).await.unwrap(), NamespaceDeleted::Missing);
    assert_eq!((store.namespace(&team).await.unwrap(), max().await), (None, None));
    // The default namespace only loses its quotas.
    put(store, "default", Quotas { observers: Some(1), ..Quotas::default() }).await;
    all_created(store, &[waiting(2, "default", "a")]).await;
    assert_eq!(create(store, &[waiting(3, "default", "b")]).await.unwrap(), [Created::ObserversQuota]);
    assert_eq!(store.delete_namespace(&Namespace::default()).await.unwrap(), NamespaceDeleted::Done);
    all_created(store, &[waiting(3, "default", "b")]).await;
}

pub async fn quotas_hold_within_a_request_and_after_it(store: &dyn Store) {
    put(store, "team", Quotas { observers: Some(2), ..Quotas::default() }).await;
    let rows = [1, 2, 3].map(|number| waiting(number, "team", &format!("n{number}")));
    let created = create(store, &rows).await.unwrap();
    assert_eq!(created, [Created::Done, Created::Done, Created::ObserversQuota]);
    // A name that is taken is the more lasting obstacle, and what runs already is adopted.
    assert_eq!(create(store, &[waiting(3, "team", "n1")]).await.unwrap(), [Created::NameTaken]);
    all_created(store, &[of(4, "team", "n4")]).await;
    for number in [1, 2] {
        change(store, number, |row| {
            row.delete(NOW, &RowPolicy::default());
        })
        .await;
    }
    assert_eq!(create(store, &rows[2..]).await.unwrap(), [Created::Done]);
    put(store, "fast", Quotas { creates_per_minute: Some(2), ..Quotas::default() }).await;
    let rows = [11, 12, 13].map(|number| waiting(number, "fast", &format!("n{number}")));
    let created = create(store, &rows).await.unwrap();
    assert_eq!(created, [Created::Done, Created::Done, Created::CreatesQuota]);
    let row = store.namespace(&namespace("fast")).await.unwrap().unwrap();
    assert_eq!(
        (
            row.creates.left(2, clock::now()),
            row.creates.left(2, clock::now().plus(std::time::Duration::from_secs(61)))
        ),
        (0, 2)
    );
    // Refused creates and other settings leave it as it is.
    assert_eq!(create(store, &rows[2..]).await.unwrap(), [Created::CreatesQuota]);
    put(store, "fast", Quotas { creates_per_minute: Some(3), ..Quotas::default() }).await;
    assert_eq!(create(store, &rows[2..]).await.unwrap(), [Created::Done]);
}

pub async fn managers_side_by_side_do_not_exceed_a_quota(store: &dyn Store) {
    put(store, "team", Quotas { observers: Some(5), creates_per_minute: Some(7), ..Quotas::default() }).await;
    let creates = (1..=20).map(|number| async move {
        create(store, &[waiting(number, "team", &format!("n{number}"))]).await.unwrap()[0]
    });
    let created = futures::future::join_all(creates).await;
    assert_eq!(created.iter().filter(|it| **it == Created::Done).count(), 5);
    assert_eq!(store.namespace_counts(&[namespace("team")]).await.unwrap(), [(namespace("team"), 5)].into());
    put(store, "team", Quotas { creates_per_minute: Some(7), ..Quotas::default() }).await;
    let creates = (21..=40).map(|number| async move {
        create(store, &[waiting(number, "team", &format!("n{number}"))]).await.unwrap()[0]
    });
    let created = futures::future::join_all(creates).await;
    assert_eq!(created.iter().filter(|it| **it == Created::Done).count(), 2);
}
