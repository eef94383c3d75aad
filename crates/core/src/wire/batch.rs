//! What managers publish about batches, to the exchange of the output of observers.

use crate::clock::Timestamp;
use crate::id::{BatchId, Name, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The routing key of a [`BatchMessage::Completed`].
pub const COMPLETED: &str = "batch.completed";

/// A message about a batch. Managers publish it at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BatchMessage {
    #[serde(rename = "batch.completed")]
    Completed(BatchCompleted),
}

/// Each member of a batch has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchCompleted {
    pub batch: BatchId,
    pub name: Name,
    /// Missing: `default`.
    #[serde(default, skip_serializing_if = "Namespace::is_default")]
    pub namespace: Namespace,
    /// How often the batch has completed, from 1: retried members complete it again. A message with the same batch and
    /// number is a repetition.
    pub completion: u32,
    /// The number of its members.
    pub members: u32,
    /// Its members by status: `Completed`, `Failed`, `Deleted`.
    pub counts: BTreeMap<String, u32>,
    pub created_at: Timestamp,
    pub completed_at: Timestamp,
}
