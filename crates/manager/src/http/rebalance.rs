//! Evening out the services of a pool: the plan, and carrying it out.

use super::body::{OptionalJson, parsed};
use super::caller;
use super::maintenance::within;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use crate::fleet::rebalance;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{PoolBalance, ProblemBody, Rebalance};
use everwatch_core::capacity::blocks::CAPACITY_MAX;
use everwatch_core::id::Pool;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

type Shared = State<Arc<Manager>>;

/// What to make even.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Balance {
    /// Only this pool.
    #[schema(value_type = Option<String>)]
    pool: Option<Pool>,
    /// The most observers to move in each pool.
    #[schema(minimum = 1, maximum = 200_000)]
    moves: u32,
}

impl Default for Balance {
    fn default() -> Self {
        Self { pool: None, moves: CAPACITY_MAX }
    }
}

/// Plan the moves that would use the services of each pool evenly.
#[utoipa::path(post, path = "/v1/rebalance:plan", tag = "services", security(("token" = ["services:operate"])), request_body = Option<Balance>,
    responses((status = 200, body = Rebalance), (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn plan(
    State(manager): Shared,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Json<Rebalance>, Problem> {
    params.finish()?;
    let wish = wish(body)?;
    let plans = rebalance::plan(&manager.records, wish.pool.as_ref(), wish.moves).await?;
    Ok(Json(Rebalance { pools: plans.iter().map(PoolBalance::of).collect() }))
}

/// Rebalance pools: plans the moves again, and begins with them.
#[utoipa::path(post, path = "/v1/rebalance:apply", tag = "services", security(("token" = ["services:operate"])), request_body = Option<Balance>,
    responses((status = 200, body = Rebalance, description = "already even"),
    (status = 202, body = Rebalance, description = "started"),
    (status = 422, body = ProblemBody, description = "invalid"),
    (status = 503, body = ProblemBody, description = "rebalance-running")))]
pub(crate) async fn apply(
    State(manager): Shared,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    params.finish()?;
    let wish = wish(body)?;
    let plans = rebalance::plan(&manager.records, wish.pool.as_ref(), wish.moves).await?;
    for plan in &plans {
        if !rebalance::begin_asked(&manager, plan, "requested by a user").await? {
            let detail = format!(
                "the pool {} is being rebalanced: try again when its moves are done, at the latest in {} s",
                plan.pool,
                rebalance::SETTLES.as_secs()
            );
            return Err(Problem::new(Code::RebalanceRunning, detail));
        }
    }
    let status = if plans.is_empty() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(Rebalance { pools: plans.iter().map(PoolBalance::of).collect() })).into_response())
}

fn wish(body: Option<serde_json::Value>) -> Result<Balance, Problem> {
    let wish: Balance = body.map(parsed).transpose()?.unwrap_or_default();
    within("/moves", wish.moves)?;
    match &wish.pool {
        Some(pool) => caller::check_pool(pool)?,
        None => caller::check_all_pools()?,
    }
    Ok(wish)
}
