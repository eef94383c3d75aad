//! The data that one screen reads from the manager, and values derived from it. Members that the screen does
//! not show are left out.

use crate::output::is_able;
use everwatch_core::clock::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a service that was lost stays in the list.
pub(super) const LOST_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Observer {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) pool: String,
    #[serde(default = "one_slot")]
    pub(super) weight: u32,
    pub(super) status: String,
    #[serde(default)]
    pub(super) health: Option<String>,
    #[serde(default)]
    pub(super) restarts: u32,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) reason_code: Option<String>,
    #[serde(default)]
    pub(super) last_error: Option<String>,
    pub(super) progress: Option<String>,
    pub(super) service: Option<Named>,
    pub(super) generation: u32,
    pub(super) acquisitions: u32,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
}

fn one_slot() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Drain {
    pub(super) of: u32,
    pub(super) moved: u32,
    pub(super) waits: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Service {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) pool: String,
    #[serde(default)]
    pub(super) kinds: Vec<String>,
    pub(super) state: String,
    pub(super) held: u32,
    pub(super) capacity: u32,
    pub(super) last_heartbeat_at: Timestamp,
    pub(super) modified_at: Timestamp,
    #[serde(default)]
    pub(super) cordoned: bool,
    pub(super) capacity_set: Option<u32>,
    pub(super) drain: Option<Drain>,
    #[serde(default)]
    pub(super) unconfirmed: Option<String>,
    #[serde(default)]
    pub(super) stalled: Vec<Named>,
    #[serde(default)]
    pub(super) frozen: bool,
}

impl Service {
    pub(super) fn is_lost(&self) -> bool {
        self.state == "lost"
    }

    /// Whether it accepts observers, or takes over when another service of its pool ends.
    pub(super) fn is_able(&self) -> bool {
        is_able(&self.state)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Stats {
    pub(super) observers: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) health: BTreeMap<String, u64>,
    pub(super) services: BTreeMap<String, u64>,
    pub(super) capacity: u64,
    pub(super) held: u64,
    pub(super) broker: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Pool {
    pub(super) name: String,
    /// The slots that its observers need.
    #[serde(default)]
    pub(super) needed: u64,
    #[serde(default)]
    pub(super) failure_tolerance: Option<u32>,
    #[serde(default)]
    pub(super) paused: bool,
    /// The free slots of its services that take observers.
    #[serde(default)]
    pub(super) free: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct SafeMode {
    pub(super) on: bool,
    #[serde(default)]
    pub(super) reason: String,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next_cursor: Option<String>,
    pub(super) total: u64,
}

/// Everything that one screen shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) stats: Stats,
    pub(super) pools: Vec<Pool>,
    /// The living ones, and those that were lost within [`LOST_FOR`].
    pub(super) services: Vec<Service>,
    pub(super) observers: Page<Observer>,
    /// What to say about a label of the filter that no observer has.
    pub(super) unknown_label: Option<String>,
    pub(super) safe_mode: SafeMode,
}

/// The living services, and below them those that were lost a moment ago.
pub(super) fn with_lost(mut living: Vec<Service>, ended: Vec<Service>, now: Timestamp) -> Vec<Service> {
    let mut lost: Vec<Service> =
        ended.into_iter().filter(|it| it.is_lost() && now.since(it.modified_at) < LOST_FOR).collect();
    // Of a name that was lost twice, the latest loss.
    lost.sort_by(|a, b| a.name.cmp(&b.name).then(b.modified_at.cmp(&a.modified_at)));
    lost.dedup_by(|later, first| later.name == first.name);
    living.extend(lost);
    living.sort_by(|a, b| (a.is_lost(), &a.name).cmp(&(b.is_lost(), &b.name)));
    living
}

/// Where a service that was selected `before` is now. The selection never goes to another service by itself: of a service that was lost
/// meanwhile, it goes to the next process of that name as soon as there is one, and until then to the row of the loss.
pub(super) fn place_of(was: &Service, before: &[Service], services: &[Service]) -> Option<usize> {
    let lives = |all: &[Service]| all.iter().position(|it| it.name == was.name && !it.is_lost());
    let same = services.iter().position(|it| it.id == was.id && it.is_lost() == was.is_lost());
    let is_back = was.is_lost() && lives(before).is_none();
    let next = lives(services).filter(|_| is_back || same.is_none());
    next.or(same).or_else(|| services.iter().position(|it| it.name == was.name))
}

impl Seen {
    /// How many services the pool with the least reserve can lose and still have a slot for every observer that needs one, as managers
    /// say.
    pub(super) fn spare(&self) -> Option<u32> {
        self.pools.iter().filter(|it| it.needed > 0).filter_map(|it| it.failure_tolerance).min()
    }
}
