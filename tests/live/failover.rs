//! Observers run, move when their service dies, and end when told.

use everwatch_api::{Event, Observer, Run, Service};
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::http::holder;
use everwatch_tests::wait::{throughout, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a killed service's children may live on, in ms: the default `fence_grace`.
const FENCE_GRACE: i64 = 500;

fn by_service(observers: &[Observer]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for it in observers {
        *counts.entry(holder(it).unwrap_or("none")).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn twenty_observers_fit_and_the_thirty_first_does_not() {
    let mut cluster = Cluster::new("capacity");
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 10).await;
    }
    let api = cluster.api.clone();
    for number in 0..30 {
        api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
        if number == 19 {
            let again = json!({"name": "o3", "kind": "ticker"});
            let problem = api.refused("POST", "/v1/observers", Some(again)).await;
            assert_eq!((problem.status, problem.code.as_str()), (409, "name-exists"), "{problem:?}");
        }
    }
    let all = wait_for("30 to run", || async {
        let all = api.processing().await;
        if all.len() == 30 { Ok(all) } else { Err(format!("{} run", all.len())) }
    })
    .await;
    assert_eq!(by_service(&all).into_values().collect::<Vec<_>>(), [10, 10, 10]);
    let full = json!({"name": "full", "kind": "ticker"});
    let problem = api.refused("POST", "/v1/observers", Some(full)).await;
    assert_eq!((problem.status, problem.code.as_str()), (503, "no-capacity"), "{problem:?}");
    let waits = api.create(json!({"name": "waits", "kind": "ticker", "on_full": "queue"})).await;
    assert_eq!(waits.status, Status::Created);
    let (status, _) = api.call("DELETE", "/v1/observers/o0?wait=10s", None).await;
    assert_eq!(status, 200);
    api.until_status("waits", "Processing").await;
}

#[tokio::test]
async fn observers_of_a_killed_service_run_elsewhere_once_at_a_time() {
    for (version, url) in brokers() {
        kill_and_move(&version, Cluster::new("failover").on(&url)).await;
    }
}

/// Starts a manager that waits 10 minutes before it suspects a silent service, and two services with `slots` slots each; creates four
/// observers.
async fn patient(cluster: Cluster, slots: u32) -> Cluster {
    let mut cluster = cluster.with_test_kinds();
    for key in ["EVERWATCH_MANAGER__LOST_AFTER", "EVERWATCH_MANAGER__ORPHAN_AFTER"] {
        cluster.extra.push((key.to_owned(), "10m".to_owned()));
    }
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, slots).await;
    }
    let folder = cluster.folder("beacons");
    for number in 0..4 {
        cluster.api.create(kind_of(number * 2, &folder)).await;
    }
    cluster
}

/// Managers notice the silence of a service after `lost_after`; the observers that run elsewhere tell them at once.
#[tokio::test]
async fn a_killed_service_is_lost_as_soon_as_its_observers_run_elsewhere() {
    for (version, url) in brokers() {
        let mut cluster = patient(Cluster::new("soon").on(&url), 4).await;
        let api = cluster.api.clone();
        let all_run = |all: &[Observer]| all.len() == 4 && all.iter().all(|it| holder(it).is_some());
        wait_for("all to run", || async {
            let all = api.processing().await;
            if all_run(&all) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        // A move leaves the session of its service as it is.
        let moved = api.processing().await.into_iter().find(|it| holder(it) == Some("a")).unwrap();
        let _: Observer = api.done("POST", &format!("/v1/observers/{}/move", moved.id), None, 202).await;
        api.until_observer(&moved.id.to_string(), |it| holder(it) == Some("b")).await;
        throughout(Duration::from_secs(2), || async {
            let it = api.service("a").await;
            if it.state == ServiceState::Active { Ok(()) } else { Err(format!("{version}: {it:?}")) }
        })
        .await;
        cluster.kill("a");
        wait_for("all to run on b", || async {
            let all = api.processing().await;
            if by_service(&all) == BTreeMap::from([("b", 4)]) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        let begun = Instant::now();
        let is_lost = |it: &Service| it.state == ServiceState::Lost;
        api.until_service("a", is_lost).await;
        println!(
            "MEASURED {version}: lost {} ms after its observers ran elsewhere",
            begun.elapsed().as_millis()
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{version}");
        let events: Vec<Event> = api.list("/v1/events?type=service_suspect").await;
        assert_eq!(events, [], "{version}: the broker knew");
    }
}

/// Where no other service has room, its observers run nowhere: only the queue, to which their messages return, tells at once.
#[tokio::test]
async fn a_killed_service_of_a_full_pool_is_lost_at_once() {
    for (version, url) in brokers() {
        let mut cluster = patient(Cluster::new("full").on(&url), 2).await;
        let api = cluster.api.clone();
        wait_for("both to be full", || async {
            let all = api.processing().await;
            if by_service(&all) == BTreeMap::from([("a", 2), ("b", 2)]) {
                Ok(())
            } else {
                Err(format!("{all:?}"))
            }
        })
        .await;
        // After a cordon, a full service has no consumer: the queue loses none with it.
        for verb in ["cordon", "uncordon"] {
            let (code, said) = cluster.command(&["service", verb, "a"]);
            assert_eq!(code, Some(0), "{version}: {said}");
        }
        // The manager has seen the queue empty.
        throughout(Duration::from_secs(2), || async {
            let it = api.service("a").await;
            if it.state == ServiceState::Active { Ok(()) } else { Err(format!("{version}: {it:?}")) }
        })
        .await;
        let begun = Instant::now();
        cluster.kill("a");
        api.until_service("a", |it: &Service| it.state == ServiceState::Lost).await;
        println!("MEASURED {version}: lost {} ms after its kill", begun.elapsed().as_millis());
        let (code, said) = cluster.command(&["service", "list"]);
        assert!(code == Some(0) && said.contains("and has not come back: a"), "{version}: {said}");
        wait_for("its observers to wait", || async {
            let waiting: Vec<Observer> = api.list("/v1/observers?health=waiting,moving").await;
            if waiting.len() == 2 { Ok(()) } else { Err(format!("{waiting:?}")) }
        })
        .await;
        // A stop returns messages, too, and is no loss.
        cluster.terminate("b");
        api.until_service("b", |it: &Service| it.state == ServiceState::Gone).await;
        let events: Vec<Event> = api.list("/v1/events?type=service_lost").await;
        assert_eq!(events.len(), 1, "{version}: {events:?}");
    }
}

#[tokio::test]
async fn a_killed_service_is_survived_on_postgres_too() {
    kill_and_move("postgres", Cluster::new("failover-pg").with_postgres()).await;
}

/// Even numbers run in the service's process, odd ones as children; the fourth kind may not overlap.
fn kind_of(number: usize, folder: &std::path::Path) -> Value {
    let overlap = if number % 4 == 3 { "forbid" } else { "allow" };
    let (kind, spec) = if number.is_multiple_of(2) {
        ("beacon", json!({ "folder": folder }))
    } else {
        ("exec", beacons::exec_spec(folder))
    };
    json!({"name": format!("o{number}"), "kind": kind, "spec": spec, "overlap": overlap})
}

async fn kill_and_move(what: &str, cluster: Cluster) {
    let mut cluster = cluster.with_test_kinds();
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 10).await;
    }
    let api = cluster.api.clone();
    let folder = cluster.folder("beacons");
    for number in 0..16 {
        api.create(kind_of(number, &folder)).await;
    }
    for number in 0..16 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    let old = api.services().await.iter().find(|it| it.name == "a").unwrap().id;
    cluster.kill("a");
    wait_for("all of a's observers to run elsewhere", || async {
        let all = api.processing().await;
        let moved = all.iter().filter(|it| it.service.as_ref().is_some_and(|it| it.id != old)).count();
        if moved == 16 { Ok(()) } else { Err(format!("{:?}", by_service(&all))) }
    })
    .await;
    cluster.service("a", 10).await;
    wait_for("the old incarnation of a to be over", || async {
        let services = api.services().await;
        let gone = services.iter().find(|it| it.id == old).is_none_or(|it| it.is_deleted);
        if gone { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
    for number in 0..16 {
        wait_for("the last run to go on and those before it to have been lost", || async {
            let runs: Vec<Run> = api.list(&format!("/v1/observers/o{number}/runs")).await;
            let (now, earlier) = runs.split_first().unwrap();
            let goes_on = now.ended.is_none() && now.ended_at.is_none();
            let lost = |run: &Run| run.ended.as_deref() == Some("lost") && run.ended_at.is_some();
            if goes_on && earlier.iter().all(lost) { Ok(()) } else { Err(format!("{runs:?}")) }
        })
        .await;
    }
    for number in 0..16 {
        let (status, _) = api.call("DELETE", &format!("/v1/observers/o{number}?wait=20s"), None).await;
        assert_eq!(status, 200);
    }
    let child_may_overlap = |name: &str| {
        let number: usize = name[1..].parse().unwrap();
        if number % 4 == 1 { FENCE_GRACE } else { 0 }
    };
    let longest = beacons::judge(&format!("kill -9, {what}"), &folder, child_may_overlap);
    assert!(longest < 10_000, "an observer stood still for {longest} ms");
}

#[tokio::test]
async fn a_service_that_is_told_to_stop_hands_everything_over() {
    let mut cluster = Cluster::new("goodbye");
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 10).await;
    }
    let api = cluster.api.clone();
    for number in 0..6 {
        api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
    }
    for number in 0..6 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    assert_eq!(cluster.terminate("a"), Some(0), "{}", cluster.log("a"));
    wait_for("all to run on b", || async {
        let all = api.processing().await;
        let counts = by_service(&all);
        if counts.get("b") == Some(&6) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}
