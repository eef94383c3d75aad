//! Rates over HTTP.

use super::body::JsonBody;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use everwatch_api::{Listed, ProblemBody, Rate, RateSettings};
use everwatch_core::capacity::rate::{self, RateRow};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::id::RateKey;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::events::EventKind;
use std::sync::Arc;
use tracing::info;

/// The most rates.
const RATES_MAX: u64 = 10_000;

type Shared = State<Arc<Manager>>;

/// Create or change a rate.
///
/// In any window of length w, all services together use at most `burst` + w × `permits` / `per`
/// permits.
#[utoipa::path(put, path = "/v1/rates/{key}", tag = "rates", security(("token" = ["rates:write"])), request_body = RateSettings,
    params(("key" = String, Path, description = "its key")),
    responses((status = 200, body = Rate), (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn set(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Json<Rate>, Problem> {
    params.finish()?;
    let key = RateKey::new(&key).map_err(|error| {
        Problem::invalid(vec![FieldError { pointer: String::new(), detail: format!("the {error}") }])
    })?;
    let rate = rate::Rate::parse(body).map_err(Problem::invalid)?;
    let before = manager.records.store.rate(&key).await?.map(|row| row.rate);
    if before.is_none() && manager.records.store.rates(None, 1).await?.total >= RATES_MAX {
        let detail = format!("there are {RATES_MAX} rates: delete one that is not needed");
        return Err(Problem::new(Code::TooManyRates, detail));
    }
    let row = manager.records.store.set_rate(&key, rate).await?;
    if before != Some(rate) {
        let rate::Rate { permits, per, burst } = rate;
        let told = format!("{key}: {permits} permits per {}, burst {burst}", show(per));
        info!(rate = told, "rate set");
        manager.records.events.tell_all(EventKind::RateSet, told);
    }
    Ok(Json(shown(&row, manager.records.clock.now())))
}

/// List rates.
#[utoipa::path(get, path = "/v1/rates", tag = "rates", security(("token" = ["rates:read"])),
    params(("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Rate>)))]
pub(crate) async fn list(State(manager): Shared, mut params: Params) -> Result<Json<Listed<Rate>>, Problem> {
    let part: Part<RateKey> = Part::read(&mut params)?;
    params.finish()?;
    let mut page = manager.records.store.rates(part.after.as_ref(), part.limit + 1).await?;
    let more = page.rows.len() > part.limit;
    page.rows.truncate(part.limit);
    let next_cursor = page.rows.last().filter(|_| more).and_then(|last| part.cursor(last.key.clone()));
    let now = manager.records.clock.now();
    let items = page.rows.iter().map(|row| shown(row, now)).collect();
    Ok(Json(Listed { items, next_cursor, total: page.total }))
}

/// Read a rate.
#[utoipa::path(get, path = "/v1/rates/{key}", tag = "rates", security(("token" = ["rates:read"])),
    params(("key" = String, Path, description = "its key")),
    responses((status = 200, body = Rate), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<Json<Rate>, Problem> {
    params.finish()?;
    // What cannot be a key cannot be there.
    let found = match RateKey::new(&key) {
        Ok(key) => manager.records.store.rate(&key).await?,
        Err(_) => None,
    };
    let row = found.ok_or_else(|| not_found(&key))?;
    Ok(Json(shown(&row, manager.records.clock.now())))
}

/// Delete a rate: code that acquires permits of it gets an error from then on.
#[utoipa::path(delete, path = "/v1/rates/{key}", tag = "rates", security(("token" = ["rates:write"])),
    params(("key" = String, Path, description = "its key")),
    responses((status = 204), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let existed = match RateKey::new(&key) {
        Ok(key) => manager.records.store.delete_rate(&key).await?,
        Err(_) => false,
    };
    if !existed {
        return Err(not_found(&key));
    }
    info!(rate = key, "rate deleted");
    manager.records.events.tell_all(EventKind::RateDeleted, key);
    Ok(StatusCode::NO_CONTENT)
}

fn not_found(key: &str) -> Problem {
    let key: String = key.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("there is no rate `{key}`"))
}

fn shown(row: &RateRow, now: Timestamp) -> Rate {
    let RateRow { key, rate, bucket } = row;
    Rate {
        key: key.to_string(),
        permits: rate.permits,
        per: show(rate.per),
        burst: rate.burst,
        at_once: rate.bucket(),
        available: bucket.available(rate, now),
        waiting: bucket.waiting(now),
    }
}
