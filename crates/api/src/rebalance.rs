//! Plans of a rebalance as they travel over HTTP.

use everwatch_core::capacity::rebalance::{PoolPlan, Share};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Who gives how many, by pool; pools that are even already are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rebalance {
    /// The plans in the order of the pools; empty if there is nothing to move.
    pub pools: Vec<PoolBalance>,
}

/// One pool of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolBalance {
    /// The name of the pool.
    pub pool: String,
    /// The slots of the observers that move.
    pub moves: u32,
    /// Between the fullest service and the emptiest, in slots.
    pub skew_before: u32,
    /// Between the fullest service and the emptiest after the moves, in slots.
    pub skew_after: u32,
    /// Its active services in the order of their names, without groups of equal kinds that are even already.
    pub services: Vec<ServiceBalance>,
}

/// One service of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceBalance {
    /// The id of this incarnation of the service.
    pub id: Uuid,
    /// The name of the service.
    pub name: String,
    /// Its slots, as of its last heartbeat.
    pub capacity: u32,
    /// Its slots in use, as of its last heartbeat.
    pub held: u32,
    /// Its slots in use after the moves.
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
