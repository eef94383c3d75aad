//! What travels over HTTP, for servers and clients alike.

mod definition;
mod history;

pub(super) use self::definition::{MemberError, NewObserver, ObserverPatch, RetryPolicy};
pub use self::history::{Event, LogRequester, Run};
use everwatch_core::capacity::maintenance::{self, DrainProgress, Orders};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::observer::definition::{FieldError, OnFull, Overlap};
use everwatch_core::observer::retry::Retry;
use everwatch_core::record::health;
use everwatch_core::record::observed::Settlement;
use everwatch_core::record::reason::{self, ReasonCode};
use everwatch_core::record::row::{self, Row};
use everwatch_core::record::service::{ServiceRow, ServiceState};
use everwatch_core::record::status::Status;
use everwatch_core::wire::logs::Line;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The desired state of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    Running,
    Paused,
    /// It has ended on its own: Completed or Failed.
    Ended,
    Deleted,
}

/// A reference to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceName {
    pub id: Uuid,
    pub name: String,
}

/// An observer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Observer {
    pub id: Uuid,
    pub name: String,
    pub kind: String,
    pub spec: Value,
    pub pool: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub desired: Desired,
    #[schema(value_type = String, example = "Processing")]
    pub status: Status,
    /// Whether it does its work: `running`, `restarting`, `waiting`, `moving` or `stopping`; null if it is not meant to
    /// run.
    #[schema(value_type = Option<String>, example = "running")]
    pub health: Option<health::Health>,
    /// How often its code was started again after an error, in the present run and since it last was healthy for the
    /// `reset_after` of its retry policy.
    pub restarts: u32,
    /// The reason for its status, as a sentence; may be empty.
    pub reason: String,
    /// The reason for programs: codes are stable; may be null.
    #[schema(value_type = Option<String>, example = "pool-is-full")]
    pub reason_code: Option<ReasonCode>,
    /// The service that holds it.
    pub service: Option<ServiceName>,
    /// `generation << 32 | acquisitions`.
    pub epoch: u64,
    pub generation: u32,
    pub acquisitions: u32,
    /// The number of this start of its code within the run; 0 before the first.
    pub attempt: u32,
    pub last_error: Option<String>,
    pub progress: Option<String>,
    #[schema(value_type = RetryPolicy)]
    pub retry: Retry,
    #[schema(value_type = String, example = "allow")]
    pub overlap: Overlap,
    #[schema(example = "10s")]
    pub grace: String,
    #[schema(value_type = String, example = "reject")]
    pub on_full: OnFull,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// When its code was last started.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
}

impl Observer {
    /// `service` names the holder, if it still lives; `services` are those that live at `now`.
    #[must_use]
    pub fn of(row: &Row, service: Option<ServiceName>, (services, now): (&[ServiceRow], Timestamp)) -> Self {
        let told = reason::explain(row, service.is_some(), services, now);
        let seen = &row.observed;
        let ended = seen.settled.as_ref().is_some_and(|settled| match settled.how {
            Settlement::Completed | Settlement::Failed { .. } => true,
            Settlement::Stopped => false,
        });
        let desired = match row.desired {
            row::Desired::Deleted => Desired::Deleted,
            row::Desired::Running | row::Desired::Paused if ended => Desired::Ended,
            row::Desired::Running => Desired::Running,
            row::Desired::Paused => Desired::Paused,
        };
        Self {
            id: row.id.0,
            name: row.definition.name.to_string(),
            kind: row.definition.kind.to_string(),
            spec: row.definition.spec.clone(),
            pool: row.definition.pool.to_string(),
            labels: row.definition.labels.clone(),
            desired,
            status: told.status,
            health: told.health,
            restarts: row.restarts(),
            reason: told.reason,
            reason_code: told.code,
            service,
            epoch: row.epoch().into(),
            generation: row.generation,
            acquisitions: row.epoch().acquisitions(),
            attempt: seen.started.as_ref().map_or(0, |told| told.value.attempt),
            last_error: seen.last_error.as_ref().map(|told| told.value.clone()),
            progress: seen.progress.as_ref().map(|told| told.value.clone()),
            retry: row.definition.retry.clone(),
            overlap: row.definition.overlap,
            grace: show(row.definition.grace),
            on_full: row.definition.on_full,
            created_at: row.created_at,
            modified_at: row.modified_at,
            started_at: seen.started.as_ref().map(|told| told.value.at),
        }
    }
}

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    pub id: Uuid,
    pub name: String,
    pub pool: String,
    pub capacity: u32,
    pub held: u32,
    pub free: u32,
    #[schema(value_type = String, example = "active")]
    pub state: ServiceState,
    pub kinds: Vec<String>,
    pub version: String,
    pub host: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// The time of its last heartbeat or report.
    #[schema(value_type = String, format = DateTime)]
    pub last_heartbeat_at: Timestamp,
    /// Whether it has ended.
    pub is_deleted: bool,
    /// Whether services of this name must accept no more observers.
    #[serde(default)]
    pub cordoned: bool,
    /// The capacity that an operator has set for this name.
    #[serde(default)]
    pub capacity_set: Option<u32>,
    /// The progress of its drain, if it is draining.
    #[serde(default)]
    pub drain: Option<DrainState>,
    /// The orders that it has not confirmed, as a sentence: they are new, or the service is too old to know them.
    #[serde(default)]
    pub unconfirmed: Option<String>,
}

/// A drain in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainState {
    /// The number of observers held when it began.
    pub of: u32,
    pub moved: u32,
    /// The most observers per second.
    pub per_second: u32,
    /// When the rest is handed over even if no service has room.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    pub force: bool,
    /// What delays it, as a sentence.
    pub waits: Option<String>,
}

impl Service {
    /// `room` is what others of its pool could take at `now`.
    #[must_use]
    pub fn of(row: &ServiceRow, orders: Option<&Orders>, room: u32, now: Timestamp) -> Self {
        let drain = orders.and_then(|orders| orders.drain.as_ref()).map(|drain| {
            let DrainProgress { of, moved, waits } = maintenance::progress(drain, row, room, now);
            let (per_second, until, force) = (drain.per_second, drain.until, drain.force);
            DrainState { of, moved, per_second, until, force, waits }
        });
        let over = row.state().is_over();
        let (capacity, held) = (row.capacity(), if over { 0 } else { row.held() });
        Self {
            id: row.id.0,
            name: row.registration.name.to_string(),
            pool: row.registration.pool.to_string(),
            capacity,
            held,
            free: if over { 0 } else { capacity.saturating_sub(held) },
            state: row.state(),
            kinds: row.registration.kinds.iter().map(|kind| kind.name.to_string()).collect(),
            version: row.registration.version.clone(),
            host: row.registration.host.clone(),
            labels: row.registration.labels.clone(),
            created_at: row.registered_at,
            modified_at: row.modified_at,
            last_heartbeat_at: row.heard_at,
            is_deleted: over,
            cordoned: orders.is_some_and(|orders| orders.cordoned),
            capacity_set: orders.and_then(|orders| orders.capacity),
            drain: drain.filter(|_| !over),
            unconfirmed: orders.and_then(|orders| maintenance::unconfirmed(orders, row, now)),
        }
    }
}

/// A pool: its living services and its observers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    pub name: String,
    /// Living services.
    pub services: u32,
    /// Slots of its active services.
    pub capacity: u32,
    /// Slots in use.
    pub held: u32,
    pub free: u32,
    /// Observers that wait for a slot, after the newest heartbeats.
    pub pending: u64,
    /// The slots that all observers need, including those that wait: the figure for a scaler.
    pub needed: u64,
    /// Observers by status.
    pub observers: BTreeMap<String, u64>,
    /// Observers by health; observers that are not meant to run have none.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
}

/// A kind of observer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Kind {
    pub name: String,
    /// JSON schema of its spec; null if the services have none.
    pub schema: Value,
    /// Pools in which a living service can run it.
    pub pools: Vec<String>,
    /// Living services that can run it.
    pub services: u32,
}

/// A message that no version could read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedMessage {
    pub id: i64,
    pub queue: String,
    pub reason: String,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The first 4,096 bytes of the body as text, if they are text.
    pub text: Option<String>,
    /// The first 4,096 bytes of the body in base64.
    pub body: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// An observer or a service with its name at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedThing {
    pub id: Uuid,
    pub name: String,
}

/// A line of the log of an observer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Epoch and number within it: higher for later lines, on any service.
    #[schema(example = "3.2.57")]
    pub id: String,
    /// By the clock of the service's host.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `stdout`, `stderr`, or `log` for lines of its code or its service.
    #[schema(example = "stdout")]
    pub stream: String,
    pub text: String,
}

impl LogLine {
    #[must_use]
    pub fn of(line: Line) -> Self {
        let Line { place, at, stream, text } = line;
        Self { id: place.to_string(), at, stream: stream.as_str().to_owned(), text: text.into() }
    }
}

/// The recent log lines of an observer, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub items: Vec<LogLine>,
    /// Lines between the requested position and the first of these lines that are no longer kept.
    pub missed: u64,
    /// The service that keeps the lines: the one that runs the observer, or ran it last.
    pub service: Option<ServiceName>,
    /// Why there are no lines, or no more for now; may be empty.
    pub reason: String,
}

/// A note to a follower between lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogNote {
    #[schema(example = "moved to service b (epoch 3.2)")]
    pub text: String,
}

/// Totals.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Observers by status.
    pub observers: BTreeMap<String, u64>,
    /// Observers by health; observers that are not meant to run have none.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
    /// Living services by state.
    pub services: BTreeMap<String, u64>,
    pub capacity: u32,
    pub held: u32,
    /// Whether the broker is connected.
    pub broker: bool,
}

/// The switch that stops conclusions from silence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SafeMode {
    pub on: bool,
    /// The reason, for other operators.
    #[serde(default)]
    pub reason: String,
}

/// The program and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    pub version: String,
    /// This incarnation of the manager.
    pub manager: Uuid,
}

/// Whether the manager is alive or ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub ok: bool,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Where the next page starts; null on the last one.
    pub next_cursor: Option<String>,
    /// The number of matches, over all pages.
    pub total: u64,
}

/// An error (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    pub instance: String,
    /// Stable, for programs.
    pub code: String,
    /// The errors, one for each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<MemberError>)]
    pub errors: Vec<FieldError>,
}
