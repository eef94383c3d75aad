//! Access: each route by role, and what a role of one pool sees.

mod flooding;
mod namespaces;
mod sessions;

use super::*;
use everwatch_api::{AuditEntry, CreatedToken, Listed, Role, Token, Whoami};
use everwatch_core::access::{BuiltIn, Mode, Target, Verb};
use std::path::Path;

const BOOTSTRAP: &str = "a secret of thirty-two characters";

impl Stage {
    /// A manager whose requests need a token.
    async fn guarded(dir: &Path) -> Self {
        Self::guarded_with(dir, crate::AuthSettings::default()).await
    }

    async fn guarded_with(dir: &Path, auth: crate::AuthSettings) -> Self {
        let file = dir.join("bootstrap");
        std::fs::write(&file, format!("{BOOTSTRAP}\n")).unwrap();
        let auth = crate::AuthSettings { mode: Mode::Required, bootstrap_token_file: Some(file), ..auth };
        Self::prepared(Settings { auth, ..Settings::default() }, Some(BOOTSTRAP)).await
    }

    async fn sent_by(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.ask(request.body(body).unwrap()).await
    }

    async fn token(&self, name: &str, role: &str) -> String {
        let body = json!({ "name": name, "role": role });
        let created = self.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await;
        created.read::<CreatedToken>(201).token
    }

    async fn role(&self, name: &str, grants: Value) {
        let body = json!({ "grants": grants });
        let path = format!("/v1/roles/{name}");
        self.sent_by(BOOTSTRAP, "PUT", &path, Some(&body)).await.read::<Role>(201);
    }
}

/// The verbs of an operation; `None` if it is open to everybody.
fn verbs(operation: &Value) -> Option<Vec<Verb>> {
    let security = operation["security"].as_array().unwrap_or_else(|| panic!("{operation} declares no verb"));
    let mut verbs = Vec::new();
    for requirement in security {
        let of_token = requirement.get("token")?;
        let words =
            of_token.as_array().unwrap().iter().map(|it| it.as_str().unwrap().parse::<Verb>().unwrap());
        verbs.extend(words);
    }
    Some(verbs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_declares_its_verb_and_lets_in_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    stage.role("nothing", json!([{ "verbs": ["observers:read"], "pools": ["none"] }])).await;
    let mut tokens = vec![("nothing".to_owned(), stage.token("nobody", "nothing").await)];
    for role in BuiltIn::ALL {
        tokens.push((role.as_str().to_owned(), stage.token(role.as_str(), role.as_str()).await));
    }
    let contract = Contract::new(stage.get("/openapi.json").await.body);
    let (mut refused, mut admitted) = (0, 0);
    for (method, path, operation) in contract.operations() {
        let told = format!("{method} {path}");
        let uri = path.replace("{key}", "missing").replace("{pool}", "missing").replace("{name}", "missing");
        let uri = uri.replace("{kind}", "missing").replace("{id}", "0").replace("{namespace}", "missing");
        let needs = verbs(operation);
        let method = method.to_uppercase();
        let send = async |token: Option<&str>| {
            let mut request = Request::builder().method(method.as_str()).uri(&uri);
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let request = request.body(Body::empty()).unwrap();
            let response = stage.app.clone().oneshot(request).await.unwrap();
            // Bodies of streams never end.
            response.status()
        };
        let anonymous = send(None).await;
        let Some(needs) = needs else {
            assert_ne!(anonymous, StatusCode::UNAUTHORIZED, "{told}");
            continue;
        };
        assert_eq!(anonymous, StatusCode::UNAUTHORIZED, "{told}");
        if path == "/v1/session" {
            continue;
        }
        for (role, token) in &tokens {
            let rights = match BuiltIn::named(role) {
                Some(role) => role.role().rights(),
                None => stage.manager.accounts.accounts().role(&Name::new(role).unwrap()).unwrap().rights(),
            };
            let has_right = needs.is_empty() || needs.iter().any(|verb| rights.permits_some(*verb));
            let status = send(Some(token)).await;
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{told} as {role}");
            if has_right {
                admitted += 1;
                let elsewhere = role == "nothing";
                assert!(elsewhere || status != StatusCode::FORBIDDEN, "{told} as {role}: {status}");
            } else {
                refused += 1;
                assert_eq!(status, StatusCode::FORBIDDEN, "{told} as {role}");
            }
        }
    }
    assert!(refused > 100 && admitted > 100, "{refused} {admitted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_or_touches_what_is_in_another_pool() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(1).await;
    stage.role("team-a", json!([
        { "verbs": ["observers:*", "specs:read", "logs:read", "services:*", "pools:*"], "pools": ["a"] }
    ])).await;
    let team = stage.token("jane", "team-a").await;
    let create = async |token: &str, name: &str, pool: &str| {
        let body =
            json!({ "name": name, "kind": "ticker", "pool": pool, "on_full": "queue", "spec": {"x": 1} });
        stage.sent_by(token, "POST", "/v1/observers", Some(&body)).await
    };
    assert_eq!(create(BOOTSTRAP, "mine", "a").await.status, StatusCode::CREATED);
    assert_eq!(create(BOOTSTRAP, "theirs", "default").await.status, StatusCode::CREATED);
    create(&team, "elsewhere", "default").await.refused(403, "not-permitted");
    let by_team = async |method: &str, path: &str, body: Option<Value>| {
        stage.sent_by(&team, method, path, body.as_ref()).await
    };
    let seen: Listed<Observer> = by_team("GET", "/v1/observers", None).await.read(200);
    assert_eq!((seen.items.len(), seen.total, seen.items[0].name.as_str()), (1, 1, "mine"));
    let theirs = stage.sent_by(BOOTSTRAP, "GET", "/v1/observers/theirs", None).await.read::<Observer>(200);

    // Every route about one observer, by name and by id.
    let contract = Contract::new(stage.get("/openapi.json").await.body);
    let mut routes = 0;
    for (method, path, _) in contract.operations().filter(|it| it.1.starts_with("/v1/observers/{key}")) {
        for key in ["theirs", &theirs.id.to_string()] {
            let uri = path.replace("{key}", key);
            let body = match (method, path.rsplit('/').next().unwrap()) {
                ("put", _) => Some(json!({ "kind": "ticker", "pool": "a" })),
                ("patch", _) => Some(json!({ "labels": { "a": "b" } })),
                ("post", "revert") => Some(json!({ "to": 1 })),
                _ => None,
            };
            by_team(&method.to_uppercase(), &uri, body).await.refused(404, "not-found");
            routes += 1;
        }
    }
    assert!(routes >= 30, "{routes}");
    let after = stage.sent_by(BOOTSTRAP, "GET", "/v1/observers/theirs", None).await.read::<Observer>(200);
    let wanted = |it: &Observer| {
        (it.definition_version, it.desired, it.labels.clone(), it.pool.clone(), it.generation)
    };
    assert_eq!(wanted(&after), wanted(&theirs), "it is as it was");

    // Nobody moves an observer into or out of a pool that is not theirs.
    by_team("PATCH", "/v1/observers/mine", Some(json!({ "pool": "default" })))
        .await
        .refused(403, "not-permitted");
    let out = Some(json!({ "pool": "default" }));
    by_team("POST", "/v1/observers/mine/move", out).await.refused(403, "not-permitted");
    // Who may not see services may not name one.
    stage.role("narrow", json!([{ "verbs": ["observers:*"], "pools": ["a"] }])).await;
    let narrow = stage.token("jim", "narrow").await;
    let to = json!({ "service": "s1" });
    let asked = stage.sent_by(&narrow, "POST", "/v1/observers/mine/move", Some(&to)).await;
    asked.refused(403, "not-permitted");
    // Bulk actions and batches.
    by_team("DELETE", "/v1/observers?kind=ticker&expect=2", None).await.refused(409, "count-differs");
    let wishes = json!([{ "op": "delete", "id": "theirs" }, { "op": "pause", "id": "mine" },
        { "op": "create", "observer": { "name": "sly", "kind": "ticker", "pool": "default" } }]);
    let outcomes = by_team("POST", "/v1/observers:batch", Some(wishes)).await;
    let statuses: Vec<u64> =
        outcomes.body["items"].as_array().unwrap().iter().map(|it| it["status"].as_u64().unwrap()).collect();
    assert_eq!((statuses[0], statuses[2]), (404, 403), "{:?}", outcomes.body);
    assert!(statuses[1] < 300);
    // Services and pools.
    by_team("GET", "/v1/services/s1", None).await.refused(404, "not-found");
    by_team("POST", "/v1/services/s1/drain", None).await.refused(404, "not-found");
    assert_eq!(by_team("GET", "/v1/services", None).await.body["total"], 0);
    by_team("GET", "/v1/pools/default", None).await.refused(404, "not-found");
    let pause = Some(json!({ "paused": true }));
    by_team("PUT", "/v1/pools/default", pause.clone()).await.refused(403, "not-permitted");
    assert_eq!(by_team("PUT", "/v1/pools/a", pause).await.status, StatusCode::OK);
    by_team("POST", "/v1/rebalance:plan", None).await.refused(403, "not-permitted");
    by_team("GET", "/v1/events", None).await.refused(403, "not-permitted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_belongs_to_its_sender() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(5).await;
    let (one, other) = (stage.token("one", "operator").await, stage.token("other", "operator").await);
    let create = async |token: &str, name: &str| {
        let request = Request::builder().method("POST").uri("/v1/observers").header("idempotency-key", "k");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let body = json!({ "name": name, "kind": "ticker" });
        stage.ask(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let first = create(&one, "a").await.read::<Observer>(201);
    assert_eq!(create(&one, "a").await.read::<Observer>(201).id, first.id, "the same request again");
    create(&one, "b").await.refused(422, "idempotency-key-reused");
    assert_eq!(create(&other, "b").await.status, StatusCode::CREATED, "another sender has keys of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_reads_no_spec() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(1).await;
    let body = json!({ "name": "a", "kind": "ticker", "spec": { "password": "hidden-in-spec" } });
    assert_eq!(
        stage.sent_by(BOOTSTRAP, "POST", "/v1/observers", Some(&body)).await.status,
        StatusCode::CREATED
    );
    let viewer = stage.token("viewer", "viewer").await;
    let contract = Contract::new(stage.get("/openapi.json").await.body);
    let mut read = 0;
    for (_, path, operation) in contract.operations().filter(|it| it.0 == "get") {
        let needs = verbs(operation).unwrap_or_default();
        let rights = BuiltIn::Viewer.role().rights();
        if path.starts_with("/metrics") || !needs.iter().any(|verb| rights.permits(*verb, Target::Deployment))
        {
            continue;
        }
        let answer = stage.sent_by(&viewer, "GET", &path.replace("{key}", "a"), None).await;
        assert!(!answer.body.to_string().contains("hidden-in-spec"), "{path}: {}", answer.body);
        read += 1;
    }
    assert!(read > 10, "{read}");
    stage.sent_by(&viewer, "GET", "/v1/observers/a/versions", None).await.refused(403, "not-permitted");
    stage.sent_by(&viewer, "GET", "/v1/observers/a/logs", None).await.refused(403, "not-permitted");
    let whole = stage.sent_by(BOOTSTRAP, "GET", "/v1/observers/a", None).await;
    assert!(whole.body.to_string().contains("hidden-in-spec"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_created_rotated_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let body = json!({ "name": "ci", "role": "operator", "expires_in": "1h" });
    let created = stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await;
    let created = created.read::<CreatedToken>(201);
    stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await.refused(409, "name-exists");
    let who = stage.sent_by(&created.token, "GET", "/v1/whoami", None).await.read::<Whoami>(200);
    assert_eq!((who.name.as_deref(), who.role.as_deref()), (Some("ci"), Some("operator")));
    let rotated =
        stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens/ci/rotate", Some(&json!({"overlap": "1h"}))).await;
    let rotated = rotated.read::<CreatedToken>(200);
    assert_eq!(rotated.id, created.id);
    for secret in [&created.token, &rotated.token] {
        assert_eq!(stage.sent_by(secret, "GET", "/v1/whoami", None).await.status, StatusCode::OK);
    }
    let listed = stage.sent_by(BOOTSTRAP, "GET", "/v1/tokens", None).await;
    assert!(!listed.body.to_string().contains(&created.token[15..]), "a secret is listed");
    assert_eq!(listed.read::<Listed<Token>>(200).items[0].created_by, "bootstrap");
    let revoked = stage.sent_by(BOOTSTRAP, "DELETE", "/v1/tokens/ci", None).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    for secret in [&created.token, &rotated.token] {
        stage.sent_by(secret, "GET", "/v1/whoami", None).await.refused(401, "no-valid-token");
    }
    let id = &created.id;
    stage
        .sent_by(BOOTSTRAP, "POST", &format!("/v1/tokens/{id}/rotate"), None)
        .await
        .refused(409, "token-not-valid");
    for (body, pointer) in [
        (json!({ "name": "no name", "role": "admin" }), "/name"),
        (json!({ "name": "x", "role": "nobody" }), "/role"),
        (json!({ "name": "x", "role": "admin", "expires_in": "1s" }), "/expires_in"),
        (json!({ "name": "x", "role": "admin", "expires_in": "9999d" }), "/expires_in"),
    ] {
        let refused = stage.sent_by(BOOTSTRAP, "POST", "/v1/tokens", Some(&body)).await;
        refused.refused(422, "invalid");
        assert_eq!(refused.body["errors"][0]["pointer"], pointer, "{}", refused.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gives_or_takes_rights_that_they_lack() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    stage.role("clerk", json!([{ "verbs": ["tokens:*", "roles:*", "observers:read"] }])).await;
    let clerk = stage.token("clerk", "clerk").await;
    let admin = stage.token("boss", "admin").await;
    let by_clerk = async |method: &str, path: &str, body: Value| {
        stage.sent_by(&clerk, method, path, Some(&body).filter(|it| !it.is_null())).await
    };
    let wanted = json!({ "name": "x", "role": "admin" });
    by_clerk("POST", "/v1/tokens", wanted).await.refused(403, "not-permitted");
    by_clerk("POST", "/v1/tokens/boss/rotate", Value::Null).await.refused(403, "not-permitted");
    by_clerk("DELETE", "/v1/tokens/boss", Value::Null).await.refused(403, "not-permitted");
    let wider = json!({ "grants": [{ "verbs": ["*"] }] });
    by_clerk("PUT", "/v1/roles/clerk", wider.clone()).await.refused(403, "not-permitted");
    by_clerk("PUT", "/v1/roles/admin", wider).await.refused(422, "invalid");
    assert_eq!(stage.sent_by(&admin, "GET", "/v1/whoami", None).await.status, StatusCode::OK);
    let narrow = json!({ "name": "reader", "role": "clerk" });
    assert_eq!(by_clerk("POST", "/v1/tokens", narrow).await.status, StatusCode::CREATED);
    by_clerk("DELETE", "/v1/roles/clerk", Value::Null).await.refused(409, "role-in-use");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_has_every_change_and_every_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(1).await;
    let viewer = stage.token("viewer", "viewer").await;
    let body = json!({ "name": "a", "kind": "ticker" });
    let created = stage.sent_by(BOOTSTRAP, "POST", "/v1/observers", Some(&body)).await.read::<Observer>(201);
    stage.sent_by(&viewer, "DELETE", "/v1/observers/a", None).await.refused(403, "not-permitted");
    stage.sent_by(&viewer, "GET", "/v1/audit", None).await.refused(403, "not-permitted");
    stage.sent_by("ewt_wrong", "DELETE", "/v1/observers/a", None).await.refused(401, "no-valid-token");
    assert_eq!(stage.sent_by(&viewer, "GET", "/v1/observers/a", None).await.status, StatusCode::OK);
    let complete = |log: &Listed<AuditEntry>| log.items.iter().all(|entry| entry.status.is_some());
    let mut log: Listed<AuditEntry> = stage.sent_by(BOOTSTRAP, "GET", "/v1/audit", None).await.read(200);
    let deadline = tokio::time::Instant::now() + SOON;
    while !complete(&log) {
        assert!(tokio::time::Instant::now() < deadline, "{log:?}");
        tokio::task::yield_now().await;
        log = stage.sent_by(BOOTSTRAP, "GET", "/v1/audit", None).await.read(200);
    }
    let told: Vec<_> = log
        .items
        .iter()
        .map(|it| (it.principal.as_deref(), it.method.as_str(), it.path.as_str(), it.status.unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (None, "DELETE", "/v1/observers/a", 401),
            (Some("viewer"), "GET", "/v1/audit", 403),
            (Some("viewer"), "DELETE", "/v1/observers/a", 403),
            (Some("bootstrap"), "POST", "/v1/observers", 201),
            (Some("bootstrap"), "POST", "/v1/tokens", 201),
        ]
    );
    assert_eq!(log.items[3].created, Some(format!("/v1/observers/{}", created.id)));
    let mine: Listed<AuditEntry> =
        stage.sent_by(BOOTSTRAP, "GET", "/v1/audit?principal=viewer&limit=1", None).await.read(200);
    assert_eq!(mine.items[0].path, "/v1/audit");
    assert_eq!((mine.next_cursor.is_some(), mine.total), (true, 2), "of two pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_token_on_loopback_is_that_of_an_administrator() {
    let stage = Stage::new().await;
    stage.send("POST", "/v1/session", None).await.refused(409, "no-session");
    let who: Whoami = stage.read("/v1/whoami").await;
    assert!(!who.authentication && who.name.is_none());
    let viewer = json!({ "name": "v", "role": "viewer" }).to_string();
    stage.send("POST", "/v1/tokens", Some(&viewer)).await.refused(422, "invalid");
    let admin = json!({ "name": "boss", "role": "admin" }).to_string();
    let admin = stage.send("POST", "/v1/tokens", Some(&admin)).await.read::<CreatedToken>(201).token;
    stage.send("GET", "/v1/observers", None).await.refused(401, "no-valid-token");
    stage.send("GET", "/livez", None).await.read::<Value>(200);
    // It is the only token that may create others.
    stage.sent_by(&admin, "DELETE", "/v1/tokens/boss", None).await.refused(409, "last-token");
    let body = json!({ "name": "second", "role": "viewer" });
    stage.sent_by(&admin, "POST", "/v1/tokens", Some(&body)).await.read::<CreatedToken>(201);
    stage.sent_by(&admin, "DELETE", "/v1/tokens/boss", None).await.refused(409, "last-token");
    let last = async |token: &str| {
        let listed = stage.sent_by(token, "GET", "/v1/tokens", None).await.read::<Listed<Token>>(200);
        listed.items.into_iter().filter(|it| it.is_last).map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(last(&admin).await, ["boss"]);
    let body = json!({ "name": "third", "role": "admin" });
    let third = stage.sent_by(&admin, "POST", "/v1/tokens", Some(&body)).await.read::<CreatedToken>(201);
    assert!(last(&admin).await.is_empty(), "two may create tokens");
    assert_eq!(stage.sent_by(&admin, "DELETE", "/v1/tokens/boss", None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(last(&third.token).await, ["third"]);
    stage.sent_by(&third.token, "DELETE", "/v1/tokens/third", None).await.refused(409, "last-token");
    // It does not open again by itself, not even when the last token has ended.
    let (store, now) = (&stage.manager.records.store, stage.manager.records.clock.now());
    for token in store.tokens().await.unwrap() {
        assert!(store.change_token(&token, &token.revoked(now)).await.unwrap());
    }
    stage.send("GET", "/v1/observers", None).await.refused(401, "no-valid-token");
    stage.manager.accounts.refresh(stage.manager.records.store.as_ref()).await.unwrap();
    stage.send("GET", "/v1/observers", None).await.refused(401, "no-valid-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_has_not_read_the_tokens_yet_is_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", dir.path().join("test.db").display());
    let settings = Settings::default();
    let open = async || everwatch_store::open(&url, settings.row.clone()).await.unwrap();
    let start = async |store| {
        let broker = Arc::new(MemoryBroker::new());
        let (manager, _inboxes) = Manager::new(settings.clone(), store, broker, CancellationToken::new());
        (http::app(Arc::clone(&manager), Router::new()), manager)
    };
    let send =
        async |app: &Router, request: Request<Body>| app.clone().oneshot(request).await.unwrap().status();
    let (app, manager) = start(open().await).await;
    let body = Body::from(json!({ "name": "boss", "role": "admin" }).to_string());
    let create =
        Request::builder().method("POST").uri("/v1/tokens").header(header::CONTENT_TYPE, "application/json");
    assert_eq!(send(&app, create.body(body).unwrap()).await, StatusCode::CREATED);
    manager.records.store.close().await;
    drop((app, manager));
    // The first request of the next manager, before any loop has read anything.
    let (app, _manager) = start(open().await).await;
    let read = Request::builder().uri("/v1/tokens").body(Body::empty()).unwrap();
    assert_eq!(send(&app, read).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_when_the_observer_leaves_the_pools_of_the_role() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(1).await;
    stage.role("team-a", json!([{ "verbs": ["observers:*"], "pools": ["a"] }])).await;
    let team = stage.token("jane", "team-a").await;
    let body = json!({ "name": "o", "kind": "ticker", "pool": "a", "on_full": "queue" });
    assert_eq!(
        stage.sent_by(BOOTSTRAP, "POST", "/v1/observers", Some(&body)).await.status,
        StatusCode::CREATED
    );
    let moved = json!({ "pool": "default" });
    let (waited, moved) = tokio::join!(
        stage.sent_by(&team, "GET", "/v1/observers/o?wait_for=status%3DFailed&wait=20s", None),
        stage.sent_by(BOOTSTRAP, "PATCH", "/v1/observers/o", Some(&moved)),
    );
    assert_eq!(moved.status, StatusCode::OK, "{}", moved.body);
    waited.refused(404, "not-found");
}
