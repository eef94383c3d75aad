//! Batches over HTTP.

use super::*;
use everwatch_api::{Batch, BatchMember};
use everwatch_core::batch::BatchState;

impl Stage {
    async fn create_batch(&self, body: &Value) -> Answer {
        self.send("POST", "/v1/batches", Some(&body.to_string())).await
    }
}

fn body() -> Value {
    json!({"name": "b", "max_running": 1, "defaults": {"kind": "ticker", "labels": {"app": "x"}},
        "observers": [{"name": "one"}, {"labels": {"wave": "2"}}, {"name": "three", "desired": "paused"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_batch_is_refused_by_field_and_stores_nothing() {
    let stage = Stage::new().await;
    let _service = stage.service(5).await;
    stage.create(json!({"kind": "ticker", "name": "taken"})).await;
    let many: Vec<Value> = (0..10_001).map(|_| json!({})).collect();
    let eight: Vec<String> = (0..8).map(|number| format!("key-{number}")).collect();
    let batch_key = "batch:01980f50-2a11-7c51-9a54-3f6c1f2b0000";
    for (member, value, pointer) in [
        ("name", json!("a b"), "/name"),
        ("name", json!("x".repeat(121)), "/name"),
        ("max_running", json!(0), "/max_running"),
        ("max_running", json!(1_000_001), "/max_running"),
        ("observers", json!([]), "/observers"),
        ("observers", json!(many), "/observers"),
        ("observers", json!([{}, 7]), "/observers/1"),
        ("observers", json!([{}, {"kind": "unknown"}]), "/observers/1/kind"),
        ("observers", json!([{}, {"spek": 1}]), "/observers/1/spek"),
        ("observers", json!([{}, {"name": "b-0"}]), "/observers/1/name"),
        ("observers", json!([{}, {"name": "taken"}]), "/observers/1/name"),
        ("observers", json!([{}, {"on_full": "reject"}]), "/observers/1/on_full"),
        ("observers", json!([{}, {"schedule": {"cron": "0 3 * * *"}}]), "/observers/1/schedule"),
        ("observers", json!([{}, {"limits": ["unknown"]}]), "/observers/1/limits"),
        ("observers", json!([{}, {"limits": [batch_key]}]), "/observers/1/limits"),
        ("observers", json!([{}, {"limits": eight}]), "/observers/1/limits"),
        ("max", json!(1), ""),
    ] {
        let mut body = body();
        body[member] = value;
        let problem = stage.create_batch(&body).await.refused(422, "invalid");
        assert_eq!(problem.errors[0].pointer, pointer, "{member}: {problem:?}");
    }
    let wrong: Vec<Value> = (0..30).map(|_| json!({"kind": 7})).collect();
    let problem = stage.create_batch(&json!({"observers": wrong})).await.refused(422, "invalid");
    assert_eq!(problem.errors.len(), 21);
    assert!(problem.errors[20].detail.ends_with(" more errors"), "{problem:?}");
    // A mistake in the defaults is one mistake, however many observers have it.
    let of = async |defaults: Value, observers: Value| {
        let body = json!({"defaults": defaults, "observers": observers});
        let problem = stage.create_batch(&body).await.refused(422, "invalid");
        problem.errors.iter().map(|it| it.pointer.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(json!({"kind": "ticker", "evry": 1}), json!([{}, {}, {}])).await, ["/defaults/evry"]);
    assert_eq!(
        of(json!({"kind": "unknown"}), json!([{}, {}])).await,
        ["/defaults/kind"],
        "no service has it"
    );
    let own = of(json!({"kind": "ticker", "priority": "low"}), json!([{}, {"priority": 101}, {}])).await;
    assert_eq!(own, ["/defaults/priority", "/observers/1/priority"]);
    assert_eq!((stage.total("/v1/batches").await, stage.total("/v1/observers").await), (0, 1));
    stage.get("/v1/batches/none").await.refused(404, "not-found");
    stage.get("/v1/batches/none/observers").await.refused(404, "not-found");
    stage.get("/v1/batches?limit=201").await.refused(400, "bad-query");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_created_once_and_its_limit_is_its_own() {
    let stage = Stage::new().await;
    let _service = stage.service(5).await;
    let request = |body: Value| {
        let request = Request::builder().method("POST").uri("/v1/batches").header("idempotency-key", "k");
        request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())).unwrap()
    };
    let made: Batch = stage.ask(request(body())).await.read(201);
    assert_eq!((made.members, made.state, made.counts[&Status::Paused]), (3, BatchState::Running, 1));
    let again: Batch = stage.ask(request(body())).await.read(201);
    assert_eq!((again.id, stage.total("/v1/observers").await), (made.id, 3));
    stage
        .ask(request(json!({"observers": [{"kind": "ticker"}]})))
        .await
        .refused(422, "idempotency-key-reused");
    let members: Listed<BatchMember> = stage.read("/v1/batches/b/observers?limit=2").await;
    let names: Vec<&str> = members.items.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((names, members.total), (vec!["one", "b-1"], 3));
    let next = format!("/v1/batches/b/observers?limit=2&cursor={}", members.next_cursor.unwrap());
    let members: Listed<BatchMember> = stage.read(&next).await;
    assert_eq!(
        (members.items[0].place, members.items[0].status, members.next_cursor),
        (2, Status::Paused, None)
    );
    stage.get("/v1/batches/b/observers?status=Sleeping").await.refused(400, "bad-query");

    let key = format!("batch:{}", made.id);
    let one: Observer = stage.read("/v1/observers/b-1").await;
    assert_eq!((one.limits, one.labels.len()), (vec![key.clone()], 2));
    let max = json!({"max": 9}).to_string();
    stage.send("PUT", &format!("/v1/limits/{key}"), Some(&max)).await.refused(422, "invalid");
    stage.send("DELETE", &format!("/v1/limits/{key}"), None).await.refused(409, "limit-in-use");
    let other = json!({"kind": "ticker", "name": "other", "limits": [key]}).to_string();
    stage.send("POST", "/v1/observers", Some(&other)).await.refused(422, "invalid");
    stage.send("DELETE", "/v1/batches/b", None).await.refused(409, "batch-not-over");
    assert_eq!(
        stage.send("POST", "/v1/batches/b/cancel", None).await.read::<Batch>(200).state,
        BatchState::Cancelling
    );
    stage.send("POST", "/v1/batches/b/retry-failed", None).await.refused(409, "batch-not-over");
    stage.ask(request(body())).await.refused(409, "batch-not-over");
}
