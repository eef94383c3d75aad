//! The publishes that this manager has in progress, and how long each may go on.

use crate::lock::lock;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// Publishes in progress or waiting for their turn; more are left to the end of their leases.
const MOST: usize = 20_000;
/// Publishes that one pass begins, at most.
pub(crate) const BATCH: usize = 500;

#[derive(Debug, Clone, Copy)]
struct Lease {
    generation: u32,
    until: Timestamp,
}

/// By observer: of two generations, only the newer one needs its lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: Mutex<HashMap<ObserverId, Lease>>,
}

impl Leases {
    /// Notes that the publish of this row begins; `false` if there is no room for it.
    pub(crate) fn begin(&self, row: &Row) -> bool {
        let Some(mark) = row.publish_lease else { return false };
        let mut all = lock(&self.all);
        let room = all.len() < MOST || all.contains_key(&row.id);
        if room {
            all.insert(row.id, Lease { generation: row.generation, until: mark.until });
        }
        room
    }

    pub(crate) fn end(&self, id: ObserverId, generation: u32) {
        let mut all = lock(&self.all);
        if all.get(&id).is_some_and(|lease| lease.generation == generation) {
            all.remove(&id);
        }
    }

    /// How long the publish of this generation may go on.
    pub(crate) fn left(&self, id: ObserverId, generation: u32, now: Timestamp) -> Duration {
        let lease = lock(&self.all).get(&id).copied().filter(|lease| lease.generation == generation);
        lease.map_or(Duration::ZERO, |lease| lease.until.since(now))
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.all).len()
    }

    /// Whether another batch of publishes may begin.
    pub(crate) fn have_room(&self) -> bool {
        self.count() + BATCH <= MOST
    }

    pub(crate) fn ending(&self, now: Timestamp, policy: &RowPolicy) -> Vec<(ObserverId, u32)> {
        let all = lock(&self.all);
        let ending = all.iter().filter(|(_, lease)| policy.renews(lease.until, now));
        ending.map(|(id, lease)| (*id, lease.generation)).collect()
    }

    pub(crate) fn renewed(&self, row: &Row) {
        if let (Some(mark), Some(lease)) = (row.publish_lease, lock(&self.all).get_mut(&row.id))
            && lease.generation == row.generation
        {
            lease.until = mark.until;
        }
    }
}
