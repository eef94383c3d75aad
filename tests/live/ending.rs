//! Deletes of observers that run, wait for a slot or are moving, and an observer whose service is killed many
//! times.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::wait::wait_for;
use serde_json::json;

#[tokio::test]
async fn a_delete_ends_the_code_and_may_be_repeated() {
    let mut cluster = Cluster::new("delete");
    cluster.manager().await;
    cluster.service("a", 2).await;
    let api = cluster.api.clone();
    let marker = cluster.scratch.path().join("ended");
    // Needs half a second to end once it is told, so that OnDeleting can be seen.
    let ready = cluster.scratch.path().join("ready");
    let script = format!(
        "trap 'sleep 0.5; echo ended >{}; exit 0' TERM; touch {}; while :; do sleep 0.1; done",
        marker.display(),
        ready.display()
    );
    api.create(json!({"name": "o", "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}})).await;
    wait_for("the script to listen", || async {
        ready.exists().then_some(()).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    api.until_status("o", "Processing").await;
    let problem = api.refused("DELETE", "/v1/observers/none", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (404, "not-found"));
    let it: Observer = api.done("DELETE", "/v1/observers/o", None, 202).await;
    assert_eq!(it.status, Status::OnDeleting);
    let (status, _) = api.call("DELETE", "/v1/observers/o", None).await;
    assert_eq!(status, 202, "a second delete is no error");
    let again = json!({"name": "o", "kind": "ticker"});
    let problem = api.refused("POST", "/v1/observers", Some(again.clone())).await;
    assert_eq!((problem.status, problem.code.as_str()), (503, "name-ending"));
    api.until_status("o", "Deleted").await;
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "ended\n", "told to stop, not killed");
    let it: Observer = api.done("DELETE", "/v1/observers/o", None, 200).await;
    assert_eq!(it.status, Status::Deleted);
    api.create(again).await;
}

#[tokio::test]
async fn one_that_waits_for_a_slot_can_be_deleted_and_never_starts() {
    let mut cluster = Cluster::new("waiting").with_test_kinds();
    // Its message waits in the queue.
    cluster.extra.push(("EVERWATCH_MANAGER__ADMIT_AHEAD".to_owned(), "1".to_owned()));
    cluster.manager().await;
    cluster.service("a", 1).await;
    let api = cluster.api.clone();
    let folder = cluster.folder("beacons");
    let create =
        |name: &str| json!({"name": name, "kind": "beacon", "spec": {"folder": folder}, "on_full": "queue"});
    api.create(create("first")).await;
    api.until_status("first", "Processing").await;
    api.create(create("waits")).await;
    // Once its publish is over, it waits in the queue.
    api.until_observer("waits", |it| it.reason.contains("slot")).await;
    let it: Observer = api.done("DELETE", "/v1/observers/waits", None, 202).await;
    assert_eq!(it.status, Status::OnDeleting, "{it:?}");
    let (status, _) = api.call("DELETE", "/v1/observers/first?wait=20s", None).await;
    assert_eq!(status, 200);
    api.until_status("waits", "Deleted").await;
    assert!(!folder.join("waits").exists(), "it never started");
}

#[tokio::test]
async fn one_deleted_while_its_service_is_being_killed_ends_and_runs_nowhere() {
    let mut cluster = Cluster::new("doomed").with_test_kinds();
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 20).await;
    }
    let api = cluster.api.clone();
    let folder = cluster.folder("beacons");
    for number in 0..20 {
        let spec = json!({ "folder": folder });
        api.create(json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec})).await;
    }
    for number in 0..20 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    // Half are deleted before the kill and half after it, all without waiting.
    for number in 0..20 {
        if number == 10 {
            cluster.kill("a");
        }
        let (status, it) = api.call("DELETE", &format!("/v1/observers/o{number}"), None).await;
        assert!(status == 202 || status == 200, "{it}");
    }
    for number in 0..20 {
        api.until_status(&format!("o{number}"), "Deleted").await;
    }
    let at_end = last_beacons(&folder);
    // The start of a ticker shows that time has passed and that the remaining service still works.
    api.create(json!({"name": "after", "kind": "ticker"})).await;
    api.until_status("after", "Processing").await;
    assert_eq!(last_beacons(&folder), at_end, "nothing runs any more");
}

fn last_beacons(folder: &std::path::Path) -> Vec<(String, i64)> {
    beacons::read(folder).into_iter().map(|(name, runs)| (name, runs[runs.len() - 1].last)).collect()
}

#[tokio::test]
async fn an_observer_lives_through_twenty_five_kills_of_its_service() {
    let all = brokers().into_iter().map(|(version, url)| async move {
        let mut cluster = Cluster::new("kills").on(&url).with_test_kinds();
        cluster.extra = vec![("EVERWATCH_MANAGER__QUARANTINE_AFTER".to_owned(), "1000".to_owned())];
        cluster.manager().await;
        let folder = cluster.folder("beacons");
        cluster.service("s0", 1).await;
        let spec = json!({ "folder": folder });
        cluster.api.create(json!({"name": "o", "kind": "beacon", "spec": spec})).await;
        cluster.api.until_status("o", "Processing").await;
        for kill in 0..25 {
            let next = format!("s{}", kill + 1);
            cluster.spawn_service(&next, 1);
            cluster.until_active(&next).await;
            cluster.kill(&format!("s{kill}"));
            wait_for(&format!("a run after kill {kill} on {version}"), || async {
                let runs = beacons::read(&folder);
                if runs["o"].len() == kill + 2 { Ok(()) } else { Err(format!("{runs:?}")) }
            })
            .await;
        }
        assert_eq!(cluster.api.observer("o").await.status, Status::Processing);
        beacons::judge(&format!("25 kills, {version}"), &folder, |_| 0);
    });
    futures::future::join_all(all).await;
}
