//! The HTTP API: requests in, rows and problems out. Knows no SQL and no AMQP.

mod access;
mod actions;
mod batches;
mod body;
mod bulk;
mod caller;
mod console;
mod creating;
mod deleting;
mod deprecations;
mod doctor;
mod document;
mod draft;
mod etag;
mod events;
mod examples;
mod filter;
mod headers;
mod idempotency;
mod kinds;
mod limits;
mod logs;
mod lookup;
mod maintenance;
pub(crate) mod metrics;
mod moving;
mod namespaces;
mod observer_counts;
mod observers;
mod operations;
mod ops;
mod pagination;
mod parked;
mod pool_creation;
mod pool_deletion;
mod pool_queue;
mod pools;
mod precondition;
mod problem;
mod query;
mod rates;
mod rebalance;
mod results;
mod roles;
mod rollouts;
mod schedule;
mod service_lookup;
mod services;
mod sessions;
mod single_sign_on;
mod swagger;
mod timeline;
mod tokens;
mod update;
mod versions;
mod waiting;

use crate::context::Manager;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use everwatch_core::access::Verb;
use everwatch_door::hosts::{Hosts, Refusal};
use everwatch_door::rate::Rate;
use problem::{Code, Problem};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The largest body, but for batches.
pub(crate) const BODY_MAX: usize = 1024 * 1024;

/// Every route of a manager and its console; `extra` is merged in.
pub(crate) fn app(manager: Arc<Manager>, extra: Router) -> Router {
    let settings = &manager.settings;
    let door =
        Arc::new(Door { hosts: settings.hosts.clone(), rate: settings.requests_per_second.map(Rate::new) });
    let routes = Arc::clone(&API.routes);
    let extras = Arc::new(access::Routes::of_others(vec![Verb::ServicesOperate]));
    API.router
        .clone()
        .with_state(manager.clone())
        .layer(axum::middleware::from_fn_with_state(manager.clone(), know_the_time))
        .layer(axum::middleware::from_fn_with_state((manager.clone(), routes), access::admit))
        .layer(axum::middleware::from_fn_with_state(deprecations::ALL, deprecations::tell))
        .merge(crate::http::console::routes())
        .merge(swagger::routes())
        .merge(extra.layer(axum::middleware::from_fn_with_state((manager, extras), access::admit)))
        .layer(axum::middleware::from_fn(crate::events::actor::remember))
        .layer(CatchPanicLayer::custom(on_panic))
        // Only `body` reads bodies, with limits of its own.
        .layer(axum::middleware::from_fn_with_state(door, admit))
        .layer(axum::middleware::from_fn(problem::render))
        .layer(axum::middleware::from_fn(crate::outgoing::spans::follow))
        .layer(headers::compression())
        .layer(axum::middleware::from_fn(headers::complete))
}

/// The answers of a manager that has no database yet.
pub(crate) fn starting() -> Router {
    let why = "the manager is starting: it waits for the database, or migrates its schema";
    Router::new()
        .route("/livez", axum::routing::get(ops::livez))
        .route("/readyz", axum::routing::get(async move || Problem::new(Code::NotReady, why)))
        .fallback(async move || Problem::new(Code::DatabaseUnavailable, why))
        .layer(axum::middleware::from_fn(problem::render))
        .layer(axum::middleware::from_fn(headers::complete))
}

/// The routes of the API, with their document and what they need.
struct Api {
    router: Router<Arc<Manager>>,
    routes: Arc<access::Routes>,
}

/// Made once in a process.
static API: LazyLock<Api> = LazyLock::new(|| {
    let (api, mut document) = OpenApiRouter::new()
        .routes(routes!(observers::create, observers::list, bulk::delete))
        .routes(routes!(observer_counts::count))
        .routes(routes!(bulk::pause))
        .routes(routes!(bulk::resume))
        .routes(routes!(bulk::restart))
        .routes(routes!(bulk::retry))
        .routes(routes!(bulk::batch))
        .routes(routes!(observers::read, deleting::delete, update::patch, update::put))
        .routes(routes!(actions::pause))
        .routes(routes!(actions::resume))
        .routes(routes!(actions::restart))
        .routes(routes!(actions::retry))
        .routes(routes!(actions::trigger))
        .routes(routes!(moving::relocate))
        .routes(routes!(schedule::read))
        .routes(routes!(versions::list))
        .routes(routes!(versions::revert))
        .routes(routes!(services::list))
        .routes(routes!(batches::list, batches::create))
        .routes(routes!(batches::read, batches::delete))
        .routes(routes!(batches::observers))
        .routes(routes!(batches::retry_failed))
        .routes(routes!(batches::cancel))
        .routes(routes!(rollouts::list, rollouts::start))
        .routes(routes!(rollouts::read))
        .routes(routes!(rollouts::members))
        .routes(routes!(rollouts::pause))
        .routes(routes!(rollouts::resume))
        .routes(routes!(rollouts::revert))
        .routes(routes!(rollouts::cancel))
        .routes(routes!(services::read, maintenance::resize))
        .routes(routes!(maintenance::cordon))
        .routes(routes!(maintenance::uncordon))
        .routes(routes!(maintenance::drain))
        .routes(routes!(rebalance::plan))
        .routes(routes!(rebalance::apply))
        .routes(routes!(pools::list))
        .routes(routes!(pools::read, pools::put, pools::delete))
        .routes(routes!(limits::list))
        .routes(routes!(limits::read, limits::put, limits::delete))
        .routes(routes!(namespaces::list))
        .routes(routes!(namespaces::read, namespaces::put, namespaces::delete))
        .routes(routes!(rates::list))
        .routes(routes!(rates::read, rates::set, rates::delete))
        .routes(routes!(timeline::read))
        .routes(routes!(events::list))
        .routes(routes!(events::of_observer))
        .routes(routes!(events::runs))
        .routes(routes!(results::read))
        .routes(routes!(logs::read))
        .routes(routes!(kinds::list))
        .routes(routes!(kinds::validate))
        .routes(routes!(parked::list))
        .routes(routes!(parked::discard))
        .routes(routes!(parked::retry))
        .routes(routes!(ops::read_safe_mode, ops::write_safe_mode))
        .routes(routes!(doctor::doctor))
        .routes(routes!(operations::list))
        .routes(routes!(ops::stats))
        .routes(routes!(ops::version))
        .routes(routes!(ops::livez))
        .routes(routes!(ops::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(document::document))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::rotate))
        .routes(routes!(tokens::whoami))
        .routes(routes!(sessions::methods, sessions::log_in, sessions::log_out))
        .routes(routes!(single_sign_on::start))
        .routes(routes!(single_sign_on::callback))
        .routes(routes!(roles::list))
        .routes(routes!(roles::read, roles::put, roles::delete))
        .routes(routes!(roles::audit))
        .split_for_parts();
    document::complete(&mut document);
    let router = api.layer(Extension(document::Written::new(&document)));
    Api { router, routes: Arc::new(access::Routes::of(&document)) }
});

/// Which requests are handled at all.
struct Door {
    hosts: Hosts,
    /// `None`: clients may send as many as they like.
    rate: Option<Rate>,
}

/// Refuses requests for other hosts, requests from pages of other sites, and those of a client that sends too many.
async fn admit(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(addr)| addr.ip());
    // Probes do not count: a client that shares their address must not get the manager restarted.
    let counts = !matches!(request.uri().path(), "/livez" | "/readyz");
    if counts && door.rate.as_ref().is_some_and(|rate| !rate.admits(client, Instant::now())) {
        let detail = "more requests from this address than manager.requests_per_second permits; send fewer, or use \
                      batches and the event stream";
        return Problem::new(Code::TooManyRequests, detail).into_response();
    }
    match door.hosts.admit(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => Problem::new(code_of(&why), why.to_string()).into_response(),
    }
}

/// Nothing is changed before the database has told the time. With the time of this machine, whose clock may be wrong, a
/// publish could stay leased until another manager may repeat it long after.
async fn know_the_time(State(manager): State<Arc<Manager>>, request: Request, next: Next) -> Response {
    if !request.method().is_safe()
        && !manager.records.clock.is_known()
        && let Err(error) = manager.refresh_clock().await
    {
        return Problem::from(error).into_response();
    }
    next.run(request).await
}

fn code_of(why: &Refusal) -> Code {
    match why {
        Refusal::Host(_) => Code::UnknownHost,
        Refusal::Page(_) => Code::ForeignPage,
    }
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
