//! Lists and counts.

use super::*;
use crate::port::{Filter, ListCursor, MatchingCounts, Page, Reasons, Sort};
use everwatch_core::access::ScopePart;
use everwatch_core::clock;
use everwatch_core::record::health::Health;
use everwatch_core::record::pool_obstacle::Obstacles;
use everwatch_core::record::reason::{ReasonCode, code_at};
use everwatch_core::record::status::Status;
use std::sync::Arc;
use std::time::Duration;

async fn listed(store: &dyn Store, filter: Filter) -> Vec<String> {
    let page = store.list(&filter, None, 100).await.unwrap();
    assert_eq!((page.total, page.more), (page.rows.len() as u64, false));
    page.rows.iter().map(|row| row.definition.name.to_string()).collect()
}

fn place(row: &Row, sort: Sort) -> ListCursor {
    let value = match sort {
        Sort::Name => row.definition.name.to_string(),
        Sort::CreatedAt => row.created_at.0.to_string(),
    };
    ListCursor { value, id: row.id }
}

pub async fn what_is_saved_is_found_by_what_it_is_now(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    let before = loaded(store, 1).await;
    let in_pool = |pool: &str| Filter { pool: pool.parse().ok(), ..Filter::default() };
    let labelled =
        |value: &str| Filter { labels: [("app".into(), value.into())].into(), ..Filter::default() };
    change(store, 1, |row| {
        let definition = Arc::make_mut(&mut row.definition);
        definition.pool = "gpu".parse().unwrap();
        definition.labels = [("app".into(), "x".into())].into();
    })
    .await;
    assert_eq!(listed(store, in_pool("gpu")).await, ["a"]);
    assert_eq!(listed(store, in_pool("default")).await, [""; 0]);
    assert_eq!(listed(store, labelled("x")).await, ["a"]);
    // A save that comes too late changes nothing, even if its version equals the stored version.
    let mut late = before.clone();
    Arc::make_mut(&mut late.definition).labels = [("app".into(), "late".into())].into();
    assert_eq!(store.save(&[Change { before: &before, after: &late }]).await.unwrap(), [id(1)]);
    assert_eq!(listed(store, labelled("late")).await, [""; 0]);
    assert_eq!(listed(store, in_pool("gpu")).await, ["a"]);
}

pub async fn filters_hold_together(store: &dyn Store) {
    let one = json!({"name": "Web-1", "kind": "http", "pool": "gpu", "on_full": "queue",
        "labels": {"team": "x", "a.b/c": "1"}});
    let two = json!({"name": "web_2", "kind": "http", "on_full": "queue", "labels": {"team": "x"}});
    let three = json!({"name": "cron", "kind": "ticker", "on_full": "queue"});
    all_created(store, &[observer(1, one), observer(2, two), observer(3, three)]).await;
    change(store, 2, |row| hear(row, 9, 1, started())).await;
    let labels = |pairs: &[(&str, &str)]| Filter {
        labels: pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Filter::default()
    };
    let part = |q: &str| Filter { q: Some(q.into()), ..Filter::default() };
    assert_eq!(listed(store, Filter::default()).await, ["Web-1", "cron", "web_2"]);
    assert_eq!(listed(store, labels(&[("team", "x")])).await, ["Web-1", "web_2"]);
    assert_eq!(listed(store, labels(&[("team", "x"), ("a.b/c", "1")])).await, ["Web-1"]);
    assert_eq!(listed(store, labels(&[("team", "y")])).await, [""; 0]);
    assert_eq!(listed(store, labels(&[("te\"am\0", "'\0")])).await, [""; 0]);
    let selected = |text: &str| Filter { selector: text.parse().unwrap(), ..Filter::default() };
    for (selector, expected) in [
        ("team in (x, y)", &["Web-1", "web_2"][..]),
        ("team notin (y)", &["Web-1", "cron", "web_2"]),
        ("team!=x", &["cron"]),
        ("a.b/c", &["Web-1"]),
        ("!a.b/c, team", &["web_2"]),
        ("team=x,a.b/c=1", &["Web-1"]),
        ("te in (')", &[]),
    ] {
        assert_eq!(listed(store, selected(selector)).await, expected, "{selector}");
    }
    assert_eq!(listed(store, part("WEB")).await, ["Web-1", "web_2"]);
    assert_eq!(listed(store, part("_")).await, ["web_2"]);
    assert_eq!(listed(store, part("%")).await, [""; 0]);
    assert_eq!(listed(store, part("\0")).await, [""; 0]);
    let kind = Filter { kind: "ticker".parse().ok(), ..Filter::default() };
    assert_eq!(listed(store, kind).await, ["cron"]);
    let pool = Filter { pool: "gpu".parse().ok(), kind: "http".parse().ok(), ..Filter::default() };
    assert_eq!(listed(store, pool).await, ["Web-1"]);
    let held = Filter { service: Some(service_id(9)), ..Filter::default() };
    assert_eq!(listed(store, held).await, ["web_2"]);
    let nobody = Filter { service: Some(service_id(0)), ..Filter::default() };
    assert_eq!(listed(store, nobody).await, [""; 0], "a service that does not exist holds nothing");
    let runs = Filter { status: vec![Status::Processing, Status::Failed], ..Filter::default() };
    assert_eq!(listed(store, runs).await, ["web_2"]);
}

pub async fn a_scope_hides_what_lies_outside_of_it(store: &dyn Store) {
    let body = |called: &str, kind: &str, pool: &str| json!({"name": called, "kind": kind, "pool": pool, "on_full": "queue"});
    let bodies = [
        body("a", "http", "gpu"),
        body("b", "exec", "gpu"),
        body("c", "http", "default"),
        body("d", "exec", "x"),
    ];
    let rows: Vec<Row> = bodies.into_iter().zip(1..).map(|(body, number)| observer(number, body)).collect();
    all_created(store, &rows).await;
    let part = |pools: &[&str], kinds: &[&str]| ScopePart {
        namespaces: None,
        pools: (!pools.is_empty()).then(|| pools.iter().map(|it| it.parse().unwrap()).collect()),
        kinds: (!kinds.is_empty()).then(|| kinds.iter().map(|it| it.parse().unwrap()).collect()),
    };
    let within = |parts: Vec<ScopePart>| Filter { scope: Some(parts), ..Filter::default() };
    assert_eq!(listed(store, within(vec![part(&["gpu"], &[])])).await, ["a", "b"]);
    assert_eq!(listed(store, within(vec![part(&["gpu"], &["exec"])])).await, ["b"]);
    assert_eq!(
        listed(store, within(vec![part(&[], &["http"]), part(&["x", "y"], &[])])).await,
        ["a", "c", "d"]
    );
    assert_eq!(listed(store, within(vec![])).await, [""; 0]);
    assert_eq!(listed(store, within(vec![part(&[], &[])])).await, ["a", "b", "c", "d"]);
    let both = Filter { q: Some("a".to_owned()), ..within(vec![part(&["gpu"], &[])]) };
    assert_eq!(listed(store, both).await, ["a"]);
}

pub async fn deleted_ones_are_shown_only_on_request(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    change(store, 1, |row| {
        hear(row, 9, 1, started());
        row.delete(NOW, &RowPolicy::default());
        hear(row, 9, 2, RunEvent::Stopped);
    })
    .await;
    assert_eq!(listed(store, Filter::default()).await, ["b"]);
    let deleted = Filter { status: vec![Status::Deleted], ..Filter::default() };
    assert_eq!(listed(store, deleted).await, ["a"]);
}

pub async fn pages_show_each_row_once_in_either_order(store: &dyn Store) {
    let mut rows: Vec<Row> = (1..=11).map(|number| published(number, &format!("n{number:02}"))).collect();
    for row in &mut rows {
        // Several rows have the same creation time: the id decides their order.
        row.created_at = Timestamp(NOW.0 + i64::from(row.id.0.as_u128() % 2 == 0));
    }
    all_created(store, &rows).await;
    for sort in [Sort::Name, Sort::CreatedAt] {
        let mut expected = rows.clone();
        expected.sort_by_key(|row| match sort {
            Sort::Name => (Some(row.definition.name.clone()), NOW, row.id),
            Sort::CreatedAt => (None, row.created_at, row.id),
        });
        for descending in [false, true] {
            let filter = Filter { sort, descending, ..Filter::default() };
            let mut seen: Vec<Row> = Vec::new();
            loop {
                let after = seen.last().map(|row| place(row, sort));
                let Page { rows, total, more } = store.list(&filter, after.as_ref(), 3).await.unwrap();
                assert_eq!((total, more), (11, seen.len() + 3 < 11));
                seen.extend(rows);
                if !more {
                    break;
                }
            }
            assert_eq!(seen, expected, "{sort:?} {descending}");
            expected.reverse();
        }
    }
}

pub async fn one_name_of_many_times_is_paged_by_id(store: &dyn Store) {
    for number in 1..=4 {
        all_created(store, &[published(number, "a")]).await;
        change(store, number, |row| {
            hear(row, 9, 1, started());
            row.delete(NOW, &RowPolicy::default());
            hear(row, 9, 2, RunEvent::Stopped);
        })
        .await;
    }
    let filter = Filter { status: vec![Status::Deleted], descending: true, ..Filter::default() };
    let first = store.list(&filter, None, 2).await.unwrap().rows;
    let after = place(&first[1], Sort::Name);
    let second = store.list(&filter, Some(&after), 2).await.unwrap().rows;
    let ids: Vec<ObserverId> = first.iter().chain(&second).map(|row| row.id).collect();
    assert_eq!(ids, [id(4), id(3), id(2), id(1)]);
}

pub async fn a_place_that_is_no_time_is_refused(store: &dyn Store) {
    let filter = Filter { sort: Sort::CreatedAt, ..Filter::default() };
    let after = ListCursor { value: "yesterday".into(), id: id(1) };
    assert!(store.list(&filter, Some(&after), 2).await.is_err());
}

pub async fn counts_are_by_pool_and_status(store: &dyn Store) {
    let gpu = json!({"name": "g", "kind": "ticker", "pool": "gpu", "on_full": "queue"});
    all_created(store, &[published(1, "a"), published(2, "b"), published(3, "c"), observer(4, gpu)]).await;
    change(store, 3, |row| hear(row, 9, 1, started())).await;
    let counts: Vec<(String, Status, u64)> = store
        .counts()
        .await
        .unwrap()
        .into_iter()
        .map(|((pool, status), count)| (pool.to_string(), status, count.number))
        .collect();
    let of = |pool: &str, status, count| (pool.to_owned(), status, count);
    assert_eq!(
        counts,
        [
            of("default", Status::Created, 2),
            of("default", Status::Processing, 1),
            of("gpu", Status::Created, 1)
        ]
    );
}

pub async fn what_no_living_service_holds_is_found(store: &dyn Store) {
    let names = ["a", "b", "c", "d"];
    let rows: Vec<Row> = (1..).zip(names).map(|(number, text)| published(number, text)).collect();
    all_created(store, &rows).await;
    change(store, 1, |row| hear(row, 8, 1, started())).await;
    change(store, 2, |row| hear(row, 9, 1, started())).await;
    change(store, 4, |row| hear(row, 9, 1, RunEvent::Completed)).await;
    let unheld = async |pool: &str, living: &[ServiceId]| -> Vec<ObserverId> {
        let rows = store.unheld(&pool.parse().unwrap(), living, 10).await.unwrap();
        rows.iter().map(|row| row.id).collect()
    };
    assert_eq!(unheld("default", &[service_id(8)]).await, [id(2), id(3)]);
    assert_eq!(unheld("default", &[]).await, [id(1), id(2), id(3)]);
    assert_eq!(unheld("default", &[service_id(8), service_id(9)]).await, [id(3)]);
    assert_eq!(unheld("other", &[]).await, []);
}

/// Creates observers in every state, each named after its state, and returns the health that each must have.
/// Service 8 is alive; service 9 has ended.
async fn of_every_health(store: &dyn Store) -> Vec<(&'static str, Option<Health>)> {
    let mut ended = service(9, "ended", 10);
    assert_eq!(store.save_services(&[service(8, "lives", 10), ended.clone()]).await.unwrap(), []);
    ended = store.service(&service_id(9).into()).await.unwrap().unwrap();
    assert!(ended.on_gone(NOW));
    assert_eq!(store.save_services(&[ended]).await.unwrap(), []);
    let policy = RowPolicy::default();
    let errored = || RunEvent::Errored { attempt: 1, error: "e".into(), next_at: NOW };
    let again = |started_at| RunEvent::Started { attempt: 2, started_at };
    let later = clock::now().plus(Duration::from_secs(3600));
    let handed_over = |row: &mut Row, at| {
        let report =
            RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event: RunEvent::HandedOver };
        row.apply(service_id(9), 1, at, &report, at);
    };
    type Change<'a> = Box<dyn Fn(&mut Row) + Send + Sync + 'a>;
    let all: Vec<(&'static str, Option<Health>, Change<'_>)> = vec![
        ("adrift", Some(Health::Waiting), Box::new(|row| hear(row, 9, 1, started()))),
        ("adrift-loop", Some(Health::Waiting), Box::new(|row| hear(row, 9, 1, errored()))),
        ("backing-off", Some(Health::Restarting), Box::new(|row| hear(row, 8, 1, errored()))),
        ("completed", None, Box::new(|row| hear(row, 8, 1, RunEvent::Completed))),
        ("created", Some(Health::Waiting), Box::new(|_| ())),
        (
            "deleted-adrift",
            Some(Health::Stopping),
            Box::new(|row| {
                hear(row, 9, 1, started());
                row.delete(NOW, &policy);
            }),
        ),
        ("moving", Some(Health::Moving), Box::new(|row| handed_over(row, later))),
        (
            "recovered",
            Some(Health::Running),
            Box::new(|row| {
                hear(row, 8, 1, errored());
                hear(row, 8, 2, again(Timestamp(1000)));
            }),
        ),
        ("running", Some(Health::Running), Box::new(|row| hear(row, 8, 1, started()))),
        ("stranded", Some(Health::Waiting), Box::new(|row| handed_over(row, Timestamp(1000)))),
        (
            "unsteady",
            Some(Health::Restarting),
            Box::new(|row| {
                hear(row, 8, 1, errored());
                hear(row, 8, 2, again(later));
            }),
        ),
    ];
    let rows: Vec<Row> = (1..).zip(&all).map(|(number, (text, ..))| published(number, text)).collect();
    all_created(store, &rows).await;
    for (number, (text, _, make)) in (1..).zip(&all) {
        change(store, number, make).await;
        assert_eq!(loaded(store, number).await.definition.name.as_str(), *text);
    }
    all.into_iter().map(|(text, health, _)| (text, health)).collect()
}

pub async fn health_is_that_of_the_moment(store: &dyn Store) {
    let all = of_every_health(store).await;
    for health in Health::ALL {
        let expected: Vec<_> = all.iter().filter(|it| it.1 == Some(health)).map(|it| it.0).collect();
        assert!(!expected.is_empty());
        let filter =
            |pool: &str| Filter { health: vec![health], pool: pool.parse().ok(), ..Filter::default() };
        assert_eq!(listed(store, filter("default")).await, expected, "{health}");
        assert_eq!(listed(store, filter("gpu")).await, [""; 0], "{health}");
    }
    let mut expected = MatchingCounts::new();
    for (name, health) in &all {
        let found =
            store.find(&ObserverRef::Name(Namespace::default(), name.parse().unwrap())).await.unwrap();
        *expected.entry((found.unwrap().verdict().status, *health)).or_default() += 1;
    }
    assert_eq!(store.counts_matching(&Filter::default()).await.unwrap(), expected);
    let one = Filter { q: Some("recovered".into()), ..Filter::default() };
    let running = (Status::Processing, Some(Health::Running));
    assert_eq!(store.counts_matching(&one).await.unwrap(), [(running, 1)].into());
    let elsewhere = Filter { pool: "gpu".parse().ok(), ..Filter::default() };
    assert_eq!(store.counts_matching(&elsewhere).await.unwrap(), [].into());
    let several = vec![Health::Moving, Health::Restarting];
    let page = Filter { health: several, sort: Sort::CreatedAt, descending: true, ..Filter::default() };
    let first = store.list(&page, None, 2).await.unwrap();
    assert_eq!((first.total, first.more), (3, true));
    let after = place(first.rows.last().unwrap(), Sort::CreatedAt);
    let second = store.list(&page, Some(&after), 2).await.unwrap();
    let names = first.rows.iter().chain(&second.rows).map(|row| row.definition.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["unsteady", "moving", "backing-off"]);
    let counts = store.health_counts().await.unwrap();
    for health in Health::ALL {
        let expected = all.iter().filter(|it| it.1 == Some(health)).count() as u64;
        assert_eq!(counts.get(&("default".parse().unwrap(), health)), Some(&expected), "{health}");
    }
}

pub async fn reason_codes_are_those_of_the_moment(store: &dyn Store) {
    of_every_health(store).await;
    let others = [("refused", 20), ("withdrawn", 21), ("elsewhere", 22), ("failed", 23)];
    let mut rows: Vec<Row> = others.iter().map(|(name, number)| published(*number, name)).collect();
    Arc::make_mut(&mut rows[2].definition).pool = "gpu".parse().unwrap();
    all_created(store, &rows).await;
    let refused = || RunEvent::Refused { why: "kind".to_owned() };
    change(store, 20, |row| hear(row, 8, 1, refused())).await;
    let (later, policy) = (NOW.plus(Duration::from_secs(60)), RowPolicy::default());
    change(store, 21, |row| {
        hear(row, 8, 1, refused());
        assert!(row.withdraw(later, &policy));
    })
    .await;
    change(store, 23, |row| hear(row, 8, 1, RunEvent::Failed { error: "e".into(), attempts: 1 })).await;
    let ended = store.services(NOW).await.unwrap().rows;
    let living: Vec<_> = ended.into_iter().filter(|it| it.end.is_none()).collect();
    let now = store.now().await.unwrap();
    let all = store.list(&Filter::default(), None, 100).await.unwrap().rows;
    let mut met = 0;
    for obstacles in [Obstacles::of(&living), Obstacles::default()] {
        for code in ReasonCode::ALL {
            let expected = all.iter().filter(|row| {
                let held = row.holder().is_some_and(|it| living.iter().any(|service| service.id == it));
                code_at(row, held, obstacles.get(&row.definition.pool), now) == Some(*code)
            });
            let expected: Vec<_> = expected.map(|row| row.definition.name.as_str()).collect();
            let reasons = Some(Reasons { codes: vec![*code], obstacles: obstacles.clone() });
            let found = listed(store, Filter { reasons, ..Filter::default() }).await;
            assert_eq!(found, expected, "{code}");
            met += usize::from(!found.is_empty());
        }
    }
    assert!(met >= 12, "{met} codes were met");
}

pub async fn health_follows_the_service_without_a_save(store: &dyn Store) {
    let mut row = service(8, "a", 10);
    assert_eq!(store.save_services(&[row.clone()]).await.unwrap(), []);
    all_created(store, &[published(1, "o")]).await;
    change(store, 1, |row| hear(row, 8, 1, started())).await;
    let of = |health| Filter { health: vec![health], ..Filter::default() };
    assert_eq!(listed(store, of(Health::Running)).await, ["o"]);
    row = store.service(&row.id.into()).await.unwrap().unwrap();
    assert!(row.on_gone(NOW));
    assert_eq!(store.save_services(&[row]).await.unwrap(), []);
    assert_eq!(listed(store, of(Health::Running)).await, [""; 0]);
    assert_eq!(listed(store, of(Health::Waiting)).await, ["o"]);
}
