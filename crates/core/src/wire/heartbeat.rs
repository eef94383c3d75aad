//! Heartbeats of services, and the watermarks that managers leave in their queues.

use crate::clock::Timestamp;
use crate::id::{ManagerId, Name, ObserverId, ServiceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A message of the heartbeats queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeartbeatMessage {
    Heartbeat(Heartbeat),
    Probe { service: ServiceId },
    Watermark(Watermark),
}

/// A manager's own message in a queue: once applied, it proves that the manager reads the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watermark {
    pub manager: ManagerId,
    pub sent_at: Timestamp,
}

/// A sign of life of a service (one per service, never one per observer).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    pub service: ServiceId,
    pub seq: u64,
    pub state: Intent,
    pub capacity: u32,
    pub held: u32,
    pub loop_lag_ms: u32,
    pub rss_bytes: u64,
    /// By the clock of the service's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Observers whose code currently blocks a thread, the longest first; at most [`STALLED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled: Vec<StalledObserver>,
}

/// The most observers in [`Heartbeat::stalled`].
pub const STALLED_MAX: usize = 10;

/// An observer whose code blocks a thread of its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StalledObserver {
    pub id: ObserverId,
    pub name: Name,
    /// For how long its code has held the thread.
    pub stalled_ms: u64,
}

/// The state that a service reports about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Active,
    Cordoned,
    Draining,
}
