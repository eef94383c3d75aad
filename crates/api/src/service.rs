//! Services, pools and kinds as they travel over HTTP.

use everwatch_core::capacity::maintenance::{self, DrainProgress, Orders, Room};
use everwatch_core::clock::Timestamp;
use everwatch_core::observer::definition::one;
use everwatch_core::record::service::{ServiceRow, ServiceState};
use everwatch_core::wire::heartbeat::StalledObserver;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    /// The id of this incarnation: a restart of the process or a lost session makes a new one.
    pub id: Uuid,
    /// The same after each restart; living services should have different names.
    pub name: String,
    /// The pool from which it takes observers.
    pub pool: String,
    /// Its slots, as of its last heartbeat.
    pub capacity: u32,
    /// The slots that the observers that it holds take: one of weight 4 counts as 4; 0 after its end.
    pub held: u32,
    /// Its capacity less `held`, also while it takes no more observers; 0 after its end.
    pub free: u32,
    /// The greatest weight of an observer that it takes.
    #[serde(default = "one")]
    pub weight_max: u16,
    /// `active`, `standby`, `cordoned`, `draining`, `suspect`, `lost` or `gone`.
    #[schema(value_type = String, example = "active")]
    pub state: ServiceState,
    /// The kinds that it can run.
    pub kinds: Vec<String>,
    /// The version of its program, as it registered.
    pub version: String,
    /// The host name of its machine, as it registered.
    pub host: String,
    /// Its labels, by key, as it registered.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// When it registered, by its own clock; by the database's clock if the two differ by over 2 minutes.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When managers last recorded a change of it other than a heartbeat, by the database's clock.
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
    /// Resident memory of its process in bytes, as of its last heartbeat.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// By how many milliseconds its control loop woke late before its last heartbeat.
    #[serde(default)]
    pub loop_lag_ms: Option<u32>,
    /// Observers whose code blocks one of its threads, the longest first; at most 10.
    #[serde(default)]
    pub stalled: Vec<Stalled>,
    /// Whether a person has frozen it with `everwatch chaos freeze`: its observers stand still.
    #[serde(default)]
    pub frozen: bool,
}

/// An observer whose code blocks a thread of its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stalled {
    /// The id of the observer.
    pub id: Uuid,
    /// The name of the observer.
    pub name: String,
    /// For how long it had blocked the thread at the last heartbeat, in milliseconds.
    pub stalled_ms: u64,
}

impl Stalled {
    fn of(stalled: &StalledObserver) -> Self {
        Self { id: stalled.id.0, name: stalled.name.to_string(), stalled_ms: stalled.stalled_ms }
    }
}

impl Service {
    /// `room` is the room of its pool at `now`.
    #[must_use]
    pub fn of(row: &ServiceRow, orders: Option<&Orders>, room: Room, now: Timestamp) -> Self {
        let drain = orders.and_then(|orders| orders.drain.as_ref()).map(|drain| {
            let DrainProgress { of, moved, waits } = maintenance::progress(drain, row, room, now);
            let (per_second, until, force) = (drain.per_second, drain.until, drain.force);
            DrainState { asked_at: Some(drain.asked_at), of, moved, per_second, until, force, waits }
        });
        let over = row.state().is_over();
        let heartbeat = row.heartbeat.as_ref().filter(|_| !over);
        let (capacity, held) = (row.capacity(), if over { 0 } else { row.held() });
        Self {
            id: row.id.0,
            name: row.registration.name.to_string(),
            pool: row.registration.pool.to_string(),
            capacity,
            held,
            free: if over { 0 } else { capacity.saturating_sub(held) },
            weight_max: row.registration.weight_max,
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
            resident_bytes: heartbeat.map(|heartbeat| heartbeat.rss_bytes),
            loop_lag_ms: heartbeat.map(|heartbeat| heartbeat.loop_lag_ms),
            stalled: heartbeat.map_or_else(Vec::new, |it| it.stalled.iter().map(Stalled::of).collect()),
            frozen: false,
        }
    }
}

/// A drain in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainState {
    /// When it was requested; null in responses of versions that do not say.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub asked_at: Option<Timestamp>,
    /// The number of observers held when it began.
    pub of: u32,
    /// `of` less the slots that are still in use; 0 until the service reports that it drains.
    pub moved: u32,
    /// The maximum number of observers per second.
    pub per_second: u32,
    /// When the rest is handed over even if no service has room.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Whether it hands over observers even if no service has room.
    pub force: bool,
    /// What delays it, as a sentence.
    pub waits: Option<String>,
}

/// A pool: its living services and its observers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// The name by which services and observers choose it. The pool `default` always exists.
    pub name: String,
    /// Whether the pool is paused. Managers admit no observer to a paused pool; observers that have a slot keep it.
    #[serde(default)]
    pub paused: bool,
    /// Whether the pool is single: one of its services runs all its observers, and the others stand by.
    #[serde(default)]
    pub single: bool,
    /// Living services.
    pub services: u32,
    /// Of these, the services that accept observers, or stand by.
    #[serde(default)]
    pub active: u32,
    /// Slots of its active services, and those that its cordoned services use; of a single pool, the slots of one service.
    pub capacity: u32,
    /// Slots in use, also of services that drain or are silent.
    pub held: u32,
    /// Free slots of its active services; of a single pool, those of one service.
    pub free: u32,
    /// Needed slots minus held slots.
    pub pending: u64,
    /// Observers in the backlog: they wait in the database for a slot and are not published yet.
    #[serde(default)]
    pub waiting: u64,
    /// The slots that all observers need, including those that wait: the figure for a scaler.
    pub needed: u64,
    /// How many of its services, the largest first, can be lost while the others have the slots that all observers need. Null in
    /// responses of versions that do not say.
    #[serde(default)]
    pub failure_tolerance: Option<u32>,
    /// Observers by status.
    pub observers: BTreeMap<String, u64>,
    /// Observers by health; observers that are not meant to run have none.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
}

/// The settings of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// Whether the pool is paused. Managers admit no observer to a paused pool; observers that have a slot keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Creates the work queue of the pool. `true`: the pool is single, so one of its services runs all its observers, and
    /// the others stand by. This cannot change later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single: Option<bool>,
}

/// A kind of observer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Kind {
    /// The `kind` in definitions of observers.
    pub name: String,
    /// JSON schema of its spec; null if the services have none.
    pub schema: Value,
    /// Pools in which a living service can run it.
    pub pools: Vec<String>,
    /// Living services that can run it.
    pub services: u32,
}
