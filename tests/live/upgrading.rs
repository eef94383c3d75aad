//! Moves a deployment with all its observers from one broker to another, for broker versions without an
//! upgrade path between them.

use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::wait::wait_for;
use serde_json::json;

#[tokio::test]
async fn everything_goes_over_to_another_broker() {
    let all = brokers().into_iter().map(|(version, url)| async move { go_over(&version, &url).await });
    futures::future::join_all(all).await;
}

async fn go_over(version: &str, url: &str) {
    let mut cluster = Cluster::new("upgrade").with_test_kinds();
    // Managers find messages that were confirmed within the last second before the new queue was created only
    // by silence, so this test shortens `orphan_after`.
    cluster.extra.push(("EVERWATCH_MANAGER__ORPHAN_AFTER".to_owned(), "15s".to_owned()));
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = cluster.folder("beacons");
    for number in 0..8 {
        let body = json!({"name": format!("o{number}"), "kind": "beacon", "spec": {"folder": folder}});
        cluster.api.create(body).await;
    }
    until_they_run(&cluster, 8, 1).await;
    assert_eq!(cluster.api.call("POST", "/v1/observers/o7/pause", None).await.0, 202);
    cluster.api.until_status("o7", "Paused").await;

    // On the other broker, with other queue names, because a new broker has no queues.
    stop(&mut cluster).await;
    cluster = cluster.on(url);
    cluster.prefix.insert_str(0, "there-");
    cluster.manager().await;
    cluster.service("a", 10).await;
    until_they_run(&cluster, 7, 2).await;
    assert_eq!(cluster.api.observer("o7").await.status, Status::Paused);
    let path = "/v1/events?type=work_queue_created";
    let events = cluster.api.until_events(path, |events| events.len() >= 2).await;
    assert_eq!(events.len(), 2, "{version}: {events:?}");

    beacons::judge(&format!("to another broker, {version}"), &folder, |_| 0);
}

async fn stop(cluster: &mut Cluster) {
    for name in ["a", "manager"] {
        assert_eq!(cluster.terminate(name), Some(0), "{}", cluster.log(name));
    }
}

async fn until_they_run(cluster: &Cluster, count: usize, least: u32) {
    wait_for(&format!("{count} to run"), || async {
        let all = cluster.api.processing().await;
        let running = all.iter().filter(|it| it.service.is_some() && it.generation >= least).count();
        if running == count { Ok(()) } else { Err(format!("{running} of {count} run: {all:?}")) }
    })
    .await;
}
