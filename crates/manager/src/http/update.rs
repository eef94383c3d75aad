//! Changes of definitions: by a merge patch (RFC 7396), or by a complete definition.

use super::actions::{act_on, refused};
use super::body::JsonBody;
use super::caller;
use super::creating::{check_kind, create_as, create_dry};
use super::draft::{Draft, checked_draft, draft, merged, namespace_of, same_name};
use super::etag::tag;
use super::idempotency::Identity;
use super::limits;
use super::lookup::{check, find, not_found, one};
use super::namespaces;
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{NewObserver, Observer, ObserverPatch, ProblemBody};
use everwatch_core::access::Verb;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, Namespace, ObserverId, ObserverRef};
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::operations::Refusal;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use std::sync::Arc;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;

/// Change some members of an observer. The value null restores the default of a member.
#[utoipa::path(patch, path = "/v1/observers/{key}", tag = "observers", security(("token" = ["observers:update"])),
    request_body(content = ObserverPatch, content_type = "application/merge-patch+json"),
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("if-match" = Option<String>, Header, description = "the ETag that the observer must have, or * for any"),
    ("if-none-match" = Option<String>, Header, description = "*: only if no observer has this name"),
    ("dry_run" = Option<bool>, Query, description = "true: check the request, and change nothing")),
    responses((status = 200, body = Observer, description = "changed, or nothing to change; with `dry_run`: what the observer would be"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-deleted, finish-at-passed, changed-too-often"),
    (status = 412, body = ProblemBody, description = "observer-changed"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, limit-unknown, pool-not-allowed")))]
pub(crate) async fn patch(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
    JsonBody(patch): JsonBody,
) -> Result<Response, Problem> {
    let namespace = params.namespace()?;
    let save = Save::read(&mut params)?;
    params.finish()?;
    let patched = |row: &Row| {
        let body = serde_json::to_value(&row.definition)
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        draft(merged(body, &patch)?, own_names(row))
    };
    change_into(&manager, (&namespace, &key), (&precondition, save), patched).await
}

/// Whether a change is saved, or only checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Save {
    Yes,
    DryRun,
}

impl Save {
    fn read(params: &mut Params) -> Result<Self, Problem> {
        Ok(if params.parsed("dry_run")?.unwrap_or(false) { Self::DryRun } else { Self::Yes })
    }
}

/// Changes an observer to what `draft_of` makes of it. Another change may come between the read and the save: then the draft
/// is made again, of the changed row.
pub(super) async fn change_into(
    manager: &Arc<Manager>,
    (namespace, key): (&Namespace, &str),
    (precondition, save): (&Precondition, Save),
    draft_of: impl Fn(&Row) -> Result<Draft, Problem> + Send + Sync,
) -> Result<Response, Problem> {
    for _ in 0..crate::commit::CAS_TRIES {
        let row = find(&manager.records, (namespace, key)).await?;
        precondition.check(&row)?;
        let draft = draft_of(&row)?;
        if let Some(changed) = apply(manager, (&row, save), key, draft).await? {
            return answer(manager, &changed, save).await;
        }
    }
    Err(contended(key))
}

/// The observer as it is now, or as it would be: that one has no ETag.
async fn answer(manager: &Manager, row: &Row, save: Save) -> Result<Response, Problem> {
    let observer = Json(one(&manager.records, row).await?);
    Ok(match save {
        Save::Yes => (tag(row), observer).into_response(),
        Save::DryRun => observer.into_response(),
    })
}

fn own_names(row: &Row) -> (&Namespace, &Name) {
    (&row.definition.namespace, &row.definition.name)
}

fn contended(key: &str) -> Problem {
    Problem::new(Code::Contended, format!("observer `{key}` keeps changing: read it again and retry"))
}

/// Create an observer of this name, or replace its definition.
#[utoipa::path(put, path = "/v1/observers/{key}", tag = "observers", security(("token" = ["observers:update"])), request_body = NewObserver,
    params(("key" = String, Path, description = "name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("if-match" = Option<String>, Header, description = "the ETag that the observer must have, or * for any"),
    ("if-none-match" = Option<String>, Header, description = "*: only if no observer has this name"),
    ("dry_run" = Option<bool>, Query, description = "true: check the request, and change nothing; free slots and quotas are not checked")),
    responses((status = 200, body = Observer, description = "changed, or nothing to change; with `dry_run`: what the observer would be"),
    (status = 201, body = Observer, description = "created"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found (by id)"),
    (status = 409, body = ProblemBody, description = "name-exists, quota-reached, observer-deleted, finish-at-passed, changed-too-often"),
    (status = 412, body = ProblemBody, description = "observer-changed"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, limit-unknown, namespace-unknown, pool-not-allowed"),
    (status = 429, body = ProblemBody, description = "create-quota-reached"),
    (status = 503, body = ProblemBody, description = "no-capacity, limit-reached, pool-paused, name-ending, stopping")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let namespace = namespace_of(params.given_namespace()?, &body)?;
    let save = Save::read(&mut params)?;
    params.finish()?;
    let which = ObserverRef::parse(&key, &namespace).map_err(|error| {
        Problem::invalid(vec![FieldError { pointer: "/name".to_owned(), detail: error.to_string() }])
    })?;
    if let ObserverRef::Name(namespace, _) = &which {
        // The same refusal whether the name exists there or not.
        caller::check_namespace(namespace)?;
    }
    for _ in 0..crate::commit::CAS_TRIES {
        let found = manager.records.store.find(&which).await?;
        let row = match (found, &which) {
            (Some(row), _) if row.verdict().status != Status::Deleted => {
                check(&row, &key)?;
                row
            }
            (_, ObserverRef::Id(_)) => return Err(not_found(&namespace, &key)),
            (_, ObserverRef::Name(namespace, name)) => {
                precondition.check_missing(name.as_str())?;
                let draft = checked_draft(&manager, &body, (namespace, name)).await?;
                same_name(&draft.definition, (namespace, name))?;
                if save == Save::DryRun {
                    return create_dry(&manager, draft).await;
                }
                let id = ObserverId(Uuid::now_v7());
                return create_as(&manager, Identity::Fresh(id), draft).await;
            }
        };
        precondition.check(&row)?;
        let draft = checked_draft(&manager, &body, own_names(&row)).await?;
        if let Some(changed) = apply(&manager, (&row, save), &key, draft).await? {
            return answer(&manager, &changed, save).await;
        }
    }
    Err(contended(&key))
}

/// Changes `seen` to the draft; `None` if the row was changed in the meantime.
async fn apply(
    manager: &Arc<Manager>,
    (seen, save): (&Row, Save),
    key: &str,
    mut draft: Draft,
) -> Result<Option<Row>, Problem> {
    same_name(&draft.definition, own_names(seen))?;
    caller::check_verb(Verb::ObserversUpdate, &draft.definition)?;
    limits::check_implied(&draft.definition, &seen.definition)?;
    draft.definition.check_limits(&seen.definition).map_err(|error| Problem::invalid(vec![error]))?;
    draft.definition.imply_limits(&seen.definition);
    namespaces::check_pool(&manager.records, &draft.definition, &seen.definition).await?;
    if !draft.definition.runs_like(&seen.definition) {
        check_kind(manager, &draft.definition).await?;
    }
    if draft.definition.limits != seen.definition.limits {
        limits::check_known(&manager.records, &draft.definition).await?;
    }
    if draft.definition.is_timed_unlike(&seen.definition) {
        let now = manager.records.clock.now();
        draft.definition.check_at(now).map_err(|error| Problem::invalid(vec![error]))?;
    }
    if save == Save::DryRun {
        let mut row = seen.clone();
        let now = manager.records.clock.now();
        row.change_to(draft.definition, draft.paused, now, &manager.settings.row)
            .map_err(|refusal| refused(seen, refusal))?;
        return Ok(Some(row));
    }
    let mut stale = false;
    let act = |row: &mut Row, now: Timestamp, policy: &RowPolicy| -> Result<bool, Refusal> {
        stale = row.definition != seen.definition || row.desired != seen.desired;
        if stale {
            return Ok(false);
        }
        row.change_to(draft.definition.clone(), draft.paused, now, policy)
    };
    let row = act_on(manager, (seen.clone(), None), key, act).await?.into_row();
    Ok(if stale { None } else { Some(row) })
}
