//! The findings of the doctor over HTTP.

mod facts;

use super::problem::Problem;
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_api::{Finding, Listed};
use everwatch_core::doctor::diagnose;
use std::sync::Arc;

/// The problems of this deployment and their cures, the worst first.
///
/// A broker or a database that does not answer is itself a finding.
#[utoipa::path(get, path = "/v1/doctor", tag = "operations", security(("token" = ["status:read"])), responses((status = 200, body = Listed<Finding>)))]
pub(crate) async fn doctor(
    State(manager): State<Arc<Manager>>,
    params: Params,
) -> Result<Json<Listed<Finding>>, Problem> {
    params.finish()?;
    let items: Vec<Finding> = diagnose(&facts::facts(&manager).await).into_iter().map(Finding::of).collect();
    Ok(Json(Listed { total: items.len() as u64, items, next_cursor: None }))
}
