//! Searches the work queue for messages of observers that are to end; mirrors the manager's sweep.

use crate::broker::{Delivery, QueueId};
use crate::database::{Access, Folded};
use crate::manager::SWEEP;
use crate::world::World;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{RunEvent, Work, WorkRead};
use everwatch_core::plan::{Sweep, plan_sweep, wants_sweep};
use everwatch_core::row::Row;
use everwatch_core::seen::{Heard, Key};
use std::collections::BTreeMap;
use uuid::Uuid;

const READY_MAX: usize = 1000;

impl World {
    pub(crate) fn sweep(&mut self, m: usize) {
        let (host, now) = (self.host_of(m), self.manager_now(m));
        self.after(SWEEP, host, move |world| world.sweep(m));
        let pause = u64::try_from(self.db.policy.sweep_after.as_millis()).unwrap();
        let recent = self.managers[m].swept_at.is_some_and(|at| self.now - at < pause);
        let Some([conn, _]) = self.managers[m].conns.filter(|_| !recent) else { return };
        // Of several managers one sweeps.
        let wanted = move |world: &mut Self| {
            let db = &mut world.db;
            let lives = |id| db.services.get(&id).is_some_and(|it| it.end.is_none());
            let wanted = db.rows.values().any(|row| wants_sweep(row, now, &db.policy, lives));
            wanted && db.claim_sweep(m, now)
        };
        self.query(host, Access::Write, wanted, move |world, wanted| {
            if wanted != Some(true) {
                return;
            }
            world.managers[m].swept_at = Some(world.now);
            let depth = |world: &mut Self| world.broker.ready(QueueId::Work);
            world.ask(conn, depth, move |world, ready| {
                let Some(ready) = ready.filter(|ready| (1..=READY_MAX).contains(ready)) else { return };
                let fetch = move |world: &mut Self| world.fetch(conn, ready);
                world.ask(conn, fetch, move |world, fetched| {
                    if let Some(fetched) = fetched {
                        world.judge(m, conn, fetched);
                    }
                });
            });
        });
    }

    fn judge(&mut self, m: usize, conn: usize, fetched: Vec<Delivery>) {
        let labels: Vec<(ObserverId, u32)> = fetched.iter().map(|it| label(&it.body)).collect();
        let ids: Vec<ObserverId> = labels.iter().map(|(id, _)| *id).collect();
        let host = self.host_of(m);
        self.query(
            host,
            Access::Read,
            move |world| world.db.load(&ids),
            move |world, rows| {
                let Some(rows) = rows else { return world.finish_sweep(conn, &fetched, &[]) };
                let rows: BTreeMap<ObserverId, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
                let now = world.manager_now(m);
                let (mut settled, mut folded, mut verdicts) = (BTreeMap::new(), Folded::new(), Vec::new());
                for (delivery, (id, generation)) in fetched.iter().zip(&labels) {
                    let verdict = plan_sweep(rows.get(id), *generation);
                    if verdict == Sweep::Settle {
                        let mut row = rows[id].clone();
                        let key = Key { acquisitions: delivery.acquisitions, seq: 1 };
                        let service = ServiceId(Uuid::nil());
                        let heard = Heard { service, key, at: now, event: RunEvent::Stopped };
                        let epoch = Epoch::new(*generation, delivery.acquisitions);
                        world.rules.apply(&mut row, &heard, epoch, now);
                        folded.insert(*id, vec![(*generation, heard)]);
                        settled.insert(*id, row);
                    }
                    verdicts.push(verdict);
                }
                let rows: Vec<Row> = settled.into_values().collect();
                let save = move |world: &mut Self| world.db_save(&rows, &folded);
                world.query(host, Access::Write, save, move |world, lost| {
                    let over = |(verdict, (id, _)): (&Sweep, &(ObserverId, u32))| match (verdict, &lost) {
                        (_, None) | (Sweep::Keep, _) => false,
                        (Sweep::Stale, _) => true,
                        (Sweep::Settle, Some(lost)) => !lost.contains(id),
                    };
                    let over: Vec<bool> = verdicts.iter().zip(&labels).map(over).collect();
                    world.finish_sweep(conn, &fetched, &over);
                });
            },
        );
    }

    fn finish_sweep(&mut self, conn: usize, fetched: &[Delivery], over: &[bool]) {
        for (index, delivery) in fetched.iter().enumerate() {
            let receipt = delivery.receipt;
            if over.get(index).copied().unwrap_or(false) {
                self.up(conn, move |world| world.ack(conn, QueueId::Work, receipt));
            } else {
                self.up(conn, move |world| world.requeue(conn, QueueId::Work, receipt));
            }
        }
    }
}

/// The observer and generation of a work message.
pub(crate) fn label(body: &[u8]) -> (ObserverId, u32) {
    match Work::read(body).unwrap() {
        WorkRead::Ours(work) => (work.id, work.generation),
        WorkRead::Foreign(label, _) => (label.id, label.generation),
    }
}
