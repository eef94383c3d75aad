//! Roles, and the audit log.

use super::body::JsonBody;
use super::caller;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{AuditEntry, Listed, ProblemBody, Role, RoleSettings};
use everwatch_core::access::{self, AuditFilter, BuiltIn, ROLES_MAX};
use everwatch_core::id::Name;
use everwatch_core::observer::definition::FieldError;
use everwatch_store::{RoleDeleted, RoleWritten};
use std::sync::Arc;
use tracing::info;

type Shared = State<Arc<Manager>>;

/// List roles, the built-in ones first.
#[utoipa::path(get, path = "/v1/roles", tag = "access", security(("token" = ["roles:read"])), responses((status = 200, body = Listed<Role>)))]
pub(crate) async fn list(State(manager): Shared, params: Params) -> Result<Json<Listed<Role>>, Problem> {
    params.finish()?;
    let built_in = BuiltIn::ALL.into_iter().map(BuiltIn::role);
    let items: Vec<Role> = built_in.chain(manager.records.store.roles().await?).map(Role::from).collect();
    let total = items.len() as u64;
    Ok(Json(Listed { items, next_cursor: None, total }))
}

/// Read a role.
#[utoipa::path(get, path = "/v1/roles/{name}", tag = "access", security(("token" = ["roles:read"])),
    params(("name" = String, Path, description = "its name")),
    responses((status = 200, body = Role), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
) -> Result<Json<Role>, Problem> {
    params.finish()?;
    let built_in = BuiltIn::named(&name).map(BuiltIn::role);
    let found = match built_in {
        Some(role) => Some(role),
        None => manager.records.store.roles().await?.into_iter().find(|role| role.name.as_str() == name),
    };
    found.map(|role| Json(role.into())).ok_or_else(|| not_found(&name))
}

fn not_found(name: &str) -> Problem {
    let name: String = name.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("there is no role `{name}`"))
}

/// Define a role. Tokens that have it get its new rights within 5 s.
#[utoipa::path(put, path = "/v1/roles/{name}", tag = "access", request_body = RoleSettings,
    security(("token" = ["roles:write"])), params(("name" = String, Path, description = "its name")),
    responses((status = 200, body = Role, description = "changed"), (status = 201, body = Role, description = "created"),
    (status = 409, body = ProblemBody, description = "too-many-roles"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let name = Name::new(&name).map_err(|error| {
        Problem::invalid(vec![FieldError { pointer: String::new(), detail: error.to_string() }])
    })?;
    let role = access::Role::parse(name, body).map_err(Problem::invalid)?;
    caller::check_covers(&role.name, &role.rights())?;
    if let Some(before) = manager.accounts.accounts().role(&role.name) {
        caller::check_covers(&before.name, &before.rights())?;
    }
    let written = manager.records.store.put_role(&role).await?;
    manager.accounts.refresh(manager.records.store.as_ref()).await?;
    let status = match written {
        RoleWritten::Created => StatusCode::CREATED,
        RoleWritten::Replaced => StatusCode::OK,
        RoleWritten::TooMany => {
            let detail = format!("there are {ROLES_MAX} roles: delete one that is not needed");
            return Err(Problem::new(Code::TooManyRoles, detail));
        }
    };
    info!(role = %role.name, "role defined");
    Ok((status, Json(Role::from(role))).into_response())
}

/// Delete a role that no valid token has.
#[utoipa::path(delete, path = "/v1/roles/{name}", tag = "access", security(("token" = ["roles:write"])),
    params(("name" = String, Path, description = "its name")),
    responses((status = 204), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "role-in-use")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    if BuiltIn::named(&name).is_some() {
        return Err(Problem::new(
            Code::RoleInUse,
            format!("the role {name} is built in and cannot be deleted"),
        ));
    }
    let Ok(role) = Name::new(&name) else { return Err(not_found(&name)) };
    if let Some(before) = manager.accounts.accounts().role(&role) {
        caller::check_covers(&before.name, &before.rights())?;
    }
    match manager.records.store.delete_role(&role, manager.records.clock.now()).await? {
        RoleDeleted::Done => {
            manager.accounts.refresh(manager.records.store.as_ref()).await?;
            info!(%role, "role deleted");
            Ok(StatusCode::NO_CONTENT)
        }
        RoleDeleted::Missing => Err(not_found(&name)),
        RoleDeleted::InUse(tokens) => {
            let detail = format!(
                "valid tokens or sessions have the role {name}: {tokens}; `everwatch token list --sessions` lists them, and \
                 `everwatch token revoke` ends them"
            );
            Err(Problem::new(Code::RoleInUse, detail))
        }
    }
}

/// The audit log, the newest entry first: every request that changes something, and those that were refused.
#[utoipa::path(get, path = "/v1/audit", tag = "access", security(("token" = ["audit:read"])), params(
    ("principal" = Option<String>, Query, description = "who sent the requests"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<AuditEntry>)))]
pub(crate) async fn audit(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<AuditEntry>>, Problem> {
    let principal = params.one("principal")?;
    let part: Part<i64> = Part::read(&mut params)?;
    params.finish()?;
    let total = manager.records.store.count_audit(principal.as_deref()).await?;
    let filter = AuditFilter { principal, before: part.after };
    let mut entries = manager.records.store.audit(&filter, part.limit + 1).await?;
    let more = entries.len() > part.limit;
    entries.truncate(part.limit);
    let next_cursor = entries.last().filter(|_| more).and_then(|last| part.cursor(last.id));
    Ok(Json(Listed { items: entries.into_iter().map(AuditEntry::from).collect(), next_cursor, total }))
}
