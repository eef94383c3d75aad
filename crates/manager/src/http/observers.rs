//! Observers over HTTP: create, list, read.

use super::body::JsonBody;
use super::creating::{check, create_as, create_dry, created, made_up_name};
use super::draft::{checked_draft, namespace_of};
use super::etag::tag;
use super::filter::{ObserverFilter, StatusFilter, filter, sort_value};
use super::idempotency::{self, Once};
use super::lookup::{describe, find, one};
use super::pagination::Part;
use super::precondition::Precondition;
use super::problem::Problem;
use super::query::Params;
use super::waiting::{Awaited, await_row, permit_to_wait};
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Listed, NewObserver, Observer, ProblemBody};
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_store::ListCursor;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const WAIT_DEFAULT: Duration = Duration::from_secs(10);

type Shared = State<Arc<Manager>>;

/// Create an observer.
#[utoipa::path(post, path = "/v1/observers", tag = "observers", security(("token" = ["observers:create"])), request_body = NewObserver,
    params(("namespace" = Option<String>, Query, description = "the namespace, unless the body names it"),
    ("dry_run" = Option<bool>, Query, description = "true: check the request, and create nothing; free slots and quotas are not checked"),
    ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key returns the observer that the first one created")),
    responses((status = 201, body = Observer), (status = 200, body = Observer, description = "with `dry_run`: what would be created"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 409, body = ProblemBody, description = "name-exists, quota-reached"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, idempotency-key-reused, namespace-unknown, pool-not-allowed"),
    (status = 429, body = ProblemBody, description = "create-quota-reached"),
    (status = 503, body = ProblemBody, description = "no-capacity, pool-paused, name-ending, stopping")))]
pub(crate) async fn create(
    State(manager): Shared,
    mut params: Params,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let namespace = namespace_of(params.given_namespace()?, &body)?;
    let dry_run = params.parsed("dry_run")?.unwrap_or(false);
    params.finish()?;
    let draft = checked_draft(&manager, &body, (&namespace, &made_up_name()?)).await?;
    if dry_run {
        return create_dry(&manager, draft).await;
    }
    if headers.contains_key(idempotency::HEADER)
        && let Err(problem) = check(&manager, &draft).await
        && !idempotency::is_used(&manager.records, &headers).await?
    {
        return Err(problem);
    }
    match idempotency::reserve(&manager.records, &headers, (&namespace, &body)).await? {
        Once::Make(identity) => create_as(&manager, identity, draft).await,
        Once::Made(row) => Ok(created(&row, &one(&manager.records, &row).await?)),
    }
}

/// Where a page of observers starts.
#[derive(Debug, Serialize, Deserialize)]
struct Start {
    value: String,
    id: ObserverId,
}

/// List observers.
#[utoipa::path(get, path = "/v1/observers", tag = "observers", security(("token" = ["observers:read"])), params(
    StatusFilter, ObserverFilter,
    ("sort" = Option<String>, Query, description = "name or created_at; descending with - in front"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Observer>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Observer>>, Problem> {
    let filter = filter(&manager.records, &mut params).await?;
    let part: Part<Start> = Part::read(&mut params)?;
    params.finish()?;
    let after = part.after.as_ref().map(|start| ListCursor { value: start.value.clone(), id: start.id });
    let page = manager.records.store.list(&filter, after.as_ref(), part.limit).await?;
    let next = page
        .rows
        .last()
        .filter(|_| page.more)
        .map(|row| Start { value: sort_value(&filter, row), id: row.id });
    let items = describe(&manager.records, &page.rows).await?;
    Ok(Json(Listed { items, next_cursor: next.and_then(|next| part.cursor(next)), total: page.total }))
}

/// Read an observer, or wait until it has a status or has changed.
#[utoipa::path(get, path = "/v1/observers/{key}", tag = "observers", security(("token" = ["observers:read"])), params(
    ("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("wait_for" = Option<String>, Query, description = "status=X: respond when the observer has this status or can no longer reach it; change: when it was modified"),
    ("modified_at" = Option<String>, Query, description = "with wait_for=change, in UTC as the API returns it: respond when modified_at differs from this time, at once if it already does. The response has the current state; earlier ones are skipped. Changes of only the place in line, the health or the reason that other rows cause do not count"),
    ("wait" = Option<String>, Query, description = "the longest wait, up to 60s (default 10s)"),
    ("if-none-match" = Option<String>, Header, description = "an ETag; 304 if the definition still matches it")),
    responses((status = 200, body = Observer),
    (status = 304, description = "the definition matches the ETag in if-none-match"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 429, body = ProblemBody, description = "too-many-waits")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
) -> Result<Response, Problem> {
    let awaited = Awaited::read(&mut params)?;
    let wait = params.wait()?;
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let row = match awaited {
        None => row,
        Some(awaited) => {
            let _permit = permit_to_wait(&manager)?;
            let first = row.clone();
            let is_over = |row: &Row| awaited.is_over(&first, row);
            await_row(&manager, row, wait.unwrap_or(WAIT_DEFAULT), is_over).await?
        }
    };
    if awaited.is_none() && precondition.is_known(&row) {
        return Ok((StatusCode::NOT_MODIFIED, tag(&row)).into_response());
    }
    Ok((tag(&row), Json(one(&manager.records, &row).await?)).into_response())
}
