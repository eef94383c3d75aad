//! Which service receives a new observer: the one that uses the smallest part of its capacity.

use everwatch_core::clock;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn new_observers_go_to_the_service_that_uses_the_smallest_part_of_its_capacity() {
    let all = brokers().into_iter().map(|(version, url)| async move { receive(&version, &url).await });
    futures::future::join_all(all).await;
}

async fn receive(version: &str, url: &str) {
    let mut cluster = Cluster::new("placing").with_test_kinds().on(url);
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 10).await;
        cluster.until_ready(name).await;
    }
    let folder = cluster.folder("beacons");
    create(&cluster, &folder, 0..12).await;
    until_held(&cluster, version, [4, 4, 4]).await;

    cluster.kill("a");
    until_held(&cluster, version, [0, 6, 6]).await;
    cluster.service("a", 10).await;
    cluster.until_ready("a").await;
    create(&cluster, &folder, 12..18).await;
    until_held(&cluster, version, [6, 6, 6]).await;

    fill_a(&cluster, version).await;
    // The other services let `a` take observers first for 2 s from each move on, and it is full.
    let rested = clock::now().plus(Duration::from_secs(3));
    wait_for("heartbeats from after the rest", || async {
        let (b, c) = (cluster.api.service("b").await, cluster.api.service("c").await);
        let heard = b.last_heartbeat_at.min(c.last_heartbeat_at);
        if heard > rested { Ok(()) } else { Err(format!("{version}: {heard}, not after {rested}")) }
    })
    .await;
    create(&cluster, &folder, 18..22).await;
    until_held(&cluster, version, [10, 6, 6]).await;
}

/// Moves observers from `c` to `a`, until `a` is full. On a machine that stands still for seconds, one may return to where it was.
async fn fill_a(cluster: &Cluster, version: &str) {
    for _ in 0..12 {
        let held = held(cluster).await;
        let count = |name: &str| held.get(name).map_or(0, Vec::len);
        let from = if count("b") > 6 { "b" } else { "c" };
        let Some(observer) = held.get(from).and_then(|all| all.first()).filter(|_| count("a") < 10) else {
            break;
        };
        let (code, said) = cluster.command(&["observer", "move", observer, "--to", "a", "--wait", "20s"]);
        assert_eq!(code, Some(0), "{version}: {said}");
    }
    until_held(cluster, version, [10, 6, 2]).await;
}

/// Creates observers, each once the one before runs: so the services have counted it.
async fn create(cluster: &Cluster, folder: &Path, numbers: Range<usize>) {
    for number in numbers {
        let name = format!("o{number}");
        cluster.api.create(json!({"name": name, "kind": "beacon", "spec": {"folder": folder}})).await;
        cluster.api.until_status(&name, "Processing").await;
    }
}

/// The names of the running observers of each service.
async fn held(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for it in cluster.api.processing().await.iter().filter(|it| it.status == Status::Processing) {
        held.entry(holder(it).unwrap_or("none").to_owned()).or_default().push(it.name.clone());
    }
    held
}

async fn until_held(cluster: &Cluster, version: &str, expected: [usize; 3]) {
    wait_for("the services to hold what they should", || async {
        let held = held(cluster).await;
        let counts = ["a", "b", "c", "none"].map(|name| held.get(name).map_or(0, Vec::len));
        if counts == [expected[0], expected[1], expected[2], 0] {
            Ok(())
        } else {
            Err(format!("{version}: {counts:?}"))
        }
    })
    .await;
}
