//! The id of a request, caches and compression.

use super::*;
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use axum::response::Response;

impl Stage {
    async fn raw(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_names_its_request() {
    let stage = Stage::new().await;
    let ids = async |sent: Option<&str>| {
        let headers: Vec<_> = sent.map(|id| ("x-request-id", id)).into_iter().collect();
        let answer = stage.raw("/v1/observers/none", &headers).await;
        let header = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let problem: everwatch_api::ProblemBody = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.request_id.as_deref(), Some(&*header));
        header
    };
    assert_eq!(ids(Some("trace-7:a/b")).await, "trace-7:a/b");
    let made =
        [ids(None).await, ids(None).await, ids(Some("two words")).await, ids(Some(&"x".repeat(129))).await];
    let different: std::collections::BTreeSet<_> = made.iter().collect();
    assert_eq!(different.len(), 4);
    assert!(made.iter().all(|id| id.len() < 40 && id.contains('-')), "{made:?}");
    let well = stage.raw("/livez", &[("x-request-id", "probe")]).await;
    assert_eq!(well.headers()["x-request-id"], "probe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_types_the_path_of_a_page_gets_the_page() {
    let stage = Stage::new().await;
    let person = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for (path, page) in
        [("/observers", "/#/observers"), ("/observers/a%20b?tab=runs", "/#/observers/a%20b?tab=runs")]
    {
        let answer = stage.raw(path, &person).await;
        assert_eq!(
            (answer.status(), answer.headers()["location"].to_str().unwrap()),
            (StatusCode::SEE_OTHER, page)
        );
    }
    for (path, headers) in
        [("/observers", &[][..]), ("/observers", &[("accept", "*/*")]), ("/v1/nothing", &person)]
    {
        let answer = stage.raw(path, headers).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let problem: everwatch_api::ProblemBody = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, "no-such-route", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_keep_nothing_unasked() {
    let stage = Stage::new().await;
    stage.create(json!({"name": "o", "kind": "ticker", "on_full": "queue"})).await;
    for (path, control) in
        [("/v1/observers", "no-store"), ("/v1/observers/o", "private, no-cache"), ("/metrics", "no-store")]
    {
        let answer = stage.raw(path, &[]).await;
        assert_eq!(answer.headers()[CACHE_CONTROL], control, "{path}");
        let vary: Vec<_> = answer.headers().get_all(VARY).iter().map(|it| it.to_str().unwrap()).collect();
        let vary = vary.join(",").to_lowercase();
        for name in ["accept", "authorization", "cookie", "accept-encoding"] {
            assert!(vary.split(',').any(|it| it.trim() == name), "{path}: {vary}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_are_compressed_and_streams_are_not() {
    let stage = Stage::new().await;
    let gzip = [(ACCEPT_ENCODING.as_str(), "gzip, br")];
    let plain = to_bytes(stage.raw("/openapi.json", &[]).await.into_body(), 8 << 20).await.unwrap();
    let answer = stage.raw("/openapi.json", &gzip).await;
    assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip");
    let compressed = to_bytes(answer.into_body(), 8 << 20).await.unwrap();
    assert!(
        compressed.starts_with(&[0x1f, 0x8b]) && compressed.len() * 4 < plain.len(),
        "{}",
        compressed.len()
    );
    for (path, accept) in [("/v1/version", "*/*"), ("/v1/events", "text/event-stream")] {
        let answer = stage.raw(path, &[gzip[0], ("accept", accept)]).await;
        assert_eq!(
            (answer.status(), answer.headers().get(CONTENT_ENCODING)),
            (StatusCode::OK, None),
            "{path}"
        );
    }
}
