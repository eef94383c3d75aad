//! How many observers match a filter, by health and by status.

use super::filter::{ObserverFilter, filter};
use super::problem::Problem;
use super::query::{Params, bad};
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_api::ObserverCounts;
use everwatch_core::record::health::Health;
use everwatch_core::record::status::Status;
use std::sync::Arc;

/// Count the observers that match a filter, by health and by status.
#[utoipa::path(get, path = "/v1/observers:counts", tag = "observers", security(("token" = ["observers:read"])),
    params(ObserverFilter),
    responses((status = 200, body = ObserverCounts)))]
pub(crate) async fn count(
    State(manager): State<Arc<Manager>>,
    mut params: Params,
) -> Result<Json<ObserverCounts>, Problem> {
    let filter = filter(&manager.records, &mut params).await?;
    params.finish()?;
    let given = [("status", !filter.status.is_empty()), ("health", !filter.health.is_empty())];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(bad(
            name,
            "remove this parameter: the response has the count of every status and every health",
        ));
    }
    let mut counts = ObserverCounts::default();
    counts.health.extend(Health::ALL.map(|health| (health.to_string(), 0)));
    let known = Status::ALL.into_iter().filter(|status| *status != Status::Deleted);
    counts.observers.extend(known.map(|status| (status.to_string(), 0)));
    for ((status, health), number) in manager.records.store.counts_matching(&filter).await? {
        counts.total += number;
        *counts.observers.entry(status.to_string()).or_default() += number;
        if let Some(health) = health {
            *counts.health.entry(health.to_string()).or_default() += number;
        }
    }
    Ok(Json(counts))
}
