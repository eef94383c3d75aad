//! The people: they ask some manager, ask again when no answer comes, and remember what was promised.

use crate::code::Code;
use crate::database::{Access, Folded};
use crate::history::ObserverSetup;
use crate::world::World;
use everwatch_core::id::{Name, ObserverId};
use everwatch_core::observer::Wanted;
use everwatch_core::row::{Desired, Row};
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
    /// Another edition of its code.
    Update,
    /// The same, and whether it is to run.
    Put {
        paused: bool,
    },
}

/// The same, with all that a manager needs.
pub(crate) enum Asked {
    Plain(Ask),
    Change(Box<Wanted>, Option<bool>),
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
    /// The newest edition of its code that anybody made, and the one that was written down last.
    pub(crate) edition: u32,
    pub(crate) wanted_edition: u32,
    /// Whether it was written down last that it is to rest.
    pub(crate) paused: bool,
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

fn wanted(observer: usize, setup: &ObserverSetup, edition: u32) -> Wanted {
    let code = Code { edition, ..setup.code };
    let body = json!({
        "kind": setup.kind, "spec": code, "overlap": setup.overlap, "grace": "3s", "on_full": "queue",
        "retry": {"kind": "fixed", "every": "1s", "attempts": setup.attempts},
    });
    Wanted::parse(body, &observer_name(observer)).unwrap()
}

/// Which edition of its code a row wants.
pub(crate) fn edition(row: &Row) -> u32 {
    Code::of(&row.wanted.spec.to_string()).edition
}

impl World {
    pub(crate) fn is_poison(&self, id: ObserverId) -> bool {
        let row = self.db.rows.get(&id);
        row.is_some_and(|row| Code::of(&row.wanted.spec.to_string()).is_poison())
    }

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
            Ask::Retry | Ask::Pause | Ask::Resume | Ask::Restart | Ask::Update | Ask::Put { .. } => {}
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
                _ => {}
            }
        }
    }

    fn serve_create(&mut self, m: usize, (observer, number): (usize, u64)) {
        let setup = &self.setup.observers[observer];
        let (wanted, paused) = (wanted(observer, setup, 0), setup.paused);
        let (id, now) = (ObserverId(self.new_uuid()), self.manager_now(m));
        let mut row = Row::created(id, wanted, now, &self.db.policy);
        if paused {
            row = row.created_paused();
        }
        let (host, stored) = (self.host_of(m), row.clone());
        let create = move |world: &mut Self| {
            let created = world.db_create(stored);
            if created {
                world.check.knows(id, observer);
                world.users.intents[observer].paused = paused;
            }
            created
        };
        self.query(host, Access::Write, create, move |world, answer| {
            // Taken: by this person's own first try.
            let Some(created) = answer else { return };
            world.answered(number, observer, Ask::Create);
            if created {
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
            let asked = world.asked(observer, ask);
            if !world.rules.act(&mut row, &asked, (now, &policy)) {
                return world.answered(number, observer, ask);
            }
            let saved = row.clone();
            let save = move |world: &mut Self| {
                let lost = world.db_save(std::slice::from_ref(&saved), &Folded::new());
                if lost.is_empty() {
                    world.written_down(observer, (before, ask), &saved);
                }
                lost
            };
            world.query(host, Access::Write, save, move |world, lost| match lost {
                None => {}
                Some(lost) if !lost.is_empty() => world.serve_change(m, (observer, number), ask),
                Some(_) => {
                    world.answered(number, observer, ask);
                    world.after_change(m, row, before);
                }
            });
        });
    }

    fn asked(&mut self, observer: usize, ask: Ask) -> Asked {
        if !matches!(ask, Ask::Update | Ask::Put { .. }) {
            return Asked::Plain(ask);
        }
        let edition = &mut self.users.intents[observer].edition;
        *edition += 1;
        let wanted = wanted(observer, &self.setup.observers[observer], *edition);
        let paused = if let Ask::Put { paused } = ask { Some(paused) } else { None };
        Asked::Change(Box::new(wanted), paused)
    }

    /// What a person asked for is committed: the world remembers what it was.
    fn written_down(&mut self, observer: usize, (before, ask): (u32, Ask), row: &Row) {
        let intent = &mut self.users.intents[observer];
        match ask {
            Ask::Restart => intent.begun_anew_after = before,
            Ask::Pause | Ask::Put { paused: true } => intent.paused = row.desired == Desired::Paused,
            Ask::Create | Ask::Delete | Ask::Update => {}
            Ask::Resume | Ask::Retry | Ask::Put { paused: false } => intent.paused = false,
        }
        if ask == Ask::Restart {
            intent.paused = false;
        }
        if matches!(ask, Ask::Update | Ask::Put { .. }) {
            intent.wanted_edition = edition(row);
        }
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
