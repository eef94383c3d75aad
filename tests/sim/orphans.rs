//! Looks for observers whose message is gone, or whose queue was made anew; mirrors the manager's `orphans`.

use crate::broker::QueueId;
use crate::database::{Access, Folded};
use crate::hold::Within;
use crate::world::World;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::message::{Floor, RunEvent};
use everwatch_core::missing::Orphan;
use everwatch_core::row::Row;
use everwatch_core::seen::{Heard, Key};
use everwatch_core::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const LOOK: u64 = 5000;
const DEPTH_WITHIN: u64 = 5000;
const ORPHAN_AFTER: Duration = Duration::from_secs(90);
/// A message may be confirmed a moment before the report of its queue's making is written.
const SLACK: Duration = Duration::from_secs(1);

/// What managers have written down for each other.
struct Notes {
    hold: bool,
    made_at: Option<Timestamp>,
}

impl World {
    pub(crate) fn look_for_orphans(&mut self, m: usize) {
        let host = self.host_of(m);
        self.after(LOOK, host, move |world| world.look_for_orphans(m));
        if self.mouth(m).is_none() {
            return self.managers[m].quiet.interrupt();
        }
        let notes = |world: &mut Self| {
            let db = &world.db;
            Notes { hold: world.rules.is_on_hold(db.hold), made_at: db.queue_made }
        };
        self.query(host, Access::Read, notes, move |world, notes| match notes {
            None => world.managers[m].quiet.interrupt(),
            Some(Notes { made_at: Some(made_at), .. }) if world.rules.heeds_new_queues() => {
                world.new_queue(m, made_at);
            }
            Some(notes) => world.look_at_depth(m, &notes),
        });
    }

    fn look_at_depth(&mut self, m: usize, notes: &Notes) {
        let Some([conn, _]) = self.managers[m].conns else { return self.managers[m].quiet.interrupt() };
        let free = !notes.hold;
        let depth = |world: &mut Self| {
            let ready = world.broker.ready(QueueId::Work);
            (u32::try_from(ready).unwrap(), u32::try_from(world.broker.consumers_of_work()).unwrap())
        };
        self.ask_within(m, (conn, DEPTH_WITHIN), depth, move |world, depth| {
            let now = world.manager_now(m);
            let may_conclude = world.managers[m].may_conclude(now);
            let quiet = &mut world.managers[m].quiet;
            match depth.filter(|_| free && may_conclude) {
                Some((ready, consumers)) => quiet.look(ready, consumers, now),
                None => quiet.interrupt(),
            }
            if quiet.lasts(now, ORPHAN_AFTER) && world.setup.misses_orphans {
                world.orphans(m);
            }
        });
    }

    fn orphans(&mut self, m: usize) {
        let unheld = |world: &mut Self| {
            let services = &world.db.services;
            let living: Vec<ServiceId> =
                services.values().filter(|it| it.end.is_none()).map(|it| it.id).collect();
            let ended: BTreeMap<ServiceId, Timestamp> =
                services.values().filter_map(|it| it.end.map(|end| (it.id, end.at))).collect();
            let rows = world.db.rows.values().filter(|row| row.verdict().status.uses_slot());
            let unheld: Vec<Row> = rows.cloned().collect();
            (unheld, living, ended)
        };
        self.query(self.host_of(m), Access::Read, unheld, move |world, found| {
            let Some((rows, living, ended)) = found else { return };
            let (now, policy) = (world.manager_now(m), world.db.policy.clone());
            let (mut changed, mut folded) = (Vec::new(), Folded::new());
            for mut row in rows {
                match world.rules.orphan(&row, (&living, &ended), now, ORPHAN_AFTER) {
                    Orphan::No => continue,
                    Orphan::End => {
                        row.end_orphan(now);
                        folded.insert(row.id, vec![ended_by_manager(&row, now)]);
                    }
                    Orphan::Reissue => row.reissue(now, &policy),
                }
                changed.push(row);
            }
            world.carry_out_missing(m, (changed, folded), |world, row| {
                world.tell(|_| format!("{} is held by nobody: {:?}", row.wanted.name, row.verdict().status));
                world.on_concluded(Within::Questions, |_| format!("{} was taken for lost", row.wanted.name));
                if world.check.healthy {
                    let text = format!("{} was taken for lost though nothing went wrong", row.wanted.name);
                    world.check.fail("rule 4", text);
                }
            });
        });
    }

    /// Somebody says that the work queue was made anew.
    pub(crate) fn note_new_queue(&mut self, at: Timestamp) {
        self.db.queue_made = Some(at.minus(SLACK));
    }

    fn new_queue(&mut self, m: usize, made_at: Timestamp) {
        let live = |world: &mut Self| world.db.rows.values().cloned().collect::<Vec<Row>>();
        let host = self.host_of(m);
        self.query(host, Access::Read, live, move |world, rows| {
            let Some(mut rows) = rows else { return };
            let (now, policy) = (world.manager_now(m), world.db.policy.clone());
            let over = [Status::Paused, Status::Completed, Status::Failed, Status::Deleted];
            rows.retain(|row| !over.contains(&row.verdict().status) && row.is_lost_with_queue(made_at));
            let forget = move |world: &mut Self| {
                if world.db.queue_made == Some(made_at) {
                    world.db.queue_made = None;
                }
            };
            // A row that a person changes in the same moment is passed over: another look finds it.
            if rows.is_empty() {
                return world.query(host, Access::Write, forget, |_, _| ());
            }
            for row in &mut rows {
                row.reissue(now, &policy);
            }
            world.carry_out_missing(m, (rows, Folded::new()), |_, _| ());
        });
    }

    /// Saves changed rows; of those that nobody else has changed, sends the floors and publishes.
    fn carry_out_missing(
        &mut self,
        m: usize,
        (rows, folded): (Vec<Row>, Folded),
        done: impl Fn(&mut Self, &Row) + 'static,
    ) {
        if rows.is_empty() {
            return;
        }
        let saved = rows.clone();
        let save = move |world: &mut Self| world.db_save(&saved, &folded);
        self.query(self.host_of(m), Access::Write, save, move |world, lost| {
            let Some(lost) = lost else { return };
            let won: Vec<Row> = rows.into_iter().filter(|row| !lost.contains(&row.id)).collect();
            for row in &won {
                done(world, row);
            }
            let floors: Vec<Floor> = won.iter().map(Row::floor).collect();
            world.floors(m, floors, move |world| {
                for row in won.iter().filter(|row| row.mark.is_some()) {
                    world.publish(m, row);
                }
            });
        });
    }
}

/// The settlement that a manager wrote into a row, as a report.
fn ended_by_manager(row: &Row, at: Timestamp) -> (u32, Heard) {
    let key = row.seen.settled.as_ref().map_or(Key { acquisitions: 0, seq: 0 }, |settled| settled.key);
    let service = ServiceId(uuid::Uuid::nil());
    (row.generation, Heard { service, key, at, event: RunEvent::Stopped })
}
