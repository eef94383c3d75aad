//! The one database: rows changed by compare-and-set on their version, its own clock, answers that get
//! lost after the commit. Beside each row it remembers the reports that went into it, for `check`.

use crate::world::World;
use everwatch_core::clock::Timestamp;
use everwatch_core::fleet::OrderBook;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::quarantine::Docket;
use everwatch_core::row::{Row, RowPolicy};
use everwatch_core::seen::Heard;
use everwatch_core::service::ServiceRow;
use std::collections::{BTreeMap, BTreeSet};

/// The reports that were folded into rows since they were loaded.
pub(crate) type Folded = BTreeMap<ObserverId, Vec<(u32, Heard)>>;

pub(crate) struct Database {
    pub(crate) up: bool,
    /// Its disk has no room: it answers questions and takes nothing in.
    pub(crate) full: bool,
    pub(crate) policy: RowPolicy,
    /// So many of the next writes commit without an answer.
    pub(crate) loses_answers: u32,
    pub(crate) rows: BTreeMap<ObserverId, Row>,
    pub(crate) services: BTreeMap<ServiceId, ServiceRow>,
    /// Services that said goodbye before their birth was applied.
    pub(crate) goodbyes: BTreeSet<ServiceId>,
    sweeper: Option<(usize, Timestamp)>,
    /// Nothing is concluded from silence.
    pub(crate) hold: bool,
    /// The work queue was made anew then, and nobody has seen to it yet.
    pub(crate) queue_made: Option<Timestamp>,
    pub(crate) docket: Docket,
    pub(crate) orders: OrderBook,
    /// Nobody begins to rebalance before that.
    pub(crate) rebalanced_until: Option<Timestamp>,
    /// By generation, what is in each row.
    pub(crate) reports: Folded,
}

/// Whether a question changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self {
            up: true,
            full: false,
            policy: RowPolicy::default(),
            loses_answers: 0,
            rows: BTreeMap::new(),
            services: BTreeMap::new(),
            goodbyes: BTreeSet::new(),
            sweeper: None,
            hold: false,
            queue_made: None,
            docket: Docket::default(),
            orders: OrderBook::new(),
            rebalanced_until: None,
            reports: BTreeMap::new(),
        }
    }

    pub(crate) fn load(&self, ids: &[ObserverId]) -> Vec<Row> {
        ids.iter().filter_map(|id| self.rows.get(id).cloned()).collect()
    }

    pub(crate) fn due(&self, now: Timestamp) -> Vec<Row> {
        let is_due = |row: &&Row| row.due_at(&self.policy).is_some_and(|at| at <= now);
        self.rows.values().filter(is_due).cloned().collect()
    }

    pub(crate) fn commanded_since(&self, since: Timestamp) -> Vec<Row> {
        let commanded = |row: &&Row| row.repeat.is_some_and(|repeat| repeat.last_at >= since);
        self.rows.values().filter(commanded).cloned().collect()
    }

    /// One manager at a time.
    pub(crate) fn claim_sweep(&mut self, m: usize, now: Timestamp) -> bool {
        if self.sweeper.is_none_or(|(holder, until)| holder == m || until <= now) {
            self.sweeper = Some((m, now.plus(self.policy.sweep_after)));
        }
        self.sweeper.is_some_and(|(holder, _)| holder == m)
    }

    pub(crate) fn living(&self) -> Vec<ServiceRow> {
        self.services.values().filter(|it| it.end.is_none()).cloned().collect()
    }
}

impl World {
    /// A question of a manager; `None` if no answer comes, whatever became of the question.
    pub(crate) fn query<T: 'static>(
        &mut self,
        host: usize,
        access: Access,
        question: impl FnOnce(&mut Self) -> T + 'static,
        then: impl FnOnce(&mut Self, Option<T>) + 'static,
    ) {
        let latency = self.roll(1, 15);
        let owner = crate::world::Owner { host, life: self.hosts[host].life };
        self.later(latency, move |world| {
            if !world.db.up {
                return world.push(world.now + 50, Some(owner), Box::new(move |world| then(world, None)));
            }
            if world.db.full && access == Access::Write {
                world.tell(|_| "the database has no room left and says so".to_owned());
                return then(world, None);
            }
            let answer = question(world);
            let lost = access == Access::Write && world.db.loses_answers > 0;
            if lost {
                world.db.loses_answers -= 1;
                world.tell(|_| "the database commits, its answer is lost".to_owned());
            }
            let latency = if lost { 1000 } else { world.roll(1, 15) };
            let answer = (!lost).then_some(answer);
            world.push(world.now + latency, Some(owner), Box::new(move |world| then(world, answer)));
        });
    }

    /// Inserts a row; `false` if its name was ever used: a person asks for one observer only once.
    pub(crate) fn db_create(&mut self, row: Row) -> bool {
        if self.db.rows.values().any(|known| known.wanted.name == row.wanted.name) {
            return false;
        }
        self.db.rows.insert(row.id, row);
        true
    }

    /// Saves rows by compare-and-set; answers those that somebody else had changed.
    pub(crate) fn db_save(&mut self, rows: &[Row], folded: &Folded) -> Vec<ObserverId> {
        let mut lost = Vec::new();
        for row in rows {
            match self.db.rows.get_mut(&row.id) {
                Some(stored) if stored.version == row.version => {
                    let before = std::mem::replace(stored, Row { version: row.version + 1, ..row.clone() });
                    let reports = self.db.reports.entry(row.id).or_default();
                    reports.extend(folded.get(&row.id).into_iter().flatten().cloned());
                    self.on_saved(&before, row.id);
                }
                _ => lost.push(row.id),
            }
        }
        lost
    }

    /// Changes the row of a service in one transaction.
    pub(crate) fn db_change_service(&mut self, id: ServiceId, change: impl FnOnce(&mut ServiceRow) -> bool) {
        if let Some(row) = self.db.services.get_mut(&id)
            && change(row)
        {
            row.version += 1;
            self.on_service_saved(id);
        }
    }
}
