//! Checkpoints: what the code of an observer saves so that its next run continues from there.
//!
//! The obvious way confirms a checkpoint as soon as its report is in the state queue. But several managers read that
//! queue: one of them could read the request of the next run, and answer it from the database, while another one has not
//! stored the checkpoint yet. Instead, a checkpoint is confirmed when a manager has stored it.

use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest checkpoint, and the largest result of an observer, in bytes of JSON text.
pub const CHECKPOINT_MAX_BYTES: usize = 64 * 1024;

/// A checkpoint that a run saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    pub id: ObserverId,
    /// The run that saves it.
    pub epoch: Epoch,
    /// Counts the checkpoints of this run, from 1.
    pub number: u64,
    /// JSON text, which preserves its numbers exactly.
    pub value: String,
}

/// A run requests the newest checkpoint of its observer. From then on, no checkpoint of an earlier run is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointWanted {
    pub id: ObserverId,
    pub epoch: Epoch,
}

/// The answers of a manager to one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointAnswers {
    pub service: ServiceId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<CheckpointStored>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<CheckpointRestored>,
}

/// A manager has stored this checkpoint, or a later one of the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointStored {
    pub id: ObserverId,
    pub epoch: Epoch,
    pub number: u64,
}

/// The answer to [`CheckpointWanted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointRestored {
    pub id: ObserverId,
    /// The run that requested it.
    pub epoch: Epoch,
    /// `None` if no run has saved one.
    pub checkpoint: Option<SavedCheckpoint>,
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SavedCheckpoint {
    /// The run that saved it.
    pub epoch: Epoch,
    pub number: u64,
    /// JSON text.
    pub value: String,
}
