//! Limits by key.

use super::body::{JsonBody, parsed};
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
use everwatch_api::{Limit, LimitSettings, LimitUsers, Listed, NamedThing, ProblemBody};
use everwatch_core::capacity::limits::{self, MAX_MAX};
use everwatch_core::id::{LimitKey, LimitPattern};
use everwatch_core::observer::definition::{FieldError, LIMITS_MAX, ObserverDefinition};
use everwatch_core::record::events::EventKind;
use everwatch_core::wording::counted_subject;
use everwatch_store::{LimitCounts, LimitDeleted, LimitUse, StoreError};
use std::sync::Arc;

/// The users and the waiters that a limit shows, each.
const SHOWN_MAX: usize = 100;
/// The users that the reason of a waiting observer names.
const NAMED_MAX: usize = 3;

type Shared = State<Arc<Manager>>;

/// List limits, in the order of their keys.
#[utoipa::path(get, path = "/v1/limits", tag = "limits", security(("token" = ["limits:read"])),
    params(("limit" = Option<usize>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query, description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Limit>), (status = 400, body = ProblemBody, description = "bad-query")))]
pub(crate) async fn list(State(manager): Shared, mut params: Params) -> Result<Json<Listed<Limit>>, Problem> {
    let part: Part<LimitPattern> = Part::read(&mut params)?;
    params.finish()?;
    let mut page = manager.records.store.limits(part.after.as_ref(), part.limit + 1).await?;
    let more = page.len() > part.limit;
    page.truncate(part.limit);
    let last = page.last().map(|it| it.limit.key.clone()).filter(|_| more);
    let total = manager.records.store.limit_count().await?;
    let next_cursor = last.and_then(|last| part.cursor(last));
    Ok(Json(Listed { items: page.into_iter().map(shown).collect(), next_cursor, total }))
}

fn shown(LimitCounts { limit, used, waiting }: LimitCounts) -> Limit {
    Limit { key: limit.key.into(), max: limit.max, enforce: limit.enforce, used, waiting }
}

/// Read a limit, or the limit that applies to a key, and who uses it.
#[utoipa::path(get, path = "/v1/limits/{key}", tag = "limits", security(("token" = ["limits:read"])),
    params(("key" = String, Path, description = "a key, or the beginning of keys and a *")),
    responses((status = 200, body = LimitUsers), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<Json<LimitUsers>, Problem> {
    params.finish()?;
    let store = &manager.records.store;
    let Ok(pattern) = LimitPattern::new(&key) else { return Err(not_found(&key)) };
    let Ok(of_key) = LimitKey::new(&key) else {
        let counts = store.limit(&pattern).await?.ok_or_else(|| not_found(&key))?;
        let Limit { max, enforce, used, waiting, .. } = shown(counts);
        let (applies, users, waiters) = (key.clone(), Vec::new(), Vec::new());
        return Ok(Json(LimitUsers { key, max, enforce, used, waiting, applies, users, waiters }));
    };
    let found = store.limits_of(std::slice::from_ref(&of_key)).await?.remove(&of_key);
    let Some(limits::Limit { key: applies, max, enforce }) = found else { return Err(not_found(&key)) };
    let (used, waiting) = store.limit_counts(&of_key).await?;
    let named = |found: Vec<LimitUse>| {
        found
            .into_iter()
            .map(|it| NamedThing { id: it.id.0, name: it.name.into(), namespace: None })
            .collect()
    };
    let users = named(store.limit_users(&of_key, false, SHOWN_MAX).await?);
    let waiters = named(store.limit_users(&of_key, true, SHOWN_MAX).await?);
    let applies = applies.into();
    Ok(Json(LimitUsers { key, max, enforce, used, waiting, applies, users, waiters }))
}

/// Create a limit, or change it. A lower maximum ends no observer, unless `enforce` is set.
#[utoipa::path(put, path = "/v1/limits/{key}", tag = "limits", security(("token" = ["limits:write"])), request_body = LimitSettings,
    params(("key" = String, Path, description = "a key, or the beginning of keys and a *")),
    responses((status = 200, body = Limit, description = "changed"), (status = 201, body = Limit, description = "created"),
    (status = 409, body = ProblemBody, description = "too-many-limits"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let LimitSettings { max, enforce } = parsed(body)?;
    let key = LimitPattern::new(&key).map_err(|error| wrong("", error.to_string()))?;
    if key.is_of_batch() {
        return Err(wrong(
            "",
            format!("{key} is the limit of a batch: the max_running of the batch sets it"),
        ));
    }
    if key.is_of_namespace() {
        return Err(wrong(
            "",
            format!("{key} is the limit of a namespace: change quotas.running of that namespace instead"),
        ));
    }
    if !(1..=MAX_MAX).contains(&max) {
        return Err(wrong("/max", format!("is {max}: must be 1 to {MAX_MAX}")));
    }
    let limit = limits::Limit { key: key.clone(), max, enforce };
    let is_new = manager.records.store.put_limit(&limit).await.map_err(|error| match error {
        StoreError::Refused(why) => Problem::new(Code::TooManyLimits, why),
        error => error.into(),
    })?;
    manager.records.note_change();
    manager.records.events.tell_all(EventKind::LimitSet, format!("{key}: {}", told(&limit)));
    let counts = manager.records.store.limit(&key).await?.ok_or_else(|| not_found(key.as_str()))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(shown(counts))).into_response())
}

fn told(limit: &limits::Limit) -> String {
    let enforced = if limit.enforce { ", enforced" } else { "" };
    format!("at most {}{enforced}", limit.max)
}

/// Delete a limit that no observer names.
#[utoipa::path(delete, path = "/v1/limits/{key}", tag = "limits", security(("token" = ["limits:write"])),
    params(("key" = String, Path, description = "a key, or the beginning of keys and a *")),
    responses((status = 204, description = "deleted"), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "limit-in-use")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let Ok(pattern) = LimitPattern::new(&key) else { return Err(not_found(&key)) };
    if pattern.is_of_batch() {
        let detail = format!("{key} is the limit of a batch: it is deleted with the batch");
        return Err(Problem::new(Code::LimitInUse, detail));
    }
    if pattern.is_of_namespace() {
        let detail = format!("{key} is the limit of a namespace: it is deleted with the namespace");
        return Err(Problem::new(Code::LimitInUse, detail));
    }
    match manager.records.store.delete_limit(&pattern).await? {
        LimitDeleted::Missing => Err(missing(&key)),
        LimitDeleted::InUse(count) => {
            let detail = format!(
                "{} a key that only limit {key} covers: remove the key from their limits, or delete them",
                counted_subject(count, "observer", ["names", "name"])
            );
            Err(Problem::new(Code::LimitInUse, detail))
        }
        LimitDeleted::Done => {
            manager.records.note_change();
            manager.records.events.tell_all(EventKind::LimitDeleted, key);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail }])
}

fn missing(key: &str) -> Problem {
    let key: String = key.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("there is no limit `{key}`: name it as it was set"))
}

fn not_found(key: &str) -> Problem {
    let key: String = key.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("there is no limit `{key}`, and no limit applies to it"))
}

/// Refuses the limits of batches and namespaces in the create of an observer that is no member.
pub(super) fn check_free(definition: &ObserverDefinition) -> Result<(), Problem> {
    definition.limits.iter().find(|key| key.is_implied()).map_or(Ok(()), |key| Err(implied(key)))
}

/// Refuses the limits of batches and namespaces that the observer does not have already, whether or not they exist.
pub(super) fn check_implied(changed: &ObserverDefinition, seen: &ObserverDefinition) -> Result<(), Problem> {
    let own = LimitKey::of_namespace(&seen.namespace);
    let new = |key: &&LimitKey| key.is_implied() && !seen.limits.contains(*key) && Some(*key) != own.as_ref();
    changed.limits.iter().find(new).map_or(Ok(()), |key| Err(implied(key)))
}

fn implied(key: &LimitKey) -> Problem {
    let whose = if key.is_of_batch() {
        "the limit of a batch: only its members use it"
    } else {
        "the limit of another namespace: only its observers use it"
    };
    wrong("/limits", format!("{key} is {whose}"))
}

/// Takes out the limit of the observer's own namespace, which definitions read from the API may contain.
pub(super) fn drop_own(definition: &mut ObserverDefinition) {
    if let Some(own) = LimitKey::of_namespace(&definition.namespace) {
        definition.limits.remove(&own);
    }
}

/// Adds the limit of the observer's namespace, which counts as one of its limits.
pub(super) fn add_own(definition: &mut ObserverDefinition) -> Result<(), Problem> {
    let Some(own) = LimitKey::of_namespace(&definition.namespace) else { return Ok(()) };
    if definition.limits.len() >= LIMITS_MAX {
        let detail = format!(
            "names {LIMITS_MAX} limits, but the limit of its namespace counts as one of them: name at most {}",
            LIMITS_MAX - 1
        );
        return Err(wrong("/limits", detail));
    }
    definition.limits.insert(own);
    Ok(())
}

/// Refuses keys to which no limit applies.
pub(super) async fn check_known(records: &Records, definition: &ObserverDefinition) -> Result<(), Problem> {
    let keys: Vec<LimitKey> = definition.limits.iter().cloned().collect();
    if keys.is_empty() {
        return Ok(());
    }
    let known = records.store.limits_of(&keys).await?;
    let Some(unknown) = keys.iter().find(|key| !known.contains_key(key)) else { return Ok(()) };
    let cure =
        format!("create one with PUT /v1/limits/{unknown}, or everwatch limit set {unknown} --max NUMBER");
    let detail = format!("no limit applies to the key {unknown}: {cure}");
    let error = FieldError { pointer: "/limits".to_owned(), detail: format!("{unknown} is unknown") };
    Err(Problem::new(Code::LimitUnknown, detail).with(vec![error]))
}

/// The problem for an observer that would have to wait for a place and must not.
pub(super) async fn reached(records: &Records, definition: &ObserverDefinition) -> Result<Problem, Problem> {
    let mut full = Vec::new();
    for key in &definition.limits {
        let use_of = use_of(records, key).await?;
        if use_of.is_full {
            let text = if use_of.text.is_empty() { String::new() } else { format!(": {}", use_of.text) };
            full.push(format!("{} has no free place{text}", named(key)));
        }
    }
    if full.is_empty() {
        // Others that came before have no slot yet, or a place has become free since.
        let keys: Vec<String> = definition.limits.iter().map(named).collect();
        full.push(format!(
            "observers that were created earlier get the free places of {}",
            keys.join(" or of ")
        ));
    }
    let detail = format!("{}; raise the maximum, or create with on_full \"queue\"", full.join("; "));
    Ok(Problem::new(Code::LimitReached, detail))
}

/// The name of the setting that holds the maximum of a key.
fn named(key: &LimitKey) -> String {
    match key.namespace() {
        Some(namespace) => format!("quotas.running of namespace {namespace}"),
        None => format!("limit {key}"),
    }
}

/// How many places of a key are in use. The text names the observers; it is empty if the role of the sender does not permit to read
/// them.
struct UseOf {
    is_full: bool,
    text: String,
}

async fn use_of(records: &Records, key: &LimitKey) -> Result<UseOf, Problem> {
    let Some(limit) = records.store.limits_of(std::slice::from_ref(key)).await?.remove(key) else {
        let text = match key.namespace() {
            Some(namespace) => {
                format!("the namespace does not exist: run everwatch namespace apply {namespace}")
            }
            None => format!("no limit applies to it; create one with everwatch limit set {key} --max NUMBER"),
        };
        return Ok(UseOf { is_full: true, text });
    };
    let (used, waiting) = records.store.limit_counts(key).await?;
    let is_full = used + waiting >= u64::from(limit.max);
    // The users may be observers that the sender may not know.
    let may_name = caller::scope().is_none();
    let is_own = key.namespace() == Some(caller::namespace().as_str());
    if !may_name && !is_own {
        return Ok(UseOf { is_full, text: String::new() });
    }
    let users = if may_name { records.store.limit_users(key, false, NAMED_MAX).await? } else { Vec::new() };
    let names: Vec<&str> = users.iter().map(|it| it.name.as_str()).collect();
    let more = if used > names.len() as u64 { " and others" } else { "" };
    let by = if names.is_empty() { String::new() } else { format!(" by {}{more}", names.join(", ")) };
    let text = format!("{used} of {} in use{by}, {waiting} waiting", limit.max);
    Ok(UseOf { is_full, text })
}

/// Who has the places that an observer waits for; empty if the sender may not know.
pub(super) async fn occupants(records: &Records, key: &LimitKey) -> Result<String, Problem> {
    Ok(use_of(records, key).await?.text)
}
