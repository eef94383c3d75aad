//! `/docs`: the API's document as a page to browse and try, out of the program itself.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use utoipa_swagger_ui::{Config, SwaggerUi};

/// Nothing from elsewhere. The page puts styles and small pictures into itself.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) fn routes() -> Router {
    let config = Config::new(["/openapi.json"])
        .doc_expansion("list")
        .filter(true)
        .display_request_duration(true)
        .try_it_out_enabled(true)
        // By default the page asks a public service to validate the document.
        .validator_url("none");
    Router::from(SwaggerUi::new("/docs").config(config)).layer(axum::middleware::map_response(guard))
}

async fn guard(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}
