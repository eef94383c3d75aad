//! On a real RabbitMQ.

use crate::service::Service;
use crate::stage::Stage;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_of_what_waits_in_a_full_queue_is_carried_out_by_a_sweep() {
    let stage = Stage::new().on_rabbit();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 1).await;
    manager.api.create(json!({"name": "runs", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("runs", "Processing").await;
    for name in ["w1", "doomed", "w2"] {
        manager.api.create(json!({"name": name, "kind": "ticker", "on_full": "queue"})).await;
    }
    manager
        .api
        .until("/v1/observers/w2", |_, body| {
            body["reason"].as_str().unwrap().starts_with("waiting for a slot")
        })
        .await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/doomed", None).await.0, 202);
    manager.api.until_status("doomed", "Deleted").await;
    // The others keep their places.
    for name in ["w1", "w2"] {
        assert_eq!(manager.api.get(&format!("/v1/observers/{name}")).await["status"], "Created");
    }
    assert_eq!(manager.api.call("DELETE", "/v1/observers/runs?wait=20s", None).await.0, 200);
    manager.api.until_status("w1", "Processing").await;
    assert_eq!(service.history.lock().unwrap().len(), 2);
}
