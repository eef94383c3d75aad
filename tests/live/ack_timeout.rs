//! RabbitMQ's acknowledgement time-out: Everwatch disables it where a queue argument can, and explains and
//! survives it elsewhere.

use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, further_brokers};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a child may outlive its run, in ms: the default `fence_grace`.
const FENCE_GRACE: i64 = 500;
/// Three times the acknowledgement time-out that these brokers are configured with.
const LONG_ENOUGH: Duration = Duration::from_secs(180);

#[tokio::test]
async fn an_observer_outlives_the_time_out_or_recovers_from_it_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let installed = Node::start(&scratch.path().join("node"), &["consumer_timeout=60000"]);
    let mut brokers = vec![("installed".to_owned(), installed.url.clone())];
    if std::env::var("EVERWATCH_TEST_ACK_TIMEOUT").is_ok_and(|timeout| timeout == "60s") {
        brokers.extend(further_brokers());
    }
    let outlived =
        futures::future::join_all(brokers.iter().map(|(version, url)| three_minutes(version, url)));
    futures::future::join(outlived, a_cordoned_service(&installed.url)).await;
}

/// A cordoned service has cancelled its consumers but still holds its messages. If the broker closes a
/// channel, no consumer reports that to the service.
async fn a_cordoned_service(url: &str) {
    let mut cluster = Cluster::new("ack-timeout-cordoned").on(url).with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = cluster.folder("beacons");
    cluster.api.create(json!({"name": "o", "kind": "exec", "spec": beacons::exec_spec(&folder)})).await;
    cluster.api.until_status("o", "Processing").await;
    assert_eq!(cluster.api.call("POST", "/v1/services/a/cordon", None).await.0, 202);
    cluster.service("b", 10).await;
    wait_within(LONG_ENOUGH, "the other service to run it", || async {
        let it = cluster.api.observer("o").await;
        if holder(&it) == Some("b") { Ok(()) } else { Err(format!("{it:?}")) }
    })
    .await;
    wait_for("its child there to be seen", || async {
        let runs = beacons::read(&folder).remove("o").unwrap_or_default();
        if runs.len() == 2 { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    beacons::judge("acknowledgement time-out of a cordoned service", &folder, |_| FENCE_GRACE);
}

async fn three_minutes(version: &str, url: &str) {
    let begun = Instant::now();
    let mut cluster = Cluster::new("ack-timeout").on(url).with_test_kinds();
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 10).await;
    }
    let folder = cluster.folder("beacons");
    for (name, overlap) in [("o-allow", "allow"), ("o-forbid", "forbid")] {
        let spec = beacons::exec_spec(&folder);
        cluster.api.create(json!({"name": name, "kind": "exec", "spec": spec, "overlap": overlap})).await;
        cluster.api.until_status(name, "Processing").await;
    }
    let only_configuration_lifts_it = cluster.full_log("a").contains("consumer_timeout");
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while begun.elapsed() < LONG_ENOUGH {
        ticks.tick().await;
    }
    wait_for(&format!("both to run, on {version}"), || async {
        let running = cluster.api.processing().await;
        let held = running.iter().filter(|it| it.service.is_some()).count();
        if held == 2 { Ok(()) } else { Err(format!("{running:?}")) }
    })
    .await;
    let fired = beacons::read(&folder).values().any(|runs| runs.len() > 1);
    assert_eq!(
        fired, only_configuration_lifts_it,
        "on {version}: a warning at start, and only then a time-out"
    );
    if fired {
        let allowed = |name: &str| if name == "o-allow" { FENCE_GRACE } else { 0 };
        beacons::judge(&format!("acknowledgement time-out, {version}"), &folder, allowed);
        let told = ["a", "b"].map(|name| cluster.full_log(name)).concat();
        assert!(told.contains("acknowledgement time-out has fired"), "{told}");
    }
}
