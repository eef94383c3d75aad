//! What services report becomes rows, and is acknowledged only once it is committed; mirrors the
//! manager's intake. Steps of one batch are apart in time, so that managers race.

use crate::broker::{Delivery, QueueId};
use crate::database::{Access, Folded};
use crate::manager::Marked;
use crate::world::World;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{
    BeatMessage, Birth, Floor, Numbered, Report, Reports, RunReport, StateMessage, Tick, decode,
};
use everwatch_core::row::{Applied, Row};
use everwatch_core::seen::{Heard, Key};
use everwatch_core::service::ServiceRow;
use std::collections::BTreeMap;

const FIRST_PAUSE: u64 = 200;
const LONGEST_PAUSE: u64 = 5000;

/// One report about one run, with who said it and when.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    service: ServiceId,
    seq: u64,
    at: Timestamp,
    report: RunReport,
    listed: bool,
}

#[derive(Clone, Default)]
struct Batch {
    receipts: Vec<u64>,
    runs: BTreeMap<ObserverId, Vec<Run>>,
    newborns: Vec<(ServiceId, Birth, Timestamp)>,
    gone: Vec<ServiceId>,
    /// When the work queue was made anew.
    made: Vec<Timestamp>,
    ticks: Vec<Tick>,
}

impl Batch {
    fn add(&mut self, delivery: &Delivery) {
        self.receipts.push(delivery.receipt);
        match decode::<StateMessage>(&delivery.body).unwrap() {
            StateMessage::Tick(tick) => self.ticks.push(tick),
            StateMessage::Reports(Reports { service, entries }) => {
                for Numbered { seq, at, report, .. } in entries {
                    match report {
                        Report::Run(report) => self.run(Run { service, seq, at, report, listed: false }),
                        Report::List(chunk) => {
                            for report in chunk.entries {
                                self.run(Run { service, seq, at, report, listed: true });
                            }
                        }
                        Report::ServiceBorn(birth) => self.newborns.push((service, *birth, at)),
                        Report::ServiceGone => self.gone.push(service),
                        Report::WorkQueueCreated { .. } => self.made.push(at),
                        Report::Described(_) | Report::Unknown(_) => {}
                    }
                }
            }
        }
    }
    fn run(&mut self, run: Run) {
        self.runs.entry(run.report.id).or_default().push(run);
    }
}

impl World {
    pub(crate) fn read_state(&mut self, m: usize) {
        let it = &mut self.managers[m];
        if it.reads_state || it.state.is_empty() {
            return;
        }
        it.reads_state = true;
        let mut batch = Batch::default();
        for delivery in it.state.drain(..) {
            batch.add(&delivery);
        }
        let Some(conns) = it.conns else { return };
        if self.rules.acks_before_commit() {
            self.ack_state(conns[0], &batch.receipts);
        }
        self.insist(m, conns[0], (batch, FIRST_PAUSE));
    }

    fn reads_on(&self, m: usize, conn: usize) -> bool {
        self.managers[m].conns.is_some_and(|conns| conns[0] == conn)
    }

    fn ack_state(&mut self, conn: usize, receipts: &[u64]) {
        for receipt in receipts.iter().copied() {
            self.up(conn, move |world| world.ack(conn, QueueId::State, receipt));
        }
    }

    /// Commits a batch however often that fails, as long as the session lives.
    fn insist(&mut self, m: usize, conn: usize, (batch, pause): (Batch, u64)) {
        if !self.reads_on(m, conn) {
            return;
        }
        let (newborns, gone) = (batch.newborns.clone(), batch.gone.clone());
        let now = self.manager_now(m);
        let made = batch.made.clone();
        let births = move |world: &mut Self| {
            world.db_births(newborns, &gone, now);
            made.into_iter().for_each(|at| world.note_new_queue(at));
        };
        self.query(self.host_of(m), Access::Write, births, move |world, answer| {
            if answer.is_none() {
                return world.insist_later(m, conn, (batch, pause));
            }
            let runs = batch.runs.clone();
            world.apply(m, (runs, Vec::new()), move |world, floors| match floors {
                None => world.insist_later(m, conn, (batch, pause)),
                Some(floors) => world.on_committed(m, conn, (batch, floors)),
            });
        });
    }

    fn insist_later(&mut self, m: usize, conn: usize, (batch, pause): (Batch, u64)) {
        let host = self.host_of(m);
        let next = (pause * 2).min(LONGEST_PAUSE);
        self.after(pause, host, move |world| world.insist(m, conn, (batch, next)));
    }

    fn on_committed(&mut self, m: usize, conn: usize, (batch, floors): (Batch, Vec<Floor>)) {
        if !self.reads_on(m, conn) {
            return;
        }
        if !self.rules.acks_before_commit() {
            self.ack_state(conn, &batch.receipts);
        }
        self.floors_later(m, floors);
        for tick in &batch.ticks {
            self.managers[m].on_tick(Marked::State, tick.sent_at);
        }
        for (service, _, _) in &batch.newborns {
            self.welcome(m, *service);
        }
        self.managers[m].reads_state = false;
        self.read_state(m);
    }

    fn db_births(
        &mut self,
        newborns: Vec<(ServiceId, Birth, Timestamp)>,
        gone: &[ServiceId],
        now: Timestamp,
    ) {
        for (id, birth, at) in newborns {
            if self.db.services.contains_key(&id) {
                continue;
            }
            let name = birth.name.clone();
            self.db.services.insert(id, ServiceRow::born(id, birth, at, now));
            if self.db.goodbyes.contains(&id) {
                self.db_change_service(id, |row| row.on_gone(now));
                continue;
            }
            let namesakes = self.db.services.values().filter(|it| it.birth.name == name && it.id != id);
            for namesake in namesakes.map(|it| it.id).collect::<Vec<_>>() {
                self.db_change_service(namesake, |row| row.suspect(now));
            }
        }
        for id in gone {
            self.db.goodbyes.insert(*id);
            self.db_change_service(*id, |row| row.on_gone(now));
        }
    }

    /// Folds reports into rows until no row was changed by somebody else meanwhile.
    fn apply(
        &mut self,
        m: usize,
        (mut pending, mut floors): (BTreeMap<ObserverId, Vec<Run>>, Vec<Floor>),
        then: impl FnOnce(&mut Self, Option<Vec<Floor>>) + 'static,
    ) {
        if pending.is_empty() {
            return then(self, Some(floors));
        }
        let (host, ids) = (self.host_of(m), pending.keys().copied().collect::<Vec<_>>());
        let load = move |world: &mut Self| world.db.load(&ids);
        self.query(host, Access::Read, load, move |world, rows| {
            let Some(mut rows) = rows else { return then(world, None) };
            let mut folded = Folded::new();
            for row in &mut rows {
                let runs = &pending[&row.id];
                world.fold(m, (row, runs), &mut folded);
            }
            let changed: Vec<Row> = rows.iter().filter(|row| folded.contains_key(&row.id)).cloned().collect();
            let save = move |world: &mut Self| world.db_save(&changed, &folded);
            world.query(host, Access::Write, save, move |world, lost| {
                let Some(lost) = lost else { return then(world, None) };
                for row in rows.iter().filter(|row| !lost.contains(&row.id)) {
                    let answers = pending[&row.id].iter();
                    floors.extend(answers.filter_map(|run| world.rules.answer(row, &run.report)));
                }
                pending.retain(|id, _| lost.contains(id));
                world.apply(m, (pending, floors), then);
            });
        });
    }

    fn fold(&mut self, m: usize, (row, runs): (&mut Row, &[Run]), folded: &mut Folded) {
        let now = self.manager_now(m);
        let (mut changed, mut list) = (false, Vec::new());
        for run in runs {
            if run.listed && row.repeats(run.service, &run.report) {
                continue;
            }
            let key = Key { acquisitions: run.report.epoch.acquisitions(), seq: run.seq };
            let event = run.report.event.clone();
            let heard = Heard { service: run.service, key, at: run.at, event };
            changed |= self.rules.apply(row, &heard, run.report.epoch, now) == Applied::Changed;
            if run.report.epoch.generation() == row.generation {
                list.push((row.generation, heard));
            }
        }
        if changed {
            folded.insert(row.id, list);
        }
    }

    pub(crate) fn read_beats(&mut self, m: usize) {
        let it = &mut self.managers[m];
        let Some(conns) = it.conns.filter(|_| !it.reads_beats && !it.beats.is_empty()) else { return };
        it.reads_beats = true;
        let batch: Vec<Delivery> = it.beats.drain(..).collect();
        let read: Vec<BeatMessage> = batch.iter().map(|it| decode(&it.body).unwrap()).collect();
        self.insist_beats(m, conns[0], (batch, read));
    }

    fn insist_beats(&mut self, m: usize, conn: usize, (batch, read): (Vec<Delivery>, Vec<BeatMessage>)) {
        if !self.reads_on(m, conn) {
            return;
        }
        let (host, now, beats) = (self.host_of(m), self.manager_now(m), read.clone());
        let apply = move |world: &mut Self| {
            for beat in &beats {
                if let BeatMessage::Beat(beat) = beat {
                    world.db_change_service(beat.service, |row| row.on_beat(beat, now));
                }
            }
        };
        self.query(host, Access::Write, apply, move |world, answer| {
            if answer.is_none() {
                let again = move |world: &mut Self| world.insist_beats(m, conn, (batch, read));
                return world.after(FIRST_PAUSE, host, again);
            }
            if !world.reads_on(m, conn) {
                return;
            }
            for delivery in batch {
                world.up(conn, move |world| world.ack(conn, QueueId::Beats, delivery.receipt));
            }
            for beat in read {
                if let BeatMessage::Tick(tick) = beat {
                    world.managers[m].on_tick(Marked::Beats, tick.sent_at);
                }
            }
            world.managers[m].reads_beats = false;
            world.read_beats(m);
        });
    }
}
