//! What travels over the HTTP API, for servers and clients alike.

mod access;
mod batches;
mod definition;
mod history;
mod limits;
mod logs;
mod namespaces;
mod observer;
mod operations;
mod ops;
mod rate;
mod rebalance;
mod rollouts;
mod schedule;
mod service;
pub mod sse;
mod timeline;
mod versions;

pub use self::access::{
    AuditEntry, CreatedToken, LoginMethods, NewToken, Role, RoleGrant, RoleSettings, Rotation, Token, Whoami,
};
pub use self::batches::{Batch, BatchMember, NewBatch};
pub use self::definition::{
    MemberError, NewObserver, ObserverPatch, RetryPolicy, RunSchedule, RunWindows, WindowOpening,
};
pub use self::history::{Event, EventBurst, LogRequester, ObserverResult, Run};
pub use self::limits::{Limit, LimitSettings, LimitUsers};
pub use self::logs::{LogLine, LogNote, Logs};
pub use self::namespaces::{Namespace, NamespaceSettings, QuotaUse, Quotas};
pub use self::observer::{Desired, Observer, Outcome, Outcomes};
pub use self::operations::{Operation, OperationType};
pub use self::ops::{Finding, Health, ObserverCounts, ParkedMessage, SafeMode, Stats, Version};
pub use self::rate::{Rate, RateSettings};
pub use self::rebalance::{PoolBalance, Rebalance, ServiceBalance};
pub use self::rollouts::{NewRollout, Rollout, RolloutMember, RolloutSelector};
pub use self::schedule::{Execution, ScheduleTimes};
pub use self::service::{DrainState, Kind, Pool, PoolSettings, Service, Stalled};
pub use self::timeline::{Incident, Timeline, TimelineLane, TimelineMark, TimelineOthers, TimelineSegment};
pub use self::versions::{DefinitionVersion, Difference, RevertTo};

use everwatch_core::observer::definition::FieldError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A reference to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceName {
    /// The id of this incarnation of the service.
    pub id: Uuid,
    /// The name of the service: each of its incarnations has it.
    pub name: String,
}

/// An observer or a service with its name at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedThing {
    /// The id of the observer, or of the incarnation of the service.
    pub id: Uuid,
    /// Its name at that time; others may have it later.
    pub name: String,
    /// Only of an observer in an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listed<T> {
    /// The items of this page, in the order of the list.
    pub items: Vec<T>,
    /// Where the next page starts; null on the last one.
    pub next_cursor: Option<String>,
    /// The number of matches, over all pages.
    pub total: u64,
}

/// An error (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    /// `urn:everwatch:problem:` and the `code`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The meaning of the `code`, for people.
    pub title: String,
    /// The HTTP status of the response; in the result of a request of a batch, the one of a single request.
    pub status: u16,
    /// What is wrong with this request and, if known, what to do, for people.
    pub detail: String,
    /// The path of the request, without the query.
    pub instance: String,
    /// Stable, for programs.
    pub code: String,
    /// The errors, one for each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<MemberError>)]
    pub errors: Vec<FieldError>,
    /// The quota of a namespace that refuses the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub quota: Option<QuotaUse>,
    /// The id of the request, as in the header `X-Request-Id` of the response. A client may send one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}
