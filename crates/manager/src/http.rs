//! The HTTP API: requests in, rows and problems out. Knows no SQL and no AMQP.

pub mod api;
mod body;
mod observers;
mod ops;
mod page;
mod problem;
mod query;
mod scrape;
mod services;

use crate::shared::Manager;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use problem::{Code, Problem};
use std::any::Any;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The largest body.
pub(crate) const BODY_MAX: usize = 1024 * 1024;

/// Every route of a manager; `extra` is merged in (the console).
pub(crate) fn app(manager: Arc<Manager>, extra: Router) -> Router {
    scrape::install(&manager);
    let (api, mut document) = OpenApiRouter::new()
        .routes(routes!(observers::create, observers::list))
        .routes(routes!(observers::read, observers::delete))
        .routes(routes!(observers::retry))
        .routes(routes!(services::list))
        .routes(routes!(services::read))
        .routes(routes!(services::pools))
        .routes(routes!(ops::parked))
        .routes(routes!(ops::stats))
        .routes(routes!(ops::version))
        .routes(routes!(ops::livez))
        .routes(routes!(ops::readyz))
        .routes(routes!(scrape::metrics))
        .split_for_parts();
    "Everwatch".clone_into(&mut document.info.title);
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    let document = Arc::new(document);
    api.route("/openapi.json", get(move || async move { axum::Json(document.as_ref().clone()) }))
        .with_state(manager)
        .merge(extra)
        .layer(CatchPanicLayer::custom(on_panic))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(axum::middleware::from_fn(problem::render))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that the layer asks for")]
fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    error!(what, "a request handler panicked");
    Problem::new(Code::Internal, "a bug in the manager; its log says more").into_response()
}
