//! The publishes that this manager has under way, and how long each may go on. Renews their leases while
//! the session with the broker lives: an alarm may hold a confirm back for longer than a lease.

use crate::RunError;
use crate::shared::{Manager, lock};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::row::{Row, RowPolicy};
use everwatch_store::StoreError;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::warn;

/// Publishes under way or waiting for their turn; more are left to the end of their leases.
const MOST: usize = 20_000;
const BATCH: usize = 500;
/// Looks at the leases in the time of one.
const LOOKS: u32 = 6;

#[derive(Debug, Clone, Copy)]
struct Lease {
    generation: u32,
    until: Timestamp,
}

/// By observer: of two generations only the newer is worth its lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: Mutex<HashMap<ObserverId, Lease>>,
}

impl Leases {
    /// Notes that this row's publish begins; `false` if there is no room for it.
    pub(crate) fn begin(&self, row: &Row) -> bool {
        let Some(mark) = row.mark else { return false };
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

    fn ending(&self, now: Timestamp, policy: &RowPolicy) -> Vec<(ObserverId, u32)> {
        let all = lock(&self.all);
        let ending = all.iter().filter(|(_, lease)| policy.renews(lease.until, now));
        ending.map(|(id, lease)| (*id, lease.generation)).collect()
    }

    fn renewed(&self, row: &Row) {
        if let (Some(mark), Some(lease)) = (row.mark, lock(&self.all).get_mut(&row.id))
            && lease.generation == row.generation
        {
            lease.until = mark.until;
        }
    }
}

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let every = manager.settings.row.lease / LOOKS;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        // Without a session nothing of this can succeed here; another manager may be better off.
        if manager.session().is_none() {
            continue;
        }
        let ending = manager.leases.ending(manager.clock.now(), &manager.settings.row);
        for batch in ending.chunks(BATCH) {
            if let Err(error) = renew(&manager, batch).await {
                warn!(%error, "leases of publishes could not be renewed");
                break;
            }
        }
    }
}

async fn renew(manager: &Manager, batch: &[(ObserverId, u32)]) -> Result<(), StoreError> {
    let generations: HashMap<ObserverId, u32> = batch.iter().copied().collect();
    let ids: Vec<ObserverId> = generations.keys().copied().collect();
    let now = manager.clock.now();
    let mut rows = manager.store.load(&ids).await?.rows;
    rows.retain_mut(|row| {
        let generation = generations.get(&row.id).copied().unwrap_or_default();
        row.renew(generation, now, &manager.settings.row)
    });
    if rows.is_empty() {
        return Ok(());
    }
    // Whoever was faster has either answered this publish or taken it over.
    let lost: HashSet<ObserverId> = manager.store.save(&rows).await?.into_iter().collect();
    for row in rows.iter().filter(|row| !lost.contains(&row.id)) {
        manager.leases.renewed(row);
    }
    Ok(())
}
