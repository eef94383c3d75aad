//! Actions on observers and changes of what is wanted, with a service played by hand.

use super::*;

impl Stage {
    async fn act(&self, what: &str) -> Answer {
        self.send("POST", &format!("/v1/observers/a/{what}"), None).await
    }
    async fn edit(&self, method: &str, body: &Value, tag: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri("/v1/observers/a");
        request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        if let Some(tag) = tag {
            request = request.header(header::IF_MATCH, tag);
        }
        self.ask(request.body(Body::from(body.to_string())).unwrap()).await
    }
    async fn until_status(&self, status: Status) -> Observer {
        self.until_observer("a", |it| it.status == status).await
    }
}

impl Service {
    /// Takes the next message, says that it runs, and waits until that is seen.
    async fn run(&mut self, stage: &Stage, generation: u32) -> (Delivery, Work, Epoch) {
        let (delivery, work, epoch) = self.take().await;
        assert_eq!(epoch, Epoch::new(generation, 0));
        self.run_event(&work, epoch, started()).await;
        stage.until_observer("a", |it| it.status == Status::Processing && it.reason.is_empty()).await;
        (delivery, work, epoch)
    }
    /// Does what a revocation asks for.
    async fn stop(&mut self, (delivery, work, epoch): (Delivery, Work, Epoch)) {
        self.revocation_over(&work, epoch).await;
        self.run_event(&work, epoch, RunEvent::Stopped).await;
        self.session.ack(delivery.receipt).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_paused_resumed_and_restarted() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let first = service.run(&stage, 1).await;
    assert_eq!(stage.act("pause").await.read::<Observer>(202).reason, "pausing");
    assert_eq!(stage.act("pause").await.status, StatusCode::OK);
    service.stop(first).await;
    let paused = stage.until_status(Status::Paused).await;
    assert_eq!((paused.desired, paused.service), (Desired::Paused, None));
    stage.act("restart").await.refused(409, "observer-paused");
    assert_eq!(stage.act("resume").await.status, StatusCode::ACCEPTED);
    let second = service.run(&stage, 2).await;
    assert_eq!(stage.act("resume").await.status, StatusCode::OK);
    assert_eq!(stage.act("restart").await.status, StatusCode::ACCEPTED);
    service.stop(second).await;
    let third = service.run(&stage, 3).await;
    // It would come back.
    stage.act("move").await.refused(409, "service-without-room");
    let force = stage.send("POST", "/v1/observers/a/move", Some(r#"{"force": true}"#)).await;
    assert_eq!(force.status, StatusCode::ACCEPTED);
    for wrong in [r#"{"force": 1}"#, r#"{"force": true, "pool": "other"}"#] {
        stage.send("POST", "/v1/observers/a/move", Some(wrong)).await.refused(422, "invalid");
    }
    let _other = stage.named_service("other", 2).await;
    // A client that always says what it sends may send nothing.
    assert_eq!(stage.send("POST", "/v1/observers/a/move", Some("")).await.status, StatusCode::ACCEPTED);
    // Another pool is another queue.
    let moving = stage.send("POST", "/v1/observers/a/move", Some(r#"{"pool": "other"}"#)).await;
    assert_eq!(moving.read::<Observer>(202).pool, "other");
    service.stop(third).await;
    let there = stage.manager.link.topology.work(&Pool::new("other").unwrap());
    let session = Arc::clone(&service.session);
    let waits = "no service in pool other";
    stage.until_observer("a", |it| it.reason == waits).await;
    assert!(session.get(&there, 9).await.is_err(), "it is published when it has a slot");
    stage.send("DELETE", "/v1/observers/a", None).await;
    for what in ["pause", "resume", "restart", "retry", "move"] {
        stage.act(what).await.refused(409, "observer-deleted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_created_paused_runs_when_it_is_resumed() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    let created = stage.create(json!({"kind": "ticker", "name": "a", "desired": "paused"})).await;
    let created: Observer = created.read(201);
    assert_eq!((created.status, created.generation), (Status::Paused, 0));
    assert_eq!(stage.act("resume").await.read::<Observer>(202).status, Status::Created);
    service.run(&stage, 1).await;
    let other = stage.create(json!({"kind": "ticker", "name": "b", "desired": "paused"})).await;
    assert_eq!(other.status, StatusCode::CREATED);
    let gone = stage.send("DELETE", "/v1/observers/b", None).await;
    assert_eq!(gone.read::<Observer>(200).status, Status::Deleted);
    let wrong = stage.create(json!({"kind": "ticker", "desired": "ended"})).await;
    assert_eq!(wrong.refused(422, "invalid").errors[0].pointer, "/desired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_changes_some_and_only_what_it_was_meant_for() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    let created = stage.create(json!({"kind": "ticker", "name": "a", "labels": {"x": "1", "y": "2"}})).await;
    let old = created.headers[header::ETAG].to_str().unwrap().to_owned();
    let run = service.run(&stage, 1).await;
    let read = stage.get("/v1/observers/a").await;
    assert_eq!(read.headers[header::ETAG], old, "what is seen does not change it");
    let patch = json!({"labels": {"x": null, "z": "3"}, "grace": null});
    let patched: Observer = stage.edit("PATCH", &patch, Some(&old)).await.read(200);
    assert_eq!(json!(patched.labels), json!({"y": "2", "z": "3"}));
    assert_eq!((patched.generation, patched.reason.as_str()), (1, ""));
    let late = stage.edit("PATCH", &json!({"labels": {"q": "4"}}), Some(&old)).await;
    late.refused(412, "observer-changed");
    let bad = stage.edit("PATCH", &json!({"labels": {}}), Some("old")).await;
    bad.refused(400, "bad-header");
    let fixed = json!({"retry": {"kind": "fixed", "every": "1s"}, "spec": {"every": "2s"}});
    let changed: Observer = stage.edit("PATCH", &fixed, None).await.read(200);
    assert_eq!(changed.reason, "told to stop, then restarts");
    service.stop(run).await;
    let (_, work, _) = service.run(&stage, 2).await;
    assert_eq!(work.spec.get(), r#"{"every":"2s"}"#);
    for (patch, code) in [
        (json!({"name": "b"}), "invalid"),
        (json!({"kind": "other"}), "no-service-for-kind"),
        (json!({"kind": null}), "invalid"),
        (json!({"spek": 1}), "invalid"),
        (json!([]), "invalid"),
    ] {
        stage.edit("PATCH", &patch, None).await.refused(422, code);
    }
    assert_eq!(stage.observer("a").await.generation, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_creates_then_changes_nothing_then_changes_what_differs() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    let body = json!({"kind": "ticker", "spec": {"every": "1s"}});
    let created: Observer = stage.edit("PUT", &body, None).await.read(201);
    assert_eq!(created.name, "a");
    let run = service.run(&stage, 1).await;
    let before = stage.get("/v1/observers/a").await.body;
    let same = stage.edit("PUT", &body, None).await;
    assert_eq!((same.status, &same.body), (StatusCode::OK, &before));
    let put = async |body: Value| stage.edit("PUT", &body, None).await;
    let changed: Observer = put(json!({"kind": "ticker", "spec": {"every": "5s"}})).await.read(200);
    assert_eq!(changed.spec, json!({"every": "5s"}));
    service.stop(run).await;
    let run = service.run(&stage, 2).await;
    let paused: Observer = put(json!({"kind": "ticker", "desired": "paused"})).await.read(200);
    assert_eq!((paused.desired, paused.reason.as_str()), (Desired::Paused, "pausing"));
    service.stop(run).await;
    stage.until_status(Status::Paused).await;
    let resumed: Observer = put(json!({"kind": "ticker", "desired": "running"})).await.read(200);
    assert_eq!((resumed.status, resumed.desired), (Status::Created, Desired::Running));
    service.run(&stage, 3).await;
    let renamed = put(json!({"kind": "ticker", "name": "b"})).await;
    assert_eq!(renamed.refused(422, "invalid").errors[0].pointer, "/name");
    let unknown = stage.send("PUT", &format!("/v1/observers/{}", Uuid::nil()), Some(&body.to_string())).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spec_is_held_against_the_schema_of_its_kind() {
    let stage = Stage::new().await;
    let schema =
        json!({"type": "object", "properties": {"every": {"type": "string"}}, "required": ["every"]});
    let _service = stage.service_with("s1", 5, &schema).await;
    let validate = async |kind: &str, body: &str| {
        stage.send("POST", &format!("/v1/kinds/{kind}/validate"), Some(body)).await
    };
    let valid: Value = validate("ticker", r#"{"spec": {"every": "1s"}}"#).await.read(200);
    assert_eq!(valid, json!({"valid": true, "errors": []}));
    let missing = json!([{"pointer": "/spec/every", "detail": "is missing"}]);
    let invalid: Value = validate("ticker", r#"{"spec": {}}"#).await.read(200);
    assert_eq!(invalid, json!({"valid": false, "errors": missing}));
    validate("other", r#"{"spec": {}}"#).await.refused(404, "not-found");
    assert_eq!(validate("ticker", r#"{"specs": {}}"#).await.status, 422);
    let refused = stage.create(json!({"name": "a", "kind": "ticker", "spec": {"every": 1}})).await;
    assert_eq!(refused.refused(422, "invalid").errors[0].pointer, "/spec/every");
    assert_eq!(
        stage.create(json!({"name": "a", "kind": "ticker", "spec": {"every": "1s"}})).await.status,
        201
    );
    let patched = stage.send("PATCH", "/v1/observers/a", Some(r#"{"spec": {"every": null}}"#)).await;
    assert_eq!(json!(patched.refused(422, "invalid").errors), missing);
}

impl Stage {
    async fn with(&self, method: &str, path: &str, (name, value): (header::HeaderName, &str)) -> Answer {
        let body = if method == "PUT" { r#"{"kind": "ticker", "on_full": "queue"}"# } else { "" };
        let request = Request::builder().method(method).uri(path).header(name, value);
        self.ask(request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap())
            .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_meant_for_another_state_changes_nothing() {
    let stage = Stage::new().await;
    let _service = stage.service(2).await;
    let (if_match, if_none_match) = (header::IF_MATCH, header::IF_NONE_MATCH);
    let missing = stage.with("PUT", "/v1/observers/a", (if_match.clone(), "*")).await;
    missing.refused(412, "observer-changed");
    let made = stage.with("PUT", "/v1/observers/a", (if_none_match.clone(), "*")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{:?}", made.body);
    let again = stage.with("PUT", "/v1/observers/a", (if_none_match.clone(), "*")).await;
    again.refused(412, "observer-changed");
    let tag = made.headers[header::ETAG].to_str().unwrap().to_owned();
    assert_eq!(stage.with("GET", "/v1/observers/a", (if_none_match.clone(), &tag)).await.status, 304);
    assert_eq!(stage.with("GET", "/v1/observers/a", (if_none_match, "\"other\"")).await.status, 200);
    for (method, path) in [
        ("DELETE", "/v1/observers/a"),
        ("POST", "/v1/observers/a/pause"),
        ("POST", "/v1/observers/a/restart"),
    ] {
        let late = stage.with(method, path, (if_match.clone(), "\"other\"")).await;
        late.refused(412, "observer-changed");
        let wrong = stage.with(method, path, (if_match.clone(), "other")).await;
        wrong.refused(400, "bad-header");
    }
    assert_eq!(stage.observer("a").await.desired, Desired::Running);
    assert_eq!(stage.with("POST", "/v1/observers/a/pause", (if_match.clone(), &tag)).await.status, 202);
    assert_eq!(stage.with("DELETE", "/v1/observers/a", (if_match, "*")).await.status, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_what_cannot_come_ends_at_once() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let (_delivery, work, epoch) = service.run(&stage, 1).await;
    service.run_event(&work, epoch, RunEvent::Failed { error: "e".into(), attempts: 1 }).await;
    stage.until_status(Status::Failed).await;
    let began = std::time::Instant::now();
    let answer: Observer = stage.read("/v1/observers/a?wait_for=status=Processing&wait=60s").await;
    assert_eq!(answer.status, Status::Failed);
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

/// A manager saves changes that arrive together in one transaction. Of those of one row, each must still see the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_arrive_together_are_all_made_once() {
    let stage = Stage::new().await;
    for number in 0..20 {
        stage.create(json!({"kind": "ticker", "name": format!("o{number}"), "on_full": "queue"})).await;
    }
    let stage = &stage;
    let pauses = (0..40).map(|request| async move {
        let path = format!("/v1/observers/o{}/pause", request % 20);
        stage.send("POST", &path, None).await.status
    });
    let statuses = futures::future::join_all(pauses).await;
    assert_eq!(statuses.iter().filter(|status| **status == StatusCode::ACCEPTED).count(), 20, "one for each");
    assert_eq!(statuses.iter().filter(|status| **status == StatusCode::OK).count(), 20, "paused already");
    let labels = (0..20).map(|number| async move {
        let body = json!({"labels": {(format!("l{number}")): "x"}});
        let request = Request::builder().method("PATCH").uri("/v1/observers/o0");
        let request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        stage.ask(request.body(Body::from(body.to_string())).unwrap()).await.status
    });
    let statuses = futures::future::join_all(labels).await;
    assert!(statuses.iter().all(StatusCode::is_success), "{statuses:?}");
    let labelled: Observer = stage.send("GET", "/v1/observers/o0", None).await.read(200);
    assert_eq!(labelled.labels.len(), 20, "no change hides another");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_checks_as_the_request_does_and_changes_nothing() {
    let stage = Stage::new().await;
    let _service = stage.service(2).await;
    let dry = async |method: &str, path: &str, body: &Value| {
        stage.send(method, &format!("{path}?dry_run=true"), Some(&body.to_string())).await
    };
    let a = json!({"kind": "ticker", "name": "a", "spec": {"every": "3s"}});
    let would = dry("POST", "/v1/observers", &a).await.read::<Observer>(200);
    assert_eq!((would.name.as_str(), would.spec["every"].as_str()), ("a", Some("3s")));
    let would = dry("PUT", "/v1/observers/a", &a).await.read::<Observer>(200);
    assert_eq!(would.pool, "default");
    stage.get("/v1/observers/a").await.refused(404, "not-found");
    for (wrong, status, code) in [
        (json!({"kind": "ticker", "prioritty": 1}), 422, "invalid"),
        (json!({"kind": "camera"}), 422, "no-service-for-kind"),
        (json!({"kind": "ticker", "namespace": "nowhere"}), 422, "namespace-unknown"),
    ] {
        dry("POST", "/v1/observers", &wrong).await.refused(status, code);
    }

    stage.create(a.clone()).await;
    dry("POST", "/v1/observers", &a).await.refused(409, "name-exists");
    let changed = json!({"kind": "ticker", "spec": {"every": "5s"}, "desired": "paused"});
    for (method, body) in [("PUT", &changed), ("PATCH", &json!({"spec": {"every": "5s"}}))] {
        let answer = dry(method, "/v1/observers/a", body).await;
        assert_eq!(answer.read::<Observer>(200).spec["every"], "5s", "{method}");
    }
    dry("PATCH", "/v1/observers/a", &json!({"priority": 900})).await.refused(422, "invalid");
    let it = stage.read::<Observer>("/v1/observers/a").await;
    assert_eq!((it.spec["every"].as_str(), it.definition_version), (Some("3s"), 1));
    assert_eq!(it.desired, Desired::Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_is_refused_by_the_pools_that_refuse_the_create() {
    let stage = Stage::new().await;
    let _service = stage.service(2).await;
    let pause = json!({"paused": true}).to_string();
    let refusals = async |pool: &str, code: Option<&str>| {
        for on_full in ["reject", "queue"] {
            let body = json!({"kind": "ticker", "name": pool, "pool": pool, "on_full": on_full}).to_string();
            let would = stage.send("POST", "/v1/observers?dry_run=true", Some(&body)).await;
            match code.filter(|_| on_full == "reject") {
                Some(code) => {
                    would.refused(503, code);
                    stage.send("POST", "/v1/observers", Some(&body)).await.refused(503, code);
                }
                None => assert_eq!(would.read::<Observer>(200).status, Status::Created, "{pool}, {on_full}"),
            }
        }
    };
    refusals("default", None).await;
    refusals("gpu", Some("no-capacity")).await;
    stage.send("PUT", "/v1/pools/default", Some(&pause)).await.read::<Value>(200);
    stage.until_read("/v1/pools/default", |it: &everwatch_api::Pool| it.paused).await;
    refusals("default", Some("pool-paused")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_in_a_definition_and_in_its_spec_are_reported_at_once() {
    let stage = Stage::new().await;
    let schema = json!({"properties": {"every": {"type": "string"}}, "additionalProperties": false});
    let _service = stage.service_with("s1", 5, &schema).await;
    let told = async |method: &str, path: &str, body: Value| {
        let problem = stage.send(method, path, Some(&body.to_string())).await.refused(422, "invalid");
        problem.errors.into_iter().map(|it| it.pointer).collect::<Vec<_>>()
    };
    let wrong = || json!({"kind": "ticker", "priorty": 1, "spec": {"evry": "1s"}});
    assert_eq!(told("POST", "/v1/observers", wrong()).await, ["/priorty", "/spec"]);
    assert_eq!(told("PUT", "/v1/observers/a", wrong()).await, ["/priorty", "/spec"]);
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    assert_eq!(told("PUT", "/v1/observers/a", wrong()).await, ["/priorty", "/spec"]);
    for (member, value) in [("kind", json!("camera")), ("pool", json!("other")), ("spec", json!("every"))] {
        let mut body = wrong();
        body[member] = value;
        let all = told("POST", "/v1/observers", body).await;
        assert!(all.contains(&"/priorty".to_owned()) && all.len() <= 2, "{member}: {all:?}");
    }
}
