//! Operations in progress, as the API represents them.

use super::{Batch, Rollout, Service};
use everwatch_core::clock::Timestamp;
use everwatch_core::rollout::MemberState;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationType {
    /// A service hands over its observers.
    Drain,
    /// The services of a pool hand over observers, so that each uses the same part of its capacity.
    Rebalance,
    /// Managers change observers by one patch, a few at a time.
    Rollout,
    /// The observers that one request created run until each has ended.
    Batch,
}

impl fmt::Display for OperationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Drain => "drain",
            Self::Rebalance => "rebalance",
            Self::Rollout => "rollout",
            Self::Batch => "batch",
        })
    }
}

/// An operation in progress: a drain, a rebalance, a rollout or a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    #[serde(rename = "type")]
    pub kind: OperationType,
    /// The name of the service, the pool, the rollout or the batch.
    #[schema(example = "service-1")]
    pub name: String,
    /// The namespace of a batch; null for the others.
    pub namespace: Option<String>,
    /// The path of the service, pool, rollout or batch, which has the details. Clients follow and end the operation there.
    #[schema(example = "/v1/services/service-1")]
    pub path: String,
    /// `Running` for a drain or a rebalance, otherwise the state of the rollout or the batch.
    #[schema(example = "Running")]
    pub state: String,
    /// The number of observers that are done; null if managers do not count them.
    pub done: Option<u64>,
    /// The number of all observers of the operation; null if it is not known.
    pub of: Option<u64>,
    /// The time of the request; null if it was not recorded.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// The actor who requested it; null if it was not recorded.
    pub by: Option<String>,
    /// The cause of a delay or a pause, as a sentence; may be empty.
    pub reason: String,
}

impl Operation {
    /// The drain of a service; `None` if the service is not draining.
    #[must_use]
    pub fn drain(service: &Service) -> Option<Self> {
        let drain = service.drain.as_ref()?;
        Some(Self {
            kind: OperationType::Drain,
            name: service.name.clone(),
            namespace: None,
            path: format!("/v1/services/{}", service.name),
            state: "Running".to_owned(),
            done: Some(drain.moved.into()),
            of: Some(drain.of.into()),
            since: drain.asked_at,
            by: None,
            reason: drain.waits.clone().unwrap_or_default(),
        })
    }

    /// The rebalance of a pool: managers planned `moves`, and `left` of them have not happened yet.
    #[must_use]
    pub fn rebalance(pool: &str, moves: Option<u64>, left: u64) -> Self {
        Self {
            kind: OperationType::Rebalance,
            name: pool.to_owned(),
            namespace: None,
            path: format!("/v1/pools/{pool}"),
            state: "Running".to_owned(),
            done: moves.map(|moves| moves.saturating_sub(left)),
            of: moves,
            since: None,
            by: None,
            reason: String::new(),
        }
    }

    /// A rollout that is not over.
    #[must_use]
    pub fn rollout(it: &Rollout) -> Self {
        let done = it.counts.iter().filter(|(state, _)| state.is_over() && **state != MemberState::Failed);
        Self {
            kind: OperationType::Rollout,
            name: it.name.clone(),
            namespace: None,
            path: format!("/v1/rollouts/{}", it.id),
            state: it.state.to_string(),
            done: Some(done.map(|(_, count)| u64::from(*count)).sum()),
            of: Some(it.members.into()),
            since: Some(it.created_at),
            by: it.by.clone(),
            reason: it.reason.clone(),
        }
    }

    /// A batch that is not over.
    #[must_use]
    pub fn batch(it: &Batch) -> Self {
        Self {
            kind: OperationType::Batch,
            name: it.name.clone(),
            namespace: Some(it.namespace.clone()),
            path: format!("/v1/batches/{}", it.id),
            state: it.state.to_string(),
            done: Some(it.settled.into()),
            of: Some(it.members.into()),
            since: Some(it.created_at),
            by: it.by.clone(),
            reason: it.reason.clone(),
        }
    }
}
