//! Observers as they travel over HTTP.

use super::{Execution, ProblemBody, RetryPolicy, RunSchedule, RunWindows, ServiceName};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::id::Namespace;
use everwatch_core::observer::definition::{OnFull, Overlap, one};
use everwatch_core::observer::retry::Retry;
use everwatch_core::observer::schedule::Schedule;
use everwatch_core::observer::windows::Windows;
use everwatch_core::record::health;
use everwatch_core::record::observed::Settlement;
use everwatch_core::record::reason::{self, ReasonCode};
use everwatch_core::record::row::{self, Row};
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
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

impl Desired {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
            Self::Deleted => "deleted",
        }
    }
}

/// The wait of an observer for a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// When it began to wait for a slot, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Its place in the backlog of its pool; the observer in place 1 is admitted first. 10,001 means this place or a
    /// later one. Only in the response about a single observer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// The number of observers in the backlog of its pool. Only in the response about a single observer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// An observer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Observer {
    /// Unique among all observers, also deleted ones.
    pub id: Uuid,
    /// Unique among the observers of its namespace that are not deleted.
    pub name: String,
    /// The part of the deployment that it belongs to. Names are unique within one.
    #[serde(default = "default_namespace")]
    #[schema(example = "default")]
    pub namespace: String,
    /// The code that runs: a kind that services of its pool offer.
    pub kind: String,
    /// The arguments of its kind; null also if the role of the sender does not permit `specs:read`.
    pub spec: Value,
    /// The pool: the group of services that may run it.
    pub pool: String,
    /// Its labels: selectors find observers by them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub desired: Desired,
    /// Where it is in its life: `Scheduled`, `Created`, `Processing`, `Paused`, `OnDeleting`, `Deleted`,
    /// `Completed` or `Failed`.
    #[schema(value_type = String, example = "Processing")]
    pub status: Status,
    /// Whether it does its work: `running`, `restarting`, `waiting`, `moving` or `stopping`; null if it is not meant to
    /// run.
    #[schema(value_type = Option<String>, example = "running")]
    pub health: Option<health::Health>,
    /// How often its code was started again after an error since it last was healthy for the `reset_after` of its retry policy. A
    /// move does not reset the number.
    pub restarts: u32,
    /// The reason for its status, as a sentence; may be empty.
    pub reason: String,
    /// The reason for programs: codes are stable; may be null.
    #[schema(value_type = Option<String>, example = "pool-is-full")]
    pub reason_code: Option<ReasonCode>,
    /// The service that holds it.
    pub service: Option<ServiceName>,
    /// The version of its definition; 1 is the one that it was created with.
    #[serde(default)]
    pub definition_version: u32,
    /// `generation << 32 | acquisitions`.
    pub epoch: u64,
    /// The epoch as `generation.acquisitions`, in the form in which logs and commands show it.
    #[serde(default)]
    #[schema(example = "3.2")]
    pub epoch_string: String,
    /// How often managers have published it: the first number of the epoch; 0 before the first time.
    pub generation: u32,
    /// How often the broker has delivered the message of this generation before; 0 for the first run.
    pub acquisitions: u32,
    /// The number of this start of its code within the run; 0 before the first.
    pub attempt: u32,
    /// The latest error of its code in this generation; null if there is none.
    pub last_error: Option<String>,
    /// What its code last reported about its progress in this generation, as text; null if it has not.
    pub progress: Option<String>,
    #[schema(value_type = RetryPolicy)]
    pub retry: Retry,
    /// Whether a redelivered run may start while the previous run may still be ending: `allow`, or `forbid`,
    /// which waits until that run has certainly ended.
    #[schema(value_type = String, example = "allow")]
    pub overlap: Overlap,
    /// The time between telling its code to stop and aborting it, such as `1m 30s`.
    #[schema(example = "10s")]
    pub grace: String,
    /// What a create does if the pool has no free slot: `reject` the request, or `queue` the observer.
    #[schema(value_type = String, example = "reject")]
    pub on_full: OnFull,
    /// Priority from -100 to 100: free slots go to the highest priority first.
    #[serde(default)]
    pub priority: i8,
    /// The number of slots that it takes, from 1 to 1000.
    #[serde(default = "one")]
    pub weight: u16,
    /// The keys of the limits that the observer counts towards.
    #[serde(default)]
    pub limits: Vec<String>,
    /// The observer does not start before this time; null if it may start at once.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
    /// The observer ends at this time; null if it has no end.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finish_at: Option<Timestamp>,
    /// The observer runs only within these hours; null if it may always run.
    #[serde(default)]
    #[schema(value_type = Option<RunWindows>)]
    pub windows: Option<Windows>,
    /// The end of the window in which the observer runs or waits for a slot. Null if it does neither, if it has no
    /// windows, or if its windows have no gap within ten years.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub closes_at: Option<Timestamp>,
    /// The times at which it executes; null if it has no schedule.
    #[serde(default)]
    #[schema(value_type = Option<RunSchedule>)]
    pub schedule: Option<Schedule>,
    /// When it may start: its `start_at`, its next window or the next time of its schedule. Null unless it is `Scheduled`.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_start_at: Option<Timestamp>,
    /// Its latest execution that completed or failed; null without a schedule, or before the first one.
    #[serde(default)]
    pub last_execution: Option<Execution>,
    /// The observer fails if it still waits for a slot after this time; null if it waits without a limit.
    #[serde(default)]
    #[schema(example = "10m")]
    pub start_within: Option<String>,
    /// After this time, the service stops an attempt; null if attempts have no limit.
    #[serde(default)]
    #[schema(example = "30m")]
    pub attempt_timeout: Option<String>,
    /// Its wait for a slot; null if it does not wait.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// When it was created, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When what managers store about it last changed, such as by a request or a report; by the database's
    /// clock.
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// When its code was last started.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
}

pub(crate) fn default_namespace() -> String {
    Namespace::default().into()
}

impl Observer {
    /// Adds its place in the backlog of its pool, with `ahead` observers before it.
    pub fn set_place(&mut self, ahead: u64, of: u64) {
        if let Some(waiting) = &mut self.waiting {
            let place = ahead + 1;
            let of = of.max(place);
            (waiting.place, waiting.of) = (Some(place), Some(of));
            if of > 1 {
                self.reason = format!("{}; number {place} of {of} in line", self.reason);
            }
        }
    }

    /// `service` names the holder, if it still lives; `services` are those that live at `now`.
    #[must_use]
    pub fn of(row: &Row, service: Option<ServiceName>, (services, now): (&[ServiceRow], Timestamp)) -> Self {
        let told = reason::explain(row, service.is_some(), services, now);
        let seen = &row.observed;
        let waiting = row.waiting.filter(|_| row.is_waiting());
        let ended = row.settlement().is_some_and(|how| match how {
            Settlement::Completed
            | Settlement::Finished { .. }
            | Settlement::Failed { .. }
            | Settlement::NotStarted { .. } => true,
            Settlement::Stopped => false,
        });
        let desired = match row.desired {
            row::Desired::Deleted => Desired::Deleted,
            row::Desired::Running | row::Desired::Paused
                if ended && row.waiting.is_none() && !row.will_execute_again() =>
            {
                Desired::Ended
            }
            row::Desired::Running => Desired::Running,
            row::Desired::Paused => Desired::Paused,
        };
        Self {
            id: row.id.0,
            name: row.definition.name.to_string(),
            namespace: row.definition.namespace.to_string(),
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
            definition_version: row.revision().number,
            epoch: row.epoch().into(),
            epoch_string: row.epoch().to_string(),
            generation: row.generation,
            acquisitions: row.epoch().acquisitions(),
            attempt: seen.started.as_ref().map_or(0, |told| told.value.attempt),
            last_error: seen.last_error.as_ref().map(|told| told.value.clone()),
            progress: seen.progress.as_ref().map(|told| told.value.clone()),
            retry: row.definition.retry.clone(),
            overlap: row.definition.overlap,
            grace: show(row.definition.grace),
            on_full: row.definition.on_full,
            priority: row.definition.priority,
            weight: row.definition.weight,
            limits: row
                .definition
                .limits
                .iter()
                .filter(|key| !key.is_of_namespace())
                .map(ToString::to_string)
                .collect(),
            start_at: row.definition.start_at,
            finish_at: row.definition.finish_at,
            windows: row.definition.windows.clone(),
            closes_at: row.closes_at.filter(|_| told.status.uses_slot() && row.opens_at().is_none()),
            schedule: row.definition.schedule.clone(),
            next_start_at: row.opens_at(),
            last_execution: row.last_execution().map(Execution::from),
            start_within: row.definition.start_within.map(show),
            attempt_timeout: row.definition.attempt_timeout.map(show),
            waiting: waiting.map(|it| Waiting { since: it.since, place: None, of: None }),
            created_at: row.created_at,
            modified_at: row.modified_at,
            started_at: seen.started.as_ref().map(|told| told.value.at),
        }
    }
}

/// The result of one request of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The status that a single request would have had.
    pub status: u16,
    /// The observer after the request; absent if the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer: Option<Observer>,
    /// Why the request failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemBody>,
}

/// The results, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcomes {
    /// In the order of the requests; of a filter, one for each observer that matches.
    pub items: Vec<Outcome>,
}
