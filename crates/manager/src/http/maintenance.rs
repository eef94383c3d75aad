//! Orders for a service: cordon, uncordon, drain, another capacity. Orders belong to the name of the service and
//! outlive its incarnations.

use super::body::{JsonBody, OptionalJson, parsed};
use super::problem::{Code, Problem};
use super::query::Params;
use super::service_lookup::{ServiceViews, find};
use crate::context::Manager;
use crate::fleet::orders;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{ProblemBody, Service};
use everwatch_core::capacity::blocks::CAPACITY_MAX;
use everwatch_core::capacity::maintenance::{DrainRequest, Orders};
use everwatch_core::clock::{friendly, show};
use everwatch_core::id::ServiceId;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wording::counted;
use everwatch_store::Filter;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use utoipa::ToSchema;

type Shared = State<Arc<Manager>>;

/// The options of a drain. Those that are absent stay as in a drain in progress.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DrainBody {
    /// The most observers to hand over per second; 100 by default.
    #[schema(minimum = 1, maximum = 200_000, example = 100)]
    per_second: Option<u32>,
    /// After this time, the rest is handed over even if no service has room; never by default.
    #[schema(value_type = Option<String>, example = "60s")]
    within: Option<Within>,
    /// Hand over even if no service has room; false by default.
    force: Option<bool>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Within(#[serde(with = "friendly")] Duration);

/// The properties of a service that can be changed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServicePatch {
    /// Slots; null: its own configuration.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 200_000)]
    capacity: Option<Option<u32>>,
}

fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

macro_rules! plain {
    ($name:ident, $path:literal, $what:path, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "services", security(("token" = ["services:operate"])),
            params(("key" = String, Path, description = "id, or name")),
            responses((status = 200, body = Service, description = "nothing to change"),
            (status = 202, body = Service), (status = 404, body = ProblemBody, description = "not-found"),
            (status = 409, body = ProblemBody, description = "service-ended")))]
        pub(crate) async fn $name(
            State(manager): Shared,
            Path(key): Path<String>,
            params: Params,
        ) -> Result<Response, Problem> {
            params.finish()?;
            let now = manager.records.clock.now();
            order(&manager, &key, ($what, String::new()), |orders| orders.$name(now)).await
        }
    };
}

plain!(
    cordon,
    "/v1/services/{key}/cordon",
    EventKind::ServiceCordoned,
    "Cordon a service: it takes no more observers, and keeps those that it has."
);
plain!(
    uncordon,
    "/v1/services/{key}/uncordon",
    EventKind::ServiceUncordoned,
    "Uncordon a service: it takes observers again, and a drain in progress ends."
);

/// Hand over all observers to services with room, and accept no more.
#[utoipa::path(post, path = "/v1/services/{key}/drain", tag = "services", security(("token" = ["services:operate"])), request_body = Option<DrainBody>,
    params(("key" = String, Path, description = "id, or name")),
    responses((status = 202, body = Service), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "service-ended"), (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn drain(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    params.finish()?;
    let body: DrainBody = body.map(parsed).transpose()?.unwrap_or_default();
    body.per_second.map_or(Ok(()), |number| within("/per_second", number))?;
    let asked_at = manager.records.clock.now();
    let row = find(&manager, &key).await?;
    // Not as the newest heartbeat says: what was taken since then is to go too.
    let filter = Filter { service: Some(row.id), ..Filter::default() };
    let of = manager.records.store.list(&filter, None, 1).await?.total;
    let drain = DrainRequest {
        asked_at,
        of: u32::try_from(of).unwrap_or(u32::MAX),
        per_second: body.per_second,
        until: body.within.map(|Within(time)| asked_at.plus(time)),
        force: body.force,
    };
    let mut text = format!("{} to hand over", counted(of, "observer"));
    if let Some(Within(time)) = body.within {
        text.push_str(&format!(", within {}", show(time)));
    }
    if body.force == Some(true) {
        text.push_str(", even if no other service has room");
    }
    order(&manager, &key, (EventKind::ServiceDraining, text), |orders| orders.drain(drain)).await
}

/// Set the capacity of a service.
#[utoipa::path(patch, path = "/v1/services/{key}", tag = "services", security(("token" = ["services:operate"])), request_body = ServicePatch,
    params(("key" = String, Path, description = "id, or name")),
    responses((status = 200, body = Service, description = "nothing to change"), (status = 202, body = Service),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "service-ended"), (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn resize(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let patch: ServicePatch = parsed(body)?;
    let Some(capacity) = patch.capacity else {
        return Err(wrong("", "there is nothing to change in it; known here: capacity".to_owned()));
    };
    if let Some(capacity) = capacity {
        within("/capacity", capacity)?;
    }
    let now = manager.records.clock.now();
    let text = capacity.map_or_else(|| "as its settings say".to_owned(), |slots| format!("{slots} slots"));
    order(&manager, &key, (EventKind::ServiceResized, text), |orders| orders.resize(capacity, now)).await
}

async fn order(
    manager: &Arc<Manager>,
    key: &str,
    (what, text): (EventKind, String),
    change: impl FnMut(&mut Orders) -> bool + Send,
) -> Result<Response, Problem> {
    let row = find(manager, key).await?;
    if key.parse::<ServiceId>().is_ok() {
        check_newest(manager, &row).await?;
    }
    let fresh = orders::change(manager, &row.registration.name, change).await?;
    if fresh {
        info!(service = %row.id, name = %row.registration.name, what = what.as_str(), text, "requested by a user");
        manager.records.events.tell_service(what, &row, text);
    }
    let status = if fresh { StatusCode::ACCEPTED } else { StatusCode::OK };
    let shown = ServiceViews::load(manager).await?.service(&row);
    Ok((status, Json(shown)).into_response())
}

/// Refuses an order for a process that has ended or was replaced: orders are kept by name, so the next process of the name would carry it
/// out.
async fn check_newest(manager: &Manager, row: &ServiceRow) -> Result<(), Problem> {
    let name = &row.registration.name;
    let newest = manager.records.store.service(&name.clone().into()).await?;
    if !row.state().is_over() && newest.is_none_or(|newest| newest.id == row.id) {
        return Ok(());
    }
    let detail = format!(
        "the id belongs to a process of service {name} that has ended or was replaced; repeat the request with the name `{name}`"
    );
    Err(Problem::new(Code::ServiceEnded, detail))
}

pub(super) fn within(pointer: &str, number: u32) -> Result<(), Problem> {
    if (1..=CAPACITY_MAX).contains(&number) {
        return Ok(());
    }
    Err(wrong(pointer, format!("must be 1 to {CAPACITY_MAX}")))
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail }])
}
