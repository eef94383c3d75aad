//! Evening out the services of a pool: the plan, and carrying it out.

use super::body::{OptionalJson, parsed};
use super::maintenance::within;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::api::ProblemBody;
use crate::context::Manager;
use crate::fleet::rebalance;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use everwatch_core::capacity::maintenance::CAPACITY_MAX;
use everwatch_core::capacity::rebalance::{PoolPlan, Share};
use everwatch_core::id::Pool;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;

/// What to make even.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Balance {
    /// Only this pool.
    #[schema(value_type = Option<String>)]
    pool: Option<Pool>,
    /// Move at most so many observers of each pool.
    #[schema(minimum = 1, maximum = 100_000)]
    moves: u32,
}

impl Default for Balance {
    fn default() -> Self {
        Self { pool: None, moves: CAPACITY_MAX }
    }
}

/// Who gives how many, by pool; pools that are even already are left out.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct Rebalance {
    pools: Vec<PoolBalance>,
}

/// One pool of a plan.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct PoolBalance {
    pool: String,
    /// Observers that move.
    moves: u32,
    /// Between the fullest service and the emptiest, in observers.
    skew_before: u32,
    skew_after: u32,
    services: Vec<ServiceBalance>,
}

/// One service of a plan.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct ServiceBalance {
    id: Uuid,
    name: String,
    capacity: u32,
    held: u32,
    target: u32,
    /// As a sentence.
    reason: String,
}

impl PoolBalance {
    fn of(plan: &PoolPlan) -> Self {
        let service = |Share { load, target }: &Share| ServiceBalance {
            id: load.id.0,
            name: load.name.to_string(),
            capacity: load.capacity,
            held: load.held,
            target: *target,
            reason: match target.cmp(&load.held) {
                std::cmp::Ordering::Less => format!("gives {}", load.held - target),
                std::cmp::Ordering::Equal => "stays".to_owned(),
                std::cmp::Ordering::Greater => format!("takes {}", target - load.held),
            },
        };
        Self {
            pool: plan.pool.to_string(),
            moves: plan.moves(),
            skew_before: plan.skew_before(),
            skew_after: plan.skew_after(),
            services: plan.shares.iter().map(service).collect(),
        }
    }
}

/// What would make the services of each pool evenly used.
#[utoipa::path(post, path = "/v1/rebalance:plan", tag = "services", request_body = Option<Balance>,
    responses((status = 200, body = Rebalance), (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn plan(
    State(manager): Shared,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Json<Rebalance>, Problem> {
    params.finish()?;
    let wish = wish(body)?;
    let plans = rebalance::plan(&manager, wish.pool.as_ref(), wish.moves).await?;
    Ok(Json(Rebalance { pools: plans.iter().map(PoolBalance::of).collect() }))
}

/// Make the services of each pool evenly used: plans afresh and begins.
#[utoipa::path(post, path = "/v1/rebalance:apply", tag = "services", request_body = Option<Balance>,
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
    let plans = rebalance::plan(&manager, wish.pool.as_ref(), wish.moves).await?;
    for plan in &plans {
        if !rebalance::begin(&manager, plan, "requested by a user").await? {
            let detail = format!("the pool {} is being rebalanced: wait until that has settled", plan.pool);
            return Err(Problem::new(Code::RebalanceRunning, detail));
        }
    }
    let status = if plans.is_empty() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(Rebalance { pools: plans.iter().map(PoolBalance::of).collect() })).into_response())
}

fn wish(body: Option<serde_json::Value>) -> Result<Balance, Problem> {
    let wish: Balance = body.map(parsed).transpose()?.unwrap_or_default();
    within("/moves", wish.moves)?;
    Ok(wish)
}
