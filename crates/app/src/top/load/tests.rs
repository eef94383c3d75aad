//! Tests of what is requested from a manager, and what becomes of its answers.

use super::*;
use crate::output::an_observer;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use everwatch_core::clock::Timestamp;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

fn query(filter: &str, sort: Sort) -> Query {
    Query { filter: filter.to_owned(), sort, rows: 20, pages: vec![("c1".to_owned(), 20)] }
}

fn path_of_query(query: &Query) -> String {
    path(query, &parsed(&query.filter).unwrap())
}

#[test]
fn a_filter_becomes_what_the_manager_knows() {
    assert_eq!(
        path_of_query(&query("feed status=Failed,Created team=a b", Sort::Newest)),
        "/v1/observers?limit=20&sort=-created_at&status=Failed%2CCreated&label=team%3Da&q=feed%20b&cursor=c1"
    );
}

#[test]
fn all_observers_are_read_for_an_order_that_managers_do_not_know() {
    for sort in [Sort::Health, Sort::Restarts] {
        assert_eq!(path_of_query(&query("kind=k", sort)), "/v1/observers?limit=1000&sort=name&kind=k");
    }
}

/// An observer with this status, health and number of restarts.
fn observer(name: &str, status: &str, health: Option<&str>, restarts: u32) -> Value {
    json!({"id": name, "name": name, "kind": "k", "status": status, "health": health, "restarts": restarts, "reason": "",
        "progress": null, "service": null, "generation": 1, "acquisitions": 1, "created_at": Timestamp(0), "started_at": null})
}

fn read(items: &[Value], total: u64) -> Page<Observer> {
    serde_json::from_value(json!({"items": items, "next_cursor": "theirs", "total": total})).unwrap()
}

fn names(page: &Page<Observer>) -> String {
    page.items.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_worst_observers_come_first_and_the_rest_by_name() {
    let all = [
        observer("a", "Processing", Some("running"), 3),
        observer("b", "Paused", None, 0),
        observer("c", "Processing", Some("moving"), 0),
        observer("d", "Failed", None, 12),
        observer("e", "Processing", Some("restarting"), 9),
        observer("f", "Created", Some("waiting"), 0),
        observer("g", "OnDeleting", Some("stopping"), 0),
        observer("h", "Processing", Some("running"), 0),
        observer("i", "Processing", Some("restarting"), 10),
    ];
    let first = |sort| {
        let query = Query { sort, rows: 20, ..Query::default() };
        names(&page(read(&all, 9), &query))
    };
    assert_eq!(first(Sort::Health), "d e i f c g a h b");
    assert_eq!(first(Sort::Restarts), "d i e a b c f g h");
    assert_eq!(first(Sort::Newest), "a b c d e f g h i", "the manager has sorted them");
}

#[test]
fn observers_that_are_sorted_here_have_pages() {
    let all: Vec<_> = (0..5).map(|it| observer(&it.to_string(), "Processing", Some("running"), it)).collect();
    let mut query = Query { sort: Sort::Restarts, rows: 2, ..Query::default() };
    let mut seen = Vec::new();
    loop {
        let page = page(read(&all, 5000), &query);
        seen.push(names(&page));
        assert_eq!(page.total, 5000);
        let Some(next) = page.next_cursor else { break };
        query.pages.push((next, 0));
    }
    assert_eq!(seen, ["4 3", "2 1", "0"]);
}

/// A manager that gives these answers, and keeps what was requested.
struct Manager {
    client: Client,
    requested: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

type Answers = fn(&str) -> Option<Value>;

async fn manager(answers: Answers) -> Manager {
    let _already_set = rustls::crypto::ring::default_provider().install_default();
    let requested = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let kept = Arc::clone(&requested);
    let answer = move |State(()): State<()>, uri: Uri| async move {
        let path = uri.to_string();
        let answer: Response = match answers(&path) {
            Some(body) => Json(body).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        };
        kept.lock().unwrap().push(path);
        answer
    };
    let mut serving = JoinSet::new();
    let router = Router::new().fallback(answer);
    serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
    Manager { client: Client::with_token(&url, None).unwrap(), requested, _serving: serving }
}

fn service(name: &str, state: &str, changed_secs_ago: i64) -> Value {
    let at = Timestamp(clock::now().0 - changed_secs_ago * 1000);
    json!({"id": format!("id-of-{name}-{state}"), "name": name, "pool": "default", "state": state, "held": 2, "capacity": 10,
        "last_heartbeat_at": at, "modified_at": at, "capacity_set": null, "drain": null})
}

fn screens(path: &str) -> Option<Value> {
    let list = |items: &[Value]| json!({"items": items, "next_cursor": null, "total": items.len()});
    Some(match path {
        "/v1/stats" => json!({"observers": {}, "services": {}, "capacity": 20, "held": 0, "broker": true}),
        "/v1/safe-mode" => json!({"on": false}),
        "/v1/pools" => list(&[]),
        _ if path.starts_with("/v1/services?") => {
            list(&[service("a", "active", 1), service("b", "active", 1)])
        }
        "/v1/services/id%2Dof%2Da%2Dlost" => service("a", "lost", 29),
        "/v1/services/id%2Dof%2Db%2Dlost" => service("b", "lost", 31),
        "/v1/services/id%2Dof%2Db%2Dgone" => service("b", "gone", 1),
        "/v1/observers?limit=1&selector=team" => list(&[observer("x", "Failed", None, 0)]),
        _ if path.starts_with("/v1/observers?") => list(&[]),
        _ => return None,
    })
}

#[tokio::test]
async fn services_that_vanish_are_looked_at_and_shown_if_they_were_lost_a_moment_ago() {
    let manager = manager(screens).await;
    let known =
        ["a-active", "b-active", "a-lost", "b-lost", "b-gone", "forgotten"].map(|it| format!("id-of-{it}"));
    let seen = screen(&manager.client, &Query::default(), &known).await.unwrap();
    let services: Vec<_> = seen.services.iter().map(|it| format!("{} {}", it.name, it.state)).collect();
    assert_eq!(services, ["a active", "b active", "a lost"]);
    let requested = std::mem::take(&mut *manager.requested.lock().unwrap());
    let single = requested.iter().filter(|path| path.starts_with("/v1/services/"));
    assert_eq!(single.count(), 4, "those that live are not read again: {requested:?}");
}

#[tokio::test]
async fn only_some_of_many_services_that_vanish_at_once_are_looked_at() {
    let manager = manager(screens).await;
    let known: Vec<_> = (0..500).map(|number| format!("id-{number}")).collect();
    screen(&manager.client, &Query::default(), &known).await.unwrap();
    let requested = std::mem::take(&mut *manager.requested.lock().unwrap());
    assert_eq!(requested.iter().filter(|path| path.starts_with("/v1/services/")).count(), VANISHED_MAX);
}

#[tokio::test]
async fn a_key_that_is_neither_a_field_nor_a_label_is_told() {
    let manager = manager(screens).await;
    for (filter, told) in [
        (
            "helth=running",
            Some("`helth` is neither a field nor a label of any observer; did you mean `health`?"),
        ),
        // Some observer has this label, but with another value.
        ("team=b", None),
        ("nobody", None),
    ] {
        let query = Query { filter: filter.to_owned(), ..Query::default() };
        let seen = screen(&manager.client, &query, &[]).await.unwrap();
        assert_eq!(seen.unknown_label.as_deref(), told, "{filter}");
    }
}

#[tokio::test]
async fn a_word_that_a_field_does_not_have_is_refused_without_a_request() {
    let manager = manager(screens).await;
    let query = Query { filter: "health=bad".to_owned(), ..Query::default() };
    let Err(Trouble::Refused(why)) = screen(&manager.client, &query, &[]).await else { panic!("it is sent") };
    assert!(why.starts_with("`bad` is not a health: one of running, "), "{why}");
    assert!(manager.requested.lock().unwrap().is_empty());
}

fn actions(path: &str) -> Option<Value> {
    let service = |state: &str, unconfirmed: Option<&str>| {
        json!({"id": uuid::Uuid::nil(), "name": "s1", "pool": "default", "capacity": 10, "held": 4, "free": 6, "state": state,
            "kinds": [], "version": "1", "host": "h", "created_at": Timestamp(0), "modified_at": Timestamp(0),
            "last_heartbeat_at": Timestamp(0), "is_deleted": false, "unconfirmed": unconfirmed})
    };
    Some(match path {
        "/v1/services/1/cordon" => service("active", Some("not yet confirmed")),
        "/v1/services/1/uncordon" => service("active", None),
        "/v1/services/1/drain" => {
            let mut it = service("active", Some("drain asked, not confirmed yet"));
            it["drain"] =
                json!({"moved": 0, "of": 4, "asked_at": Timestamp(0), "per_second": 100, "force": false});
            it
        }
        "/v1/observers/1/move" => serde_json::to_value(an_observer("one", "Processing", "")).unwrap(),
        _ => return None,
    })
}

#[tokio::test]
async fn an_action_is_answered_as_by_its_command() {
    let manager = manager(actions).await;
    for (what, verb, told) in [
        (Focus::Services, Verb::Cordon, "service s1 is being cordoned (not yet confirmed)"),
        (Focus::Services, Verb::Uncordon, "service s1 is uncordoned; it holds 4 of 10"),
        (Focus::Services, Verb::Drain, "service s1 drains: its row shows the progress"),
        (Focus::Observers, Verb::Move, "observer one moves to another service (Processing)"),
    ] {
        let wish =
            Wish { target: Target { what, id: "1".to_owned(), name: "name".to_owned() }, verb, to: None };
        assert_eq!(carry_out(&manager.client, &wish).await.as_deref(), Ok(told));
    }
}
