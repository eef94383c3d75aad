//! What the code of observers saves and announces: checkpoints, results, readiness and signs of life.

use everwatch_api::{Observer, ObserverResult};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::path::Path;

/// What each counter counts to.
const TO: u64 = 600;

/// The epochs and counts that a `counter` has written.
fn counts(folder: &Path, name: &str) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let line = |line: &str| {
        let (epoch, count) = line.split_once(' ')?;
        Some((epoch.parse().ok()?, count.parse().ok()?))
    };
    // The last line of a killed service may be incomplete.
    text.lines().filter_map(line).collect()
}

/// Waits until each counter has counted this much further.
async fn until_counted(folder: &Path, names: &[String], further: u64) {
    let last = |name: &String| counts(folder, name).last().map_or(0, |(_, count)| *count);
    let begun: Vec<u64> = names.iter().map(last).collect();
    wait_for("all counters to go on", || async {
        let now: Vec<u64> = names.iter().map(last).collect();
        let all = begun.iter().zip(&now).all(|(begun, now)| *now >= begun + further || *now >= TO);
        if all { Ok(()) } else { Err(format!("from {begun:?} to {now:?}")) }
    })
    .await;
}

#[tokio::test]
async fn no_stored_checkpoint_is_lost_with_its_service() {
    for (version, url) in brokers() {
        // Two managers read the same state queue, so they apply reports in another order than they were sent.
        let mut cluster = Cluster::new("checkpoints").on(&url).with_postgres().with_test_kinds();
        cluster.manager().await;
        cluster.another_manager("second").await;
        for name in ["a", "b"] {
            cluster.service(name, 20).await;
        }
        let (api, folder) = (cluster.api.clone(), cluster.folder("counts"));
        let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
        for name in &names {
            let spec = json!({"folder": folder, "to": TO});
            api.create(json!({"name": name, "kind": "counter", "spec": spec})).await;
        }
        for name in &names {
            api.until_observer(name, |it| it.health == Some(Health::Running)).await;
        }
        for killed in ["a", "b"] {
            until_counted(&folder, &names, 40).await;
            cluster.kill(killed);
            for name in &names {
                api.until_observer(name, |it| it.status.is_final() || holder(it) != Some(killed)).await;
            }
            cluster.service(killed, 20).await;
        }
        let mut epochs = 0;
        for name in &names {
            api.until_status(name, "Completed").await;
            let counts = counts(&folder, name);
            let rises = |pair: &[(u64, u64)]| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1;
            assert!(counts.windows(2).all(rises), "{version}: {name}: {counts:?}");
            epochs += counts.iter().map(|it| it.0).collect::<std::collections::BTreeSet<_>>().len();
            let result: ObserverResult = api.read(&format!("/v1/observers/{name}/result")).await;
            assert_eq!(result.value, json!({"count": TO}));
        }
        assert!(epochs > names.len(), "{version}: no observer had a second run");
        let problem = api.refused("GET", "/v1/observers/nobody/result", None).await;
        assert_eq!((problem.status, problem.code.as_str()), (404, "not-found"));
    }
}

#[tokio::test]
async fn code_that_is_not_ready_does_not_count_as_running() {
    let mut cluster = Cluster::new("readiness").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let create = |name: &str, ms: Option<u64>| {
        let retry = json!({"kind": "fixed", "every": "1s"});
        api.create(json!({"name": name, "kind": "connects", "spec": {"ready_after_ms": ms}, "retry": retry}))
    };
    create("soon", Some(1500)).await;
    create("never", None).await;
    let waits = |it: &Observer| it.reason_code == Some(ReasonCode::NotReady);
    let soon = api.until_observer("soon", waits).await;
    assert_eq!(soon.health, Some(Health::Waiting), "{soon:?}");
    let soon = api.until_observer("soon", |it| it.health == Some(Health::Running)).await;
    assert_eq!((soon.reason_code, soon.restarts), (None, 0));
    let fails = |it: &Observer| it.restarts > 0;
    let never = api.until_observer("never", fails).await;
    assert_eq!(never.last_error.as_deref(), Some("was not ready within 2s"));
    assert_eq!(never.health, Some(Health::Restarting), "{never:?}");
    let (status, _) = api.call("DELETE", "/v1/observers/soon?wait=10s", None).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn silent_code_starts_again() {
    let mut cluster = Cluster::new("silence").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "o", "kind": "falls-silent"})).await;
    let silent = api.until_observer("o", |it| it.restarts > 0).await;
    assert_eq!(silent.last_error.as_deref(), Some("gave no sign of life for 1s"));
}
