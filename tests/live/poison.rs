//! An observer that kills its services is quarantined; the observers beside it keep running.

use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Kills the service. The script's parent is the inner helper, whose parent is the outer helper, whose parent
/// is the service.
const POISON: &str =
    "ppid() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f2; }; kill -9 $(ppid $(ppid $PPID)); sleep 600";

#[tokio::test]
async fn one_that_kills_its_services_is_quarantined_and_its_neighbours_run_on() {
    let mut cluster = Cluster::new("poison");
    cluster.manager().await;
    let api = cluster.api.clone();
    // `far` is full of observers that never run near the killer; the killer kills two other services in turn.
    cluster.service("far", 2).await;
    for name in ["far1", "far2"] {
        api.create(json!({"name": name, "kind": "ticker"})).await;
        api.until_status(name, "Processing").await;
    }
    for name in ["near0", "near1"] {
        cluster.service(name, 3).await;
    }
    for name in ["near1", "near2"] {
        api.create(json!({"name": name, "kind": "ticker"})).await;
        api.until_status(name, "Processing").await;
    }
    let far = api.observer("far1").await;
    let argv = json!(["/bin/sh", "-c", POISON]);
    api.create(json!({"name": "poison", "kind": "exec", "spec": {"argv": argv}})).await;
    let (begun, mut restarts, mut codes) = (Instant::now(), 0, BTreeSet::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let poison = loop {
        ticks.tick().await;
        for name in ["near0", "near1"] {
            if cluster.has_ended(name) {
                restarts += 1;
                cluster.spawn_service(name, 3);
            }
        }
        let it = api.observer("poison").await;
        if it.status == Status::Failed {
            break it;
        }
        assert!(begun.elapsed() < Duration::from_secs(400), "{restarts} deaths, and still {it:?}");
        let runs_well = it.health == Some(Health::Running);
        assert!(restarts < 4 || !runs_well, "{restarts} deaths, and green: {it:?}");
        codes.extend(it.reason_code);
    };
    assert!(codes.contains(&ReasonCode::CrashLooping), "{codes:?}");
    let error = poison.last_error.unwrap_or_default();
    assert!(error.starts_with("quarantined: ") && error.contains("near"), "{error}");
    assert!(restarts >= 5, "{restarts} services died");
    println!("MEASURED quarantined after {restarts} deaths, {} s: {error}", begun.elapsed().as_secs());
    let now = api.observer("far1").await;
    assert_eq!((now.service, now.epoch), (far.service, far.epoch));
    for name in ["near1", "near2"] {
        api.until_status(name, "Processing").await;
        assert_ne!(api.observer(name).await.status, Status::Failed, "{name}");
    }
    let (status, _) = api.call("POST", "/v1/observers/poison/retry", None).await;
    assert!(status == 200 || status == 202, "a user may bring it back: {status}");
    let it = api.observer("poison").await;
    assert_ne!(it.status, Status::Failed, "{it:?}");
}

/// A user who tests failover kills one service after another. The observers that moved between these services
/// are not to blame.
#[tokio::test]
async fn two_services_killed_in_turn_delay_no_observer_that_moved_between_them() {
    let mut cluster = Cluster::new("innocent").with_test_kinds();
    cluster.manager().await;
    let folder = cluster.folder("beacons");
    cluster.service("s0", 3).await;
    for name in ["a", "b", "c"] {
        let spec = json!({ "folder": folder });
        cluster.api.create(json!({"name": name, "kind": "beacon", "spec": spec})).await;
        cluster.api.until_status(name, "Processing").await;
    }
    for (kill, victim) in ["s0", "s1", "s0"].into_iter().enumerate() {
        let spare = if victim == "s0" { "s1" } else { "s0" };
        cluster.service(spare, 3).await;
        if kill == 2 {
            wait_for("the manager to know who was there twice", || async {
                let log = cluster.full_log("manager");
                let known = log.contains("services died soon after the starts") && log.contains("blamed=3");
                if known { Ok(()) } else { Err(log) }
            })
            .await;
        }
        cluster.kill(victim);
        wait_for(&format!("all to run after kill {kill}"), || async {
            let runs = beacons::read(&folder);
            if runs.values().all(|runs| runs.len() == kill + 2) { Ok(()) } else { Err(format!("{runs:?}")) }
        })
        .await;
    }
    let longest = beacons::judge("three kills", &folder, |_| 0);
    assert!(longest < 5_000, "one stood still for {longest} ms");
}
