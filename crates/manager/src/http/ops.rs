//! What operators and orchestrators ask: parked messages, totals, health.

use super::api::{Health, Listed, ParkedMessage, ProblemBody, Stats, Version};
use super::page::{Part, cursor};
use super::problem::{Code, Problem};
use super::query::Params;
use crate::shared::Manager;
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_core::service::ServiceState;
use everwatch_core::status::Status;
use std::sync::Arc;
use std::time::Duration;

const SERVICES_AGE: Duration = Duration::from_secs(1);

type Shared = State<Arc<Manager>>;

/// List messages that nobody could read, newest first.
#[utoipa::path(get, path = "/v1/parked", tag = "operations",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Listed<ParkedMessage>), (status = 400, body = ProblemBody)))]
pub(crate) async fn parked(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<ParkedMessage>>, Problem> {
    let part: Part<i64> = Part::read(&mut params)?;
    params.finish()?;
    let (mut messages, total) = manager.store.parked(part.after, part.limit + 1).await?;
    let more = messages.len() > part.limit;
    messages.truncate(part.limit);
    let next_cursor = messages.last().filter(|_| more).and_then(|last| cursor(&last.id));
    let items = messages.into_iter().map(|it| ParkedMessage {
        id: it.id,
        queue: it.queue,
        reason: it.reason,
        body: STANDARD.encode(&it.body),
        text: String::from_utf8(it.body).ok(),
        at: it.at,
    });
    Ok(Json(Listed { items: items.collect(), next_cursor, total }))
}

/// Totals.
#[utoipa::path(get, path = "/v1/stats", tag = "operations", responses((status = 200, body = Stats)))]
pub(crate) async fn stats(State(manager): Shared, params: Params) -> Result<Json<Stats>, Problem> {
    params.finish()?;
    let mut stats = Stats { broker: manager.session().is_some(), ..Stats::default() };
    stats.observers.extend(Status::ALL.map(|status| (status.to_string(), 0)));
    for ((_, status), count) in manager.store.counts().await? {
        *stats.observers.entry(status.to_string()).or_default() += count;
    }
    for service in manager.services(SERVICES_AGE).await?.iter() {
        *stats.services.entry(service.state().as_str().to_owned()).or_default() += 1;
        stats.held = stats.held.saturating_add(service.held());
        if service.state() == ServiceState::Active {
            stats.capacity = stats.capacity.saturating_add(service.capacity());
        }
    }
    Ok(Json(stats))
}

/// Which program answers.
#[utoipa::path(get, path = "/v1/version", tag = "operations", responses((status = 200, body = Version)))]
pub(crate) async fn version(State(manager): Shared, params: Params) -> Result<Json<Version>, Problem> {
    params.finish()?;
    Ok(Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), manager: manager.id.0 }))
}

/// Whether the process serves requests.
#[utoipa::path(get, path = "/livez", tag = "operations", responses((status = 200, body = Health)))]
pub(crate) async fn livez() -> Json<Health> {
    Json(Health { ok: true })
}

/// Whether the database answers, the broker is connected and the state queue is read up to now.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Health), (status = 503, body = ProblemBody)))]
pub(crate) async fn readyz(State(manager): Shared) -> Result<Json<Health>, Problem> {
    match manager.lacks() {
        lacks if lacks.is_empty() => Ok(Json(Health { ok: true })),
        lacks => Err(Problem::new(Code::NotReady, lacks.join("; "))),
    }
}
