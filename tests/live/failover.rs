//! Observers run, move when their service dies, and end when told.

use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How long a killed service's children may live on, in ms: the default `fence_grace`.
const FENCE_GRACE: i64 = 500;

fn by_service(observers: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for it in observers {
        *counts.entry(it["service"]["name"].as_str().unwrap_or("nobody").to_owned()).or_default() += 1;
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
            let (status, problem) =
                api.call("POST", "/v1/observers", Some(json!({"name": "o3", "kind": "ticker"}))).await;
            assert_eq!((status, problem["code"].as_str()), (409, Some("name-exists")), "{problem}");
        }
    }
    let all = wait_for("30 to run", || async {
        let all = api.items("/v1/observers?status=Processing&limit=1000").await;
        if all.len() == 30 { Ok(all) } else { Err(format!("{} run", all.len())) }
    })
    .await;
    assert_eq!(by_service(&all).into_values().collect::<Vec<_>>(), [10, 10, 10]);
    let (status, problem) =
        api.call("POST", "/v1/observers", Some(json!({"name": "full", "kind": "ticker"}))).await;
    assert_eq!((status, problem["code"].as_str()), (503, Some("no-capacity")), "{problem}");
    let waits = api.create(json!({"name": "waits", "kind": "ticker", "on_full": "queue"})).await;
    assert_eq!(waits["status"], "Created");
    let (status, _) = api.call("DELETE", "/v1/observers/o0?wait=10s", None).await;
    assert_eq!(status, 200);
    api.until_status("waits", "Processing").await;
}

#[tokio::test]
async fn observers_of_a_killed_service_run_elsewhere_once_at_a_time() {
    let mut cluster = Cluster::new("failover");
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 10).await;
    }
    let api = cluster.api.clone();
    let folder = cluster.scratch.path().join("beacons");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..12 {
        let overlap = if number % 2 == 0 { "allow" } else { "forbid" };
        let name = format!("o{number}");
        let spec = beacons::exec_spec(&folder);
        api.create(json!({"name": name, "kind": "exec", "spec": spec, "overlap": overlap})).await;
    }
    for number in 0..12 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    let before = api.items("/v1/services").await;
    let old = before.iter().find(|it| it["name"] == "a").unwrap()["id"].clone();
    cluster.kill("a");
    wait_for("all of a's observers to run elsewhere", || async {
        let all = api.items("/v1/observers?status=Processing").await;
        let moved = all.iter().filter(|it| it["service"].is_object() && it["service"]["id"] != old).count();
        if moved == 12 { Ok(()) } else { Err(format!("{:?}", by_service(&all))) }
    })
    .await;
    cluster.service("a", 10).await;
    wait_for("the old incarnation of a to be over", || async {
        let services = api.items("/v1/services").await;
        let gone = services.iter().find(|it| it["id"] == old).is_none_or(|it| it["is_deleted"] == true);
        if gone { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
    for number in 0..12 {
        let (status, _) = api.call("DELETE", &format!("/v1/observers/o{number}?wait=20s"), None).await;
        assert_eq!(status, 200);
        let (status, _) = api.call("DELETE", &format!("/v1/observers/o{number}"), None).await;
        assert_eq!(status, 200, "a second delete is no error");
    }
    let mut gaps = Vec::new();
    for (name, runs) in beacons::read(&folder) {
        let number: u32 = name[1..].parse().unwrap();
        let least = if number.is_multiple_of(2) { -FENCE_GRACE } else { 0 };
        for change in beacons::changes(&runs) {
            assert!(change >= least, "{name} ran twice at once for {} ms: {runs:?}", -change);
            gaps.push(change);
        }
    }
    assert!(!gaps.is_empty(), "something moved");
    gaps.sort_unstable();
    assert!(gaps[gaps.len() - 1] < 10_000, "gaps in ms (negative: overlap): {gaps:?}");
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
        let all = api.items("/v1/observers?status=Processing").await;
        let counts = by_service(&all);
        if counts.get("b") == Some(&6) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test]
async fn an_observer_that_gives_up_tells_why_and_comes_back_on_retry() {
    let mut cluster = Cluster::new("giveup");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    let marker = cluster.scratch.path().join("marker");
    let script = format!("test -e {0} && exec sleep 1000; echo no marker >&2; exit 3", marker.display());
    let retry = json!({"kind": "fixed", "every": "100ms", "attempts": 3});
    api.create(
        json!({"name": "o", "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}, "retry": retry}),
    )
    .await;
    let failed = api.until_status("o", "Failed").await;
    assert_eq!(failed["last_error"], "exited with code 3");
    assert!(failed["reason"].as_str().unwrap().contains("3 attempts"), "{failed}");
    std::fs::write(&marker, "").unwrap();
    let (status, _) = api.call("POST", "/v1/observers/o/retry", None).await;
    assert_eq!(status, 202);
    api.until_status("o", "Processing").await;
}
