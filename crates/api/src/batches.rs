//! Batches: many observers that one request creates.

use everwatch_core::batch::{self, BatchState, Counts, settled};
use everwatch_core::clock::{Timestamp, friendly};
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// A batch to create.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBatch {
    /// 1 to 120 of `A-Z a-z 0-9 . _ -`; generated if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace of the batch and its members; `default` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What all members have in common. The members of each observer are merged into it (RFC 7396).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object, required = false)]
    pub defaults: Map<String, Value>,
    /// 1 to 10,000 observers, each as in `POST /v1/observers` after the merge into `defaults`. An observer without a name gets
    /// the name of the batch and its place: `reports-17`.
    #[schema(value_type = Vec<Object>)]
    pub observers: Vec<Value>,
    /// The maximum number of members that run at once; missing: no limit of the batch. It counts as one of the eight limits of each
    /// member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_running: Option<u32>,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// Unique among all batches.
    pub id: Uuid,
    /// Unique among the batches of its namespace that are not over.
    pub name: String,
    /// The namespace of the batch and its members.
    #[serde(default = "crate::observer::default_namespace")]
    #[schema(example = "default")]
    pub namespace: String,
    /// `Creating`, `Incomplete`, `Running`, `Completed`, `Cancelling`, `Cancelled` or `Deleting`.
    #[schema(value_type = String, example = "Running")]
    pub state: BatchState,
    /// Why it is incomplete, or who cancelled or retried it; may be empty.
    pub reason: String,
    /// The number of its members, once all exist.
    pub members: u32,
    /// The maximum number of members that run at once; null: no limit of the batch.
    pub max_running: Option<u32>,
    /// The members that exist, by status.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub counts: BTreeMap<Status, u32>,
    /// The members that have ended: completed, failed or deleted.
    pub settled: u32,
    /// Members that end per minute, over the last five minutes, or since the batch was created or retried if that is less.
    /// Managers count every 30 s. `null`: not known yet, or the batch is over.
    pub rate_per_minute: Option<f64>,
    /// How long until all members have ended, at that rate. `null`: no member has ended in that time, none has ended for much longer
    /// than at that rate (a minute or more), or the batch is over.
    #[serde(with = "friendly::optional")]
    #[schema(value_type = Option<String>, example = "12m")]
    pub time_left: Option<Duration>,
    /// How often it has completed: retried members complete it again.
    pub completions: u32,
    /// The `everwatch-actor` header of the request that created it, or the address of its client.
    pub by: Option<String>,
    /// When it was created, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its `state` or its `reason` last changed, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// When it became `Completed` or `Cancelled`, by the database's clock; null if it is not over.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
}

impl Batch {
    /// The batch, with its members by status.
    #[must_use]
    pub fn of(it: batch::Batch, counts: &Counts, now: Timestamp) -> Self {
        let settled = settled(counts);
        Self {
            id: it.id.0,
            rate_per_minute: it.rate(settled, now).map(|rate| (rate * 10.0).round() / 10.0),
            time_left: it.time_left(settled, now),
            name: it.name.into(),
            namespace: it.namespace.into(),
            state: it.state,
            reason: it.reason.unwrap_or_default(),
            members: it.total,
            max_running: it.max_running,
            counts: Status::ALL.map(|status| (status, counts.get(&status).copied().unwrap_or(0))).into(),
            settled,
            completions: it.completions,
            by: it.by,
            created_at: it.created_at,
            modified_at: it.modified_at,
            ended_at: it.ended_at,
        }
    }
}

/// A member of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchMember {
    /// Its place in the request, from 0.
    pub place: u32,
    /// The id of the observer.
    pub id: Uuid,
    /// The name of the observer.
    pub name: String,
    /// The status of the observer; the member has ended if it is `Completed`, `Failed` or `Deleted`.
    #[schema(value_type = String, example = "Completed")]
    pub status: Status,
    /// Its last error, or why it has failed; may be empty.
    pub error: String,
    /// The result with which it completed; `null` if it has none.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

impl BatchMember {
    /// The member with its result.
    #[must_use]
    pub fn of(row: &Row, result: Option<Value>) -> Self {
        let verdict = row.verdict();
        let last_error = row.observed.last_error.as_ref().map(|told| told.value.clone());
        let failed =
            || if verdict.status == Status::Failed { verdict.reason.to_string() } else { String::new() };
        Self {
            place: row.batch.map_or(0, |it| it.place),
            id: row.id.0,
            name: row.definition.name.to_string(),
            status: verdict.status,
            error: last_error.unwrap_or_else(failed),
            result,
        }
    }
}
