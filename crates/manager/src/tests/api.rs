//! The HTTP surface: what is refused and how, what is documented, what happens once.

use super::*;
use crate::excused::ByHand;
use crate::intake::registrations;
use everwatch_api::{Event, Outcome, Outcomes, ParkedMessage, ProblemBody, Rebalance, SafeMode, Version};
use everwatch_core::id::ObserverId;
use everwatch_core::record::events::EventKind;
use std::collections::{BTreeMap, BTreeSet};

/// Method, path, body, status, code, and words that the detail must hold.
type Case<'a> = (&'a str, &'a str, Option<&'a str>, u16, &'a str, &'a [&'a str]);

async fn refused(stage: &Stage, cases: &[Case<'_>]) {
    for (method, path, body, status, code, words) in cases {
        let answer = stage.send(method, path, *body).await;
        let told = format!("{method} {path}: {}", answer.body);
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json", "{told}");
        let ProblemBody { instance, kind, detail, .. } = answer.refused(*status, code);
        assert_eq!(instance, path.split('?').next().unwrap(), "{told}");
        assert_eq!(kind, format!("urn:everwatch:problem:{code}"), "{told}");
        assert!(!detail.is_empty() && words.iter().all(|word| detail.contains(word)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_request_is_named_with_its_cure() {
    let stage = Stage::new().await;
    let _service = stage.service(1).await;
    refused(
        &stage,
        &[
            ("GET", "/v1/nothing", None, 404, "no-such-route", &[]),
            ("GET", "/nothing", None, 404, "no-such-route", &[]),
            ("GET", "/v1/observers/none", None, 404, "not-found", &["`none`"]),
            ("GET", "/v1/observers/a%20b", None, 404, "not-found", &["`a b`"]),
            ("GET", "/v1/observers/%ff", None, 400, "bad-request", &[]),
            ("GET", "/v1/services/none", None, 404, "not-found", &["`none`"]),
            ("DELETE", "/v1/observers/none", None, 404, "not-found", &["`none`"]),
            ("POST", "/v1/observers/none/retry", None, 404, "not-found", &["`none`"]),
            ("DELETE", "/v1/parked/7", None, 404, "not-found", &["`7`"]),
            ("POST", "/v1/parked/x/retry", None, 404, "not-found", &["`x`"]),
            ("PUT", "/v1/observers", None, 405, "method-not-allowed", &[]),
            ("DELETE", "/v1/services", None, 405, "method-not-allowed", &[]),
            ("GET", "/v1/observers?statu=x", None, 400, "bad-query", &["`statu`", "status"]),
            ("GET", "/v1/kinds?x=1", None, 400, "bad-query", &["`x`", "none is known"]),
            ("GET", "/v1/observers?limit=1001", None, 400, "bad-query", &["limit", "1 to 1000"]),
            ("GET", "/v1/observers?limit=0", None, 400, "bad-query", &["limit"]),
            ("GET", "/v1/observers?limit=many", None, 400, "bad-query", &["limit"]),
            ("GET", "/v1/observers?limit=1&limit=2", None, 400, "bad-query", &["more than once"]),
            ("GET", "/v1/observers?cursor=zzz", None, 400, "bad-query", &["cursor"]),
            ("GET", "/v1/parked?cursor=zzz", None, 400, "bad-query", &["cursor"]),
            ("GET", "/v1/services?cursor=zzz", None, 400, "bad-query", &["cursor"]),
            ("GET", "/v1/observers?status=Running", None, 400, "bad-query", &["`Running`", "Processing"]),
            ("GET", "/v1/observers?kind=A%20B", None, 400, "bad-query", &["kind", "a-z"]),
            ("GET", "/v1/observers?pool=A", None, 400, "bad-query", &["pool", "a-z"]),
            ("GET", "/v1/observers?service=a%20b", None, 400, "bad-query", &["service"]),
            ("GET", "/v1/observers?label=x", None, 400, "bad-query", &["key=value"]),
            ("GET", "/v1/observers?sort=age", None, 400, "bad-query", &["created_at"]),
            ("GET", "/v1/services?state=up", None, 400, "bad-query", &["`up`", "active"]),
            ("GET", "/v1/observers/x?wait=soon", None, 400, "bad-query", &["`soon`", "30s"]),
            ("GET", "/v1/observers/x?wait=2m", None, 400, "bad-query", &["at most 60s"]),
            ("GET", "/v1/observers/x?wait_for=Failed", None, 400, "bad-query", &["status=X or change"]),
            (
                "GET",
                "/v1/observers/x?wait_for=change&modified_at=now",
                None,
                400,
                "bad-query",
                &["`now` is not a time"],
            ),
            (
                "GET",
                "/v1/observers/x?modified_at=2026-01-31T09:30:00Z",
                None,
                400,
                "bad-query",
                &["wait_for=change"],
            ),
            ("GET", "/readyz?for=all", None, 400, "bad-query", &["`all`", "write api"]),
            ("DELETE", "/v1/observers/x?only_if=Failed", None, 400, "bad-query", &["only Processing"]),
        ],
    )
    .await;
}

async fn sent_with(stage: &Stage, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post("/v1/rebalance:apply");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    stage.ask(request.body(Body::empty()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_is_not_let_in() {
    let stage = Stage::new().await;
    let answer = sent_with(&stage, &[("host", "evil.example:7700")]).await;
    let detail = answer.refused(421, "unknown-host").detail;
    assert!(detail.contains("`evil.example:7700`") && detail.contains("manager.hosts"), "{detail}");
    let foreign: [&[(&str, &str)]; 3] = [
        &[("host", "localhost:7700"), ("origin", "https://evil.example")],
        &[("host", "localhost:7700"), ("sec-fetch-site", "cross-site")],
        &[("host", "localhost:7700"), ("sec-fetch-site", "same-site"), ("origin", "http://localhost:3000")],
    ];
    for headers in foreign {
        let detail = sent_with(&stage, headers).await.refused(403, "foreign-page").detail;
        assert!(detail.contains("a page of "), "{headers:?}: {detail}");
    }
    let own: [&[(&str, &str)]; 3] = [
        &[],
        &[("host", "127.0.0.1:7700")],
        &[("host", "localhost:7700"), ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:7700")],
    ];
    for headers in own {
        sent_with(&stage, headers).await.read::<Rebalance>(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_too_many_requests_is_told_to_wait() {
    let requests_per_second = std::num::NonZeroU32::new(10);
    let stage =
        Stage::configured(crate::Settings { requests_per_second, ..crate::Settings::default() }).await;
    let from = |address: [u8; 4]| {
        let peer = axum::extract::ConnectInfo(std::net::SocketAddr::from((address, 9)));
        Request::builder().uri("/v1/version").extension(peer).body(Body::empty()).unwrap()
    };
    let refused = loop {
        let answer = stage.ask(from([10, 0, 0, 7])).await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.headers["retry-after"], "1");
    let detail = refused.refused(429, "too-many-requests").detail;
    assert!(detail.contains("manager.requests_per_second"), "{detail}");
    assert_eq!(stage.ask(from([10, 0, 0, 8])).await.status, 200, "others are still served");
}

fn post<'a>(body: &'a str, status: u16, code: &'a str, words: &'a [&'a str]) -> Case<'a> {
    ("POST", "/v1/observers", Some(body), status, code, words)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_body_is_named_with_its_cure() {
    let stage = Stage::new().await;
    let _service = stage.service(1).await;
    let big = format!("{{\"kind\": \"{}\"}}", "x".repeat(http::BODY_MAX));
    let spec = format!("{{\"kind\": \"ticker\", \"spec\": \"{}\"}}", "x".repeat(64 * 1024));
    let name = format!("{{\"kind\": \"ticker\", \"name\": \"{}\"}}", "x".repeat(129));
    let nested = |levels: usize| {
        format!("{{\"kind\": \"ticker\", \"spec\": {}{}}}", "[".repeat(levels), "]".repeat(levels))
    };
    let (deep, deeper) = (nested(65), nested(500));
    let uuid = r#"{"kind": "ticker", "name": "0196f0a0-0000-7000-8000-000000000000"}"#;
    refused(
        &stage,
        &[
            ("POST", "/v1/observers", None, 415, "not-json", &["application/json"]),
            post("{", 400, "malformed-json", &["line 1"]),
            post("", 400, "malformed-json", &[]),
            post("[]", 422, "invalid", &["object"]),
            post("{}", 422, "invalid", &["/kind", "required"]),
            post(r#"{"kind": "ticker", "spek": {}}"#, 422, "invalid", &["/spek", "did you mean `spec`?"]),
            post(r#"{"kind": 7}"#, 422, "invalid", &["/kind", "string"]),
            post(r#"{"kind": "ticker", "grace": 7}"#, 422, "invalid", &["/grace"]),
            post(r#"{"kind": "ticker", "on_full": "drop"}"#, 422, "invalid", &["/on_full", "reject"]),
            post(r#"{"kind": "ticker", "labels": {"": "x"}}"#, 422, "invalid", &["/labels/"]),
            post(r#"{"kind": "ticker", "retry": {"kind": "never"}}"#, 422, "invalid", &["/retry", "fixed"]),
            post(r#"{"kind": "ticker", "pool": "No"}"#, 422, "invalid", &["/pool", "a-z"]),
            post(r#"{"kind": "other"}"#, 422, "no-service-for-kind", &["other", "default"]),
            post(uuid, 422, "invalid", &["/name", "UUID"]),
            ("POST", "/v1/observers", Some(&name), 422, "invalid", &["/name", "128"]),
            ("POST", "/v1/observers", Some(&spec), 422, "invalid", &["/spec", "65536"]),
            ("PUT", "/v1/safe-mode", Some("[true, \"why\"]"), 422, "invalid", &["object"]),
            ("POST", "/v1/observers", Some(&deep), 422, "invalid", &["/spec", "64 levels"]),
            ("POST", "/v1/observers", Some(&deeper), 422, "invalid", &["flatter"]),
            ("POST", "/v1/observers", Some(&big), 413, "too-large", &["1048576"]),
        ],
    )
    .await;
    assert_eq!(stage.total("/v1/observers").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_another_type_or_a_bad_key_is_refused() {
    let stage = Stage::new().await;
    let request = || Request::post("/v1/observers");
    let plain = request().header(header::CONTENT_TYPE, "text/plain").body(Body::from("{}")).unwrap();
    stage.ask(plain).await.refused(415, "not-json");
    let long = request()
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .header("idempotency-key", "x".repeat(256))
        .body(Body::from(r#"{"kind": "ticker"}"#));
    stage.ask(long.unwrap()).await.refused(400, "bad-header");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_with_a_key_makes_one_observer() {
    let stage = Stage::new().await;
    let post = |key: &str, body: Value| {
        let request = Request::post("/v1/observers").header(header::CONTENT_TYPE, "application/json");
        stage.ask(request.header("idempotency-key", key).body(Body::from(body.to_string())).unwrap())
    };
    let body = json!({"kind": "ticker", "on_full": "queue"});
    let first = post("k1", body.clone()).await;
    let again = post("k1", body.clone()).await;
    assert_eq!(first.headers[header::LOCATION], again.headers[header::LOCATION]);
    let [first, again] = [first, again].map(|answer| answer.read::<Observer>(201));
    assert_eq!((first.id, &first.name), (again.id, &again.name));
    let other = post("k1", json!({"kind": "ticker", "name": "x", "on_full": "queue"})).await;
    other.refused(422, "idempotency-key-reused");
    assert_ne!(post("k2", body.clone()).await.read::<Observer>(201).id, first.id);
    // Sent many times at once.
    let named = json!({"kind": "ticker", "name": "once", "on_full": "queue"});
    let all = futures::future::join_all((0..20).map(|_| post("k3", named.clone()))).await;
    let ids: BTreeSet<Uuid> = all.iter().map(|answer| answer.read::<Observer>(201).id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(stage.total("/v1/observers").await, 3);
    // A create that was refused may be tried again with its key.
    let full = json!({"kind": "ticker", "name": "later"});
    post("k4", full.clone()).await.refused(503, "no-capacity");
    let _service = stage.service(9).await;
    assert_eq!(post("k4", full).await.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_or_a_batch_that_is_sent_again_with_its_key_acts_once() {
    let stage = Stage::new().await;
    let _service = stage.service(9).await;
    let post = |path: &str, key: &str, body: Value| {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        stage.ask(request.header("idempotency-key", key).body(Body::from(body.to_string())).unwrap())
    };
    let create = |name: &str| {
        let observer = json!({"name": name, "labels": {"n": name}, "kind": "ticker", "on_full": "queue"});
        json!({"op": "create", "observer": observer})
    };
    let unnamed = json!({"op": "create", "observer": {"kind": "ticker", "on_full": "queue"}});
    let batch = json!([create("a"), unnamed, {"op": "restart", "id": "a"}, create("b")]);
    let send = async || {
        let outcomes: Outcomes = post("/v1/observers:batch", "k1", batch.clone()).await.read(200);
        let told = |it: Outcome| (it.status, it.observer.map(|it| it.id));
        outcomes.items.into_iter().map(told).collect::<Vec<_>>()
    };
    let first = send().await;
    assert_eq!(first.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [201, 201, 202, 201]);
    assert_eq!(send().await, first);
    assert_eq!(stage.total("/v1/observers").await, 3);
    let other = post("/v1/observers:batch", "k1", json!([create("c")])).await;
    other.refused(422, "idempotency-key-reused");
    let act = |path: &str, key: &str| {
        stage.ask(Request::post(path).header("idempotency-key", key).body(Body::empty()).unwrap())
    };
    // What acts on it moves this time, by a millisecond at least.
    let acted_at = async || {
        tokio::time::sleep(Duration::from_millis(2)).await;
        stage.observer("a").await.modified_at
    };
    for path in ["/v1/observers/a/restart", "/v1/observers:restart?label=n%3Da&expect=1"] {
        let before = acted_at().await;
        assert!(act(path, "k2").await.status.is_success());
        let acted = acted_at().await;
        assert!(act(path, "k2").await.status.is_success());
        assert_eq!(acted_at().await, acted, "{path}");
        assert!(act(path, "k3").await.status.is_success());
        assert!(before != acted && acted != acted_at().await, "{path}");
    }
}

/// Its identity is not given away again: epochs of the first one would be higher than those of the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_an_observer_that_was_forgotten_makes_no_second_one() {
    let stage = Stage::new().await;
    let post = || {
        let request = Request::post("/v1/observers").header(header::CONTENT_TYPE, "application/json");
        let body = json!({"name": "a", "kind": "ticker", "on_full": "queue"});
        stage.ask(request.header("idempotency-key", "k").body(Body::from(body.to_string())).unwrap())
    };
    let id = ObserverId(post().await.read::<Observer>(201).id);
    let store = &stage.manager.records.store;
    let row = async || store.load(&[id]).await.unwrap().rows.pop();
    while let Some(row) = row().await {
        store.forget(&[(row.id, row.version)]).await.unwrap();
    }
    let detail = post().await.refused(422, "idempotency-key-reused").detail;
    assert!(detail.contains("deleted"), "{detail}");
    assert_eq!(row().await, None);
}

/// Reports may come twice, and several managers may conclude the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_says_goodbye_twice_has_gone_once() {
    let stage = Stage::new().await;
    let service = stage.service(1).await.id;
    for _ in 0..3 {
        registrations::apply(&stage.manager, &[], &[service]).await.unwrap();
    }
    let is_told = |events: &Listed<Event>| events.total != 0;
    stage.until_read("/v1/events?type=service_gone", is_told).await;
    stage.manager.records.events.tell_all(EventKind::SafeMode, "written after all of them".to_owned());
    stage.until_read("/v1/events?type=safe_mode", is_told).await;
    assert_eq!(stage.total("/v1/events?type=service_gone").await, 1);
}

/// Managers record no suspicion, but nobody should count on its slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_safe_mode_a_silent_service_is_shown_as_suspect() {
    let settings = Settings { lost_after: Duration::from_secs(1), ..Settings::default() };
    let stage = Stage::configured(settings).await;
    assert_eq!(stage.send("PUT", "/v1/safe-mode", Some(r#"{"on": true}"#)).await.status, StatusCode::OK);
    let _silent = stage.service(4).await;
    let is_empty = |it: &everwatch_api::Pool| (it.services, it.capacity) == (1, 0);
    stage.until_read("/v1/pools/default", is_empty).await;
    let stats: everwatch_api::Stats = stage.read("/v1/stats").await;
    assert_eq!((stats.capacity, stats.services.get("suspect")), (0, Some(&1)));
    let listed: Listed<everwatch_api::Service> = stage.read("/v1/services?state=suspect").await;
    let it = &listed.items[0];
    assert_eq!((listed.total, it.state, it.capacity), (1, ServiceState::Suspect, 4));
    let read: everwatch_api::Service = stage.read(&format!("/v1/services/{}", it.name)).await;
    assert_eq!(read.state, ServiceState::Suspect);
    let name = it.name.clone();
    let told: Listed<everwatch_api::Finding> = stage.read("/v1/doctor").await;
    let told: Vec<&str> = told.items.iter().map(|it| it.what.as_str()).collect();
    assert!(told.iter().any(|it| it.contains("services are silent") && it.contains(&name)), "{told:?}");
    let stored = stage.manager.records.services(Duration::ZERO).await.unwrap();
    assert_eq!(stored[0].suspect_since, None, "managers conclude nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_safe_mode_a_service_that_a_person_killed_is_shown_as_suspect_at_once() {
    let stage = Stage::new().await;
    assert_eq!(stage.send("PUT", "/v1/safe-mode", Some(r#"{"on": true}"#)).await.status, StatusCode::OK);
    let _service = stage.named_service("killed", 4).await;
    let it: everwatch_api::Service = stage.read("/v1/services/killed").await;
    assert_eq!(it.state, ServiceState::Active);
    stage.manager.settings.excused.add(ServiceId(it.id), ByHand::Killed);
    assert_eq!(
        stage.read::<everwatch_api::Service>("/v1/services/killed").await.state,
        ServiceState::Suspect
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_cannot_be_read_is_on() {
    let stage = Stage::new().await;
    stage.manager.records.store.set_note("safe_mode", "{", Duration::MAX).await.unwrap();
    let hold: SafeMode = stage.read("/v1/safe-mode").await;
    assert!(hold.on && hold.reason.contains("cannot read"), "{hold:?}");
    assert_eq!(stage.send("PUT", "/v1/safe-mode", Some(r#"{"on": false}"#)).await.status, StatusCode::OK);
    assert!(!stage.read::<SafeMode>("/v1/safe-mode").await.on);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_message_is_sent_back_to_its_queue_or_deleted() {
    let stage = Stage::new().await;
    let topology = stage.manager.link.topology.clone();
    let session = stage.broker.connect("stranger").await.unwrap();
    let put = async |queue: String, body: &'static str, origin: Option<String>| {
        let origin = origin.map(|it| ("everwatch-queue".to_owned(), HeaderValue::Text(it)));
        let message = Message { body: body.into(), headers: origin.into_iter().collect() };
        session.publish(&Target::Queue(queue), message).await.unwrap();
        stage.until_parked(body).await
    };
    let retry = async |id: i64| stage.send("POST", &format!("/v1/parked/{id}/retry"), None).await;
    let work = topology.work(&Pool::default());
    let parked = put(topology.parked(), "from work", Some(work.clone())).await;
    assert_eq!(parked.queue, work);
    let sent: ParkedMessage = retry(parked.id).await.read(202);
    assert_eq!(sent.text.as_deref(), Some("from work"));
    let back = session.get(&work, 9).await.unwrap();
    assert_eq!((back.len(), back[0].body.as_ref()), (1, &b"from work"[..]));
    assert_eq!(retry(parked.id).await.status, 404);

    let id = put(topology.state(), "a report?", None).await.id;
    assert_eq!(stage.send("DELETE", &format!("/v1/parked/{id}"), None).await.status, 204);
    assert_eq!(stage.total("/v1/parked").await, 0);

    let id = put(topology.parked(), "from nowhere", None).await.id;
    retry(id).await.refused(409, "no-such-queue");
    let id = put(topology.parked(), "from a gone one", Some("gone".to_owned())).await.id;
    retry(id).await.refused(409, "no-such-queue");
    stage.broker.block(true);
    retry(id).await.refused(503, "broker-unavailable");
    assert_eq!(stage.total("/v1/parked").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_version_and_metrics_are_told() {
    let stage = Stage::new().await;
    let _services = (stage.named_service("s1", 1).await, stage.named_service("s2", 1).await);
    let kinds: Listed<everwatch_api::Kind> = stage.read("/v1/kinds").await;
    let [name, pool] = ["ticker", "default"].map(str::to_owned);
    let ticker = everwatch_api::Kind { name, schema: Value::Null, pools: vec![pool], services: 2 };
    assert_eq!((kinds.items, kinds.total), (vec![ticker], 1));
    assert_eq!(stage.read::<Version>("/v1/version").await.version, env!("CARGO_PKG_VERSION"));
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let response = stage.app.clone().oneshot(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let text = to_bytes(response.unwrap().into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    for line in [
        "everwatch_observers{pool=\"default\",status=\"Created\"} 1",
        "everwatch_observers{pool=\"default\",status=\"Failed\"} 0",
        "everwatch_services{state=\"active\"} 2",
        "everwatch_capacity_slots{pool=\"default\"} 2",
        "everwatch_free_slots{pool=\"default\"} 2",
        "everwatch_broker_connected 1",
        "# TYPE everwatch_reconcile_pass_seconds histogram",
        "# HELP everwatch_state_queue_lag_seconds ",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

/// What axum serves is what it says of itself when it is printed.
fn served(app: &Router) -> BTreeSet<String> {
    let printed = format!("{app:?}");
    let quoted = printed.split('"').skip(1).step_by(2);
    let console = |text: &str| text.starts_with("/console/") || text.starts_with("/docs");
    let own = |text: &&str| {
        text.len() > 1 && text.starts_with('/') && !text.contains("__private") && !console(text)
    };
    quoted.filter(own).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_is_documented_and_every_documented_one_is_there() {
    let stage = Stage::new().await;
    let document = stage.get("/openapi.json").await.body;
    assert_eq!(document["info"]["title"], "Everwatch");
    let paths: BTreeMap<String, Value> = serde_json::from_value(document["paths"].clone()).unwrap();
    assert_eq!(paths.keys().cloned().collect::<BTreeSet<_>>(), served(&stage.app));
    for (path, item) in &paths {
        let documented: BTreeSet<String> =
            item.as_object().unwrap().keys().map(|it| it.to_uppercase()).collect();
        let there = path.replace("{key}", "none").replace("{id}", "none");
        let answer = stage.send("TRACE", &there, None).await;
        let mut allowed: BTreeSet<String> = answer.headers[header::ALLOW]
            .to_str()
            .unwrap()
            .split(',')
            .map(|it| it.trim().to_owned())
            .collect();
        allowed.remove("HEAD");
        assert_eq!(allowed, documented, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_tells_a_scaler_what_it_needs() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    for (name, desired) in [("a", "running"), ("b", "running"), ("c", "running"), ("d", "paused")] {
        stage.create(json!({"kind": "ticker", "name": name, "desired": desired, "on_full": "queue"})).await;
    }
    for _ in 0..2 {
        let (_kept, work, epoch) = service.take().await;
        service.run_event(&work, epoch, started()).await;
    }
    // A response reads the slots before the observers.
    let two_run = |pool: &everwatch_api::Pool| (pool.observers.get("Processing"), pool.held) == (Some(&2), 2);
    let pool = stage.until_read("/v1/pools/default", two_run).await;
    assert_eq!((pool.needed, pool.capacity), (3, 2));
    let pools: Listed<everwatch_api::Pool> = stage.read("/v1/pools").await;
    assert_eq!(pools.items[0], pool);
    stage.get("/v1/pools/gpu").await.refused(404, "not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_belongs_to_the_query_that_gave_it_out() {
    let stage = Stage::new().await;
    for name in ["a", "b", "c"] {
        let paused = json!({"kind": "ticker", "name": name, "desired": "paused"});
        // No service lives: one that is not to run needs none.
        assert_eq!(stage.create(paused).await.status, StatusCode::CREATED);
    }
    let page: Listed<Observer> = stage.read("/v1/observers?sort=name&limit=1").await;
    let cursor = page.next_cursor.unwrap();
    let next = format!("/v1/observers?limit=2&cursor={cursor}&sort=name");
    assert_eq!(stage.read::<Listed<Observer>>(&next).await.items[0].name, "b");
    for other in ["sort=created_at", "sort=-name", "sort=name&status=Paused", ""] {
        let refused = stage.get(&format!("/v1/observers?{other}&cursor={cursor}")).await;
        let detail = refused.refused(400, "bad-query").detail;
        assert!(detail.contains("first page"), "{other}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_no_service_is_in_is_named_as_such() {
    let stage = Stage::new().await;
    let _service = stage.service(1).await;
    let refused = stage.create(json!({"kind": "ticker", "name": "a", "pool": "defalt"})).await;
    let detail = refused.refused(503, "no-capacity").detail;
    let told =
        "pool defalt has no service; pools with services: default. Name one of them (did you mean default?)";
    assert!(detail.contains(told), "{detail}");
}
