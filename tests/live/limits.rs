//! Limits by key: no more observers of a key run at once than its maximum, whoever dies meanwhile.

use everwatch_api::{Event, Limit, LimitUsers, Observer};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons::{self, Run};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const OBSERVERS: usize = 30;
const KEYS: usize = 3;
/// Each observer names one of the keys; every second one names this key, too, so that it is always wanted.
const SHARED: &str = "shared";
const SHARED_MAX: usize = 3;
const KEY_MAX: usize = 2;
/// So often, an observer of each key has to begin to run at least.
const RUNS: usize = 20;
/// How long the observers run on a machine that is busy with other work, at most.
const LOADED: Duration = Duration::from_secs(180);

/// An observer that writes a beacon every 20 ms, for about half a second.
fn job(number: usize, folder: &Path) -> Value {
    let script = r#"i=0; while [ $i -lt 20 ]; do echo "$EVERWATCH_EPOCH $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME"; sleep 0.02; i=$((i+1)); done"#;
    let argv = json!(["/bin/sh", "-c", script, folder.display().to_string()]);
    let (name, limits) = (name(number), keys(number));
    json!({"name": name, "kind": "exec", "spec": {"argv": argv}, "limits": limits, "on_full": "queue"})
}

fn name(number: usize) -> String {
    format!("o{number}")
}

fn keys(number: usize) -> Vec<String> {
    let mut keys = vec![format!("key-{}", number % KEYS)];
    if number.is_multiple_of(2) {
        keys.push(SHARED.to_owned());
    }
    keys
}

/// The greatest number of observers of each key that ran at once, and how often a run of a key began.
fn most_at_once(all: &BTreeMap<String, Vec<Run>>) -> BTreeMap<String, (usize, usize)> {
    let mut changes: BTreeMap<String, Vec<(i64, bool, &str)>> = BTreeMap::new();
    for (name, runs) in all {
        for key in keys(name.trim_start_matches('o').parse().unwrap()) {
            let awake = runs.iter().flat_map(|run| &run.awake);
            // A service that dies at once leaves one beacon.
            for (from, until) in awake.filter(|(from, until)| from < until) {
                // An end comes before a beginning at the same millisecond.
                changes
                    .entry(key.clone())
                    .or_default()
                    .extend([(*from, true, &**name), (*until, false, name)]);
            }
        }
    }
    changes.into_iter().map(|(key, changes)| (key, beacons::most_at_once(changes))).collect()
}

/// Whether observers of each key have run often enough, and as many at once as may, so that a maximum that does not hold is seen.
fn used_enough(folder: &Path, allowed: impl Fn(&str) -> usize) -> bool {
    let most = most_at_once(&beacons::read(folder));
    most.len() == KEYS + 1 && most.iter().all(|(key, (most, begun))| *most >= allowed(key) && *begun > RUNS)
}

/// Lets all observers that have ended run again.
async fn again(api: &Api) {
    let Ok(ended) =
        api.try_read::<everwatch_api::Listed<Observer>>("/v1/observers?status=Completed&limit=100").await
    else {
        return;
    };
    for it in ended.items {
        let _manager_may_be_dead =
            api.try_call("POST", &format!("/v1/observers/{}/restart", it.id), None).await;
    }
}

#[tokio::test]
async fn a_maximum_is_never_exceeded_while_services_and_managers_are_killed() {
    let mut cluster = Cluster::new("limits").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    for service in ["a", "b", "c"] {
        cluster.service(service, 20).await;
    }
    let (api, folder) = (cluster.api.clone(), cluster.folder("runs"));
    api.done::<Limit>("PUT", "/v1/limits/key-*", Some(json!({"max": KEY_MAX})), 201).await;
    api.done::<Limit>("PUT", "/v1/limits/shared", Some(json!({"max": SHARED_MAX})), 201).await;
    for number in 0..OBSERVERS {
        api.create(job(number, &folder)).await;
    }
    let allowed = |key: &str| if key == SHARED { SHARED_MAX } else { KEY_MAX };
    let begun = Instant::now();
    let mut kills: Vec<(u64, &str)> =
        vec![(4, "a"), (9, "b"), (14, "second"), (19, "c"), (24, "manager"), (29, "a"), (34, "b")];
    kills.reverse();
    // A slow machine takes longer until each key was used enough to be judged.
    while begun.elapsed() < Duration::from_secs(45)
        || (begun.elapsed() < LOADED && !used_enough(&folder, allowed))
    {
        if kills.last().is_some_and(|(secs, _)| begun.elapsed() >= Duration::from_secs(*secs)) {
            let (_, victim) = kills.pop().unwrap();
            cluster.kill(victim);
            match victim {
                "second" => drop(cluster.another_manager("second").await),
                "manager" => cluster.manager().await,
                service => cluster.spawn_service(service, 20),
            }
        }
        again(if kills.len().is_multiple_of(2) { &api } else { &second }).await;
    }
    let most = most_at_once(&beacons::read(&folder));
    for (key, (most, begun)) in &most {
        assert_eq!(*most, allowed(key), "of {key}, at once: {most:?}");
        assert!(*begun > RUNS, "{begun} runs of {key}");
    }
    assert_eq!(most.len(), KEYS + 1);
    // A kill between the report of an end and the acknowledgement leaves a place in doubt for `orphan_after`.
    let all_free = async || {
        let limits: Vec<Limit> = api.list("/v1/limits").await;
        let used: u64 = limits.iter().map(|limit| limit.used + limit.waiting).sum();
        if used == 0 { Ok(()) } else { Err(format!("{limits:?}")) }
    };
    wait_within(Duration::from_secs(150), "all places to be free", all_free).await;
}

/// How long until another observer gets a place that becomes free: while services and managers live.
#[tokio::test]
async fn a_free_place_goes_to_the_next_observer_within_seconds() {
    let mut cluster = Cluster::new("limit-next").with_postgres();
    cluster.manager().await;
    cluster.another_manager("second").await;
    cluster.service("a", 20).await;
    cluster.service("b", 20).await;
    let api = cluster.api.clone();
    api.done::<Limit>("PUT", "/v1/limits/one", Some(json!({"max": 1})), 201).await;
    for number in 0..12 {
        let body =
            json!({"name": format!("n{number}"), "kind": "ticker", "limits": ["one"], "on_full": "queue"});
        api.create(body).await;
    }
    for number in 0..12 {
        let (name, begun) = (format!("n{number}"), Instant::now());
        api.until_observer(&name, |it| it.status == Status::Processing).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{name} after {:?}", begun.elapsed());
        let running = api.processing().await;
        assert_eq!(
            running.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
            [name.as_str()],
            "in their order"
        );
        if number == 4 {
            // It keeps its place when its service dies.
            let holder = running[0].service.as_ref().unwrap().name.clone();
            cluster.kill(&holder);
            api.until_observer(&name, |it| it.service.as_ref().is_some_and(|it| it.name != holder)).await;
            api.until_observer(&name, |it| it.status == Status::Processing).await;
            assert_eq!(api.processing().await.len(), 1);
        }
        api.done::<Observer>("DELETE", &format!("/v1/observers/{name}?wait=20s"), None, 200).await;
    }
}

#[tokio::test]
async fn a_limit_is_set_explained_enforced_and_deleted() {
    let mut cluster = Cluster::new("limit-set");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let body = |name: &str, keys: &[&str]| json!({"name": name, "kind": "ticker", "limits": keys, "on_full": "queue"});
    let unknown = api.refused("POST", "/v1/observers", Some(body("x", &["account-1"]))).await;
    assert_eq!((unknown.status, unknown.code.as_str()), (422, "limit-unknown"), "{unknown:?}");
    assert!(unknown.detail.contains("everwatch limit set account-1 --max"), "{}", unknown.detail);
    for (path, wrong) in
        [("account-1", json!({"max": 0})), ("account-1", json!({})), ("-", json!({"max": 1}))]
    {
        let refused = api.refused("PUT", &format!("/v1/limits/{path}"), Some(wrong)).await;
        assert_eq!(refused.status, 422, "{refused:?}");
    }
    let (code, said) = cluster.command(&["limit", "set", "account-*", "--max", "2"]);
    assert!(code == Some(0) && said.contains("account-*: 0 of 2 in use, 0 observers wait"), "{said}");
    for name in ["one", "two", "three"] {
        api.create(body(name, &["account-1"])).await;
    }
    for name in ["one", "two"] {
        api.until_status(name, "Processing").await;
    }
    let third = api.until_observer("three", |it| it.reason_code == Some(ReasonCode::LimitReached)).await;
    let reason = "waiting for a place of limit account-1: 2 of 2 in use by one, two, 1 waiting";
    assert_eq!((third.status, third.reason.as_str()), (Status::Created, reason));
    let hasty = json!({"name": "hasty", "kind": "ticker", "limits": ["account-1"]});
    let refused = api.refused("POST", "/v1/observers", Some(hasty)).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "limit-reached"), "{refused:?}");
    assert!(
        refused.detail.contains("limit account-1 has no free place: 2 of 2 in use by one, two"),
        "{refused:?}"
    );
    let users: LimitUsers = api.read("/v1/limits/account-1").await;
    let names =
        |them: &[everwatch_api::NamedThing]| them.iter().map(|it| it.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names(&users.users), ["one".to_owned(), "two".to_owned()].into());
    assert_eq!((users.applies.as_str(), names(&users.waiters)), ("account-*", ["three".to_owned()].into()));

    // A lower maximum ends nothing by itself.
    api.done::<Limit>("PUT", "/v1/limits/account-1", Some(json!({"max": 1})), 201).await;
    assert_eq!(api.processing().await.len(), 2);
    let (code, said) = cluster.command(&["limit", "set", "account-1", "--max", "1", "--enforce"]);
    assert_eq!(code, Some(0), "{said}");
    let second = api.until_observer("two", |it| it.reason_code == Some(ReasonCode::LimitReached)).await;
    assert_eq!((second.status, api.observer("one").await.status), (Status::Created, Status::Processing));
    let is_restart = |it: &Event| it.kind == EventKind::RestartRequested;
    let restarts = api.until_events_of("two", |events| events.iter().any(is_restart)).await;
    let why = restarts.iter().find(|it| is_restart(it)).map(|it| it.text.as_str());
    assert_eq!(why, Some("a limit is enforced: it returns to the backlog"));
    // The limit of the whole group applies again.
    let (status, _) = api.call("DELETE", "/v1/limits/account-1", None).await;
    assert_eq!(status, 204);
    wait_for("two to run", || async {
        if api.processing().await.len() == 2 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let in_use = api.refused("DELETE", "/v1/limits/account-*", None).await;
    assert_eq!((in_use.status, in_use.code.as_str()), (409, "limit-in-use"), "{in_use:?}");
}

#[tokio::test]
async fn a_change_of_the_limits_waits_for_places_of_the_new_ones() {
    let mut cluster = Cluster::new("limit-change");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    for (key, max) in [("many", 9), ("other", 1)] {
        api.done::<Limit>("PUT", &format!("/v1/limits/{key}"), Some(json!({"max": max})), 201).await;
    }
    for name in ["one", "two", "three"] {
        let body = json!({"name": name, "kind": "ticker", "limits": ["many"], "on_full": "queue"});
        api.create(body).await;
        api.until_status(name, "Processing").await;
    }
    for name in ["one", "two", "three"] {
        api.done::<Observer>(
            "PATCH",
            &format!("/v1/observers/{name}"),
            Some(json!({"limits": ["other"]})),
            200,
        )
        .await;
    }
    wait_for("one of them to run", || async {
        let other: LimitUsers = api.read("/v1/limits/other").await;
        let is_full = (other.used, other.waiting) == (1, 2);
        if is_full && api.processing().await.len() == 1 { Ok(()) } else { Err(format!("{other:?}")) }
    })
    .await;
    let (status, _) = api.call("DELETE", "/v1/limits/many", None).await;
    assert_eq!(status, 204, "no observer names it");
}
