//! A full outage: all processes and the broker die.

use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use serde_json::json;

const OBSERVERS: usize = 12;

#[tokio::test]
async fn after_a_full_blackout_every_observer_runs_again() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["consumer_timeout=315360000000"]);
    let mut cluster = Cluster::new("blackout").on_node(&node).with_test_kinds();
    let folder = begin(&mut cluster).await;
    node.until_kept(&format!("{}work.default", cluster.prefix)).await;
    let before = epochs(&cluster).await;
    cluster.kill_all();
    node.kill();
    node.start_again();
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 20).await;
    }
    until_all_run_later(&cluster, &before).await;
    beacons::judge("blackout", &folder, |_| 0);
}

#[tokio::test]
async fn a_broker_that_goes_and_comes_back_is_survived_without_any_other_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["consumer_timeout=315360000000"]);
    let mut cluster = Cluster::new("broker-away").on_node(&node).with_test_kinds();
    let folder = begin(&mut cluster).await;
    node.until_kept(&format!("{}work.default", cluster.prefix)).await;
    let before = epochs(&cluster).await;
    node.kill();
    // While the broker is down, managers accept requests and execute them later.
    let (status, made) =
        cluster.api.call("POST", "/v1/observers", Some(json!({"name": "later", "kind": "ticker"}))).await;
    assert_eq!(status, 201, "{made}");
    node.start_again();
    until_all_run_later(&cluster, &before).await;
    cluster.api.until_status("later", "Processing").await;
    beacons::judge("broker killed and started again", &folder, |_| 0);
}

async fn begin(cluster: &mut Cluster) -> std::path::PathBuf {
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 20).await;
    }
    let folder = cluster.folder("beacons");
    for number in 0..OBSERVERS {
        let spec = json!({ "folder": folder });
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec})).await;
    }
    for number in 0..OBSERVERS {
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    folder
}

async fn epochs(cluster: &Cluster) -> Vec<u64> {
    let mut all = Vec::new();
    for number in 0..OBSERVERS {
        all.push(cluster.api.observer(&format!("o{number}")).await.epoch);
    }
    all
}

async fn until_all_run_later(cluster: &Cluster, before: &[u64]) {
    wait_for("every observer to run in a later epoch", || async {
        let now = epochs(cluster).await;
        let later = now.iter().zip(before).filter(|(now, before)| now > before).count();
        let running = cluster.api.processing().await;
        let all = running.iter().filter(|it| it.service.is_some()).count();
        if later == OBSERVERS && all >= OBSERVERS { Ok(()) } else { Err(format!("{later} later, {all} run")) }
    })
    .await;
}
