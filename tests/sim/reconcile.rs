//! A manager's pass over what is due, and its questions about silent services; mirrors `reconcile`.

use crate::database::{Access, Folded};
use crate::hold::Within;
use crate::manager::{LOST_AFTER, PASS};
use crate::world::World;
use everwatch_core::id::ServiceId;
use everwatch_core::message::Floor;
use everwatch_core::plan::{RowStep, on_alive, plan_services};
use everwatch_core::row::Row;

impl World {
    pub(crate) fn pass(&mut self, m: usize) {
        let host = self.host_of(m);
        self.after(PASS, host, move |world| world.pass(m));
        if self.managers[m].passes {
            return;
        }
        self.managers[m].passes = true;
        self.tick(m);
        self.query(host, Access::Read, Self::database_clock, move |world, answer| {
            world.managers[m].reading.store_answers = answer.is_some();
            let Some(database) = answer else { return world.pass_ends(m) };
            world.managers[m].offset = database - world.wall(host).0;
            if world.managers[m].conns.is_none() {
                return world.pass_ends(m);
            }
            let ready = world.managers[m].reading.has_caught_up() && world.mouth(m).is_some();
            if ready { world.rows(m) } else { world.look_at_services(m) }
        });
    }

    fn pass_ends(&mut self, m: usize) {
        self.managers[m].passes = false;
    }

    fn rows(&mut self, m: usize) {
        let (host, now) = (self.host_of(m), self.manager_now(m));
        self.query(
            host,
            Access::Read,
            move |world| world.db.due(now),
            move |world, due| {
                let Some(due) = due else { return world.pass_ends(m) };
                let steps_of = due.clone();
                world.look_for_poison(m, &due, move |world, looked| match looked {
                    Some(()) => world.steps(m, &steps_of),
                    None => world.pass_ends(m),
                });
            },
        );
    }

    fn steps(&mut self, m: usize, due: &[Row]) {
        let (host, now, policy) = (self.host_of(m), self.manager_now(m), self.db.policy.clone());
        let steps: Vec<RowStep> =
            due.iter().filter_map(|row| self.rules.plan_row(row, now, &policy)).collect();
        let keep: Vec<RowStep> = steps.into_iter().filter(|step| !step.forget).collect();
        if keep.is_empty() {
            return self.look_at_services(m);
        }
        let rows: Vec<Row> = keep.iter().map(|step| step.row.clone()).collect();
        let save = move |world: &mut Self| world.db_save(&rows, &Folded::new());
        self.query(host, Access::Write, save, move |world, lost| {
            let Some(lost) = lost else { return world.pass_ends(m) };
            let won: Vec<RowStep> = keep.into_iter().filter(|it| !lost.contains(&it.row.id)).collect();
            world.carry_out_steps(m, won);
        });
    }

    fn carry_out_steps(&mut self, m: usize, won: Vec<RowStep>) {
        let floors: Vec<Floor> = won.iter().filter_map(|step| step.floor).collect();
        self.floors(m, floors, move |world| {
            for step in won.into_iter().filter(|step| step.publish) {
                world.publish(m, &step.row);
            }
            world.look_at_services(m);
        });
    }

    fn look_at_services(&mut self, m: usize) {
        self.look_at_fleet(m, move |world, looked| match looked {
            Some(()) => world.look_for_silence(m),
            None => world.pass_ends(m),
        });
    }

    fn look_for_silence(&mut self, m: usize) {
        let host = self.host_of(m);
        self.query(
            host,
            Access::Read,
            |world| (!world.rules.suspects_on_hold(world.db.hold)).then(|| world.db.living()),
            move |world, services| {
                let Some(Some(services)) = services else { return world.pass_ends(m) };
                let now = world.manager_now(m);
                let may_conclude = world.managers[m].may_conclude(now);
                let plan = plan_services(&services, now, LOST_AFTER, may_conclude);
                let suspects = plan.suspect;
                let suspect = move |world: &mut Self| {
                    for id in suspects {
                        world.db_change_service(id, |row| row.is_silent(now, LOST_AFTER) && row.suspect(now));
                    }
                };
                world.query(host, Access::Write, suspect, move |world, answer| {
                    if answer.is_some() {
                        world.ask_about(m, plan.ask);
                    } else {
                        world.pass_ends(m);
                    }
                });
            },
        );
    }

    fn ask_about(&mut self, m: usize, mut suspects: Vec<ServiceId>) {
        let (Some(id), Some(conns)) = (suspects.pop(), self.managers[m].conns) else {
            return self.pass_ends(m);
        };
        let fate = move |world: &mut Self| world.rules.session_lives(world.broker.has_session(id));
        self.ask_within(m, (conns[0], 5000), fate, move |world, alive| {
            let now = world.manager_now(m);
            let conclude = move |world: &mut Self| match alive {
                Some(false) => {
                    world.db_change_service(id, |row| row.on_session_gone(now));
                    world.on_concluded(Within::Questions, |_| format!("service {id} was called lost"));
                }
                Some(true) => world.db_change_service(id, |row| on_alive(row, now, LOST_AFTER)),
                None => {}
            };
            let host = world.host_of(m);
            world.query(host, Access::Write, conclude, move |world, _| world.ask_about(m, suspects));
        });
    }
}
