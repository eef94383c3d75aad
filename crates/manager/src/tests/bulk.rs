//! Many observers at once, and orders to services, over HTTP.

use super::*;
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Intent};

async fn post(stage: &Stage, path: &str, body: &Value) -> Answer {
    stage.send("POST", path, Some(&body.to_string())).await
}

fn statuses(answer: &Answer) -> Vec<u64> {
    answer.body["items"].as_array().unwrap().iter().map(|it| it["status"].as_u64().unwrap()).collect()
}

fn creates(names: std::ops::Range<usize>, app: &str) -> Value {
    let one = |number| {
        let observer = json!({"kind": "ticker", "name": format!("o{number}"), "labels": {"app": app},
            "on_full": "queue"});
        json!({"op": "create", "observer": observer})
    };
    Value::Array(names.map(one).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_answers_each_wish_as_if_it_came_alone() {
    let stage = Stage::new().await;
    let wishes = json!([
        {"op": "create", "observer": {"kind": "ticker", "name": "a", "on_full": "queue"}},
        {"op": "create", "observer": {"kind": "ticker", "name": "b", "on_full": "queue", "desired": "paused"}},
        {"op": "create", "observer": {"kind": "ticker", "name": "-"}},
        {"op": "delete", "id": "nobody"},
        {"op": "dance", "id": "a"},
        {"op": "pause"},
        7,
    ]);
    let answer = post(&stage, "/v1/observers:batch", &wishes).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(statuses(&answer), [201, 201, 422, 404, 422, 422, 422]);
    let items = &answer.body["items"];
    assert_eq!(
        (&items[0]["observer"]["name"], &items[1]["observer"]["status"]),
        (&json!("a"), &json!("Paused"))
    );
    assert_eq!(items[2]["problem"]["errors"][0]["pointer"], "/name");
    assert!(items[4]["problem"]["detail"].as_str().unwrap().contains("dance"), "{}", items[4]);
    let wishes = json!([{"op": "resume", "id": "b"}, {"op": "pause", "id": "a"}, {"op": "retry", "id": "a"}]);
    let then = post(&stage, "/v1/observers:batch", &wishes).await;
    assert_eq!(statuses(&then), [202, 202, 409], "{then:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_does_what_it_asks_of_one_observer_in_its_order() {
    let stage = Stage::new().await;
    for round in 0..20 {
        let name = format!("n{round}");
        let draft = json!({"kind": "ticker", "name": name, "on_full": "queue", "desired": "paused"});
        let wishes = json!([{"op": "create", "observer": draft}, {"op": "delete", "id": name},
            {"op": "resume", "id": name}, {"op": "create", "observer": draft}, {"op": "resume", "id": name}]);
        let answer = post(&stage, "/v1/observers:batch", &wishes).await;
        assert_eq!(statuses(&answer), [201, 200, 409, 201, 202], "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_limits() {
    let stage = Stage::new().await;
    assert_eq!(post(&stage, "/v1/observers:batch", &json!({"op": "create"})).await.body["code"], "invalid");
    let in_order = post(&stage, "/v1/observers:batch", &json!([["delete", "x"]])).await;
    assert_eq!(statuses(&in_order), [422], "an array is no wish: {in_order:?}");
    let many = Value::Array(vec![json!({"op": "delete", "id": "x"}); 10_001]);
    let refused = post(&stage, "/v1/observers:batch", &many).await;
    assert!(refused.body["detail"].as_str().unwrap().contains("at most 10000"), "{refused:?}");
    let most = Value::Array(vec![json!({"op": "delete", "id": "x"}); 10_000]);
    assert_eq!(statuses(&post(&stage, "/v1/observers:batch", &most).await).len(), 10_000);
    let pad = |bytes: usize| json!([{"op": "delete", "id": "x".repeat(bytes)}]);
    assert_eq!(post(&stage, "/v1/observers:batch", &pad(15 << 20)).await.status, StatusCode::OK);
    let large = post(&stage, "/v1/observers:batch", &pad(17 << 20)).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(large.body["detail"].as_str().unwrap().contains("16777216"), "{large:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_filter_finds_is_counted_before_anything_happens() {
    let stage = Stage::new().await;
    assert!(
        statuses(&post(&stage, "/v1/observers:batch", &creates(0..30, "x")).await)
            .iter()
            .all(|it| *it == 201)
    );
    post(&stage, "/v1/observers:batch", &creates(30..35, "y")).await;
    let unguarded = stage.send("DELETE", "/v1/observers?label=app=x", None).await;
    assert!(unguarded.body["detail"].as_str().unwrap().contains("expect"), "{unguarded:?}");
    let unfiltered = stage.send("DELETE", "/v1/observers?expect=35", None).await;
    assert_eq!(unfiltered.status, StatusCode::BAD_REQUEST, "{unfiltered:?}");
    let differs = stage.send("POST", "/v1/observers:pause?label=app=x&expect=29", None).await;
    assert_eq!((differs.status, &differs.body["code"]), (StatusCode::CONFLICT, &json!("count-differs")));
    assert!(differs.body["detail"].as_str().unwrap().contains("30 observers match, not 29"), "{differs:?}");
    let paused = stage.send("POST", "/v1/observers:pause?label=app=x&expect=30", None).await;
    assert_eq!(statuses(&paused), [202; 30]);
    let deleted = stage.send("DELETE", "/v1/observers?label=app=y&expect=5", None).await;
    assert_eq!(statuses(&deleted).len(), 5);
    assert_eq!(stage.get("/v1/observers").await.body["total"], 30 + live_of(&stage, "y").await);
}

/// Those whose delete waits for the confirm of their publish.
async fn live_of(stage: &Stage, app: &str) -> u64 {
    stage.get(&format!("/v1/observers?label=app={app}")).await.body["total"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_reach_the_service_and_stay_with_its_name() {
    let stage = Stage::new().await;
    let mut service = stage.named_service("s1", 4).await;
    let cordoned = stage.send("POST", "/v1/services/s1/cordon", None).await;
    assert_eq!((cordoned.status, &cordoned.body["cordoned"]), (StatusCode::ACCEPTED, &json!(true)));
    let directives = service.until_directives().await;
    assert!(directives.cordoned && !directives.draining);
    assert_eq!(stage.send("POST", "/v1/services/s1/cordon", None).await.status, StatusCode::OK);
    let resized = stage.send("PATCH", "/v1/services/s1", Some(r#"{"capacity": 9}"#)).await;
    assert_eq!((resized.status, &resized.body["capacity_set"]), (StatusCode::ACCEPTED, &json!(9)));
    let drain =
        stage.send("POST", "/v1/services/s1/drain", Some(r#"{"within": "1m", "per_second": 5}"#)).await;
    assert_eq!(
        (drain.status, &drain.body["drain"]["per_second"]),
        (StatusCode::ACCEPTED, &json!(5)),
        "{drain:?}"
    );
    loop {
        let directives = service.until_directives().await;
        if directives.draining {
            assert_eq!((directives.cordoned, directives.capacity), (true, Some(9)));
            break;
        }
    }
    for (method, path, body) in [
        ("PATCH", "/v1/services/s1", r#"{"capacity": 0}"#),
        ("PATCH", "/v1/services/s1", "{}"),
        ("PATCH", "/v1/services/s1", r#"{"capacity": -1}"#),
        ("PATCH", "/v1/services/s1", r#"{"name": "x"}"#),
        ("POST", "/v1/services/s1/drain", r#"{"per_second": 0}"#),
        ("POST", "/v1/services/s1/drain", r#"{"within": "soon"}"#),
        ("POST", "/v1/services/s1/drain", r#"{"speed": 1}"#),
        ("POST", "/v1/rebalance:plan", r#"{"moves": 0}"#),
        ("POST", "/v1/rebalance:plan", r#"{"pool": ""}"#),
        ("POST", "/v1/rebalance:apply", "[]"),
    ] {
        let refused = stage.send(method, path, Some(body)).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{method} {path} {body}: {refused:?}");
    }
    assert_eq!(stage.send("POST", "/v1/services/nobody/cordon", None).await.body["code"], "not-found");
    // Whoever has the name next is told at its birth.
    let mut reborn = stage.named_service("s1", 4).await;
    assert_eq!(reborn.until_directives().await.capacity, Some(9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_a_service_does_not_follow_is_shown_as_asked() {
    let stage = Stage::new().await;
    let mut service = stage.service(4).await;
    stage.send("POST", "/v1/services/s1/cordon", None).await;
    service.until_directives().await;
    let heartbeat = async |seq, state| {
        let (capacity, sent_at) = (4, Some(clock::now()));
        let id = service.id;
        let heartbeat =
            Heartbeat { service: id, seq, state, capacity, held: 0, loop_lag_ms: 0, rss_bytes: 0, sent_at };
        let body = encode(&HeartbeatMessage::Heartbeat(heartbeat)).unwrap();
        let message = Message { body: body.into(), headers: Vec::new() };
        let heartbeats = Target::Queue(stage.manager.link.topology.heartbeats());
        service.session.publish(&heartbeats, message).await.unwrap();
    };
    heartbeat(1, Intent::Active).await;
    let told = stage.until("/v1/services/s1", |it| it.body["unconfirmed"].is_string()).await.body;
    assert_eq!((&told["state"], &told["cordoned"]), (&json!("active"), &json!(true)));
    assert_eq!(told["unconfirmed"], "cordon asked, not confirmed yet");
    heartbeat(2, Intent::Cordoned).await;
    stage.until("/v1/services/s1", |it| it.body["unconfirmed"].is_null()).await;
}

impl Service {
    /// The next orders to this service, in a welcome or by themselves.
    async fn until_directives(&mut self) -> everwatch_core::wire::command::ServiceDirectives {
        loop {
            let delivery = self.commands.next().await.unwrap();
            self.session.ack(delivery.receipt).await;
            match decode(&delivery.body).unwrap() {
                Command::Directives { service, directives } if service == self.id => return directives,
                Command::Welcome(welcome) if welcome.service == self.id => {
                    if let Some(directives) = welcome.directives {
                        return directives;
                    }
                }
                _ => {}
            }
        }
    }
}
