//! Observers that fail, panic or block.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};

async fn creates(cluster: &Cluster, name: &str, kind: &str, retry: Value) {
    cluster
        .api
        .create(json!({"name": name, "kind": kind, "spec": {}, "retry": retry, "grace": "200ms"}))
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
    assert_eq!(failed.last_error.as_deref(), Some("exited with code 3"));
    assert!(failed.reason.contains("3 attempts"), "{failed:?}");
    std::fs::write(&marker, "").unwrap();
    let (status, _) = api.call("POST", "/v1/observers/o/retry", None).await;
    assert_eq!(status, 202);
    api.until_status("o", "Processing").await;
}

#[tokio::test]
async fn each_policy_gives_up_when_it_says_and_tells_the_whole_error() {
    let mut cluster = Cluster::new("policies").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let intervals = json!({"kind": "intervals", "delays": ["50ms", "100ms", "150ms"]});
    creates(&cluster, "fixed", "fails", json!({"kind": "fixed", "every": "50ms", "attempts": 3})).await;
    creates(&cluster, "intervals", "fails", intervals).await;
    creates(&cluster, "panics", "panics", json!({"kind": "fixed", "every": "50ms", "attempts": 2})).await;
    creates(&cluster, "forever", "fails", json!({"kind": "fixed", "every": "50ms", "attempts": null})).await;
    for (name, attempts, error) in [
        ("fixed", 3, "cannot watch: the far side is away"),
        ("intervals", 4, "cannot watch: the far side is away"),
        ("panics", 2, "panicked: on purpose"),
    ] {
        let failed = cluster.api.until_status(name, "Failed").await;
        assert_eq!((failed.last_error.as_deref(), failed.attempt), (Some(error), attempts), "{name}");
    }
    let goes_on = |it: &Observer| it.status == Status::Processing && it.attempt >= 10;
    cluster.api.until_observer("forever", goes_on).await;
}

#[tokio::test]
async fn one_that_blocks_its_thread_or_panics_does_not_disturb_its_neighbours() {
    let mut cluster = Cluster::new("neighbours").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 20).await;
    let folder = cluster.folder("beacons");
    for number in 0..4 {
        creates(&cluster, &format!("blocks{number}"), "blocks", json!({"kind": "fixed", "every": "1s"}))
            .await;
    }
    creates(&cluster, "panics", "panics", json!({"kind": "fixed", "every": "50ms", "attempts": null})).await;
    let spec = json!({ "folder": folder });
    cluster.api.create(json!({"name": "neighbour", "kind": "beacon", "spec": spec})).await;
    let neighbour = cluster.api.until_status("neighbour", "Processing").await;
    // Longer than two heartbeats: by then, a blocked control loop or a missing heartbeat would have ended the
    // session.
    wait_for("the neighbour to have run for 12 s", || async {
        let runs = everwatch_tests::beacons::read(&folder);
        let run = runs.get("neighbour").and_then(|runs| runs.last().cloned());
        match run {
            Some(run) if run.last - run.first > 12_000 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let now = cluster.api.observer("neighbour").await;
    assert_eq!((now.epoch, now.attempt), (neighbour.epoch, 1), "{now:?}");
    let log = cluster.full_log("a");
    assert!(log.contains("stalled: its code blocks a thread") && log.contains("blocks3"), "{log}");
    let (status, _) = cluster.api.call("DELETE", "/v1/observers/neighbour?wait=10s", None).await;
    assert_eq!(status, 200);
}
