//! What an operator asks of a service: cordon, uncordon, drain, another capacity. All of it belongs to the
//! service's name and outlives this incarnation.

use super::api::{ProblemBody, Service};
use super::body::{JsonBody, OptionalJson, parsed};
use super::problem::Problem;
use super::query::Params;
use super::services::find;
use crate::fleet;
use crate::shared::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_core::clock::{Timestamp, friendly};
use everwatch_core::fleet::{CAPACITY_MAX, DRAIN_PACE, Drain, OrderBook, Orders, room_by_pool};
use everwatch_core::history::What;
use everwatch_core::id::Pool;
use everwatch_core::observer::FieldError;
use everwatch_core::service::ServiceRow;
use everwatch_store::{Filter, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use utoipa::ToSchema;

type Shared = State<Arc<Manager>>;

/// What services are shown with beside their rows.
pub(super) struct Shown {
    book: OrderBook,
    room: BTreeMap<Pool, u32>,
    now: Timestamp,
}

impl Shown {
    pub(super) async fn load(manager: &Manager) -> Result<Self, StoreError> {
        let book = fleet::book(manager).await?;
        let room = room_by_pool(&manager.services(Duration::ZERO).await?);
        Ok(Self { book, room, now: manager.clock.now() })
    }
    pub(super) fn service(&self, row: &ServiceRow) -> Service {
        let room = self.room.get(&row.birth.pool).copied().unwrap_or(0);
        Service::of(row, self.book.get(row.birth.name.as_str()), room, self.now)
    }
}

/// How to drain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DrainBody {
    /// Observers handed over in a second, at most.
    #[schema(minimum = 1, maximum = 100_000, example = 100)]
    per_second: u32,
    /// After so long the rest is handed over whether or not anybody has room.
    #[schema(value_type = Option<String>, example = "60s")]
    within: Option<Within>,
    /// Hand over whether or not anybody has room.
    force: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Within(#[serde(with = "friendly")] Duration);

impl Default for DrainBody {
    fn default() -> Self {
        Self { per_second: DRAIN_PACE, within: None, force: false }
    }
}

/// What can be changed of a service.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServicePatch {
    /// Slots; null: as its own settings say.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    capacity: Option<Option<u32>>,
}

fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

macro_rules! plain {
    ($name:ident, $path:literal, $what:path, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "services",
            params(("key" = String, Path, description = "id, or name")),
            responses((status = 200, body = Service, description = "it was so already"),
            (status = 202, body = Service), (status = 404, body = ProblemBody, description = "not-found")))]
        pub(crate) async fn $name(
            State(manager): Shared,
            Path(key): Path<String>,
            params: Params,
        ) -> Result<Response, Problem> {
            params.finish()?;
            let now = manager.clock.now();
            order(&manager, &key, ($what, String::new()), |orders| orders.$name(now)).await
        }
    };
}

plain!(cordon, "/v1/services/{key}/cordon", What::ServiceCordoned, "Take nothing new; what runs goes on.");
plain!(
    uncordon,
    "/v1/services/{key}/uncordon",
    What::ServiceUncordoned,
    "Take again; a drain under way ends."
);

/// Give everything to others, as far as they have room, and take nothing new.
#[utoipa::path(post, path = "/v1/services/{key}/drain", tag = "services", request_body = Option<DrainBody>,
    params(("key" = String, Path, description = "id, or name")),
    responses((status = 202, body = Service), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn drain(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    params.finish()?;
    let body: DrainBody = body.map(parsed).transpose()?.unwrap_or_default();
    within("/per_second", body.per_second)?;
    let asked_at = manager.clock.now();
    let row = find(&manager, &key).await?;
    // Not as the newest beat says: what was taken since then is to go too.
    let filter = Filter { service: Some(row.id), ..Filter::default() };
    let of = manager.store.list(&filter, None, 1).await?.total;
    let drain = Drain {
        asked_at,
        of: u32::try_from(of).unwrap_or(u32::MAX),
        per_second: body.per_second,
        until: body.within.map(|Within(time)| asked_at.plus(time)),
        force: body.force,
    };
    let text = format!("{of} observers are to go");
    order(&manager, &key, (What::ServiceDraining, text), |orders| orders.drain(drain)).await
}

/// Set the capacity.
#[utoipa::path(patch, path = "/v1/services/{key}", tag = "services", request_body = ServicePatch,
    params(("key" = String, Path, description = "id, or name")),
    responses((status = 200, body = Service, description = "it was so already"), (status = 202, body = Service),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 422, body = ProblemBody, description = "invalid")))]
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
    let now = manager.clock.now();
    let text = capacity.map_or_else(|| "as its settings say".to_owned(), |slots| format!("{slots} slots"));
    order(&manager, &key, (What::ServiceResized, text), |orders| orders.resize(capacity, now)).await
}

async fn order(
    manager: &Arc<Manager>,
    key: &str,
    (what, text): (What, String),
    change: impl FnMut(&mut Orders) -> bool + Send,
) -> Result<Response, Problem> {
    let row = find(manager, key).await?;
    let fresh = fleet::change(manager, &row.birth.name, change).await?;
    if fresh {
        info!(service = %row.id, name = %row.birth.name, what = what.as_str(), text, "asked for by a person");
        manager.tell_service(what, &row, text);
    }
    let status = if fresh { StatusCode::ACCEPTED } else { StatusCode::OK };
    let shown = Shown::load(manager).await?.service(&row);
    Ok((status, Json(shown)).into_response())
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
