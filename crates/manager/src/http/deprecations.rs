//! Deprecated routes: the OpenAPI document marks them, and their responses name the replacement in a header.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;

/// The header that tells the sender of a request that the route is deprecated.
const DEPRECATED: HeaderName = HeaderName::from_static("everwatch-deprecated");

/// A route that a later version removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deprecation {
    pub(super) method: &'static str,
    /// The path as in the OpenAPI document, such as `/v1/observers/{key}`.
    pub(super) path: &'static str,
    /// The version that removes it: at least one minor version after the one that deprecates it.
    pub(super) removed_in: &'static str,
    /// The replacement.
    pub(super) instead: &'static str,
}

/// The deprecated routes of this version.
pub(super) const ALL: &[Deprecation] = &[];

impl Deprecation {
    pub(super) fn is_of(&self, method: &str, path: &str) -> bool {
        self.method.eq_ignore_ascii_case(method) && self.path == path
    }

    /// The value of the header.
    pub(super) fn text(&self) -> String {
        let Self { method, path, removed_in, instead } = self;
        format!("{method} {path} is removed in {removed_in}: use {instead}")
    }
}

/// Adds the header to responses of deprecated routes.
pub(super) async fn tell(
    State(all): State<&'static [Deprecation]>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let text = all.iter().find(|it| it.is_of(method.as_str(), path)).map(Deprecation::text);
    let mut response = next.run(request).await;
    if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(DEPRECATED, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt as _;

    const OLD: &[Deprecation] = &[Deprecation {
        method: "GET",
        path: "/v1/old/{key}",
        removed_in: "0.3.0",
        instead: "/v1/new/{key}",
    }];

    async fn header(method: &str, uri: &str) -> Option<String> {
        let answer = || get(async || "answer").post(async || "answer");
        let routes = Router::new().route("/v1/old/{key}", answer()).route("/v1/new/{key}", answer());
        let router = routes.layer(from_fn_with_state(OLD, tell));
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "a deprecated route works unchanged");
        response.headers().get(DEPRECATED).map(|it| it.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn only_responses_of_deprecated_routes_have_the_header() {
        let told = Some("GET /v1/old/{key} is removed in 0.3.0: use /v1/new/{key}".to_owned());
        assert_eq!(header("GET", "/v1/old/one?x=1").await, told);
        assert_eq!(header("HEAD", "/v1/old/one").await, told);
        assert_eq!(header("POST", "/v1/old/one").await, None, "only this method is deprecated");
        assert_eq!(header("GET", "/v1/new/one").await, None);
    }
}
