//! Reports of services to managers, in the state queues.

mod inventory;
mod registration;

pub use crate::wire::inventory_range::InventoryRange;
pub use inventory::{HeldPhase, InventoryChunk, InventoryDigest, RangeDigest, RangeTotal};
pub use registration::{KindInfo, Predecessor};

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, Pool, ServiceId};
use crate::observer::definition::{is_one, one};
use crate::wire::checkpoint::{Checkpoint, CheckpointWanted};
use crate::wire::command::Cause;
use crate::wire::heartbeat::Watermark;
use crate::wire::message::is_false;
use crate::wire::trace::{self, TraceContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A message of a state queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateMessage {
    Reports(Reports),
    Watermark(Watermark),
}

/// A batch of reports of one service, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    pub service: ServiceId,
    pub entries: Vec<SequencedReport>,
}

/// One report; its numbers start at 1 within one incarnation of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SequencedReport {
    pub seq: u64,
    pub at: Timestamp,
    pub report: Report,
    /// The trace of the reported run, if it is sampled. A header cannot carry it, because a message contains the
    /// reports of many runs.
    #[serde(default, with = "trace::carried", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<trace::TraceHeaders>")]
    pub trace: Option<TraceContext>,
}

impl SequencedReport {
    /// A report without a trace.
    #[must_use]
    pub fn new(seq: u64, at: Timestamp, report: Report) -> Self {
        Self { seq, at, report, trace: None }
    }
}

/// A report of a service to the managers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    ServiceRegistered(Box<Registration>),
    ServiceGone,
    /// An event of one run.
    Run(RunReport),
    /// The inventory as digests; managers request the entries of the ranges that differ from the database.
    InventoryDigest(InventoryDigest),
    /// The entries of one range of the inventory: the last-resort repair.
    Inventory(InventoryChunk),
    /// The answer to [`Command::Describe`].
    HeldMessages(HeldMessages),
    /// The state from which the next run of an observer continues.
    Checkpoint(Checkpoint),
    /// A run requests the newest checkpoint of its observer.
    CheckpointWanted(CheckpointWanted),
    /// A work queue was missing, and the service created it.
    WorkQueueCreated {
        pool: Pool,
    },
    /// Messages of a queue that no manager has signed.
    MessagesRefused(RefusedMessages),
    /// Written by a newer version: counted and ignored.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

/// Messages that a service refused for the same reason since its last report, at most one report a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedMessages {
    pub queue: String,
    /// A word: `unsigned`, `malformed`, `unknown-key`, `altered`, `not-current` or `replayed`.
    pub reason: String,
    pub count: u64,
    /// The reason of the latest one as a sentence.
    pub detail: String,
    /// The observer of the latest one, according to the message, which may be forged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverId>,
}

/// The registration of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Registration {
    pub name: Name,
    pub pool: Pool,
    /// Whether the work queue of its pool serves one service at a time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pool_single: bool,
    pub capacity: u32,
    /// The greatest weight of an observer that it takes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight_max: u16,
    pub kinds: Vec<KindInfo>,
    pub version: String,
    /// The highest version of work messages that it reads.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub message_version: u16,
    pub host: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The previous incarnation in the same process, and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Predecessor>,
}

/// One event of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    pub id: ObserverId,
    pub epoch: Epoch,
    pub event: RunEvent,
}

/// The events of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEvent {
    /// Held but not started yet; contains the reason. `refuses`: this service cannot run it, and holds the message for
    /// a while so that the queue serves others in the meantime.
    Held {
        reason: String,
        #[serde(default, skip_serializing_if = "is_false")]
        refuses: bool,
    },
    /// The code was started (the `attempt`th time in this run) and will announce when it is ready.
    Starting { attempt: u32, started_at: Timestamp },
    /// The code was started (the `attempt`th time in this run); if it announces readiness, it is ready.
    Started { attempt: u32, started_at: Timestamp },
    /// The code failed and restarts at `next_at`.
    Errored { attempt: u32, error: String, next_at: Timestamp },
    /// A progress text from the code.
    Progress { text: String },
    /// The code was stopped here so that the observer can continue elsewhere.
    HandedOver,
    /// The same, requested by a user or a plan.
    HandedOverFor { cause: Cause },
    /// This service cannot run it and gives it back.
    Refused { why: String },
    /// Ended: it was told to stop.
    Stopped,
    /// Ended: its code reported that it is done.
    Completed,
    /// The same, with a result of at most 64 KiB as JSON text.
    CompletedWith { result: String },
    /// Ended, or not started, because its `finish_at` has passed.
    Finished { at: Timestamp },
    /// Ended: it gave up.
    Failed { error: String, attempts: u32 },
    /// The queue no longer has its message, which counted towards limits: the service has acknowledged it, and the queue has
    /// accepted that.
    Released,
}

impl RunEvent {
    /// Whether the run is over and its message will be acknowledged.
    #[must_use]
    pub fn settles(&self) -> bool {
        match self {
            Self::Stopped
            | Self::Completed
            | Self::CompletedWith { .. }
            | Self::Finished { .. }
            | Self::Failed { .. } => true,
            Self::Held { .. }
            | Self::Starting { .. }
            | Self::Started { .. }
            | Self::Errored { .. }
            | Self::Progress { .. }
            | Self::HandedOver
            | Self::HandedOverFor { .. }
            | Self::Refused { .. }
            | Self::Released => false,
        }
    }
    /// Whether the service still holds the message after this event.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self {
            Self::Held { .. }
            | Self::Starting { .. }
            | Self::Started { .. }
            | Self::Errored { .. }
            | Self::Progress { .. } => true,
            Self::HandedOver | Self::HandedOverFor { .. } | Self::Refused { .. } => false,
            Self::Stopped
            | Self::Completed
            | Self::CompletedWith { .. }
            | Self::Finished { .. }
            | Self::Failed { .. }
            | Self::Released => false,
        }
    }
}

/// Messages that a service holds, for managers that do not know their observers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMessages {
    pub pool: Pool,
    pub held: Vec<HeldWork>,
}

/// One held message and the phase of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldWork {
    pub run: RunReport,
    /// A [`Work`] as JSON text, which preserves its numbers exactly.
    pub work: String,
}
