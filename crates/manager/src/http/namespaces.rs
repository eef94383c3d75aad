//! Namespaces over HTTP: their quotas and pools, and refusals of creates because of them.

use super::body::JsonBody;
use super::caller;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use crate::context::records::Records;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Listed, Namespace, ProblemBody, QuotaUse};
use everwatch_core::access::{Token, Verb};
use everwatch_core::capacity::create_admission::Created;
use everwatch_core::capacity::namespace::{NAMESPACES_MAX, NamespaceRow, NamespaceSettings};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{self, LimitKey};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::wording::counted;
use everwatch_store::{NamespaceDeleted, NamespaceWritten};
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::info;

type Shared = State<Arc<Manager>>;

/// The namespace of this name, if there is one that the sender may know.
async fn find(records: &Records, (verb, key): (Verb, &str)) -> Result<NamespaceRow, Problem> {
    let missing = || {
        let key: String = key.chars().take(140).collect();
        Problem::new(Code::NotFound, format!("there is no namespace `{key}`"))
    };
    let Ok(name) = id::Namespace::new(key) else { return Err(missing()) };
    if !caller::may_in(verb, &name) {
        return Err(missing());
    }
    match records.store.namespace(&name).await? {
        Some(row) => Ok(row),
        None if name.is_default() => Ok(without_quotas(records)),
        None => Err(missing()),
    }
}

/// The default namespace, which exists even if nobody has set it.
fn without_quotas(records: &Records) -> NamespaceRow {
    NamespaceRow::new(id::Namespace::default(), NamespaceSettings::default(), records.clock.now())
}

/// With their current use.
async fn shown(records: &Records, rows: Vec<NamespaceRow>) -> Result<Vec<Namespace>, Problem> {
    let names: Vec<id::Namespace> = rows.iter().map(|row| row.name.clone()).collect();
    let observers = records.store.namespace_counts(&names).await?;
    let (mut all, now) = (Vec::with_capacity(rows.len()), records.clock.now());
    for row in rows {
        let running = match LimitKey::of_namespace(&row.name) {
            Some(key) => Some(records.store.limit_counts(&key).await?.0),
            None => None,
        };
        all.push(with_use(row, &observers, (running, now)));
    }
    Ok(all)
}

fn with_use(
    row: NamespaceRow,
    observers: &BTreeMap<id::Namespace, u64>,
    (running, now): (Option<u64>, Timestamp),
) -> Namespace {
    let NamespaceRow { name, settings, creates } = row;
    let left = |per_minute| creates.left(per_minute, now);
    Namespace {
        observers: observers.get(&name).copied().unwrap_or(0),
        running,
        creates_left: settings.quotas.creates_per_minute.map(left),
        name: name.into(),
        quotas: settings.quotas.into(),
        pools: settings.pools.map(|pools| pools.into_iter().map(String::from).collect()),
    }
}

/// List namespaces, in the order of their names.
#[utoipa::path(get, path = "/v1/namespaces", tag = "namespaces", security(("token" = ["namespaces:read"])),
    params(("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Namespace>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Namespace>>, Problem> {
    let part: Part<id::Namespace> = Part::read(&mut params)?;
    params.finish()?;
    let records = &manager.records;
    let mut rows = records.store.namespaces().await?;
    if !rows.iter().any(|row| row.name.is_default()) {
        rows.push(without_quotas(records));
        rows.sort_by(|a, b| a.name.cmp(&b.name));
    }
    rows.retain(|row| caller::may_in(Verb::NamespacesRead, &row.name));
    let total = rows.len() as u64;
    rows.retain(|row| part.after.as_ref().is_none_or(|after| row.name > *after));
    let more = rows.len() > part.limit;
    rows.truncate(part.limit);
    let next_cursor = rows.last().filter(|_| more).and_then(|last| part.cursor(last.name.clone()));
    Ok(Json(Listed { items: shown(records, rows).await?, next_cursor, total }))
}

/// Read a namespace: its quotas, its pools, and what it uses.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}", tag = "namespaces", security(("token" = ["namespaces:read"])),
    params(("namespace" = String, Path, description = "its name")),
    responses((status = 200, body = Namespace), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<Json<Namespace>, Problem> {
    params.finish()?;
    let row = find(&manager.records, (Verb::NamespacesRead, &key)).await?;
    Ok(Json(shown(&manager.records, vec![row]).await?.remove(0)))
}

/// Create a namespace, or change its quotas and pools. Observers that exist stay as they are.
#[utoipa::path(put, path = "/v1/namespaces/{namespace}", tag = "namespaces", security(("token" = ["namespaces:write"])),
    request_body = everwatch_api::NamespaceSettings,
    params(("namespace" = String, Path, description = "its name")),
    responses((status = 200, body = Namespace, description = "changed"), (status = 201, body = Namespace, description = "created"),
    (status = 409, body = ProblemBody, description = "too-many-namespaces"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let name = id::Namespace::new(&key).map_err(|error| {
        Problem::invalid(vec![FieldError { pointer: String::new(), detail: format!("the {error}") }])
    })?;
    let settings = NamespaceSettings::parse(&name, body).map_err(Problem::invalid)?;
    let records = &manager.records;
    let status = match records.store.put_namespace(&name, &settings).await? {
        NamespaceWritten::Created => StatusCode::CREATED,
        NamespaceWritten::Replaced => StatusCode::OK,
        NamespaceWritten::TooMany => {
            let detail = format!("there are {NAMESPACES_MAX} namespaces: delete one that is not needed");
            return Err(Problem::new(Code::TooManyNamespaces, detail));
        }
    };
    // Those that wait may run now.
    records.note_change();
    info!(namespace = %name, "namespace set");
    let row = NamespaceRow::new(name, settings, records.clock.now());
    let row = records.store.namespace(&row.name).await?.unwrap_or(row);
    Ok((status, Json(shown(records, vec![row]).await?.remove(0))).into_response())
}

/// Delete a namespace that has no observers, open batches or valid tokens; of `default`, remove the quotas and pools.
#[utoipa::path(delete, path = "/v1/namespaces/{namespace}", tag = "namespaces", security(("token" = ["namespaces:write"])),
    params(("namespace" = String, Path, description = "its name")),
    responses((status = 204, description = "deleted"), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "namespace-in-use")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let name = find(&manager.records, (Verb::NamespacesWrite, &key)).await?.name;
    check_unused(&manager, &name).await?;
    match manager.records.store.delete_namespace(&name).await? {
        NamespaceDeleted::Done => {
            info!(namespace = %name, "namespace deleted");
            Ok(StatusCode::NO_CONTENT)
        }
        NamespaceDeleted::Missing => {
            let what = if name.is_default() { "has no quotas or pools to delete" } else { "does not exist" };
            Err(Problem::new(Code::NotFound, format!("namespace {name} {what}")))
        }
        NamespaceDeleted::InUse(count) => {
            let detail = format!("namespace {name} still has observers ({count}): delete them first");
            Err(Problem::new(Code::NamespaceInUse, detail))
        }
    }
}

/// Refuses to delete a namespace that tokens or open batches name: they would concern the next namespace of that name.
async fn check_unused(manager: &Manager, name: &id::Namespace) -> Result<(), Problem> {
    if name.is_default() {
        return Ok(());
    }
    let (records, in_use) = (&manager.records, |detail| Err(Problem::new(Code::NamespaceInUse, detail)));
    let now = records.clock.now();
    let tokens = records.store.tokens().await?;
    let of_it = |token: &&Token| token.namespace.as_ref() == Some(name) && token.is_valid(now);
    if let Some(token) = tokens.iter().find(of_it) {
        let count = tokens.iter().filter(of_it).count();
        return in_use(format!(
            "namespace {name} has {count} valid tokens and sessions, such as {}: revoke them first",
            token.principal()
        ));
    }
    let open = records.store.open_batches().await?;
    match open.iter().find(|batch| batch.namespace == *name) {
        Some(batch) => {
            in_use(format!("batch {} of namespace {name} is not over: cancel it first", batch.name))
        }
        None => Ok(()),
    }
}

/// That a namespace does not exist, and the cure.
pub(super) fn missing(name: &id::Namespace) -> String {
    format!(
        "there is no namespace {name}: create it with PUT /v1/namespaces/{name}, or everwatch namespace apply {name}"
    )
}

/// Refuses a change to a pool that the namespace may not use.
pub(super) async fn check_pool(
    records: &Records,
    changed: &ObserverDefinition,
    seen: &ObserverDefinition,
) -> Result<(), Problem> {
    if changed.pool == seen.pool { Ok(()) } else { check_new(records, changed).await }
}

/// Refuses a pool that the namespace may not use.
pub(super) async fn check_new(records: &Records, changed: &ObserverDefinition) -> Result<(), Problem> {
    let row = records.store.namespace(&changed.namespace).await?;
    if row.is_none_or(|row| row.settings.has_pool(&changed.pool)) {
        return Ok(());
    }
    Err(refusal(records, changed, Created::PoolNotAllowed).await?)
}

/// The problem for an observer that its namespace refuses.
pub(super) async fn refusal(
    records: &Records,
    definition: &ObserverDefinition,
    refused: Created,
) -> Result<Problem, Problem> {
    let ObserverDefinition { namespace, pool, .. } = definition;
    let row = records.store.namespace(namespace).await?;
    let (Some(row), false) = (row, refused == Created::NamespaceMissing) else {
        let error =
            FieldError { pointer: "/namespace".to_owned(), detail: format!("{namespace} is unknown") };
        return Ok(Problem::new(Code::NamespaceUnknown, missing(namespace)).with(vec![error]));
    };
    let quotas = row.settings.quotas;
    match refused {
        Created::PoolNotAllowed => {
            let pools = row.settings.pools.unwrap_or_default();
            let pools = pools.iter().map(id::Pool::as_str).collect::<Vec<_>>().join(", ");
            let detail = format!("namespace {namespace} may not use pool {pool}; its pools: {pools}");
            let error = FieldError { pointer: "/pool".to_owned(), detail: format!("{pool} is not allowed") };
            Ok(Problem::new(Code::PoolNotAllowed, detail).with(vec![error]))
        }
        Created::CreatesQuota => Ok(creates_quota(&row, 1, records.clock.now())),
        _ => {
            let counts = records.store.namespace_counts(std::slice::from_ref(namespace)).await?;
            let used = counts.get(namespace).copied().unwrap_or(0);
            Ok(observers_quota(namespace, quotas.observers.unwrap_or(0), (used, 1)))
        }
    }
}

fn observers_quota(namespace: &id::Namespace, max: u32, (used, wanted): (u64, u64)) -> Problem {
    let more = if wanted == 1 { "one more".to_owned() } else { format!("{wanted} more") };
    let detail = format!(
        "namespace {namespace} uses {used} of {} and cannot have {more}: delete observers, or raise \
         quotas.observers",
        counted(max, "observer")
    );
    let quota = QuotaUse { namespace: namespace.to_string(), quota: "observers".to_owned(), max, used };
    Problem::new(Code::QuotaReached, detail).of_quota(quota)
}

fn creates_quota(row: &NamespaceRow, wanted: u64, now: Timestamp) -> Problem {
    let (name, max) = (&row.name, row.settings.quotas.creates_per_minute.unwrap_or(0));
    let left = row.creates.left(max, now);
    let detail = if wanted > u64::from(max) {
        format!(
            "the request creates {}, and namespace {name} may create {max} a minute: split it, or raise \
             quotas.creates_per_minute",
            counted(wanted, "observer")
        )
    } else {
        format!(
            "namespace {name} may create {} a minute and has {} left: try again later, or raise \
             quotas.creates_per_minute",
            counted(max, "observer"),
            counted(left, "create")
        )
    };
    let used = u64::from(max).saturating_sub(left);
    let quota = QuotaUse { namespace: name.to_string(), quota: "creates_per_minute".to_owned(), max, used };
    Problem::new(Code::CreateQuotaReached, detail).of_quota(quota)
}

/// Refuses a request for many observers before any is stored. The transactions that store them decide.
pub(super) async fn check_many(
    records: &Records,
    namespace: &id::Namespace,
    wanted: u64,
) -> Result<Option<NamespaceRow>, Problem> {
    let Some(row) = records.store.namespace(namespace).await? else {
        if namespace.is_default() {
            return Ok(None);
        }
        let error =
            FieldError { pointer: "/namespace".to_owned(), detail: format!("{namespace} is unknown") };
        return Err(Problem::new(Code::NamespaceUnknown, missing(namespace)).with(vec![error]));
    };
    if let Some(max) = row.settings.quotas.observers {
        let counts = records.store.namespace_counts(std::slice::from_ref(namespace)).await?;
        let used = counts.get(namespace).copied().unwrap_or(0);
        if used.saturating_add(wanted) > u64::from(max) {
            return Err(observers_quota(namespace, max, (used, wanted)));
        }
    }
    let now = records.clock.now();
    if row.settings.quotas.creates_per_minute.is_some_and(|max| row.creates.left(max, now) < wanted) {
        return Err(creates_quota(&row, wanted, now));
    }
    Ok(Some(row))
}
