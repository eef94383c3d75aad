//! Commands of managers to services.

use crate::clock::{Timestamp, friendly};
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::wire::checkpoint::CheckpointAnswers;
use crate::wire::inventory_range::InventoryRange;
use crate::wire::logs::AskLogs;
use crate::wire::permits::PermitAnswers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A command of a manager to services. A command that concerns one service is sent to its own queue, the others to all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// No run of `id` below `below` may start or continue.
    Revoke(Vec<Revocation>),
    /// The time by the database's clock. Managers announce it once a minute.
    Time(Timestamp),
    /// The answer to a registration.
    Welcome(Box<Welcome>),
    /// What one service may take.
    Directives { service: ServiceId, directives: ServiceDirectives },
    /// What one service must hand over.
    HandOver(HandOver),
    /// Observers that may end their services: start them one at a time.
    CrashLooping(Vec<ObserverId>),
    /// Requests the entries of these ranges of the inventory: their digests differ from the database.
    ListHeld { service: ServiceId, ranges: Vec<InventoryRange> },
    /// Requests the details of these held observers; without ids, the registration and the inventory.
    Describe { service: ServiceId, ids: Vec<ObserverId> },
    /// The answer goes to a single manager.
    Logs(AskLogs),
    /// The checkpoints that managers have stored, or read for runs that requested them.
    Checkpoints(CheckpointAnswers),
    /// The permits of rates that a manager grants to one service.
    Permits(PermitAnswers),
    /// Written by a newer version: counted and ignored.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

/// The answer to a registration: the commands sent before the new service listened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Welcome {
    pub service: ServiceId,
    pub revocations: Vec<Revocation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crash_looping: Vec<ObserverId>,
    /// The directives that an operator set for its name, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directives: Option<ServiceDirectives>,
    /// The time by the database's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

impl Welcome {
    /// Only revocations.
    #[must_use]
    pub fn new(service: ServiceId, revocations: Vec<Revocation>) -> Self {
        Self { service, revocations, crash_looping: Vec::new(), directives: None, time: None }
    }
}

/// What a service may take. Directives belong to the name of a service and outlive its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServiceDirectives {
    /// The higher number wins.
    pub revision: u64,
    /// It takes no more observers.
    pub cordoned: bool,
    /// It takes no more observers because it is draining.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// The number of slots, if it differs from the service's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
}

/// What one service must hand over. Idempotent: a repeated command has no further effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandOver {
    pub service: ServiceId,
    /// Hand over these observers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<ObserverId>,
    /// Hold at most this many: hand over the others, those with the shortest run first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_to: Option<u32>,
    /// For this long, take nothing beyond `down_to`, or nothing at all after handing over `ids`; then continue
    /// normally.
    #[serde(with = "friendly")]
    #[schemars(with = "String")]
    pub rest: Duration,
    pub cause: Cause,
}

/// Why a service hands over an observer that it could continue to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Drain,
    Rebalance,
    Move,
    /// Its capacity is less than the number of held observers.
    Resize,
    /// The process is replaced, because the code of another observer blocks one of its threads for too long.
    Stall,
    /// The process is replaced, because it uses more memory than it may.
    Memory,
    /// Sent by a newer version.
    #[serde(other)]
    Other,
}

impl Cause {
    const ALL: [Self; 7] =
        [Self::Drain, Self::Rebalance, Self::Move, Self::Resize, Self::Stall, Self::Memory, Self::Other];

    /// The cause with this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Rebalance => "rebalance",
            Self::Move => "move",
            Self::Resize => "resize",
            Self::Stall => "stall",
            Self::Memory => "memory",
            Self::Other => "other",
        }
    }
}

/// No run of `id` with an epoch below `below` may start or continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revocation {
    pub id: ObserverId,
    pub below: Epoch,
    /// Why, for the code of the observer; `None` if a later run replaces the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RevocationCause>,
}

/// Why a run was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevocationCause {
    Deleted,
    Paused,
    /// Its definition changed, or a user requested a restart.
    Restarted,
    /// Sent by a newer version.
    #[serde(other)]
    Other,
}
