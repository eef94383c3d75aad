//! Code that misbehaves beside code that does not, in one service.

use everwatch_api::{Event, Finding, Observer, Service};
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{As, Cluster};
use everwatch_tests::http::{Api, holder};
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::path::Path;

/// The longest pause of a beacon that a busy machine may cause, in ms.
const PAUSE_MAX: i64 = 1000;

async fn create_beacons(api: &Api, folder: &Path, count: usize) {
    for number in 0..count {
        let spec = json!({"folder": folder});
        api.create(json!({"name": format!("good{number}"), "kind": "beacon", "spec": spec})).await;
    }
    until_running(api, count).await;
}

async fn until_running(api: &Api, count: usize) {
    wait_for("all beacons to run", || async {
        let running = api.processing().await.iter().filter(|it| it.name.starts_with("good")).count();
        if running == count { Ok(()) } else { Err(format!("{running} of {count} run")) }
    })
    .await;
}

async fn misbehave(api: &Api, name: &str, spec: Value) {
    let retry = json!({"kind": "fixed", "every": "100ms", "attempts": null});
    let body = json!({"name": name, "kind": "misbehaves", "spec": spec, "retry": retry, "grace": "200ms"});
    api.create(body).await;
}

fn stalls_of(service: &Service, name: &str) -> Option<u64> {
    service.stalled.iter().find(|stalled| stalled.name == name).map(|stalled| stalled.stalled_ms)
}

async fn stall_finding(api: &Api) -> Option<Finding> {
    api.findings().await.into_iter().find(|it| it.code == "code-stalls")
}

#[tokio::test]
async fn misbehaving_observers_disturb_none_of_200_others() {
    let mut cluster = Cluster::new("isolation").with_test_kinds();
    cluster.manager().await;
    cluster.extra.push(("EVERWATCH_SERVICE__STALL_LIMIT".to_owned(), "off".to_owned()));
    cluster.service("a", 300).await;
    let (api, folder) = (cluster.api.clone(), cluster.folder("beacons"));
    create_beacons(&api, &folder, 200).await;
    for (name, spec) in [
        ("spins", json!("spins")),
        ("blocks", json!({"sleeps_for": 3_600_000})),
        ("pauses", json!({"sleeps_for": 3000})),
        ("leaks", json!({"leaks": 200})),
        ("ignores", json!("ignores_cancellation")),
        ("panics", json!("panics_in_drop")),
    ] {
        misbehave(&api, name, spec).await;
    }

    let reported = |it: &Service| stalls_of(it, "pauses").is_some();
    api.until_service("a", reported).await;
    let panics = |it: &Observer| it.last_error.as_deref() == Some("panicked: dropped on purpose");
    api.until_observer("panics", panics).await;
    api.until_status("ignores", "Processing").await;
    let (status, _) = api.call("DELETE", "/v1/observers/ignores?wait=10s", None).await;
    assert_eq!(status, 200, "it is aborted after its grace");
    api.until_service("a", |it: &Service| it.resident_bytes > Some(200 << 20)).await;

    // Longer than two heartbeats. By then, the short stall is over.
    let both = |it: &Service| {
        let long = |name| stalls_of(it, name).is_some_and(|ms| ms > 12_000);
        long("spins") && long("blocks") && stalls_of(it, "pauses").is_none()
    };
    let stalled = api.until_service("a", both).await;
    assert_eq!(stalled.stalled.len(), 2, "{stalled:?}");
    let finding = stall_finding(&api).await.unwrap();
    assert_eq!(finding.subject, "service a");
    let names = ["observer spins", "observer blocks"];
    assert!(names.iter().any(|name| finding.what.contains(name)), "{finding:?}");
    let (code, listed) = cluster.command(&["service", "list"]);
    assert!(code == Some(0) && listed.contains("stalled by"), "{listed}");
    let log = cluster.full_log("a");
    for name in ["spins", "blocks", "pauses"] {
        let field = format!("observer=\"{name}\"");
        let named = log.lines().filter(|line| line.contains("stalled:") && line.contains(&field)).count();
        assert_eq!(named, 1, "{name}: {log}");
    }
    let metrics = Api::new(format!("http://{}", cluster.health_address("a"))).get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("everwatch_service_blocked_threads 2\n"), "{metrics}");
    assert!(metrics.contains("everwatch_service_stalls_total 3\n"), "{metrics}");

    let (longest, name) = beacons::longest_pause(&folder);
    assert!(longest < PAUSE_MAX, "{name} paused for {longest} ms");
    let moved: Vec<_> = beacons::read(&folder).into_iter().filter(|(_, runs)| runs.len() > 1).collect();
    assert!(moved.is_empty(), "{moved:?}");
}

/// Starts two services, and one of them gets an observer that blocks its thread; returns its name.
async fn two_with_a_blocking_one(cluster: &mut Cluster, folder: &Path, blocks: &str) -> &'static str {
    cluster.extra.push(("EVERWATCH_SERVICE__STALL_LIMIT".to_owned(), "5s".to_owned()));
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 50).await;
    }
    let api = cluster.api.clone();
    create_beacons(&api, folder, 20).await;
    let spec = json!({"folder": folder, "blocks": blocks});
    api.create(json!({"name": "culprit", "kind": "beacon", "spec": spec})).await;
    let running = api.until_status("culprit", "Processing").await;
    if holder(&running) == Some("a") { "a" } else { "b" }
}

#[tokio::test]
async fn a_stall_beyond_the_limit_replaces_the_process_and_overlaps_with_nothing() {
    let mut cluster = Cluster::new("replaced").with_test_kinds();
    let folder = cluster.folder("beacons");
    let blocked = two_with_a_blocking_one(&mut cluster, &folder, "once").await;
    let api = cluster.api.clone();
    let stalled = api.until_service(blocked, |it| stalls_of(it, "culprit").is_some()).await;
    let beside: Vec<String> = api
        .observers()
        .await
        .iter()
        .filter(|it| holder(it) == Some(blocked))
        .map(|it| it.name.clone())
        .collect();
    assert!(!beside.is_empty(), "{stalled:?}");
    assert_eq!(cluster.ended(blocked).await, Some(70), "{}", cluster.log(blocked));
    let other = if blocked == "a" { "b" } else { "a" };
    wait_for("all observers to run on the other service", || async {
        let elsewhere = api.processing().await.iter().filter(|it| holder(it) == Some(other)).count();
        if elsewhere == 21 { Ok(()) } else { Err(format!("{elsewhere} of 21")) }
    })
    .await;
    let moved = beside.iter().find(|name| *name != "culprit").unwrap();
    wait_for("the cause of the move", || async {
        let events: Vec<Event> = api.list(&format!("/v1/observers/{moved}/events?limit=1000")).await;
        let told = events.iter().any(|event| event.text.contains("stall"));
        if told { Ok(()) } else { Err(format!("{events:?}\n{}", cluster.log(blocked))) }
    })
    .await;
    wait_for("the finding to disappear", || async {
        stall_finding(&api).await.map_or(Ok(()), |finding| Err(format!("{finding:?}")))
    })
    .await;
    beacons::judge("replaced for a stall", &folder, |_| 0);
}

#[tokio::test]
async fn an_observer_that_always_stalls_is_quarantined_alone() {
    let mut cluster = Cluster::new("stalls-always").with_test_kinds();
    cluster.extra.push(("EVERWATCH_MANAGER__QUARANTINE_AFTER".to_owned(), "2".to_owned()));
    let folder = cluster.folder("beacons");
    let first = two_with_a_blocking_one(&mut cluster, &folder, "always").await;
    let api = cluster.api.clone();
    // As a supervisor would.
    for name in [first, if first == "a" { "b" } else { "a" }, first] {
        api.until_service(name, |it| stalls_of(it, "culprit").is_some()).await;
        assert_eq!(cluster.ended(name).await, Some(70), "{}", cluster.log(name));
        cluster.service(name, 50).await;
        if api.observer("culprit").await.status == Status::Failed {
            break;
        }
    }
    let failed = api.until_status("culprit", "Failed").await;
    assert!(failed.last_error.as_ref().unwrap().contains("this observer stalled"), "{failed:?}");
    until_running(&api, 20).await;
}

#[tokio::test]
async fn a_kind_with_threads_of_its_own_takes_none_from_others() {
    let mut cluster = Cluster::new("own-threads").with_test_kinds();
    cluster.extra.push(("EVERWATCH_SERVICE__THREADS".to_owned(), "2".to_owned()));
    cluster.extra.push(("EVERWATCH_SERVICE__STALL_LIMIT".to_owned(), "5s".to_owned()));
    cluster.manager().await;
    cluster.service("a", 50).await;
    let (api, folder) = (cluster.api.clone(), cluster.folder("beacons"));
    create_beacons(&api, &folder, 10).await;
    for number in 0..4 {
        api.create(json!({"name": format!("blocks{number}"), "kind": "blocks-its-own", "spec": {}})).await;
    }
    let beyond = |it: &Service| it.stalled.len() == 2 && it.stalled.iter().all(|it| it.stalled_ms > 8000);
    api.until_service("a", beyond).await;
    let (longest, name) = beacons::longest_pause(&folder);
    assert!(longest < PAUSE_MAX, "{name} paused for {longest} ms");
}

#[tokio::test]
async fn a_process_that_uses_too_much_memory_hands_everything_over() {
    let mut cluster = Cluster::new("memory").with_test_kinds();
    cluster.manager().await;
    let url = cluster.broker_url.clone();
    let limit = [("EVERWATCH_SERVICE__MEMORY_LIMIT", "200MiB")];
    cluster.spawn_service_as("a", 50, As { broker_url: &url, environment: &limit, stderr: None });
    cluster.until_active("a").await;
    let (api, folder) = (cluster.api.clone(), cluster.folder("beacons"));
    create_beacons(&api, &folder, 10).await;
    misbehave(&api, "leaks", json!({"leaks": 300})).await;
    cluster.service("b", 50).await;
    assert_eq!(cluster.ended("a").await, Some(70), "{}", cluster.log("a"));
    wait_for("all observers to run on the other service", || async {
        let elsewhere = api.processing().await.iter().filter(|it| holder(it) == Some("b")).count();
        if elsewhere == 11 { Ok(()) } else { Err(format!("{elsewhere} of 11")) }
    })
    .await;
    assert!(cluster.full_log("a").contains("service.memory_limit"), "{}", cluster.log("a"));
    beacons::judge("replaced for its memory", &folder, |_| 0);
    let gone = api.until_service("a", |it| it.is_deleted).await;
    assert_eq!(gone.resident_bytes, None);
}
