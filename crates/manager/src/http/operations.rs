//! The operations in progress, of all types in one list.

use super::batches;
use super::caller;
use super::problem::Problem;
use super::query::Params;
use super::rollouts;
use super::service_lookup::ServiceViews;
use crate::context::Manager;
use crate::fleet::{rebalance, shown_services};
use axum::Json;
use axum::extract::State;
use everwatch_api::{Listed, Operation};
use std::sync::Arc;
use std::time::Duration;

/// List the operations that are not over, the oldest first: drains, rebalances, rollouts and batches.
///
/// The list contains only those that the role permits to read.
#[utoipa::path(get, path = "/v1/operations", tag = "operations",
    security(("token" = ["services:read"]), ("token" = ["pools:read"]), ("token" = ["rollouts:read"]), ("token" = ["batches:read"])),
    responses((status = 200, body = Listed<Operation>)))]
pub(crate) async fn list(
    State(manager): State<Arc<Manager>>,
    params: Params,
) -> Result<Json<Listed<Operation>>, Problem> {
    params.finish()?;
    let records = &manager.records;
    let mut items = drains(&manager).await?;
    let rebalances = rebalance::in_progress(records).await?;
    let services = if rebalances.is_empty() { Vec::new() } else { shown_services::living(&manager).await? };
    for plan in rebalances.iter().filter(|plan| caller::may_see_pool(&plan.pool)) {
        // The limits of a plan outlast its moves.
        let left = plan.moves_left(&services);
        if left > 0 {
            items.push(Operation::rebalance(plan.pool.as_str(), plan.moves, left));
        }
    }
    items.extend(rollouts::open(records).await?.iter().map(Operation::rollout));
    items.extend(batches::open(records).await?.iter().map(Operation::batch));
    items.sort_by_key(|it| it.since);
    Ok(Json(Listed { total: items.len() as u64, items, next_cursor: None }))
}

async fn drains(manager: &Manager) -> Result<Vec<Operation>, Problem> {
    let services = manager.records.services(Duration::ZERO).await?;
    let views = ServiceViews::load(manager).await?;
    let visible = services.iter().filter(|row| caller::may_see_services(&row.registration.pool));
    Ok(visible.filter_map(|row| Operation::drain(&views.service(row))).collect())
}
