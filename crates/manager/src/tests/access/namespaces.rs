//! Two teams with a namespace each: neither sees, touches or learns anything of the other.

use super::*;
use everwatch_api::{Batch, Namespace, ObserverCounts, Timeline};
use everwatch_core::record::reason::ReasonCode;

impl Stage {
    async fn namespace(&self, name: &str, settings: Value) {
        let path = format!("/v1/namespaces/{name}");
        let answer = self.sent_by(BOOTSTRAP, "PUT", &path, Some(&settings)).await;
        assert!(answer.status.is_success(), "{}", answer.body);
    }

    async fn token_of(&self, name: &str, role: &str, namespace: &str) -> String {
        let body = json!({ "name": name, "role": role, "namespace": namespace });
        self.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await.read::<CreatedToken>(201).token
    }

    async fn create_as(&self, token: &str, name: &str) -> Answer {
        let body = json!({ "name": name, "kind": "ticker", "on_full": "queue", "spec": { "of": name } });
        self.sent_by(token, "POST", "/v1/observers", Some(&body)).await
    }
}

/// Two namespaces with an observer `web` and a batch `reports` in each, and a token for each.
async fn two_teams(stage: &Stage) -> [String; 2] {
    for team in ["a", "b"] {
        stage.namespace(team, json!({})).await;
    }
    let tokens = [stage.token_of("ann", "admin", "a").await, stage.token_of("bob", "admin", "b").await];
    for token in &tokens {
        assert_eq!(stage.create_as(token, "web").await.status, StatusCode::CREATED);
        let body = json!({ "name": "reports", "defaults": { "kind": "ticker" }, "observers": [{}, {}] });
        stage.sent_by(token, "POST", "/v1/batches", Some(&body)).await.read::<Batch>(201);
    }
    tokens
}

/// A body that this route accepts.
fn body_for(method: &str, path: &str) -> Option<Value> {
    match (method, path.rsplit('/').next().unwrap()) {
        ("PUT", _) => Some(json!({ "kind": "ticker" })),
        ("PATCH", _) => Some(json!({ "labels": { "a": "b" } })),
        ("POST", "revert") => Some(json!({ "to": 1 })),
        _ => None,
    }
}

/// What an answer tells, whatever the key in the request was.
fn told(answer: &Answer, key: &str) -> (StatusCode, String) {
    let Value::Object(mut body) = answer.body.clone() else { panic!("{}", answer.body) };
    body.remove("request_id");
    (answer.status, Value::Object(body).to_string().replace(key, "KEY"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_stays_within_the_namespace_of_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(9).await;
    let [ann, bob] = two_teams(&stage).await;
    stage.role("of-a", json!([{ "verbs": ["*"], "namespaces": ["a"] }])).await;
    let by_role = stage.token("amy", "of-a").await;
    let theirs = stage.sent_by(&bob, "GET", "/v1/observers/web", None).await.read::<Observer>(200);
    let batch = stage.sent_by(&bob, "GET", "/v1/batches/reports", None).await.read::<Batch>(200);
    assert_eq!((theirs.namespace.as_str(), batch.namespace.as_str()), ("b", "b"));
    let contract = Contract::new(stage.get("/openapi.json").await.body);
    let (mut routes, mut refused) = (0, 0);
    for (method, path, operation) in contract.operations() {
        let method = method.to_uppercase();
        let body = body_for(&method, path);
        let keys = match path {
            path if path.starts_with("/v1/observers/{key}") => {
                [theirs.id.to_string(), "web?namespace=b".to_owned()]
            }
            path if path.starts_with("/v1/batches/{key}") => {
                [batch.id.to_string(), "reports?namespace=b".to_owned()]
            }
            // It counts what the list has.
            "/v1/observers:counts" => continue,
            path if path == "/v1/observers" && method == "DELETE" || path.starts_with("/v1/observers:") => {
                // The filters of the routes for many observers find nothing.
                if path != "/v1/observers:batch" {
                    for token in [&ann, &by_role] {
                        let uri = format!("{path}?namespace=b&expect=3");
                        stage.sent_by(token, &method, &uri, None).await.refused(409, "count-differs");
                        routes += 1;
                    }
                }
                continue;
            }
            _ => {
                // What concerns the whole deployment, or pools, is not theirs.
                let Some(needs) = verbs(operation).filter(|needs| !needs.is_empty()) else { continue };
                let rights = BuiltIn::Admin.role().rights().within(&"a".parse().unwrap());
                if !needs.iter().any(|verb| rights.permits_some(*verb)) {
                    let uri = path.replace("{key}", "x").replace("{pool}", "x").replace("{name}", "x");
                    let uri = uri.replace("{id}", "0").replace("{namespace}", "a");
                    stage.sent_by(&ann, &method, &uri, None).await.refused(403, "not-permitted");
                    refused += 1;
                }
                continue;
            }
        };
        for (key, token) in keys.iter().flat_map(|key| [(key, &ann), (key, &by_role)]) {
            let (key, query) = key.split_once('?').unwrap_or((key, ""));
            let of = async |key: &str| {
                let uri = format!("{}?{query}", path.replace("{key}", key));
                stage.sent_by(token, &method, uri.trim_end_matches('?'), body.as_ref()).await
            };
            // A PUT by name would create an observer in their namespace; one by id finds nothing.
            let is_create = method == "PUT" && !query.is_empty();
            let theirs = of(key).await;
            let made_up = if query.is_empty() { uuid::Uuid::new_v4().to_string() } else { "none".to_owned() };
            assert_eq!(told(&theirs, key), told(&of(&made_up).await, &made_up), "{method} {path}");
            let expected = if is_create { (403, "not-permitted") } else { (404, "not-found") };
            theirs.refused(expected.0, expected.1);
            routes += 1;
        }
    }
    assert!(routes >= 90 && refused >= 30, "{routes} {refused}");
    let after = stage.sent_by(&bob, "GET", "/v1/observers/web", None).await.read::<Observer>(200);
    let wanted = |it: &Observer| (it.definition_version, it.desired, it.labels.clone());
    assert_eq!(wanted(&after), wanted(&theirs), "it is as it was");
    let after = stage.sent_by(&bob, "GET", "/v1/batches/reports", None).await.read::<Batch>(200);
    assert_eq!((after.state, after.members), (batch.state, batch.members));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_bulk_actions_and_batches_stay_within_the_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(9).await;
    let [ann, bob] = two_teams(&stage).await;
    let by_ann = async |method: &str, path: &str, body: Option<Value>| {
        stage.sent_by(&ann, method, path, body.as_ref()).await
    };
    for (list, own, all) in [("/v1/observers", 3, 6), ("/v1/batches", 1, 2), ("/v1/namespaces", 1, 3)] {
        let seen = by_ann("GET", list, None).await;
        assert_eq!(seen.body["total"], own, "{}", seen.body);
        assert_eq!(seen.body["items"].as_array().unwrap().len(), own, "{}", seen.body);
        assert!(!seen.body.to_string().contains("\"b\""), "{}", seen.body);
        assert_eq!(stage.sent_by(BOOTSTRAP, "GET", list, None).await.body["total"], all);
        if list != "/v1/namespaces" {
            let elsewhere = format!("{list}?namespace=b");
            assert_eq!(by_ann("GET", &elsewhere, None).await.body["total"], 0);
            assert_eq!(stage.sent_by(BOOTSTRAP, "GET", &elsewhere, None).await.body["total"], own);
        }
    }
    for (query, count) in [("", 3), ("?namespace=b", 0)] {
        let counts = by_ann("GET", &format!("/v1/observers:counts{query}"), None).await;
        assert_eq!(counts.read::<ObserverCounts>(200).total, count, "{query}");
    }
    by_ann("GET", "/v1/namespaces/b", None).await.refused(404, "not-found");
    let own = by_ann("GET", "/v1/namespaces/a", None).await.read::<Namespace>(200);
    assert_eq!(own.observers, 3);
    // Creates elsewhere, by body or by query.
    let body = json!({ "name": "sly", "kind": "ticker", "namespace": "b", "on_full": "queue" });
    by_ann("POST", "/v1/observers", Some(body.clone())).await.refused(403, "not-permitted");
    let bare = json!({ "name": "sly", "kind": "ticker", "on_full": "queue" });
    by_ann("POST", "/v1/observers?namespace=b", Some(bare.clone())).await.refused(403, "not-permitted");
    by_ann("PUT", "/v1/observers/sly?namespace=b", Some(bare.clone())).await.refused(403, "not-permitted");
    let conflict =
        by_ann("POST", "/v1/observers?namespace=a", Some(body.clone())).await.refused(400, "bad-query");
    assert!(
        conflict.detail.contains(" a,") && conflict.detail.contains("namespace b"),
        "{}",
        conflict.detail
    );
    let batch = json!({ "namespace": "b", "defaults": { "kind": "ticker" }, "observers": [{}] });
    by_ann("POST", "/v1/batches", Some(batch)).await.refused(403, "not-permitted");
    let member = json!({ "defaults": { "kind": "ticker" }, "observers": [{ "namespace": "b" }] });
    by_ann("POST", "/v1/batches", Some(member)).await.refused(422, "invalid");
    by_ann("PATCH", "/v1/observers/web", Some(json!({ "namespace": "b" }))).await.refused(422, "invalid");
    // Whether a namespace exists is not told either.
    for key in ["namespace:b", "namespace:none"] {
        let problem = by_ann("PATCH", "/v1/observers/web", Some(json!({ "limits": [key] }))).await;
        assert!(problem.refused(422, "invalid").detail.contains("another namespace"));
    }
    let odd = json!([{ "op": "create", "observer": body }]);
    let outcomes = by_ann("POST", "/v1/observers:batch?namespace=a", Some(odd)).await;
    assert_eq!(outcomes.body["items"][0]["status"], 400, "{}", outcomes.body);
    // Many at once.
    by_ann("DELETE", "/v1/observers?kind=ticker&expect=6", None).await.refused(409, "count-differs");
    by_ann("DELETE", "/v1/observers?namespace=b&expect=3", None).await.refused(409, "count-differs");
    let wishes = json!([{ "op": "pause", "id": "web" }, { "op": "create", "observer": body }]);
    let outcomes = by_ann("POST", "/v1/observers:batch", Some(wishes)).await;
    assert_eq!(outcomes.body["items"][0]["observer"]["namespace"], "a", "{}", outcomes.body);
    assert_eq!(outcomes.body["items"][1]["status"], 403, "{}", outcomes.body);
    let wishes = json!([{ "op": "delete", "id": "web" }]);
    let outcomes = by_ann("POST", "/v1/observers:batch?namespace=b", Some(wishes)).await;
    assert_eq!(outcomes.body["items"][0]["status"], 404, "{}", outcomes.body);
    by_ann("DELETE", "/v1/observers?kind=ticker&expect=3", None).await;
    let left: Listed<Observer> = stage.sent_by(&bob, "GET", "/v1/observers", None).await.read(200);
    assert!(left.items.iter().all(|it| it.desired == Desired::Running) && left.total == 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_replays_nothing_of_another_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(9).await;
    for team in ["a", "b"] {
        stage.namespace(team, json!({})).await;
    }
    let create = async |token: &str, path: &str| {
        let request = Request::builder().method("POST").uri(path).header("idempotency-key", "k");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let body = json!({ "name": "web", "kind": "ticker", "on_full": "queue" });
        stage.ask(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let first = stage.token_of("ci", "operator", "a").await;
    let made = create(&first, "/v1/observers").await.read::<Observer>(201);
    assert_eq!(create(&first, "/v1/observers").await.read::<Observer>(201).id, made.id);
    // Another token of the same name, in another namespace.
    assert_eq!(
        stage.sent_by(BOOTSTRAP, "DELETE", "/v1/tokens/ci", None).await.status,
        StatusCode::NO_CONTENT
    );
    let second = stage.token_of("ci", "operator", "b").await;
    let other = create(&second, "/v1/observers").await.read::<Observer>(201);
    assert_eq!((other.namespace.as_str(), other.id == made.id), ("b", false));
    // The same body and key mean another observer in another namespace.
    create(BOOTSTRAP, "/v1/observers").await.read::<Observer>(201);
    create(BOOTSTRAP, "/v1/observers?namespace=a").await.refused(422, "idempotency-key-reused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_sessions_keep_their_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let body = |namespace: &str| json!({ "name": "x", "role": "admin", "namespace": namespace });
    for (namespace, reason) in [("Nope!", "1 to 63 of"), ("nope", "everwatch namespace apply nope")] {
        let refused = stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body(namespace))).await;
        let problem = refused.refused(422, "invalid");
        assert_eq!(problem.errors[0].pointer, "/namespace");
        assert!(problem.detail.contains(reason), "{}", problem.detail);
    }
    stage.namespace("a", json!({})).await;
    let ann = stage.token_of("ann", "admin", "a").await;
    let who = stage.sent_by(&ann, "GET", "/v1/whoami", None).await.read::<Whoami>(200);
    assert_eq!((who.namespace.as_deref(), who.role.as_deref()), (Some("a"), Some("admin")));
    assert!(!who.verbs.iter().any(|verb| verb.starts_with("tokens:") || verb.starts_with("services:")));
    let session = stage.sent_by(&ann, "POST", "/v1/session", None).await;
    assert_eq!(session.read::<Whoami>(201).namespace.as_deref(), Some("a"));
    let tokens = stage.manager.records.store.tokens().await.unwrap();
    assert!(tokens.iter().all(|it| it.namespace == Some("a".parse().unwrap())), "{tokens:?}");
    // Who may create tokens only for a part creates no others.
    stage
        .role(
            "clerk",
            json!([{ "verbs": ["tokens:write"] }, { "verbs": ["observers:*"], "namespaces": ["a"] }]),
        )
        .await;
    stage.role("maker", json!([{ "verbs": ["observers:*"] }])).await;
    let clerk = stage.token("clerk", "clerk").await;
    let maker = json!({ "name": "m", "role": "maker" });
    stage.sent_by(&clerk, "POST", "/v1/tokens", Some(&maker)).await.refused(403, "not-permitted");
    let maker = json!({ "name": "m", "role": "maker", "namespace": "a" });
    stage.sent_by(&clerk, "POST", "/v1/tokens", Some(&maker)).await.read::<CreatedToken>(201);
    // Their tokens would be those of the next namespace of that name.
    let in_use = stage.sent_by(BOOTSTRAP, "DELETE", "/v1/namespaces/a", None).await;
    let problem = in_use.refused(409, "namespace-in-use");
    assert!(problem.detail.contains("3 valid tokens and sessions"), "{}", problem.detail);
    // A role without verbs on observers has a namespace, too.
    stage.role("runner", json!([{ "verbs": ["batches:*"] }])).await;
    let body = json!({ "name": "runner", "role": "runner", "namespace": "a" });
    let made = stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await.read::<CreatedToken>(201);
    let who = stage.sent_by(&made.token, "GET", "/v1/whoami", None).await.read::<Whoami>(200);
    assert_eq!(who.namespace.as_deref(), Some("a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_refuse_with_the_quota_and_its_use() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(9).await;
    let by_admin = async |method: &str, path: &str, body: Option<Value>| {
        stage.sent_by(BOOTSTRAP, method, path, body.as_ref()).await
    };
    let in_team =
        |name: &str| Some(json!({ "name": name, "kind": "ticker", "namespace": "team", "on_full": "queue" }));
    let missing = by_admin("POST", "/v1/observers", in_team("one")).await.refused(422, "namespace-unknown");
    assert!(missing.detail.contains("PUT /v1/namespaces/team"), "{}", missing.detail);
    stage.namespace("team", json!({ "quotas": { "observers": 2 } })).await;
    for name in ["one", "two"] {
        by_admin("POST", "/v1/observers", in_team(name)).await.read::<Observer>(201);
    }
    let full = by_admin("POST", "/v1/observers", in_team("three")).await.refused(409, "quota-reached");
    let quota = full.quota.unwrap();
    assert_eq!(
        (quota.namespace.as_str(), quota.quota.as_str(), quota.max, quota.used),
        ("team", "observers", 2, 2)
    );
    by_admin("PUT", "/v1/observers/three?namespace=team", in_team("three"))
        .await
        .refused(409, "quota-reached");
    let wishes = json!([{ "op": "create", "observer": in_team("three") }]);
    let outcomes = by_admin("POST", "/v1/observers:batch", Some(wishes)).await;
    assert_eq!(outcomes.body["items"][0]["problem"]["quota"]["used"], 2, "{}", outcomes.body);
    let batch = Some(json!({ "namespace": "team", "defaults": { "kind": "ticker" }, "observers": [{}] }));
    by_admin("POST", "/v1/batches", batch.clone()).await.refused(409, "quota-reached");
    by_admin("POST", "/v1/observers", in_team("one")).await.refused(409, "name-exists");
    by_admin("DELETE", "/v1/namespaces/team", None).await.refused(409, "namespace-in-use");
    stage
        .namespace("team", json!({ "quotas": { "creates_per_minute": 1 }, "pools": ["default", "x"] }))
        .await;
    by_admin("POST", "/v1/observers", in_team("three")).await.read::<Observer>(201);
    let fast = by_admin("POST", "/v1/observers", in_team("four")).await;
    let quota = fast.refused(429, "create-quota-reached").quota.unwrap();
    assert_eq!((quota.quota.as_str(), quota.max, quota.used), ("creates_per_minute", 1, 1));
    by_admin("POST", "/v1/batches", batch).await.refused(429, "create-quota-reached");
    let unknown = json!({ "kind": "other", "namespace": "team", "pool": "gpu", "on_full": "queue" });
    by_admin("POST", "/v1/observers", Some(unknown)).await.refused(422, "pool-not-allowed");
    let rollout = json!({ "selector": { "namespace": "team" }, "patch": { "pool": "gpu" } });
    by_admin("POST", "/v1/rollouts", Some(rollout)).await.refused(422, "pool-not-allowed");
    let limits: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let rollout = json!({ "selector": { "namespace": "team" }, "patch": { "limits": limits } });
    let refused = by_admin("POST", "/v1/rollouts", Some(rollout)).await.refused(422, "invalid");
    assert!(refused.detail.contains("its namespace limits it, too"), "{}", refused.detail);
    let elsewhere = Some(json!({ "kind": "ticker", "namespace": "team", "pool": "gpu", "on_full": "queue" }));
    let refused = by_admin("POST", "/v1/observers", elsewhere).await.refused(422, "pool-not-allowed");
    assert!(refused.detail.contains("its pools: default, x"), "{}", refused.detail);
    let to_gpu = Some(json!({ "pool": "gpu" }));
    by_admin("PATCH", "/v1/observers/one?namespace=team", to_gpu.clone())
        .await
        .refused(422, "pool-not-allowed");
    by_admin("POST", "/v1/observers/one/move?namespace=team", to_gpu).await.refused(422, "pool-not-allowed");
    let seen = by_admin("GET", "/v1/namespaces/team", None).await.read::<Namespace>(200);
    assert_eq!((seen.observers, seen.creates_left), (3, Some(0)));
    // The limit of the namespace belongs to it.
    let limit = Some(json!({ "max": 5 }));
    by_admin("PUT", "/v1/limits/namespace:team", limit).await.refused(422, "invalid");
    by_admin("DELETE", "/v1/limits/namespace:team", None).await.refused(409, "limit-in-use");
    let shown = by_admin("GET", "/v1/observers/one?namespace=team", None).await.read::<Observer>(200);
    assert_eq!(shown.limits, [""; 0]);
    let own = Some(json!({ "limits": ["namespace:team"] }));
    by_admin("PATCH", "/v1/observers/one?namespace=team", own).await.read::<Observer>(200);
    let other = Some(json!({ "kind": "ticker", "limits": ["namespace:team"] }));
    by_admin("POST", "/v1/observers", other).await.refused(422, "invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_of_running_observers_lets_the_others_wait() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(9).await;
    stage.namespace("team", json!({ "quotas": { "running": 1 } })).await;
    for name in ["one", "two"] {
        let body = json!({ "name": name, "kind": "ticker", "namespace": "team", "on_full": "queue" });
        stage.sent_by(BOOTSTRAP, "POST", "/v1/observers", Some(&body)).await.read::<Observer>(201);
    }
    let running = async || {
        stage.sent_by(BOOTSTRAP, "GET", "/v1/namespaces/team", None).await.read::<Namespace>(200).running
    };
    let reaches = async |wanted: u64| {
        let deadline = tokio::time::Instant::now() + SOON;
        while running().await != Some(wanted) {
            assert!(tokio::time::Instant::now() < deadline, "{:?} instead of {wanted}", running().await);
            tokio::task::yield_now().await;
        }
    };
    reaches(1).await;
    let behind = async || {
        let all: Listed<Observer> =
            stage.sent_by(BOOTSTRAP, "GET", "/v1/observers?namespace=team", None).await.read(200);
        all.items.iter().filter(|it| it.reason_code == Some(ReasonCode::LimitReached)).count()
    };
    let deadline = tokio::time::Instant::now() + SOON;
    while behind().await != 1 {
        assert!(tokio::time::Instant::now() < deadline, "{}", behind().await);
        tokio::task::yield_now().await;
    }
    assert_eq!(running().await, Some(1));
    stage.namespace("team", json!({ "quotas": { "running": 2 } })).await;
    reaches(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_reads_the_timeline_of_its_own_observers_only() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let mut service = stage.service(9).await;
    let [ann, bob] = two_teams(&stage).await;
    stage.role("of-a", json!([{ "verbs": ["*"], "namespaces": ["a"] }])).await;
    let by_role = stage.token("amy", "of-a").await;
    for _ in 0..6 {
        let (_, work, epoch) = service.take().await;
        service.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
    }
    let most = |it: &Timeline| it.lanes.iter().flat_map(|it| &it.segments).map(|it| it.held_max).max();
    stage.until_read("/v1/timeline", |it: &Timeline| most(it) == Some(6)).await;
    let theirs = stage.sent_by(&bob, "GET", "/v1/observers/web", None).await.read::<Observer>(200);
    for token in [&ann, &by_role] {
        // How many observers a service holds says something about other namespaces.
        for path in ["/v1/timeline", "/v1/timeline?service=s1", "/v1/timeline?namespace=a"] {
            let refused = stage.sent_by(token, "GET", path, None).await.refused(403, "not-permitted");
            assert!(refused.detail.contains("events:read on all observers: name one"), "{}", refused.detail);
        }
        let of = async |key: &str| {
            stage.sent_by(token, "GET", &format!("/v1/timeline?observer={key}"), None).await
        };
        let own = of("web&namespace=a").await;
        let shown = own.read::<Timeline>(200);
        assert_eq!((most(&shown), shown.lanes.len(), shown.incidents.len()), (Some(1), 1, 0));
        assert!(shown.marks.iter().all(|mark| mark.service.is_none()), "{:?}", shown.marks);
        let (id, no_id) = (theirs.id.to_string(), uuid::Uuid::new_v4().to_string());
        for (key, none) in [("web&namespace=b", "none&namespace=b"), (&id, &no_id)] {
            let (hidden, missing) = (of(key).await, of(none).await);
            let [key, none] = [key, none].map(|it| it.split('&').next().unwrap());
            assert_eq!(told(&hidden, key), told(&missing, none));
            hidden.refused(404, "not-found");
        }
    }
}
