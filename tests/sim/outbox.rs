//! Publishes what a row's mark says, keeps its lease, writes the broker's answers down; mirrors the
//! manager's `outbox` and `leases`.

use crate::broker::{Body, QueueId};
use crate::database::{Access, Folded};
use crate::world::World;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::message::Work;
use everwatch_core::row::Row;
use std::collections::BTreeMap;
use std::time::Duration;

/// A publish does not begin in the last moments of its lease.
const LEASE_MARGIN: Duration = Duration::from_secs(2);
const RETRY_PAUSE: u64 = 1000;
const GATHER: u64 = 5;
pub(crate) const LEASE_LOOK: u64 = 5000;

/// A publish that is under way.
struct Publish {
    id: ObserverId,
    generation: u32,
    body: Body,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    generation: u32,
    until: Timestamp,
}

/// How a publish ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Confirmed,
    /// It may be in the queue or not.
    Unsure,
}

impl World {
    /// Publishes a row whose lease this manager has just taken.
    pub(crate) fn publish(&mut self, m: usize, row: &Row) {
        let Some(mark) = row.mark else { return };
        let lease = Lease { generation: row.generation, until: mark.until };
        self.managers[m].leases.insert(row.id, lease);
        let work = Work::of(row.id, row.generation, &row.wanted).unwrap();
        let body: Body = serde_json::to_vec(&work).unwrap().into();
        self.deliver(m, Publish { id: row.id, generation: row.generation, body });
    }

    fn lease_left(&self, m: usize, publish: &Publish) -> Option<Duration> {
        let lease = self.managers[m].leases.get(&publish.id);
        let lease = lease.filter(|lease| lease.generation == publish.generation)?;
        lease.until.since(self.manager_now(m)).checked_sub(LEASE_MARGIN)
    }

    fn deliver(&mut self, m: usize, publish: Publish) {
        if self.lease_left(m, &publish).is_none() {
            return self.end_lease(m, &publish);
        }
        let host = self.host_of(m);
        let open = self.managers[m].conns.filter(|conns| self.net.is_open(conns[1]));
        let Some([_, conn]) = open else {
            return self.after(100, host, move |world| world.deliver(m, publish));
        };
        let body = publish.body.clone();
        let question = move |world: &mut Self| {
            let accepted = world.enqueue(QueueId::Work, body);
            world.break_after_publish(conn);
            accepted
        };
        self.ask(conn, question, move |world, answer| match answer {
            None => world.published(m, &publish, How::Unsure),
            Some(false) => world.after(RETRY_PAUSE, host, move |world| world.deliver(m, publish)),
            Some(true) => world.published(m, &publish, How::Confirmed),
        });
    }

    fn end_lease(&mut self, m: usize, publish: &Publish) {
        let leases = &mut self.managers[m].leases;
        if leases.get(&publish.id).is_some_and(|lease| lease.generation == publish.generation) {
            leases.remove(&publish.id);
        }
    }

    fn published(&mut self, m: usize, publish: &Publish, how: How) {
        self.end_lease(m, publish);
        self.managers[m].confirms.insert(publish.id, (publish.generation, how));
        if !std::mem::replace(&mut self.managers[m].confirming, true) {
            let host = self.host_of(m);
            self.after(GATHER, host, move |world| world.write_confirms(m));
        }
    }

    /// Renews the leases of publishes that wait for their answer.
    pub(crate) fn look_at_leases(&mut self, m: usize) {
        let host = self.host_of(m);
        self.after(LEASE_LOOK, host, move |world| world.look_at_leases(m));
        if self.managers[m].conns.is_none() {
            return;
        }
        let (now, policy) = (self.manager_now(m), &self.db.policy);
        let leases = self.managers[m].leases.iter().filter(|(_, lease)| policy.renews(lease.until, now));
        let ending: BTreeMap<ObserverId, u32> = leases.map(|(id, lease)| (*id, lease.generation)).collect();
        if ending.is_empty() {
            return;
        }
        let ids: Vec<ObserverId> = ending.keys().copied().collect();
        self.query(
            host,
            Access::Read,
            move |world| world.db.load(&ids),
            move |world, rows| {
                let Some(mut rows) = rows else { return };
                let (now, policy) = (world.manager_now(m), world.db.policy.clone());
                rows.retain_mut(|row| row.renew(ending[&row.id], now, &policy));
                let saved = rows.clone();
                let save = move |world: &mut Self| world.db_save(&saved, &Folded::new());
                world.query(host, Access::Write, save, move |world, lost| {
                    let Some(lost) = lost else { return };
                    for row in rows.iter().filter(|row| !lost.contains(&row.id)) {
                        if let (Some(mark), Some(lease)) =
                            (row.mark, world.managers[m].leases.get_mut(&row.id))
                            && lease.generation == row.generation
                        {
                            lease.until = mark.until;
                        }
                    }
                });
            },
        );
    }

    fn write_confirms(&mut self, m: usize) {
        let batch = std::mem::take(&mut self.managers[m].confirms);
        self.managers[m].confirming = false;
        self.confirmed(m, batch);
    }

    fn confirmed(&mut self, m: usize, mut batch: BTreeMap<ObserverId, (u32, How)>) {
        let (host, ids) = (self.host_of(m), batch.keys().copied().collect::<Vec<_>>());
        self.query(
            host,
            Access::Read,
            move |world| world.db.load(&ids),
            move |world, rows| {
                let Some(mut rows) = rows else { return };
                let now: Timestamp = world.manager_now(m);
                let policy = world.db.policy.clone();
                rows.retain_mut(|row| world.rules.published(row, batch[&row.id], now, &policy));
                if rows.is_empty() {
                    return;
                }
                let save = move |world: &mut Self| world.db_save(&rows, &Folded::new());
                world.query(host, Access::Write, save, move |world, lost| {
                    let Some(lost) = lost.filter(|lost| !lost.is_empty()) else { return };
                    batch.retain(|id, _| lost.contains(id));
                    world.confirmed(m, batch);
                });
            },
        );
    }
}
