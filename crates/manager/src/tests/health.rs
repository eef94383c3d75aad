//! Health over HTTP: beside the status, as a filter, in totals and metrics, and in what the doctor finds.

use super::*;

fn errored(attempt: u32) -> RunEvent {
    RunEvent::Errored { attempt, error: "no such file".to_owned(), next_at: clock::now() }
}

fn again(attempt: u32) -> RunEvent {
    RunEvent::Started { attempt, started_at: clock::now() }
}

impl Stage {
    async fn until_health(&self, name: &str, health: &Value, code: &Value) -> Value {
        let path = format!("/v1/observers/{name}");
        self.until(&path, |it| it.body["health"] == *health && it.body["reason_code"] == *code).await.body
    }
    async fn names(&self, query: &str) -> Vec<String> {
        let page = self.get(&format!("/v1/observers?{query}")).await.body;
        let items = page["items"].as_array().unwrap();
        assert_eq!(page["total"], items.len(), "{page}");
        items.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loop_is_seen_wherever_one_looks() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "steady"})).await;
    let (_steady, work, epoch) = service.take().await;
    service.run_event(&work, epoch, started()).await;
    stage.create(json!({"kind": "ticker", "name": "loops"})).await;
    let (_loops, work, epoch) = service.take().await;
    service.run_event(&work, epoch, again(1)).await;
    stage.until_health("loops", &json!("running"), &Value::Null).await;
    for attempt in 1..4 {
        service.run_event(&work, epoch, errored(attempt)).await;
        let it = stage.until_health("loops", &json!("restarting"), &json!("backing-off")).await;
        assert_eq!((&it["status"], &it["restarts"]), (&json!("Processing"), &json!(attempt - 1)));
        service.run_event(&work, epoch, again(attempt + 1)).await;
        let it = stage.until_health("loops", &json!("restarting"), &json!("recently-failed")).await;
        assert_eq!(it["restarts"], attempt);
    }
    stage.create(json!({"kind": "ticker", "name": "full", "on_full": "queue"})).await;
    stage.create(json!({"kind": "ticker", "name": "nowhere", "pool": "gpu", "on_full": "queue"})).await;
    stage.create(json!({"kind": "ticker", "name": "rests", "desired": "paused"})).await;
    stage.until_health("nowhere", &json!("waiting"), &json!("no-service-in-pool")).await;
    stage.until_health("rests", &Value::Null, &Value::Null).await;

    assert_eq!(stage.names("health=restarting").await, ["loops"]);
    assert_eq!(stage.names("health=running,restarting&kind=ticker").await, ["loops", "steady"]);
    assert_eq!(stage.names("health=waiting&pool=gpu").await, ["nowhere"]);
    assert_eq!(stage.names("health=running&status=Failed").await, [""; 0]);
    assert_eq!(stage.names("reason_code=recently-failed").await, ["loops"]);
    // The filter finds what the answers show.
    let all = stage.get("/v1/observers").await.body;
    for one in all["items"].as_array().unwrap().iter().filter(|one| one["reason_code"].is_string()) {
        let alike = |it: &&Value| it["reason_code"] == one["reason_code"];
        let alike: Vec<_> =
            all["items"].as_array().unwrap().iter().filter(alike).map(|it| &it["name"]).collect();
        let code = one["reason_code"].as_str().unwrap();
        assert_eq!(json!(stage.names(&format!("reason_code={code}")).await), json!(alike), "{code}");
    }
    assert_eq!(stage.names("reason_code=no-service-in-pool&pool=default").await, [""; 0]);
    let refused = stage.get("/v1/observers?reason_code=sad").await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (400, &json!("bad-query")));
    assert!(refused.body["detail"].as_str().unwrap().contains("pool-is-full"), "{}", refused.body);
    let refused = stage.get("/v1/observers?health=green").await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (400, &json!("bad-query")));
    assert!(refused.body["detail"].as_str().unwrap().contains("restarting"), "{}", refused.body);

    let stats = stage.get("/v1/stats").await.body;
    let expected = json!({"running": 1, "restarting": 1, "waiting": 2, "moving": 0, "stopping": 0});
    assert_eq!(stats["health"], expected);
    let pool = stage.get("/v1/pools/gpu").await.body;
    assert_eq!(pool["health"], json!({"waiting": 1}));

    let doctor = stage.get("/v1/doctor").await.body;
    let findings = doctor["items"].as_array().unwrap();
    let finding = findings.iter().find(|it| it["code"] == "crash-loop").unwrap_or_else(|| panic!("{doctor}"));
    assert!(finding["what"].as_str().unwrap().contains("loops (3 restarts)"), "{finding}");

    // The bulk actions share the filter.
    let paused = stage.send("POST", "/v1/observers:pause?health=restarting&expect=1", None).await;
    assert_eq!(paused.body["items"][0]["observer"]["name"], "loops", "{}", paused.body);
    stage.until_health("loops", &json!("stopping"), &json!("pausing")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_without_its_service() {
    let stage = Stage::new().await;
    let mut older = stage.service(1).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let (_held, work, epoch) = older.take().await;
    older.run_event(&work, epoch, started()).await;
    stage.until_health("a", &json!("running"), &Value::Null).await;
    older.run_event(&work, epoch, RunEvent::HandedOver).await;
    stage.until("/v1/observers/a", |it| it.body["health"] == "moving").await;
    older.run_event(&work, epoch, again(1)).await;
    stage.until_health("a", &json!("running"), &Value::Null).await;
    older.session.close().await;
    // A younger one of its name brings to light that it is gone.
    let _younger = stage.service(1).await;
    stage.until("/v1/observers/a", |it| it.body["health"] == "waiting").await;
    assert_eq!(stage.names("health=waiting").await, ["a"]);
    assert_eq!(stage.names("health=running").await, [""; 0]);
}
