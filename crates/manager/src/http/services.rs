//! Services over HTTP.

use super::caller;
use super::pagination::Part;
use super::problem::Problem;
use super::query::{Params, bad};
use super::service_lookup::{ServiceViews, find};
use crate::context::Manager;
use crate::fleet::shown_services::mark_suspects;
use axum::Json;
use axum::extract::{Path, State};
use everwatch_api::{Listed, ProblemBody, Service};
use everwatch_core::id::{Name, Pool, ServiceId};
use everwatch_core::record::service::{ServiceRow, ServiceState, missing};
use std::sync::Arc;

type Shared = State<Arc<Manager>>;

/// List services, also those that ended recently.
#[utoipa::path(get, path = "/v1/services", tag = "services", security(("token" = ["services:read"])), params(
    ("state" = Option<String>, Query, description = "active, standby, cordoned, draining, suspect, lost, gone"),
    ("pool" = Option<String>, Query, description = "services of this pool"),
    ("name" = Option<String>, Query, description = "incarnations of this name"),
    ("missing" = Option<bool>, Query,
        description = "true: services that were lost in the last 10 minutes and have not come back; the newest incarnation of each name"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Service>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Service>>, Problem> {
    let states: Vec<String> =
        params.many("state").iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
    if let Some(state) = states.iter().find(|state| !is_state(state)) {
        return Err(bad(
            "state",
            format_args!("`{state}` is none of active, standby, cordoned, draining, suspect, lost, gone"),
        ));
    }
    let pool = params.parsed::<Pool>("pool")?;
    let name = params.parsed::<Name>("name")?;
    let is_missing = params.parsed::<bool>("missing")?.unwrap_or(false);
    let part: Part<(Name, ServiceId)> = Part::read(&mut params)?;
    params.finish()?;

    let since = manager.records.clock.now().minus(manager.settings.retention_services);
    let mut rows = manager.records.store.services(since).await?.rows;
    if is_missing {
        rows = missing(&rows, manager.records.clock.now()).into_iter().cloned().collect();
    }
    mark_suspects(&manager, &mut rows).await?;
    rows.retain(|row| caller::may_see_services(&row.registration.pool));
    rows.retain(|row| {
        (states.is_empty() || states.iter().any(|state| state == row.state().as_str()))
            && pool.as_ref().is_none_or(|pool| *pool == row.registration.pool)
            && name.as_ref().is_none_or(|name| *name == row.registration.name)
    });
    let total = rows.len() as u64;
    let key = |row: &ServiceRow| (row.registration.name.clone(), row.id);
    rows.sort_by_key(key);
    rows.retain(|row| part.after.as_ref().is_none_or(|after| key(row) > *after));
    let more = rows.len() > part.limit;
    rows.truncate(part.limit);
    let next_cursor = rows.last().filter(|_| more).and_then(|row| part.cursor(key(row)));
    let shown = ServiceViews::load(&manager).await?;
    Ok(Json(Listed { items: rows.iter().map(|row| shown.service(row)).collect(), next_cursor, total }))
}

fn is_state(text: &str) -> bool {
    use ServiceState::{Active, Cordoned, Draining, Gone, Lost, Standby, Suspect};
    [Active, Standby, Cordoned, Draining, Suspect, Lost, Gone].iter().any(|state| state.as_str() == text)
}

/// Read a service.
#[utoipa::path(get, path = "/v1/services/{key}", tag = "services", security(("token" = ["services:read"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)")),
    responses((status = 200, body = Service), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<Json<Service>, Problem> {
    params.finish()?;
    let row = find(&manager, &key).await?;
    Ok(Json(ServiceViews::load(&manager).await?.service(&row)))
}
