//! The health of observers that fail, wait, move and stop.

use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn script(name: &str, text: &str) -> Value {
    let spec = json!({"argv": ["/bin/sh", "-c", text]});
    let retry = json!({"kind": "fixed", "every": "200ms"});
    json!({"name": name, "kind": "exec", "spec": spec, "retry": retry, "grace": "10s"})
}

fn word<'a>(it: &'a Value, member: &str) -> &'a str {
    it[member].as_str().unwrap_or("none")
}

async fn until(api: &Api, name: &str, health: &str, code: &str) -> Value {
    wait_for(&format!("{name} to be {health} because of {code}"), || async {
        let it = api.get(&format!("/v1/observers/{name}")).await;
        let is = word(&it, "health") == health && word(&it, "reason_code") == code;
        if is { Ok(it) } else { Err(it.to_string()) }
    })
    .await
}

async fn names(api: &Api, query: &str) -> Vec<String> {
    let items = api.items(&format!("/v1/observers?{query}")).await;
    items.iter().map(|it| word(it, "name").to_owned()).collect()
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
            let it = api.get(&format!("/v1/observers/{name}")).await;
            if it["last_error"].is_null() {
                continue;
            }
            assert_eq!(word(&it, "health"), "restarting", "{it}");
            codes.insert(word(&it, "reason_code").to_owned());
            // By the first request, this observer may have failed several times already and may be running.
            if it["restarts"].as_u64() >= Some(4) && codes.contains("backing-off") {
                break;
            }
        }
        assert!(name == "missing" || codes.contains("recently-failed"), "{codes:?}");
        assert!(codes.iter().all(|it| ["backing-off", "recently-failed"].contains(&&**it)), "{codes:?}");
    }
    assert_eq!(names(&api, "health=restarting").await, ["loops", "missing"]);
    assert_eq!(names(&api, "health=running").await, ["steady"]);
    let stats = api.get("/v1/stats").await;
    let expected = json!({"running": 1, "restarting": 2, "waiting": 0, "moving": 0, "stopping": 0});
    assert_eq!(stats["health"], expected);
    let pool = api.get("/v1/pools/default").await;
    assert_eq!(pool["health"], json!({"running": 1, "restarting": 2}));

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
    until(&api, "slow", "running", "none").await;
    wait_for("the script to listen", || async {
        ready.exists().then_some(()).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    api.create(json!({"name": "full", "kind": "ticker", "on_full": "queue"})).await;
    until(&api, "full", "waiting", "pool-is-full").await;
    api.create(json!({"name": "nowhere", "kind": "ticker", "pool": "gpu", "on_full": "queue"})).await;
    until(&api, "nowhere", "waiting", "no-service-in-pool").await;
    assert_eq!(names(&api, "health=waiting,moving&pool=gpu").await, ["nowhere"]);
    let (status, _) = api.call("DELETE", "/v1/observers/slow", None).await;
    assert_eq!(status, 202);
    until(&api, "slow", "stopping", "deleting").await;
    assert_eq!(names(&api, "health=stopping").await, ["slow"]);
    std::fs::write(&done, "").unwrap();
    until(&api, "slow", "none", "none").await;
    until(&api, "full", "running", "none").await;
    let (status, problem) = api.call("GET", "/v1/observers?health=green", None).await;
    assert_eq!((status, word(&problem, "code")), (400, "bad-query"), "{problem}");
}

#[tokio::test]
async fn an_observer_between_two_services_moves_and_one_that_lost_its_service_waits() {
    let mut cluster = Cluster::new("between");
    cluster.manager().await;
    cluster.service("a", 3).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "o", "kind": "ticker"})).await;
    until(&api, "o", "running", "none").await;
    let (status, _) = api.call("POST", "/v1/services/a/drain", Some(json!({"force": true}))).await;
    assert!(status < 300, "{status}");
    let it = until(&api, "o", "moving", "no-active-service").await;
    assert!(it["service"].is_null(), "{it}");
    assert_eq!(names(&api, "health=moving").await, ["o"]);
    cluster.service("b", 3).await;
    let it = until(&api, "o", "running", "none").await;
    assert_eq!((word(&it["service"], "name"), &it["restarts"]), ("b", &json!(0)), "a move is no error: {it}");
    cluster.kill("b");
    until(&api, "o", "waiting", "no-active-service").await;
    assert_eq!(names(&api, "health=running").await, [""; 0]);
    assert_eq!(names(&api, "health=waiting").await, ["o"]);
}
