//! Deletes of observers over HTTP.

use super::etag::tag;
use super::lookup::{find, not_found, one};
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use super::waiting::{await_row, permit_to_wait};
use crate::commit::change_read_row;
use crate::context::Manager;
use crate::outgoing::commands;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Observer, ProblemBody};
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use std::sync::Arc;
use tracing::info;

type Shared = State<Arc<Manager>>;

/// Delete an observer: repeatable, in every status.
#[utoipa::path(delete, path = "/v1/observers/{key}", tag = "observers", security(("token" = ["observers:delete"])), params(
    ("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
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
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let _permit = if wait.is_zero() { None } else { Some(permit_to_wait(&manager)?) };
    let row = request_delete(&manager, row, &key, (only_if, &precondition)).await?;
    let row = await_row(&manager, row, wait, |row| row.verdict().status == Status::Deleted).await?;
    let status = if row.verdict().status == Status::Deleted { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, tag(&row), Json(one(&manager.records, &row).await?)).into_response())
}

/// Marks an observer that was just read for deletion; with `only_if` only if it has that status, and only if the
/// precondition holds.
pub(super) async fn request_delete(
    manager: &Arc<Manager>,
    row: Row,
    key: &str,
    (only_if, precondition): (Option<Status>, &Precondition),
) -> Result<Row, Problem> {
    let now = manager.records.clock.now();
    let mut outcome = Ok(false);
    let change = |row: &mut Row| {
        outcome = precondition.check(row).and_then(|()| {
            let deleted = row.delete_if(only_if, now, &manager.settings.row);
            deleted.map_err(|status| not_active(row, status))
        });
        matches!(outcome, Ok(true))
    };
    let missing = not_found(&row.definition.namespace, key);
    let row = change_read_row(&manager.records, row, change).await?.row().ok_or(missing)?;
    if outcome? {
        info!(observer = %row.id, name = %row.definition.name, what = "delete", "requested by a user");
        commands::revoke_later(manager, &row);
    }
    Ok(row)
}

fn not_active(row: &Row, status: Status) -> Problem {
    Problem::new(Code::NotActive, format!("observer {} is {status}, not Processing", row.definition.name))
}
