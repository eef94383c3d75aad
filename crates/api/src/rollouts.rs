//! Rollouts: one patch for many observers, a few at a time.

use crate::ObserverPatch;
use everwatch_core::clock::{Timestamp, friendly};
use everwatch_core::rollout::{self, MemberState, OnFailure, RolloutState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// The observers that a rollout takes when it starts. All members must match; at least one is required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutSelector {
    /// All must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub labels: BTreeMap<String, String>,
    /// More requirements of the labels, such as `tier in (gold, silver), !old`; all must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Missing: observers of all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Missing: observers of all kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Missing: observers of all pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// One of these statuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub status: Vec<String>,
    /// Part of the name, case-insensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
}

/// A rollout to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRollout {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`; generated if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub selector: RolloutSelector,
    /// A merge patch (RFC 7396) of the definition of each member, without `name` and `desired`.
    #[schema(value_type = ObserverPatch)]
    pub patch: Value,
    /// The most members that are changed and not yet healthy.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    pub max_parallel: u32,
    /// How long a changed member must run without an error. At least 1s.
    #[serde(default = "thirty_seconds")]
    #[schema(default = "30s")]
    pub healthy_for: String,
    /// How long a changed member may take to become healthy; longer than `healthy_for`. Then the rollout pauses.
    #[serde(default = "ten_minutes")]
    #[schema(default = "10m")]
    pub timeout: String,
    /// What managers do when a member fails: `pause` or `revert`.
    #[serde(default = "pause")]
    #[schema(value_type = String, default = "pause")]
    pub on_failure: OnFailure,
}

fn one() -> u32 {
    1
}
fn thirty_seconds() -> String {
    "30s".to_owned()
}
fn ten_minutes() -> String {
    "10m".to_owned()
}
fn pause() -> OnFailure {
    OnFailure::Pause
}

/// A rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    /// Unique among all rollouts.
    pub id: Uuid,
    /// Unique among the rollouts that are not over.
    pub name: String,
    /// `Running`, `Paused`, `Reverting`, `Completed`, `Reverted` or `Cancelled`. Its members may join another rollout after
    /// one of the last three.
    #[schema(value_type = String, example = "Running")]
    pub state: RolloutState,
    /// Why it is paused or reverting, or has ended before its last member; may be empty.
    pub reason: String,
    /// Which observers it has taken, as the request wrote it.
    #[schema(value_type = Object)]
    pub selector: Value,
    /// The merge patch (RFC 7396) of the definition of each member.
    #[schema(value_type = Object)]
    pub patch: Value,
    /// The most members that are changed and not yet healthy.
    pub max_parallel: u32,
    /// How long a changed member must run without an error, such as `1m 30s`.
    #[serde(with = "friendly")]
    #[schema(value_type = String, example = "30s")]
    pub healthy_for: Duration,
    /// How long a changed member may take to become healthy, such as `1h 30m`. Then the rollout pauses.
    #[serde(with = "friendly")]
    #[schema(value_type = String, example = "10m")]
    pub timeout: Duration,
    /// What managers do when a member fails: `pause` or `revert`.
    #[schema(value_type = String, example = "pause")]
    pub on_failure: OnFailure,
    /// The number of its members.
    pub members: u32,
    /// The number of its members by state: `pending`, `changed` (and not yet healthy), `done`, `skipped`, `failed`,
    /// `reverting` and `reverted`.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub counts: BTreeMap<MemberState, u32>,
    /// The `everwatch-actor` header of the request that started it, or the address of its client.
    pub by: Option<String>,
    /// When it was started, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its state or the state of a member last changed, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// When it became `Completed`, `Reverted` or `Cancelled`, by the database's clock; null if it is not
    /// over.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
}

impl From<rollout::Rollout> for Rollout {
    fn from(it: rollout::Rollout) -> Self {
        Self {
            id: it.id.0,
            name: it.name.to_string(),
            state: it.state,
            reason: it.reason.clone().unwrap_or_default(),
            members: it.total(),
            counts: MemberState::ALL.map(|state| (state, it.count(state))).into(),
            selector: it.selector,
            patch: it.patch,
            max_parallel: it.max_parallel,
            healthy_for: it.healthy_for,
            timeout: it.timeout,
            on_failure: it.on_failure,
            by: it.by,
            created_at: it.created_at,
            modified_at: it.modified_at,
            ended_at: it.ended_at,
        }
    }
}

/// A member of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutMember {
    /// The id of the observer.
    pub id: Uuid,
    /// The name of the observer.
    pub name: String,
    /// `pending`, `changed` (and not yet healthy), `done`, `skipped`, `failed`, `reverting` or `reverted`.
    #[schema(value_type = String, example = "changed")]
    pub state: MemberState,
    /// The error of a failed member, or why it was skipped or not waited for; may be empty.
    pub reason: String,
    /// The version of its definition when the rollout started.
    pub version: u32,
    /// The version that the rollout has made.
    pub changed_to: Option<u32>,
    /// When it was changed, or tried again after a failure.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub changed_at: Option<Timestamp>,
    /// While it is `changed`: since when it runs with the changed definition. Null before it runs, and in any other state.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub runs_since: Option<Timestamp>,
}

impl From<rollout::Member> for RolloutMember {
    fn from(it: rollout::Member) -> Self {
        Self {
            id: it.observer.0,
            name: it.name.to_string(),
            state: it.state,
            reason: it.reason.unwrap_or_default(),
            version: it.version,
            changed_to: it.changed_to,
            changed_at: it.watch.as_ref().map(|watch| watch.since),
            runs_since: it
                .watch
                .filter(|_| it.state == MemberState::Changed)
                .and_then(|watch| watch.runs)
                .map(|runs| runs.seen_at),
        }
    }
}
