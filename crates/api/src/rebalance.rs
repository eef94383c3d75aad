//! Plans of a rebalance as they travel over HTTP.

use everwatch_core::capacity::rebalance::{PoolPlan, Share};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Who gives how many, by pool; pools that are even already are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rebalance {
    pub pools: Vec<PoolBalance>,
}

/// One pool of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolBalance {
    pub pool: String,
    /// Observers that move.
    pub moves: u32,
    /// Between the fullest service and the emptiest, in observers.
    pub skew_before: u32,
    pub skew_after: u32,
    pub services: Vec<ServiceBalance>,
}

/// One service of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceBalance {
    pub id: Uuid,
    pub name: String,
    pub capacity: u32,
    pub held: u32,
    pub target: u32,
    /// As a sentence.
    pub reason: String,
}

impl PoolBalance {
    #[must_use]
    pub fn of(plan: &PoolPlan) -> Self {
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
