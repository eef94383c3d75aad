//! Totals, safe mode, and the health checks of orchestrators.

use super::body::{JsonBody, parsed};
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::fleet::{safe_mode, shown_services};
use axum::Json;
use axum::extract::State;
use everwatch_api::{Health, ProblemBody, SafeMode, Stats, Version};
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::health;
use everwatch_core::record::status::Status;
use everwatch_core::record::taking::slots_by_pool;
use std::sync::Arc;

const REASON_MAX: usize = 1000;

type Shared = State<Arc<Manager>>;

/// Count observers by status, and services and their slots.
#[utoipa::path(get, path = "/v1/stats", tag = "operations", security(("token" = ["status:read"])), responses((status = 200, body = Stats)))]
pub(crate) async fn stats(State(manager): Shared, params: Params) -> Result<Json<Stats>, Problem> {
    params.finish()?;
    let mut stats = Stats { broker: manager.link.session.get().is_some(), ..Stats::default() };
    stats.observers.extend(Status::ALL.map(|status| (status.to_string(), 0)));
    for ((_, status), count) in manager.records.store.counts().await? {
        *stats.observers.entry(status.to_string()).or_default() += count.number;
    }
    stats.health.extend(health::Health::ALL.map(|health| (health.to_string(), 0)));
    for ((_, health), count) in manager.records.store.health_counts().await? {
        *stats.health.entry(health.to_string()).or_default() += count;
    }
    stats.behind_limits = manager.records.store.behind_limits().await?.values().map(|it| it.number).sum();
    // As the pools are counted: both are shown on one page.
    let services = shown_services::living(&manager).await?;
    for service in &services {
        *stats.services.entry(service.state().as_str().to_owned()).or_default() += 1;
        stats.held = stats.held.saturating_add(service.held());
    }
    for slots in slots_by_pool(&services).into_values() {
        stats.capacity = stats.capacity.saturating_add(slots.capacity);
    }
    Ok(Json(stats))
}

/// Read the name and the version of the program.
#[utoipa::path(get, path = "/v1/version", tag = "operations", security(("token" = [])), responses((status = 200, body = Version)))]
pub(crate) async fn version(State(manager): Shared, params: Params) -> Result<Json<Version>, Problem> {
    params.finish()?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(Version { version, manager: manager.link.id.0, dev: manager.settings.dev }))
}

/// Whether the process serves requests.
#[utoipa::path(get, path = "/livez", tag = "operations", security(()), responses((status = 200, body = Health)))]
pub(crate) async fn livez() -> Json<Health> {
    Json(Health { ok: true })
}

/// Whether the database answers, the broker is connected and the state queues are read up to now.
///
/// With `for=api`, only the database counts. During an outage of the broker, the API serves the stored state and refuses
/// requests that need the broker; a load balancer with the strict check would remove every manager.
#[utoipa::path(get, path = "/readyz", tag = "operations", security(()),
    params(("for" = Option<String>, Query, description = "api: whether this manager can read the database, with or without the broker")),
    responses((status = 200, body = Health), (status = 400, body = ProblemBody, description = "bad-query"),
    (status = 503, body = ProblemBody, description = "not-ready")))]
pub(crate) async fn readyz(State(manager): Shared, mut params: Params) -> Result<Json<Health>, Problem> {
    let blockers = match params.one("for")?.as_deref() {
        None => manager.readiness_blockers(),
        Some("api") => manager.api_blockers(),
        Some(other) => return Err(bad("for", format!("`{other}` is not known; write api, or leave it out"))),
    };
    params.finish()?;
    if blockers.is_empty() {
        return Ok(Json(Health { ok: true }));
    }
    Err(Problem::new(Code::NotReady, blockers.join("; ")))
}

/// Read whether safe mode is on.
#[utoipa::path(get, path = "/v1/safe-mode", tag = "operations", security(("token" = ["safe-mode:read"])), responses((status = 200, body = SafeMode)))]
pub(crate) async fn read_safe_mode(
    State(manager): Shared,
    params: Params,
) -> Result<Json<SafeMode>, Problem> {
    params.finish()?;
    Ok(Json(safe_mode::read(&manager.records).await?))
}

/// Switch safe mode. While it is on, managers declare no service lost, republish no observer whose message is missing, and quarantine none.
#[utoipa::path(put, path = "/v1/safe-mode", tag = "operations", security(("token" = ["safe-mode:write"])), request_body = SafeMode,
    responses((status = 200, body = SafeMode)))]
pub(crate) async fn write_safe_mode(
    State(manager): Shared,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Json<SafeMode>, Problem> {
    params.finish()?;
    let definition: SafeMode = parsed(body)?;
    if definition.reason.len() > REASON_MAX {
        let detail = format!("at most {REASON_MAX} bytes");
        return Err(Problem::invalid(vec![FieldError { pointer: "/reason".to_owned(), detail }]));
    }
    safe_mode::write(&manager.records, &definition).await?;
    Ok(Json(definition))
}
