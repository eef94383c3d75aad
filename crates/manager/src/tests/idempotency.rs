//! Idempotency keys of requests that were refused.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_refused_as_invalid_can_be_corrected_and_sent_again_with_its_key() {
    let stage = Stage::new().await;
    let schema = json!({"properties": {"every": {"type": "string"}}, "additionalProperties": false});
    let _service = stage.service_with("s1", 5, &schema).await;
    let observer = |spec: Value| json!({"name": "a", "kind": "ticker", "spec": spec});
    let batch = |spec: Value| json!({"observers": [{"name": "b", "kind": "ticker", "spec": spec}]});
    let rollout = |spec: Value| json!({"selector": {"q": "a"}, "patch": {"spec": spec}});
    let creates: [(&str, &dyn Fn(Value) -> Value); 3] =
        [("observers", &observer), ("batches", &batch), ("rollouts", &rollout)];
    for (what, body) in creates {
        let send = async |spec: Value| {
            let request =
                Request::post(format!("/v1/{what}")).header(header::CONTENT_TYPE, "application/json");
            let request = request.header("idempotency-key", format!("key-of-{what}"));
            stage.ask(request.body(Body::from(body(spec).to_string())).unwrap()).await
        };
        send(json!({"evry": "9s"})).await.refused(422, "invalid");
        let first: Value = send(json!({"every": "9s"})).await.read(201);
        let again: Value = send(json!({"every": "9s"})).await.read(201);
        assert_eq!(first["id"], again["id"], "{what}");
        // The key is used: its request is not checked again before it is compared with the first one.
        send(json!({"evry": "9s"})).await.refused(422, "idempotency-key-reused");
    }
}
