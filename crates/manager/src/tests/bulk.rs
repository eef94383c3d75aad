//! Many observers at once, and orders to services, over HTTP.

use super::*;
use everwatch_api::Outcomes;
use everwatch_core::wire::heartbeat::Intent;

async fn post(stage: &Stage, path: &str, body: &Value) -> Answer {
    stage.send("POST", path, Some(&body.to_string())).await
}

fn statuses(answer: &Answer) -> Vec<u16> {
    answer.read::<Outcomes>(200).items.iter().map(|it| it.status).collect()
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
        {"op": "delete", "id": "unknown"},
        {"op": "dance", "id": "a"},
        {"op": "pause"},
        7,
    ]);
    let answer = post(&stage, "/v1/observers:batch", &wishes).await;
    assert_eq!(statuses(&answer), [201, 201, 422, 404, 422, 422, 422]);
    let items = answer.read::<Outcomes>(200).items;
    let observer = |place: usize| items[place].observer.as_ref().unwrap();
    assert_eq!((observer(0).name.as_str(), observer(1).status), ("a", Status::Paused));
    let problem = |place: usize| items[place].problem.as_ref().unwrap();
    assert_eq!(problem(2).errors[0].pointer, "/name");
    assert!(problem(4).detail.contains("dance"), "{:?}", problem(4));
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
    post(&stage, "/v1/observers:batch", &json!({"op": "create"})).await.refused(422, "invalid");
    let in_order = post(&stage, "/v1/observers:batch", &json!([["delete", "x"]])).await;
    assert_eq!(statuses(&in_order), [422], "an array is no wish: {in_order:?}");
    let many = Value::Array(vec![json!({"op": "delete", "id": "x"}); 10_001]);
    let detail = post(&stage, "/v1/observers:batch", &many).await.refused(422, "invalid").detail;
    assert!(detail.contains("at most 10000"), "{detail}");
    let most = Value::Array(vec![json!({"op": "delete", "id": "x"}); 10_000]);
    assert_eq!(statuses(&post(&stage, "/v1/observers:batch", &most).await).len(), 10_000);
    let pad = |bytes: usize| json!([{"op": "delete", "id": "x".repeat(bytes)}]);
    assert_eq!(post(&stage, "/v1/observers:batch", &pad(15 << 20)).await.status, StatusCode::OK);
    let detail = post(&stage, "/v1/observers:batch", &pad(17 << 20)).await.refused(413, "too-large").detail;
    assert!(detail.contains("16777216"), "{detail}");
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
    let detail = unguarded.refused(400, "bad-query").detail;
    assert!(detail.contains("expect"), "{detail}");
    let unfiltered = stage.send("DELETE", "/v1/observers?expect=35", None).await;
    assert_eq!(unfiltered.status, StatusCode::BAD_REQUEST, "{unfiltered:?}");
    let differs = stage.send("POST", "/v1/observers:pause?label=app=x&expect=29", None).await;
    let detail = differs.refused(409, "count-differs").detail;
    assert!(detail.contains("30 observers match, not 29"), "{detail}");
    let paused = stage.send("POST", "/v1/observers:pause?label=app=x&expect=30", None).await;
    assert_eq!(statuses(&paused), [202; 30]);
    let deleted = stage.send("DELETE", "/v1/observers?label=app=y&expect=5", None).await;
    assert_eq!(statuses(&deleted).len(), 5);
    // The delete of some may still wait for the confirm of their publish.
    let deleting = stage.total("/v1/observers?label=app=y").await;
    assert_eq!(stage.total("/v1/observers").await, 30 + deleting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_reach_the_service_and_stay_with_its_name() {
    let stage = Stage::new().await;
    let mut service = stage.named_service("s1", 4).await;
    let cordon = async || stage.send("POST", "/v1/services/s1/cordon", None).await;
    assert!(cordon().await.read::<ServiceView>(202).cordoned);
    let directives = service.until_directives().await;
    assert!(directives.cordoned && !directives.draining);
    assert_eq!(cordon().await.status, StatusCode::OK);
    let resized = stage.send("PATCH", "/v1/services/s1", Some(r#"{"capacity": 9}"#)).await;
    assert_eq!(resized.read::<ServiceView>(202).capacity_set, Some(9));
    let order = json!({"within": "1m", "per_second": 5});
    let drained: ServiceView = post(&stage, "/v1/services/s1/drain", &order).await.read(202);
    assert_eq!(drained.drain.unwrap().per_second, 5);
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
    stage.send("POST", "/v1/services/unknown/cordon", None).await.refused(404, "not-found");
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
    service.heartbeat(&stage, 1, (Intent::Active, 4, 0)).await;
    let told = stage.until_read("/v1/services/s1", |it: &ServiceView| it.unconfirmed.is_some()).await;
    assert_eq!((told.state, told.cordoned), (ServiceState::Active, true));
    assert_eq!(told.unconfirmed.unwrap(), "cordon asked, not confirmed yet");
    service.heartbeat(&stage, 2, (Intent::Cordoned, 4, 0)).await;
    stage.until_read("/v1/services/s1", |it: &ServiceView| it.unconfirmed.is_none()).await;
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
