//! The health of observers that fail, wait, move and stop.

use everwatch_api::{Observer, Pool, Stats};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::{Api, holder};
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn script(name: &str, text: &str) -> Value {
    let spec = json!({"argv": ["/bin/sh", "-c", text]});
    let retry = json!({"kind": "fixed", "every": "200ms"});
    json!({"name": name, "kind": "exec", "spec": spec, "retry": retry, "grace": "10s"})
}

async fn until(
    api: &Api,
    name: &str,
    health: impl Into<Option<Health>>,
    code: impl Into<Option<ReasonCode>>,
) -> Observer {
    let (health, code) = (health.into(), code.into());
    api.until_observer(name, |it| it.health == health && it.reason_code == code).await
}

async fn names(api: &Api, query: &str) -> Vec<String> {
    let items: Vec<Observer> = api.list(&format!("/v1/observers?{query}")).await;
    items.into_iter().map(|it| it.name).collect()
}

#[tokio::test]
async fn a_crash_loop_is_restarting_at_every_moment() {
    let mut cluster = Cluster::new("loops");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "steady", "kind": "ticker"})).await;
    // `loops` runs for a while between two failures; `missing` cannot even start.
    api.create(script("loops", "sleep 0.4; exit 3")).await;
    let mut missing = script("missing", "");
    missing["spec"] = json!({"argv": ["/no/such/program"]});
    api.create(missing).await;
    for name in ["loops", "missing"] {
        let mut codes = BTreeSet::new();
        loop {
            let it = api.observer(name).await;
            if it.last_error.is_none() {
                continue;
            }
            assert_eq!(it.health, Some(Health::Restarting), "{it:?}");
            codes.insert(it.reason_code.map_or("none", ReasonCode::as_str));
            // By the first request, this observer may have failed several times already and may be running.
            if it.restarts >= 4 && codes.contains("backing-off") {
                break;
            }
        }
        assert!(name == "missing" || codes.contains("recently-failed"), "{codes:?}");
        assert!(codes.iter().all(|it| ["backing-off", "recently-failed"].contains(it)), "{codes:?}");
    }
    assert_eq!(names(&api, "health=restarting").await, ["loops", "missing"]);
    assert_eq!(names(&api, "health=running").await, ["steady"]);
    let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
        counts.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect()
    };
    let stats: Stats = api.read("/v1/stats").await;
    let expected = [("running", 1), ("restarting", 2), ("waiting", 0), ("moving", 0), ("stopping", 0)];
    assert_eq!(stats.health, counts(&expected));
    let pool: Pool = api.read("/v1/pools/default").await;
    assert_eq!(pool.health, counts(&expected[..2]));

    let (code, list) = cluster.command(&["observer", "list", "--health", "restarting", "-o", "name"]);
    assert_eq!((code, list.trim()), (Some(0), "loops\nmissing"));
    let (_, table) = cluster.command(&["observer", "list", "-o", "wide"]);
    assert!(
        table.contains("HEALTH") && table.contains("RESTARTS") && table.contains("restarting"),
        "{table}"
    );
    let (_, told) = cluster.command(&["observer", "describe", "missing"]);
    assert!(told.contains("Health:") && told.contains("restarts)"), "{told}");
    let (_, doctor) = cluster.command(&["doctor", "-o", "json"]);
    assert!(doctor.contains("crash-loop") && doctor.contains("everwatch observer logs"), "{doctor}");
}

#[tokio::test]
async fn what_waits_and_what_stops_says_so() {
    let mut cluster = Cluster::new("standing");
    cluster.manager().await;
    cluster.service("a", 1).await;
    let api = cluster.api.clone();
    let ready = cluster.scratch.path().join("ready");
    let done = cluster.scratch.path().join("done");
    // It stops when this test lets it.
    let text = format!(
        "trap 'while ! test -e {}; do sleep 0.05; done; exit 0' TERM; touch {}; while :; do sleep 0.05; done",
        done.display(),
        ready.display()
    );
    api.create(script("slow", &text)).await;
    until(&api, "slow", Health::Running, None).await;
    wait_for("the script to listen", || async {
        ready.exists().then_some(()).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    api.create(json!({"name": "full", "kind": "ticker", "on_full": "queue"})).await;
    until(&api, "full", Health::Waiting, ReasonCode::PoolIsFull).await;
    api.create(json!({"name": "nowhere", "kind": "ticker", "pool": "gpu", "on_full": "queue"})).await;
    until(&api, "nowhere", Health::Waiting, ReasonCode::NoServiceInPool).await;
    assert_eq!(names(&api, "health=waiting,moving&pool=gpu").await, ["nowhere"]);
    let (status, _) = api.call("DELETE", "/v1/observers/slow", None).await;
    assert_eq!(status, 202);
    until(&api, "slow", Health::Stopping, ReasonCode::Deleting).await;
    assert_eq!(names(&api, "health=stopping").await, ["slow"]);
    std::fs::write(&done, "").unwrap();
    until(&api, "slow", None, None).await;
    until(&api, "full", Health::Running, None).await;
    let problem = api.refused("GET", "/v1/observers?health=green", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (400, "bad-query"), "{problem:?}");
}

#[tokio::test]
async fn an_observer_between_two_services_moves_and_one_that_lost_its_service_waits() {
    let mut cluster = Cluster::new("between");
    cluster.manager().await;
    cluster.service("a", 3).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "o", "kind": "ticker"})).await;
    until(&api, "o", Health::Running, None).await;
    let (status, _) = api.call("POST", "/v1/services/a/drain", Some(json!({"force": true}))).await;
    assert!(status < 300, "{status}");
    let it = until(&api, "o", Health::Moving, ReasonCode::NoActiveService).await;
    assert_eq!(it.service, None, "{it:?}");
    assert_eq!(names(&api, "health=moving").await, ["o"]);
    cluster.service("b", 3).await;
    let it = until(&api, "o", Health::Running, None).await;
    assert_eq!(holder(&it), Some("b"), "{it:?}");
    assert_eq!(it.restarts, 0, "a move is no error");
    cluster.kill("b");
    until(&api, "o", Health::Waiting, ReasonCode::NoActiveService).await;
    assert_eq!(names(&api, "health=running").await, [""; 0]);
    assert_eq!(names(&api, "health=waiting").await, ["o"]);
}
