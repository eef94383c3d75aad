//! The versions of definitions: list them, and go back to one.

use super::body::{JsonBody, parsed};
use super::draft::Draft;
use super::limits;
use super::lookup::find;
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use super::update::{Save, change_into};
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use everwatch_api::{DefinitionVersion, Difference, Listed, Observer, ProblemBody, RevertTo};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::record::row::{REVISIONS_MAX, Row};
use everwatch_store as store;
use std::sync::Arc;

type Shared = State<Arc<Manager>>;

/// The current version, and the former ones, newest first.
async fn versions(manager: &Manager, row: &Row) -> Result<Vec<store::DefinitionVersion>, Problem> {
    let (revision, definition) = (row.revision(), ObserverDefinition::clone(&row.definition));
    let current = revision.number;
    let mut versions = vec![store::DefinitionVersion { revision, definition }];
    // A change may have come in between.
    let former = manager.records.store.versions(row.id).await?.into_iter();
    versions.extend(former.filter(|it| it.revision.number < current));
    Ok(versions)
}

/// The most versions of an observer: the former ones that are kept, and the current one.
const VERSIONS_MAX: usize = REVISIONS_MAX as usize + 1;
const LIMIT_DEFAULT: usize = 20;

/// List the versions of the definition of an observer, the newest first; the last 100 former ones are kept.
#[utoipa::path(get, path = "/v1/observers/{key}/versions", tag = "observers", security(("token" = ["specs:read"])),
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("limit" = Option<u32>, Query, description = "the number of versions, 1 to 101 (default 20)")),
    responses((status = 200, body = Listed<DefinitionVersion>),
        (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn list(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Listed<DefinitionVersion>>, Problem> {
    let limit = params.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=VERSIONS_MAX).contains(&limit) {
        return Err(bad("limit", format!("1 to {VERSIONS_MAX}")));
    }
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let mut items: Vec<DefinitionVersion> = Vec::new();
    for store::DefinitionVersion { revision, mut definition } in versions(&manager, &row).await? {
        limits::drop_own(&mut definition);
        let definition = serde_json::to_value(&definition)
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        if let Some(later) = items.last_mut()
            && later.version == revision.number + 1
        {
            later.changes = Some(Difference::all(&definition, &later.definition));
        }
        let (version, at, by) = (revision.number, revision.at, revision.by);
        items.push(DefinitionVersion { version, at, by, definition, changes: None });
    }
    let total = items.len() as u64;
    items.truncate(limit);
    Ok(Json(Listed { items, next_cursor: None, total }))
}

/// Restore an earlier version of the definition of an observer, as a new version.
#[utoipa::path(post, path = "/v1/observers/{key}/revert", tag = "observers", security(("token" = ["observers:update"])), request_body = RevertTo,
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("if-match" = Option<String>, Header, description = "the ETag that the observer must have, or *")),
    responses((status = 200, body = Observer, description = "changed, or nothing to change"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-deleted, changed-too-often"),
    (status = 412, body = ProblemBody, description = "observer-changed"),
    (status = 422, body = ProblemBody, description = "invalid, no-service-for-kind, pool-not-allowed")))]
pub(crate) async fn revert(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let RevertTo { to } = parsed(body)?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let versions = versions(&manager, &row).await?;
    let Some(wanted) = versions.iter().find(|it| it.revision.number == to) else {
        let oldest = versions.last().map_or(1, |it| it.revision.number);
        let detail = format!(
            "observer {} has no version {to}: its versions from {oldest} to {} are kept",
            row.definition.name,
            row.revision().number
        );
        return Err(Problem::invalid(vec![FieldError { pointer: "/to".to_owned(), detail }]));
    };
    let reverted = |_: &Row| Ok(Draft { definition: wanted.definition.clone(), paused: None });
    // By id: another observer may get the name meanwhile.
    change_into(&manager, (&namespace, &row.id.to_string()), (&precondition, Save::Yes), reverted).await
}
