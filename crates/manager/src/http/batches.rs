//! Batches over HTTP: create, read, and steer them. `loops::observer_batches` takes their steps.

mod checking;
mod creating;

use super::body;
use super::caller;
use super::draft::namespace_of;
use super::idempotency::{self, Identities};
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::context::records::Records;
use crate::events::actor;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Batch, BatchMember, Listed, NewBatch, ProblemBody};
use everwatch_core::access::Verb;
use everwatch_core::batch::{
    BatchAction, BatchState, Counts, ENDED_KEPT, NotNow, OPEN_MAX, {self as core},
};
use everwatch_core::id::{BatchId, BatchRef, Namespace, ObserverId};
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_store::BatchPart;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;

/// The largest body of a batch, in bytes.
pub(super) const BODY_MAX: usize = super::bulk::BODY_MAX;
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = ENDED_KEPT + OPEN_MAX;

/// Create a batch: up to 10,000 observers that are completed together, of which at most `max_running` run at once.
///
/// The response comes when all members exist. A member that is not valid refuses the whole batch. Send an `Idempotency-Key`:
/// if the request is cut off, the same request with the same key creates the members that are missing.
#[utoipa::path(post, path = "/v1/batches", tag = "batches", security(("token" = ["batches:write"])), request_body = NewBatch,
    params(("namespace" = Option<String>, Query, description = "the namespace, unless the body names it"),
    ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key continues the batch that the first one created")),
    responses((status = 201, body = Batch), (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 409, body = ProblemBody, description = "name-exists, too-many-batches, batch-not-over, batch-over, quota-reached"),
    (status = 422, body = ProblemBody, description = "invalid, idempotency-key-reused, namespace-unknown"),
    (status = 429, body = ProblemBody, description = "create-quota-reached")))]
pub(crate) async fn create(
    State(manager): Shared,
    mut params: Params,
    request: Request,
) -> Result<Response, Problem> {
    let given = params.given_namespace()?;
    params.finish()?;
    let headers = request.headers().clone();
    let body = body::read(request, &manager.requests.limits.bodies, BODY_MAX).await?;
    let namespace = namespace_of(given, &body)?;
    caller::check_namespace(&namespace)?;
    let draft = checking::checked(namespace.clone(), body::parsed(body.clone())?).await?;
    if !idempotency::is_used(&manager.records, &headers).await? {
        checking::check_members(&manager, BatchId(Uuid::nil()), &draft).await?;
    }
    let identities = Identities::reserve(&manager.records, &headers, (&namespace, &body)).await?;
    drop(body);
    let batch = creating::create(&manager, &identities, draft).await?;
    let place = [(header::LOCATION, format!("/v1/batches/{}", batch.id))];
    let shown = shown(&manager.records, batch).await?;
    Ok((StatusCode::CREATED, place, Json(shown)).into_response())
}

async fn find(records: &Records, (namespace, key): (&Namespace, &str)) -> Result<core::Batch, Problem> {
    let missing = || {
        let key: String = key.chars().take(140).collect();
        Problem::new(Code::NotFound, format!("there is no batch `{key}`"))
    };
    let Ok(which) = BatchRef::parse(key, namespace) else { return Err(missing()) };
    let batch = records.store.batch(&which).await?.ok_or_else(missing)?;
    let may_see = caller::may_in(Verb::BatchesRead, &batch.namespace);
    caller::check_namespace(&batch.namespace).map_err(|refused| if may_see { refused } else { missing() })?;
    Ok(batch)
}

async fn counts(records: &Records, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Counts>, Problem> {
    Ok(if ids.is_empty() { BTreeMap::new() } else { records.store.batch_counts(ids).await? })
}

/// The batch with the current counts of its members.
async fn shown(records: &Records, batch: core::Batch) -> Result<Batch, Problem> {
    let counts = counts(records, &[batch.id]).await?.remove(&batch.id).unwrap_or_default();
    Ok(Batch::of(batch, &counts, records.clock.now()))
}

/// Batches with the counts of their members: the current ones, or those at the end of a batch that is over.
async fn all_shown(records: &Records, all: Vec<core::Batch>) -> Result<Vec<Batch>, Problem> {
    let open: Vec<BatchId> = all.iter().filter(|it| !it.state.is_over()).map(|it| it.id).collect();
    let open = counts(records, &open).await?;
    let now = records.clock.now();
    let shown = |it: core::Batch| {
        let counts = open.get(&it.id).unwrap_or(&it.counts).clone();
        Batch::of(it, &counts, now)
    };
    Ok(all.into_iter().map(shown).collect())
}

/// List batches, the newest first. Managers keep the last 100 that are over.
///
/// A batch that is over shows its members as they were when it ended.
#[utoipa::path(get, path = "/v1/batches", tag = "batches", security(("token" = ["batches:read"])),
    params(("limit" = Option<u32>, Query, description = "the number of batches, 1 to 200 (default 20)"),
    ("namespace" = Option<String>, Query, description = "batches of this namespace")),
    responses((status = 200, body = Listed<Batch>)))]
pub(crate) async fn list(State(manager): Shared, mut params: Params) -> Result<Json<Listed<Batch>>, Problem> {
    let limit = params.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(bad("limit", format!("1 to {LIMIT_MAX}")));
    }
    let wanted = params.given_namespace()?;
    params.finish()?;
    let records = &manager.records;
    let mut all = records.store.batches(LIMIT_MAX).await?;
    all.retain(|it| {
        let is_wanted = wanted.as_ref().is_none_or(|wanted| it.namespace == *wanted);
        is_wanted && caller::may_in(Verb::BatchesRead, &it.namespace)
    });
    let total = all.len() as u64;
    all.truncate(limit);
    Ok(Json(Listed { items: all_shown(records, all).await?, next_cursor: None, total }))
}

/// The batches that are not over and that the sender may read.
pub(super) async fn open(records: &Records) -> Result<Vec<Batch>, Problem> {
    let mut all = records.store.batches(LIMIT_MAX).await?;
    all.retain(|it| !it.state.is_over() && caller::may_in(Verb::BatchesRead, &it.namespace));
    all_shown(records, all).await
}

/// Read a batch: its members by status, its progress, its rate and the time left.
#[utoipa::path(get, path = "/v1/batches/{key}", tag = "batches", security(("token" = ["batches:read"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = Batch), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Batch>, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let batch = find(&manager.records, (&namespace, &key)).await?;
    Ok(Json(shown(&manager.records, batch).await?))
}

/// List the members of a batch with their results and errors, in the order of the request.
#[utoipa::path(get, path = "/v1/batches/{key}/observers", tag = "batches", security(("token" = ["batches:read"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("status" = Option<String>, Query, description = "statuses, comma-separated; by default all, including Deleted"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<BatchMember>),
        (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn observers(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Listed<BatchMember>>, Problem> {
    let statuses = params.many("status");
    let statuses = statuses.iter().flat_map(|text| text.split(','));
    let statuses = statuses.map(|text| text.trim().parse().map_err(|error: String| bad("status", error)));
    let statuses = statuses.collect::<Result<Vec<Status>, _>>()?;
    let part: Part<u32> = Part::read(&mut params)?;
    let namespace = params.namespace()?;
    params.finish()?;
    let records = &manager.records;
    let batch = find(records, (&namespace, &key)).await?;
    let from = part.after.map_or(0, |after| after.saturating_add(1));
    let wanted = BatchPart { batch: batch.id, statuses: &statuses, from, most: part.limit + 1 };
    let mut rows = records.store.batch_members(&wanted).await?;
    let more = rows.len() > part.limit;
    rows.truncate(part.limit);
    let last = rows.last().and_then(|row| row.batch).filter(|_| more);
    let next_cursor = last.and_then(|last| part.cursor(last.place));
    let counts = counts(records, &[batch.id]).await?.remove(&batch.id).unwrap_or_default();
    let counted = counts.iter().filter(|(status, _)| statuses.is_empty() || statuses.contains(status));
    let total = counted.map(|(_, count)| u64::from(*count)).sum();
    Ok(Json(Listed { items: with_results(records, &rows).await?, next_cursor, total }))
}

async fn with_results(records: &Records, rows: &[Row]) -> Result<Vec<BatchMember>, Problem> {
    let completed = rows.iter().filter(|row| row.verdict().status == Status::Completed);
    let ids: Vec<ObserverId> = completed.map(|row| row.id).collect();
    let results = if ids.is_empty() { Vec::new() } else { records.store.results(&ids).await? };
    // A service of another language may have sent text that is not JSON.
    let read = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let mut results: HashMap<ObserverId, Value> =
        results.into_iter().map(|it| (it.id, read(it.value))).collect();
    Ok(rows.iter().map(|row| BatchMember::of(row, results.remove(&row.id))).collect())
}

/// Retry the failed members of a batch: it runs until they have ended, and completes again.
#[utoipa::path(post, path = "/v1/batches/{key}/retry-failed", tag = "batches", security(("token" = ["batches:write"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = Batch, description = "done, or no member has failed"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "batch-incomplete, batch-not-over, batch-over")))]
pub(crate) async fn retry_failed(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Batch>, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let batch = find(&manager.records, (&namespace, &key)).await?;
    let shown = shown(&manager.records, batch).await?;
    if shown.state == BatchState::Completed && shown.counts[&Status::Failed] == 0 {
        return Ok(Json(shown));
    }
    act(&manager.records, (&namespace, &key), BatchAction::RetryFailed).await.map(Json)
}

/// Cancel a batch: managers delete the members that have not ended.
#[utoipa::path(post, path = "/v1/batches/{key}/cancel", tag = "batches", security(("token" = ["batches:write"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = Batch, description = "done, or nothing to do"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "batch-over")))]
pub(crate) async fn cancel(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Batch>, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    act(&manager.records, (&namespace, &key), BatchAction::Cancel).await.map(Json)
}

/// Delete a batch that is over, with its members.
#[utoipa::path(delete, path = "/v1/batches/{key}", tag = "batches", security(("token" = ["batches:write"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 202, body = Batch, description = "Deleting"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "batch-incomplete, batch-not-over: cancel it first")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<(StatusCode, Json<Batch>), Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    Ok((StatusCode::ACCEPTED, Json(act(&manager.records, (&namespace, &key), BatchAction::Delete).await?)))
}

async fn act(
    records: &Records,
    (namespace, key): (&Namespace, &str),
    action: BatchAction,
) -> Result<Batch, Problem> {
    let by = actor::name();
    for _ in 0..crate::commit::CAS_TRIES {
        let before = find(records, (namespace, key)).await?;
        let mut batch = before.clone();
        match batch.act(action, by.as_deref(), records.clock.now()) {
            Err(NotNow(state)) => return Err(not_now(&before, state)),
            Ok(false) => return shown(records, before).await,
            Ok(true) => {}
        }
        if let Some(saved) = crate::commit::save_batch(records, &before, batch).await? {
            return shown(records, saved).await;
        }
    }
    Err(Problem::new(Code::Contended, format!("batch `{key}` keeps changing: read it again and retry")))
}

fn not_now(batch: &core::Batch, state: BatchState) -> Problem {
    let name = &batch.name;
    let (code, cure) = match state {
        BatchState::Creating | BatchState::Incomplete => {
            (Code::BatchIncomplete, "send its request again with the same Idempotency-Key, or cancel it")
        }
        BatchState::Running => (Code::BatchNotOver, "wait for its end, or cancel it"),
        BatchState::Cancelling => (Code::BatchNotOver, "wait until its members have ended"),
        BatchState::Completed => (Code::BatchOver, "delete it, or retry its failed members"),
        BatchState::Cancelled => (Code::BatchOver, "delete it, and create another batch"),
        BatchState::Deleting => (Code::BatchOver, "create another batch"),
    };
    Problem::new(code, format!("batch {name} is {state}: {cure}"))
}
