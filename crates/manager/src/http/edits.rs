//! Changes of what is wanted: a merge patch (RFC 7396), or the whole of it.

use super::actions::act_on;
use super::api::{NewObserver, Observer, ObserverPatch, ProblemBody};
use super::body::JsonBody;
use super::observers::{check_kind, create_as, find, one};
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::shared::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_core::actions::Refusal;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ObserverId, ObserverRef};
use everwatch_core::observer::{FieldError, Wanted};
use everwatch_core::row::{Row, RowPolicy};
use everwatch_core::status::Status;
use serde_json::{Map, Value};
use std::sync::Arc;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;

/// A body, split: the observer itself, and whether it is to run.
pub(super) struct Draft {
    pub(super) wanted: Wanted,
    pub(super) paused: Option<bool>,
}

/// Reads a body; `desired` beside the members of an observer is `running` or `paused`.
pub(super) fn draft(mut body: Value, fallback: &Name) -> Result<Draft, Problem> {
    let mut errors = Vec::new();
    let paused = match body.as_object_mut().and_then(|members| members.remove("desired")) {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) if word == "running" => Some(false),
        Some(Value::String(word)) if word == "paused" => Some(true),
        Some(_) => {
            let detail = "is \"running\" or \"paused\"".to_owned();
            errors.push(FieldError { pointer: "/desired".to_owned(), detail });
            None
        }
    };
    match Wanted::parse(body, fallback) {
        Ok(wanted) if errors.is_empty() => Ok(Draft { wanted, paused }),
        Ok(_) => Err(Problem::invalid(errors)),
        Err(others) => {
            errors.extend(others);
            Err(Problem::invalid(errors))
        }
    }
}

/// Changes with everything that a person wants, and with nothing that is only seen.
pub(super) fn tag(row: &Row) -> [(HeaderName, String); 1] {
    let wanted = serde_json::json!([row.wanted, row.desired]).to_string();
    [(header::ETAG, format!("\"{}\"", Uuid::new_v5(&Uuid::NAMESPACE_OID, wanted.as_bytes()).simple()))]
}

/// Change some members of an observer; null takes a default back.
#[utoipa::path(patch, path = "/v1/observers/{key}", tag = "observers",
    request_body(content = ObserverPatch, content_type = "application/merge-patch+json"),
    params(("key" = String, Path, description = "id or name"),
    ("if-match" = Option<String>, Header, description = "the ETag that the change is meant for, or * for any"),
    ("if-none-match" = Option<String>, Header, description = "*: only if no observer has this name")),
    responses((status = 200, body = Observer, description = "changed, or it was so already"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-deleted, changed-too-often"),
    (status = 412, body = ProblemBody, description = "observer-changed"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind")))]
pub(crate) async fn patch(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    precondition: Precondition,
    JsonBody(patch): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    // Another change may come between the look and the save: then the patch is for what stands then.
    for _ in 0..crate::shared::CAS_TRIES {
        let row = find(&manager, &key).await?;
        precondition.check(&row)?;
        let body = serde_json::to_value(&row.wanted)
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let draft = draft(merged(body, &patch)?, &row.wanted.name)?;
        if let Some(changed) = apply(&manager, &row, &key, draft).await? {
            return Ok((tag(&changed), Json(one(&manager, &changed).await?)).into_response());
        }
    }
    Err(Problem::new(Code::Contended, format!("observer `{key}` keeps changing: read it again and retry")))
}

/// Create an observer of this name, or make it what the body says.
#[utoipa::path(put, path = "/v1/observers/{key}", tag = "observers", request_body = NewObserver,
    params(("key" = String, Path, description = "name"),
    ("if-match" = Option<String>, Header, description = "the ETag that the change is meant for, or * for any"),
    ("if-none-match" = Option<String>, Header, description = "*: only if no observer has this name")),
    responses((status = 200, body = Observer, description = "changed, or it was so already"),
    (status = 201, body = Observer, description = "created"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found (by id)"),
    (status = 409, body = ProblemBody, description = "name-exists, observer-deleted, changed-too-often"),
    (status = 412, body = ProblemBody, description = "observer-changed"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind"),
    (status = 503, body = ProblemBody, description = "no-capacity, name-ending, stopping")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    precondition: Precondition,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let which: ObserverRef = key.parse().map_err(|error: everwatch_core::id::BadName| {
        Problem::invalid(vec![FieldError { pointer: "/name".to_owned(), detail: error.to_string() }])
    })?;
    for _ in 0..crate::shared::CAS_TRIES {
        let found = manager.store.find(&which).await?;
        let row = match (found, &which) {
            (Some(row), _) if row.verdict().status != Status::Deleted => row,
            (_, ObserverRef::Id(_)) => return Err(super::observers::not_found(&key)),
            (_, ObserverRef::Name(name)) => {
                precondition.check_missing(name.as_str())?;
                let draft = draft(body, name)?;
                same_name(&draft.wanted, name)?;
                let id = ObserverId(Uuid::now_v7());
                return create_as(&manager, (id, false), draft).await;
            }
        };
        precondition.check(&row)?;
        let draft = draft(body.clone(), &row.wanted.name)?;
        if let Some(changed) = apply(&manager, &row, &key, draft).await? {
            return Ok((tag(&changed), Json(one(&manager, &changed).await?)).into_response());
        }
    }
    Err(Problem::new(Code::Contended, format!("observer `{key}` keeps changing: read it again and retry")))
}

/// Makes `seen` what the draft says; `None` if somebody else has changed it meanwhile.
async fn apply(manager: &Arc<Manager>, seen: &Row, key: &str, draft: Draft) -> Result<Option<Row>, Problem> {
    same_name(&draft.wanted, &seen.wanted.name)?;
    if !draft.wanted.runs_like(&seen.wanted) {
        check_kind(manager, &draft.wanted).await?;
    }
    let mut stale = false;
    let act = |row: &mut Row, now: Timestamp, policy: &RowPolicy| -> Result<bool, Refusal> {
        stale = row.wanted != seen.wanted || row.desired != seen.desired;
        if stale {
            return Ok(false);
        }
        row.change_to(draft.wanted.clone(), draft.paused, now, policy)
    };
    let (row, _) = act_on(manager, (seen.id, None), key, act).await?;
    Ok(if stale { None } else { Some(row) })
}

fn same_name(wanted: &Wanted, name: &Name) -> Result<(), Problem> {
    if wanted.name == *name {
        return Ok(());
    }
    let detail = format!("is {name} for good: a name cannot be changed");
    Err(Problem::invalid(vec![FieldError { pointer: "/name".to_owned(), detail }]))
}

/// RFC 7396.
fn merged(target: Value, patch: &Value) -> Result<Value, Problem> {
    match (target, patch) {
        (Value::Object(mut members), Value::Object(changes)) => {
            for (member, change) in changes {
                // Of another kind, a retry policy has other members: what stood there means nothing.
                if member == "retry" && change.get("kind").is_some() {
                    members.remove(member);
                }
                merge_member(&mut members, member, change);
            }
            Ok(Value::Object(members))
        }
        _ => Err(Problem::invalid(vec![FieldError {
            pointer: String::new(),
            detail: "must be a JSON object".to_owned(),
        }])),
    }
}

pub(super) fn merge_member(members: &mut Map<String, Value>, member: &str, change: &Value) {
    match change {
        Value::Null => {
            members.remove(member);
        }
        Value::Object(changes) => {
            let mut inner = match members.remove(member) {
                Some(Value::Object(inner)) => inner,
                _ => Map::new(),
            };
            for (member, change) in changes {
                merge_member(&mut inner, member, change);
            }
            members.insert(member.to_owned(), Value::Object(inner));
        }
        other => {
            members.insert(member.to_owned(), other.clone());
        }
    }
}

/// The answer to a create.
pub(super) fn created(row: &Row, observer: &Observer) -> Response {
    let place: [(HeaderName, String); 1] = [(header::LOCATION, format!("/v1/observers/{}", observer.id))];
    (StatusCode::CREATED, place, tag(row), Json(observer)).into_response()
}
