//! The people: they ask some manager, ask again when no answer comes, and remember what was promised.

use crate::database::{Access, Folded};
use crate::history::ObserverSetup;
use crate::world::World;
use everwatch_core::id::{Name, ObserverId};
use everwatch_core::observer::Wanted;
use everwatch_core::row::Row;
use serde_json::json;
use uuid::Uuid;

/// What is asked of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Create,
    Delete,
    Retry,
    Pause,
    Resume,
    Restart,
}

/// What one person wants with one observer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Intent {
    /// A request has gone out, answered or not.
    pub(crate) asked_create: bool,
    pub(crate) asked_delete: bool,
    /// It was promised.
    pub(crate) created: bool,
    pub(crate) deleted: bool,
    /// A restart was promised: a generation after this one is to come.
    pub(crate) begun_anew_after: u32,
    /// Requests without an answer.
    pub(crate) open: u32,
}

pub(crate) struct Users {
    pub(crate) intents: Vec<Intent>,
}

impl Users {
    pub(crate) fn new(observers: usize) -> Self {
        Self { intents: vec![Intent::default(); observers] }
    }
}

pub(crate) fn observer_name(observer: usize) -> Name {
    Name::new(&format!("o{}", observer + 1)).unwrap()
}

fn wanted(observer: usize, setup: &ObserverSetup) -> Wanted {
    let body = json!({
        "kind": setup.kind, "spec": setup.code, "overlap": setup.overlap, "grace": "3s", "on_full": "queue",
        "retry": {"kind": "fixed", "every": "1s", "attempts": setup.attempts},
    });
    Wanted::parse(body, &observer_name(observer)).unwrap()
}

impl World {
    pub(crate) fn new_uuid(&mut self) -> Uuid {
        Uuid::from_u128((u128::from(self.roll(0, u64::MAX)) << 64) | u128::from(self.roll(0, u64::MAX)))
    }

    pub(crate) fn person_asks(&mut self, observer: usize, ask: Ask) {
        let intent = &mut self.users.intents[observer];
        match ask {
            Ask::Create => intent.asked_create = true,
            // Nobody deletes what was not promised yet.
            _ if ask != Ask::Create && !intent.created => {
                if intent.asked_create {
                    self.later(500, move |world| world.person_asks(observer, ask));
                }
                return;
            }
            Ask::Delete => intent.asked_delete = true,
            Ask::Retry | Ask::Pause | Ask::Resume | Ask::Restart => {}
        }
        let intent = &mut self.users.intents[observer];
        intent.open += 1;
        self.request(observer, ask);
    }

    /// One try; the next follows when no answer came.
    fn request(&mut self, observer: usize, ask: Ask) {
        let number = self.check.next_request();
        let again = move |world: &mut Self| {
            if world.check.give_up(number) {
                world.request(observer, ask);
            }
        };
        self.later(3000, again);
        let serving: Vec<usize> = (0..self.managers.len()).filter(|m| self.manager_serves(*m)).collect();
        if serving.is_empty() {
            return;
        }
        let chosen = self.roll(0, serving.len() as u64 - 1);
        let m = serving[usize::try_from(chosen).unwrap()];
        let latency = self.roll(1, 20);
        let host = self.host_of(m);
        self.after(latency, host, move |world| match ask {
            Ask::Create => world.serve_create(m, (observer, number)),
            _ => world.serve_change(m, (observer, number), ask),
        });
    }

    fn answered(&mut self, number: u64, observer: usize, ask: Ask) {
        if self.check.answer(number) {
            self.tell(|_| format!("{ask:?} {} is answered", observer_name(observer)));
            let intent = &mut self.users.intents[observer];
            intent.open -= 1;
            match ask {
                Ask::Create => intent.created = true,
                Ask::Delete => intent.deleted = true,
                Ask::Retry | Ask::Pause | Ask::Resume | Ask::Restart => {}
            }
        }
    }

    fn serve_create(&mut self, m: usize, (observer, number): (usize, u64)) {
        let wanted = wanted(observer, &self.setup.observers[observer]);
        let (id, now) = (ObserverId(self.new_uuid()), self.manager_now(m));
        let row = Row::created(id, wanted, now, &self.db.policy);
        let (host, stored) = (self.host_of(m), row.clone());
        let create = move |world: &mut Self| world.db_create(stored);
        self.query(host, Access::Write, create, move |world, answer| {
            // Taken: by this person's own first try.
            let Some(created) = answer else { return };
            world.answered(number, observer, Ask::Create);
            if created {
                world.check.knows(id, observer);
                world.publish(m, &row);
            }
        });
    }

    fn serve_change(&mut self, m: usize, (observer, number): (usize, u64), ask: Ask) {
        let host = self.host_of(m);
        let find = move |world: &mut Self| {
            let name = observer_name(observer);
            world.db.rows.values().find(|row| row.wanted.name == name).cloned()
        };
        self.query(host, Access::Read, find, move |world, found| {
            let Some(Some(mut row)) = found else { return };
            let (now, policy) = (world.manager_now(m), world.db.policy.clone());
            let before = row.generation;
            let fresh = world.rules.act(&mut row, ask, (now, &policy));
            if !fresh {
                return world.answered(number, observer, ask);
            }
            let saved = row.clone();
            let save = move |world: &mut Self| world.db_save(&[saved], &Folded::new());
            world.query(host, Access::Write, save, move |world, lost| match lost {
                None => {}
                Some(lost) if !lost.is_empty() => world.serve_change(m, (observer, number), ask),
                Some(_) => {
                    if ask == Ask::Restart {
                        world.users.intents[observer].begun_anew_after = before;
                    }
                    world.answered(number, observer, ask);
                    world.after_change(m, row, before);
                }
            });
        });
    }

    fn after_change(&mut self, m: usize, row: Row, before: u32) {
        let floor = row.floor();
        if row.generation > before {
            self.floors(m, vec![floor], move |world| world.publish(m, &row));
        } else if row.awaits_end() {
            self.floors_later(m, vec![floor]);
        }
    }
}
