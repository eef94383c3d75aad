//! Observers over HTTP: create, list, read, wait, delete.

use super::body::JsonBody;
use super::creating::{create_as, created, made_up_name};
use super::draft::draft;
use super::etag::tag;
use super::idempotency::{self, Once};
use super::lookup::{describe, find, holder, not_found, one};
use super::pagination::Part;
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::commit::change_row;
use crate::context::Manager;
use crate::events::actor;
use crate::outgoing::commands;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Listed, NewObserver, Observer, ProblemBody};
use everwatch_core::id::{Kind, ObserverId, Pool};
use everwatch_core::record::health::Health;
use everwatch_core::record::pool_obstacle::Obstacles;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_door::quota::Permit;
use everwatch_store::{Filter, ListCursor, Reasons, Sort};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::info;

/// Other managers change rows too: a wait looks again this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const WAIT_DEFAULT: Duration = Duration::from_secs(10);

type Shared = State<Arc<Manager>>;

/// Create an observer.
#[utoipa::path(post, path = "/v1/observers", tag = "observers", request_body = NewObserver,
    params(("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key returns the observer that the first one created")),
    responses((status = 201, body = Observer), (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 409, body = ProblemBody, description = "name-exists"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, idempotency-key-reused"),
    (status = 503, body = ProblemBody, description = "no-capacity, name-ending, stopping")))]
pub(crate) async fn create(
    State(manager): Shared,
    params: Params,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let draft = draft(body.clone(), &made_up_name()?)?;
    match idempotency::reserve(&manager, &headers, &body).await? {
        Once::Make { id, again } => create_as(&manager, (id, again), draft).await,
        Once::Made(row) => Ok(created(&row, &one(&manager, &row).await?)),
    }
}

/// Where a page of observers starts.
#[derive(Debug, Serialize, Deserialize)]
struct Start {
    value: String,
    id: ObserverId,
}

/// List observers.
#[utoipa::path(get, path = "/v1/observers", tag = "observers", params(
    ("status" = Option<String>, Query, description = "one or several, comma-separated; default all but Deleted"),
    ("health" = Option<String>, Query, description = "one or several of running, restarting, waiting, moving, stopping, comma-separated"),
    ("reason_code" = Option<String>, Query, description = "one or several, comma-separated"),
    ("kind" = Option<String>, Query), ("pool" = Option<String>, Query),
    ("service" = Option<String>, Query, description = "id or name of the holder"),
    ("label" = Option<String>, Query, description = "key=value; may be repeated, all must match"),
    ("q" = Option<String>, Query, description = "part of the name"),
    ("sort" = Option<String>, Query, description = "name or created_at; descending with - in front"),
    ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Listed<Observer>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Observer>>, Problem> {
    let filter = filter(&manager, &mut params).await?;
    let part: Part<Start> = Part::read(&mut params)?;
    params.finish()?;
    let after = part.after.as_ref().map(|start| ListCursor { value: start.value.clone(), id: start.id });
    let page = manager.store.list(&filter, after.as_ref(), part.limit).await?;
    let next = page
        .rows
        .last()
        .filter(|_| page.more)
        .map(|row| Start { value: sort_value(&filter, row), id: row.id });
    let items = describe(&manager, &page.rows).await?;
    Ok(Json(Listed { items, next_cursor: next.and_then(|next| part.cursor(next)), total: page.total }))
}

pub(super) fn sort_value(filter: &Filter, row: &Row) -> String {
    match filter.sort {
        Sort::Name => row.definition.name.to_string(),
        Sort::CreatedAt => row.created_at.0.to_string(),
    }
}

/// One or several comma-separated words.
fn words<T: FromStr<Err = String>>(params: &mut Params, name: &'static str) -> Result<Vec<T>, Problem> {
    let all = params.many(name);
    let words = all.iter().flat_map(|text| text.split(','));
    words.map(|word| word.trim().parse().map_err(|error| bad(name, error))).collect()
}

pub(super) async fn filter(manager: &Manager, params: &mut Params) -> Result<Filter, Problem> {
    let service = holder(manager, params).await?;
    let codes = words::<ReasonCode>(params, "reason_code")?;
    let reasons = if codes.is_empty() {
        None
    } else {
        let obstacles = Obstacles::of(&manager.services(Duration::ZERO).await?);
        Some(Reasons { codes, obstacles })
    };
    let status = words::<Status>(params, "status")?;
    let health = words::<Health>(params, "health")?;
    let mut labels = BTreeMap::new();
    for text in params.many("label") {
        let (key, value) = text.split_once('=').ok_or_else(|| bad("label", "write it as key=value"))?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    let sort = params.one("sort")?.unwrap_or_else(|| "name".to_owned());
    let (descending, field) = sort.strip_prefix('-').map_or((false, sort.as_str()), |field| (true, field));
    let sort = match field {
        "name" => Sort::Name,
        "created_at" => Sort::CreatedAt,
        _ => return Err(bad("sort", "name or created_at, with - in front for descending")),
    };
    Ok(Filter {
        status,
        health,
        reasons,
        kind: params.parsed::<Kind>("kind")?,
        pool: params.parsed::<Pool>("pool")?,
        service,
        labels,
        q: params.one("q")?,
        sort,
        descending,
    })
}

/// Read an observer, or wait until it has a status.
#[utoipa::path(get, path = "/v1/observers/{key}", tag = "observers", params(
    ("key" = String, Path, description = "id or name"),
    ("wait_for" = Option<String>, Query, description = "status=X: respond when the observer has this status"),
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
    let status = params.one("wait_for")?.map(|text| target_status(&text)).transpose()?;
    let wait = params.wait()?;
    params.finish()?;
    let row = find(&manager, &key).await?;
    let row = match status {
        None => row,
        Some(status) => {
            let _permit = permit_to_wait(&manager)?;
            let is_over = |row: &Row| row.verdict().status == status || !row.may_become(status);
            await_row(&manager, row, wait.unwrap_or(WAIT_DEFAULT), is_over).await?
        }
    };
    if status.is_none() && precondition.is_known(&row) {
        return Ok((StatusCode::NOT_MODIFIED, tag(&row)).into_response());
    }
    Ok((tag(&row), Json(one(&manager, &row).await?)).into_response())
}

fn target_status(text: &str) -> Result<Status, Problem> {
    let status = text.strip_prefix("status=").ok_or_else(|| bad("wait_for", "write it as status=X"))?;
    status.parse().map_err(|error| bad("wait_for", error))
}

/// A permit to wait, taken before anything is changed.
fn permit_to_wait(manager: &Manager) -> Result<Permit, Problem> {
    let full = |full| Problem::too_many(Code::TooManyWaits, full, "wait");
    manager.limits.waits.acquire(actor::client()).map_err(full)
}

/// Waits until the row is as wanted, the time is over or the manager stops; returns the row at that time.
async fn await_row(
    manager: &Manager,
    mut row: Row,
    wait: Duration,
    is_over: impl Fn(&Row) -> bool,
) -> Result<Row, Problem> {
    let deadline = Instant::now() + wait;
    let mut changes = manager.changes();
    while !is_over(&row) && Instant::now() < deadline {
        changes.mark_unchanged();
        let look_again = deadline.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(row),
            () = tokio::time::sleep_until(look_again) => {}
            changed = changes.changed() => if changed.is_err() { return Ok(row) },
        }
        row = match manager.store.load(&[row.id]).await?.one()? {
            Some(now) => now,
            None => return Err(not_found(&row.id.to_string())),
        };
    }
    Ok(row)
}

/// Delete an observer: repeatable, in every status.
#[utoipa::path(delete, path = "/v1/observers/{key}", tag = "observers", params(
    ("key" = String, Path, description = "id or name"),
    ("wait" = Option<String>, Query, description = "wait for the end, up to 60s"),
    ("only_if" = Option<String>, Query, description = "Processing; 409 if the status differs"),
    ("if-match" = Option<String>, Header, description = "the ETag that the observer must have, or *")),
    responses((status = 200, body = Observer, description = "Deleted"),
    (status = 202, body = Observer, description = "OnDeleting"),
    (status = 400, body = ProblemBody, description = "bad-header"), (status = 412, body = ProblemBody, description = "observer-changed"), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-not-active: only with only_if"),
    (status = 429, body = ProblemBody, description = "too-many-waits: only with wait")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
) -> Result<Response, Problem> {
    let wait = params.wait()?.unwrap_or_default();
    let only_if = params.parsed::<Status>("only_if")?;
    if only_if.is_some_and(|status| status != Status::Processing) {
        return Err(bad("only_if", "only Processing"));
    }
    params.finish()?;
    let id = find(&manager, &key).await?.id;
    let _permit = if wait.is_zero() { None } else { Some(permit_to_wait(&manager)?) };
    let row = request_delete(&manager, id, &key, (only_if, &precondition)).await?;
    let row = await_row(&manager, row, wait, |row| row.verdict().status == Status::Deleted).await?;
    let status = if row.verdict().status == Status::Deleted { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, tag(&row), Json(one(&manager, &row).await?)).into_response())
}

/// Marks an observer for deletion; with `only_if` only if it has that status, and only if the precondition holds.
pub(super) async fn request_delete(
    manager: &Arc<Manager>,
    id: ObserverId,
    key: &str,
    (only_if, precondition): (Option<Status>, &Precondition),
) -> Result<Row, Problem> {
    let now = manager.clock.now();
    let (mut refused, mut unmet, mut fresh) = (None, None, false);
    let change = |row: &mut Row| {
        let status = row.verdict().status;
        unmet = precondition.check(row).err();
        if unmet.is_some() {
            return false;
        }
        refused = only_if.filter(|definition| *definition != status).map(|_| status);
        fresh = refused.is_none() && row.delete(now, &manager.settings.row);
        fresh
    };
    let row = change_row(manager, id, change).await?.row().ok_or_else(|| not_found(key))?;
    if let Some(problem) = unmet {
        return Err(problem);
    }
    if let Some(status) = refused {
        let detail = format!("observer {} is {status}, not Processing", row.definition.name);
        return Err(Problem::new(Code::NotActive, detail));
    }
    if fresh {
        info!(observer = %id, name = %row.definition.name, "observer is to be deleted");
        commands::revocations_later(manager, vec![row.revocation()]);
    }
    Ok(row)
}
