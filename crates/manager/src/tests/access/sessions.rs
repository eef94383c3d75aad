//! Sessions of browsers, and what ends with the token of a request.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_a_cookie_that_ends_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let token = stage.token("jane", "viewer").await;
    let begun = stage.sent_by(&token, "POST", "/v1/session", None).await;
    assert_eq!(begun.status, StatusCode::CREATED);
    let cookie = begun.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    for part in ["__Host-everwatch=ewt_", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with_cookie = async |method: &str, path: &str| {
        let request =
            Request::builder().method(method).uri(path).header(header::COOKIE, format!("a=b; {cookie}"));
        stage.ask(request.body(Body::empty()).unwrap()).await
    };
    let who = with_cookie("GET", "/v1/whoami").await.read::<Whoami>(200);
    assert!(who.session && who.name.as_deref() == Some("jane"));
    with_cookie("POST", "/v1/session").await.refused(409, "no-session");
    let listed = stage.sent_by(BOOTSTRAP, "GET", "/v1/tokens?sessions=true", None).await;
    assert_eq!(listed.body["total"], 2);
    stage.sent_by(BOOTSTRAP, "DELETE", "/v1/tokens/jane", None).await;
    with_cookie("GET", "/v1/whoami").await.refused(401, "no-valid-token");
    // A session of its own can be ended.
    let token = stage.token("joe", "viewer").await;
    let begun = stage.sent_by(&token, "POST", "/v1/session", None).await;
    let cookie = begun.headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let out = Request::builder().method("DELETE").uri("/v1/session").header(header::COOKIE, &cookie);
    let ended = stage.ask(out.body(Body::empty()).unwrap()).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert!(ended.headers[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let again = Request::builder().uri("/v1/whoami").header(header::COOKIE, &cookie);
    stage.ask(again.body(Body::empty()).unwrap()).await.refused(401, "no-valid-token");
    assert_eq!(stage.sent_by(&token, "GET", "/v1/whoami", None).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_ends_its_streams_and_waits_within_5_s() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let _service = stage.service(1).await;
    let token = stage.token("jane", "operator").await;
    let body = json!({ "name": "a", "kind": "ticker" });
    stage.sent_by(BOOTSTRAP, "POST", "/v1/observers", Some(&body)).await;
    let request = |path: &str| {
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, format!("Bearer {token}"));
        request.header(header::ACCEPT, "text/event-stream").body(Body::empty()).unwrap()
    };
    let stream = stage.app.clone().oneshot(request("/v1/events")).await.unwrap();
    assert_eq!(stream.headers()[header::CONTENT_TYPE], "text/event-stream");
    let wait = stage.app.clone().oneshot(request("/v1/observers/a?wait_for=status%3DProcessing&wait=60s"));
    let mut waiting = JoinSet::new();
    waiting.spawn(wait);
    let revoked_at = tokio::time::Instant::now();
    stage.sent_by(BOOTSTRAP, "DELETE", "/v1/tokens/jane", None).await;
    let within = Duration::from_secs(5);
    let ended = tokio::time::timeout_at(revoked_at + within, to_bytes(stream.into_body(), usize::MAX)).await;
    ended.expect("the stream ends").unwrap();
    let answered =
        tokio::time::timeout_at(revoked_at + within, waiting.join_next()).await.expect("the wait ends");
    assert_eq!(answered.unwrap().unwrap().unwrap().status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_bootstrap_token_ends_when_the_secret_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::guarded(dir.path()).await;
    let begun = stage.sent_by(BOOTSTRAP, "POST", "/v1/session", None).await;
    let cookie = begun.headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let ask = async || {
        let request = Request::builder().uri("/v1/whoami").header(header::COOKIE, &cookie);
        stage.ask(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(ask().await.status, StatusCode::OK);
    std::fs::write(dir.path().join("bootstrap"), "another secret of more than 32 characters").unwrap();
    stage.manager.accounts.refresh(stage.manager.records.store.as_ref()).await.unwrap();
    ask().await.refused(401, "no-valid-token");
    std::fs::write(dir.path().join("bootstrap"), "short").unwrap();
    stage.manager.accounts.refresh(stage.manager.records.store.as_ref()).await.unwrap();
    stage.sent_by("short", "GET", "/v1/whoami", None).await.refused(401, "no-valid-token");
}
