//! Rollouts over HTTP, with a service played by hand.

use super::*;
use everwatch_api::{Event, Rollout, RolloutMember};
use everwatch_core::record::events::EventKind;
use everwatch_core::rollout::{MemberState, RolloutState};

impl Stage {
    async fn start(&self, body: &Value) -> Answer {
        self.send("POST", "/v1/rollouts", Some(&body.to_string())).await
    }
    async fn steer(&self, what: &str) -> Answer {
        self.send("POST", &format!("/v1/rollouts/{what}"), None).await
    }
    async fn until_state(&self, name: &str, state: RolloutState) -> Rollout {
        self.until_read(&format!("/v1/rollouts/{name}"), |it: &Rollout| it.state == state).await
    }
}

impl Service {
    async fn runs(&mut self, stage: &Stage) -> (Delivery, Work, Epoch) {
        let (delivery, work, epoch) = self.take().await;
        self.run_event(&work, epoch, started()).await;
        stage
            .until_observer(work.name.as_str(), |it| {
                it.status == Status::Processing && it.generation == epoch.generation()
            })
            .await;
        (delivery, work, epoch)
    }
    async fn ends(&mut self, (delivery, work, epoch): (Delivery, Work, Epoch)) {
        self.revocation_over(&work, epoch).await;
        self.run_event(&work, epoch, RunEvent::Stopped).await;
        self.session.ack(delivery.receipt).await;
    }
}

fn body() -> Value {
    json!({"name": "faster", "selector": {"labels": {"app": "x"}}, "patch": {"spec": {"every": "9s"}},
        "max_parallel": 1, "healthy_for": "1s", "timeout": "1m"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_rollout_is_refused_by_field() {
    let stage = Stage::new().await;
    let _service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "a", "labels": {"app": "x"}})).await;
    for (member, value, pointer) in [
        ("name", json!("a b"), "/name"),
        ("selector", json!({}), "/selector"),
        ("selector", json!({"labels": {"app": "y"}}), "/selector"),
        ("selector", json!({"status": ["Sleeping"]}), "/selector/status"),
        ("selector", json!({"label_selector": "app in x"}), "/selector/label_selector"),
        ("selector", json!({"label_selector": "app notin (x)"}), "/selector"),
        ("selector", json!({"kind": "A B"}), "/selector/kind"),
        ("patch", json!({}), "/patch"),
        ("patch", json!([1]), "/patch"),
        ("patch", json!({"name": "b"}), "/patch/name"),
        ("patch", json!({"desired": "paused"}), "/patch/desired"),
        ("patch", json!({"spek": 1}), "/patch/spek"),
        ("patch", json!({"kind": "tickr"}), "/patch/kind"),
        ("patch", json!({"pool": "nowhere"}), "/patch/pool"),
        ("max_parallel", json!(0), "/max_parallel"),
        ("max_parallel", json!(1001), "/max_parallel"),
        ("healthy_for", json!("999ms"), "/healthy_for"),
        ("timeout", json!("soon"), "/timeout"),
        ("timeout", json!("1s"), "/timeout"),
        ("timeout", json!("8d"), "/timeout"),
        ("on_failure", json!("ignore"), "/on_failure"),
        ("on_failures", json!("pause"), ""),
    ] {
        let mut body = body();
        body[member] = value;
        let problem = stage.start(&body).await.refused(422, "invalid");
        assert_eq!(problem.errors[0].pointer, pointer, "{member}: {problem:?}");
    }
    assert_eq!(stage.total("/v1/rollouts").await, 0);
    stage.get("/v1/rollouts/none").await.refused(404, "not-found");
    stage.get("/v1/rollouts?limit=201").await.refused(400, "bad-query");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_checked_before_it_starts() {
    let stage = Stage::new().await;
    let schema = json!({"properties": {"every": {"type": "string"}}, "additionalProperties": false});
    let _service = stage.service_with("s1", 5, &schema).await;
    for name in ["a", "b"] {
        stage.create(json!({"kind": "ticker", "name": name, "labels": {"app": "x"}})).await;
    }
    let mut wrong = body();
    wrong["patch"] = json!({"spec": {"evry": "9s"}});
    let problem = stage.start(&wrong).await.refused(422, "invalid");
    assert_eq!(problem.errors[0].pointer, "/patch/spec");
    let expected = "has an unknown field: evry; did you mean `every`? (observer a)";
    assert_eq!(problem.errors[0].detail, expected);
    let planned =
        stage.send("POST", "/v1/rollouts?dry_run=true", Some(&body().to_string())).await.read::<Rollout>(200);
    assert_eq!((planned.members, stage.total("/v1/rollouts").await), (2, 0), "{planned:?}");
    stage.send("POST", "/v1/rollouts?dry_run=true", Some(&wrong.to_string())).await.refused(422, "invalid");
    stage
        .send("POST", "/v1/rollouts?dry_run=maybe", Some(&body().to_string()))
        .await
        .refused(400, "bad-query");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_started_once_and_steered() {
    let stage = Stage::new().await;
    let mut service = stage.service(3).await;
    for name in ["a", "b"] {
        stage.create(json!({"kind": "ticker", "name": name, "labels": {"app": "x"}})).await;
    }
    let (first, second) = (service.runs(&stage).await, service.runs(&stage).await);
    let (first, second) = if first.1.name.as_str() == "a" { (first, second) } else { (second, first) };
    let request = |body: Value| {
        let request = Request::builder().method("POST").uri("/v1/rollouts").header("idempotency-key", "k");
        request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())).unwrap()
    };
    let made: Rollout = stage.ask(request(body())).await.read(201);
    assert_eq!((made.members, made.state), (2, RolloutState::Running));
    let again: Rollout = stage.ask(request(body())).await.read(201);
    assert_eq!(again.id, made.id);
    let other = json!({"selector": {"q": "a"}, "patch": {"priority": 1}});
    stage.ask(request(other.clone())).await.refused(422, "idempotency-key-reused");
    let busy = stage.start(&other).await.refused(409, "in-rollout");
    assert_eq!(busy.detail, "observer a is a member of rollout faster: wait for its end, or cancel it");

    // The first observer runs with the new definition for a second; then it is the turn of the next one.
    service.ends(first).await;
    service.runs(&stage).await;
    let path = "/v1/rollouts/faster/members";
    let done = |members: &Listed<RolloutMember>| members.items[0].state == MemberState::Done;
    let members: Listed<RolloutMember> = stage.until_read(path, done).await;
    assert_eq!((members.items[0].changed_to, members.total), (Some(2), 2));
    stage.until_observer("b", |it| it.definition_version == 2).await;
    assert_eq!(stage.total(&format!("{path}?state=pending,changed")).await, 1);
    let page: Listed<RolloutMember> = stage.read(&format!("{path}?limit=1")).await;
    let next = format!("{path}?limit=1&cursor={}", page.next_cursor.unwrap());
    let page: Listed<RolloutMember> = stage.read(&next).await;
    assert_eq!((page.items[0].name.as_str(), page.next_cursor), ("b", None));
    stage.get(&format!("{path}?state=sleeping")).await.refused(400, "bad-query");

    assert_eq!(stage.steer("faster/pause").await.read::<Rollout>(200).state, RolloutState::Paused);
    assert_eq!(stage.steer("faster/pause").await.read::<Rollout>(200).state, RolloutState::Paused);
    assert_eq!(stage.steer("faster/resume").await.read::<Rollout>(200).reason, "");
    // Its attempt fails: the rollout pauses and names it.
    service.ends(second).await;
    let (_, work, epoch) = service.runs(&stage).await;
    let errored = RunEvent::Errored { attempt: 1, error: "no route".into(), next_at: Timestamp(9) };
    service.run_event(&work, epoch, errored).await;
    let paused = stage.until_state("faster", RolloutState::Paused).await;
    assert_eq!(paused.reason, "observer b: an attempt failed: no route");
    assert_eq!(stage.steer("faster/revert").await.read::<Rollout>(200).state, RolloutState::Reverting);
    stage.steer("faster/resume").await.refused(409, "rollout-reverting");
    stage.until_observer("a", |it| it.definition_version == 3 && it.spec == json!({})).await;
    assert_eq!(stage.steer("faster/cancel").await.read::<Rollout>(200).state, RolloutState::Cancelled);
    stage.steer("faster/revert").await.refused(409, "rollout-over");
    assert_eq!(stage.start(&other).await.status, StatusCode::CREATED);
    let kinds = "rollout_started,rollout_paused,rollout_resumed,rollout_reverting,rollout_cancelled";
    let told = |events: &Listed<Event>| events.total == 7;
    let events: Listed<Event> = stage.until_read(&format!("/v1/events?type={kinds}"), told).await;
    let by = events.items.iter().find(|it| it.kind == EventKind::RolloutPaused).and_then(|it| it.by.clone());
    assert_eq!(by.and_then(|by| by.who).as_deref(), Some("rollout faster"));
}
