//! Headers of every response: the id of its request, and what caches may do with it.

use axum::body::HttpBody as Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, ETAG, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use everwatch_core::clock;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tower_http::compression::predicate::Predicate;
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tracing::error;

/// The id of a request: that of the client, or one that the manager has made.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken from a client, in bytes.
const REQUEST_ID_MAX: usize = 128;
/// Smaller bodies grow by compression, or hardly shrink.
const COMPRESSED_MIN_BYTES: u64 = 1024;

/// The id of the request that is handled.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub(super) String);

/// Gives a request its id, and completes the headers of its response.
pub(super) async fn complete(mut request: Request, next: Next) -> Response {
    let id = sent(request.headers()).unwrap_or_else(made);
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        error!(request_id = id, %method, path, "a request failed");
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    if !headers.contains_key(CACHE_CONTROL) {
        // A browser may store a response with a tag. It must ask the manager each time whether the tag is still valid.
        let control = if headers.contains_key(ETAG) { "private, no-cache" } else { "no-store" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
    }
    for name in [ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, COOKIE] {
        headers.append(VARY, HeaderValue::from(name));
    }
    response
}

/// An id that no other request to this manager has. It needs no random bits: an id is no secret.
fn made() -> String {
    static BEGAN: LazyLock<i64> = LazyLock::new(|| clock::now().0);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{:x}-{:x}", *BEGAN, NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The id that the client sent, if it fits into a header and a log.
fn sent(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(&REQUEST_ID)?.to_str().ok()?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/' | '+' | '=');
    ((1..=REQUEST_ID_MAX).contains(&id.len()) && id.chars().all(legal)).then(|| id.to_owned())
}

/// Compresses bodies for clients that accept it.
pub(super) fn compression() -> CompressionLayer<Whole> {
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(Whole)
}

/// Bodies of a known size. The parts of a stream would be held back until there are enough of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole;

impl Predicate for Whole {
    fn should_compress<B: Body>(&self, response: &axum::http::Response<B>) -> bool {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let size = response.body().size_hint().exact();
        size.is_some_and(|size| size >= COMPRESSED_MIN_BYTES) && !kind.starts_with("image/")
    }
}
