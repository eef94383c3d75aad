//! What operators read and set: totals, safe mode, parked messages, findings of the doctor.

use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::{self, Severity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// Totals.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Observers by status.
    pub observers: BTreeMap<String, u64>,
    /// Observers by health; observers that are not meant to run have none.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
    /// Observers that wait for a place of a limit, among those with the health `waiting`.
    #[serde(default)]
    pub behind_limits: u64,
    /// Living services by state.
    pub services: BTreeMap<String, u64>,
    /// Slots of the active services; of each single pool, those of one service.
    pub capacity: u32,
    /// Slots in use on all living services, also on those that take no more observers.
    pub held: u32,
    /// Whether the broker is connected.
    pub broker: bool,
}

/// The number of observers that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ObserverCounts {
    /// All observers except deleted ones.
    pub total: u64,
    /// By status.
    pub observers: BTreeMap<String, u64>,
    /// By health; observers that are not meant to run have none.
    pub health: BTreeMap<String, u64>,
}

/// The switch that stops conclusions from silence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SafeMode {
    /// Whether safe mode is on: managers conclude nothing from silence.
    pub on: bool,
    /// The reason, for other operators.
    #[serde(default)]
    pub reason: String,
}

/// A message that managers could not read or apply, or that no manager has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedMessage {
    /// Later messages have higher numbers.
    pub id: i64,
    /// The queue that it came from; if that is unknown, the queue for parked messages.
    pub queue: String,
    /// Why it was parked, for people.
    pub reason: String,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The first 4,096 bytes of the body as text, if they are text.
    pub text: Option<String>,
    /// The first 4,096 bytes of the body in base64.
    pub body: String,
    /// When a manager stored it, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// The program and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version of the program that runs this manager.
    pub version: String,
    /// This incarnation of the manager.
    pub manager: Uuid,
    /// Whether `everwatch dev` runs the manager: `POST /dev/chaos/{service}/kill` then kills a service, to try out failover.
    #[serde(default)]
    pub dev: bool,
}

/// Whether the manager is alive or ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: otherwise, the response is a problem with the status 503.
    pub ok: bool,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Stable, for programs.
    #[schema(example = "too-big-to-lose")]
    pub code: String,
    /// info, warning, critical
    #[schema(value_type = String, example = "warning")]
    pub severity: Severity,
    /// The subject of the finding.
    #[schema(example = "service a")]
    pub subject: String,
    /// The problem, as a sentence.
    pub what: String,
    /// Why it matters, as a sentence.
    pub why: String,
    /// The command or setting that cures it.
    pub cure: String,
}

impl Finding {
    #[must_use]
    pub fn of(finding: doctor::Finding) -> Self {
        let doctor::Finding { code, severity, subject, what, why, cure } = finding;
        Self { code: code.to_owned(), severity, subject, what, why, cure }
    }
}
