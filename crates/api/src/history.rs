//! Events and runs as they travel over HTTP.

use super::NamedThing;
use everwatch_core::clock::Timestamp;
use everwatch_core::record::events::EventKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An entry of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Later entries have higher numbers.
    pub id: i64,
    /// When it happened: by the clock of the service's host if a service reported it, otherwise by the
    /// database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened; `unreadable` is a stored event that this manager cannot read.
    #[schema(value_type = String, example = "started")]
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The observer that it concerns, with its name at that time; null if it concerns none.
    pub observer: Option<NamedThing>,
    /// The service that it concerns, with its name at that time; null if it concerns none.
    pub service: Option<NamedThing>,
    /// `generation << 32 | acquisitions`.
    pub epoch: Option<u64>,
    /// The epoch as `generation.acquisitions`, in the form in which logs and commands show it.
    #[serde(default)]
    #[schema(example = "3.2")]
    pub epoch_string: Option<String>,
    /// The cause, if known.
    pub text: String,
    /// If the observer moved: the service that ran it before.
    pub from: Option<NamedThing>,
    /// If the observer moved: the time without a run, in ms. If a service was lost: the time since its last sign of life.
    pub gap_ms: Option<u64>,
    /// Whether the time without a run is an upper bound: it is counted from the last sign of life of the previous
    /// service, because the previous run did not report its end.
    #[serde(default)]
    pub gap_is_bound: bool,
    /// If the observer moved: the time with two runs, in ms.
    pub overlap_ms: Option<u64>,
    /// The user whose request caused it; null if a manager or a service acted on its own.
    pub by: Option<LogRequester>,
    /// Only in a summary: the similar events that it stands for. Lists omit those events, unless the
    /// request sets `details=true` or filters by observer or service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<EventBurst>,
}

/// Similar events that a summary stands for, such as the starts of all observers of a service that died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBurst {
    /// The number of events.
    pub count: u64,
    /// The time of the earliest.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The time of the latest.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// If observers moved: the median time without a run, in ms.
    pub gap_ms_median: Option<u64>,
    /// If observers moved: 99 % were without a run for at most this time, in ms.
    pub gap_ms_p99: Option<u64>,
    /// If observers moved: the longest time without a run, in ms.
    pub gap_ms_max: Option<u64>,
    /// Whether at least one of these times without a run is an upper bound.
    #[serde(default)]
    pub gap_is_bound: bool,
    /// If observers moved: the longest time with two runs, in ms.
    pub overlap_ms_max: Option<u64>,
}

/// Who sent a request. `who` is an unverified claim, unless an authenticating proxy sets the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogRequester {
    /// The value of the header `Everwatch-Actor`.
    #[schema(example = "ada@laptop")]
    pub who: Option<String>,
    /// The address at the other end of the connection.
    #[schema(example = "10.0.0.7")]
    pub from: Option<String>,
    /// The value of the header `User-Agent`.
    #[schema(example = "everwatch/0.1.0")]
    pub with: Option<String>,
}

/// What a completed observer has returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObserverResult {
    /// The run that completed, `generation << 32 | acquisitions`.
    pub epoch: u64,
    /// The epoch as `generation.acquisitions`.
    #[serde(default)]
    #[schema(example = "3.2")]
    pub epoch_string: String,
    /// The result, at most 64 KiB of JSON.
    pub value: serde_json::Value,
}

/// A run: the time for which one service holds an observer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// `generation << 32 | acquisitions`.
    pub epoch: u64,
    /// The epoch as `generation.acquisitions`, in the form in which logs and commands show it.
    #[serde(default)]
    #[schema(example = "3.2")]
    pub epoch_string: String,
    /// How often managers had published the observer: the first number of the epoch.
    pub generation: u32,
    /// How often the broker had delivered the message of this generation before; 0 for the first run.
    pub acquisitions: u32,
    /// The service that held the observer, with its name at that time.
    pub service: Option<NamedThing>,
    /// When the first attempt of the run started, by the clock of the service's host.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When the run ended; null while it runs. If its service was lost: when a manager last heard from that service.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// How it ended: stopped, completed, failed, handed_over, or lost with its service; null while it runs.
    pub ended: Option<String>,
    /// The number of starts of its code.
    pub attempts: u32,
    /// Time without a run before it, in ms.
    pub gap_ms: Option<u64>,
    /// Whether the time without a run is an upper bound: it is counted from the last sign of life of the previous
    /// service, because the previous run did not report its end.
    #[serde(default)]
    pub gap_is_bound: bool,
}

impl Run {
    /// Notes when and how it ended.
    pub fn end(&mut self, at: Timestamp, how: &str) {
        (self.ended_at, self.ended) = (Some(at), Some(how.to_owned()));
    }
}
