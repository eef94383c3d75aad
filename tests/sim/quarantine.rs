//! Looks at observers whose services may have died of them; mirrors the manager's `quarantine`.

use crate::database::{Access, Folded};
use crate::hold::Within;
use crate::world::World;
use everwatch_core::id::ObserverId;
use everwatch_core::message::RunEvent;
use everwatch_core::quarantine::{Deaths, Docket, Sentence};
use everwatch_core::row::Row;
use everwatch_core::seen::{Heard, Key, Settlement};
use everwatch_core::service::ServiceRow;

pub(crate) const QUARANTINE_AFTER: usize = 5;

/// One that was looked at, with the services that died of it.
struct Looked {
    row: Row,
    deaths: Deaths,
    sentence: Sentence,
}

impl World {
    /// Looks at those of these rows that are watched and due; `None` if the database did not answer.
    pub(crate) fn look_for_poison(
        &mut self,
        m: usize,
        due: &[Row],
        then: impl FnOnce(&mut Self, Option<()>) + 'static,
    ) {
        let now = self.manager_now(m);
        let watched: Vec<Row> = due.iter().filter(|row| row.is_watched(now)).cloned().collect();
        if watched.is_empty() {
            return then(self, Some(()));
        }
        let known = |world: &mut Self| {
            let services: Vec<ServiceRow> = world.db.services.values().cloned().collect();
            let docket = world.db.docket.clone();
            let rows = world.db.rows.values();
            let charged =
                rows.filter(|row| row.watch.is_some() || docket.has_charged(row.id)).cloned().collect();
            (world.rules.quarantines_on_hold(world.db.hold), services, (docket, charged))
        };
        self.query(self.host_of(m), Access::Read, known, move |world, known| {
            let Some((hold, services, docket)) = known else { return then(world, None) };
            if hold {
                return world.look_later(m, watched.into_iter().map(|row| (row, Sentence::Wait)), then);
            }
            let (looked, docket) = world.judge_watched(m, watched, &services, docket);
            let (poison, others): (Vec<_>, Vec<_>) =
                looked.into_iter().partition(|it| it.sentence == Sentence::Quarantine);
            let others = others.into_iter().map(|it| (it.row, it.sentence));
            world.look_later(m, others, move |world, answer| match answer {
                Some(()) => world.quarantine_all(m, (poison, docket), then),
                None => then(world, None),
            });
        });
    }

    fn judge_watched(
        &mut self,
        m: usize,
        watched: Vec<Row>,
        services: &[ServiceRow],
        (mut docket, charged): (Docket, Vec<Row>),
    ) -> (Vec<Looked>, Docket) {
        let now = self.manager_now(m);
        let killed = self.rules.killed(services, now);
        docket.forget(now);
        let mut looked: Vec<Looked> = Vec::new();
        for row in &charged {
            docket.charge(row.id, &row.deaths(&killed, now), QUARANTINE_AFTER, now);
        }
        for row in watched {
            let deaths = row.deaths(&killed, now);
            docket.charge(row.id, &deaths, QUARANTINE_AFTER, now);
            looked.push(Looked { row, deaths, sentence: Sentence::None });
        }
        for it in &mut looked {
            it.sentence = self.rules.sentence(docket.sentence(it.row.id, now));
        }
        (looked, docket)
    }

    fn look_later(
        &mut self,
        m: usize,
        rows: impl Iterator<Item = (Row, Sentence)>,
        then: impl FnOnce(&mut Self, Option<()>) + 'static,
    ) {
        let now = self.manager_now(m);
        let changed: Vec<Row> = rows
            .map(|(mut row, sentence)| {
                row.looked(sentence, now);
                row
            })
            .collect();
        if changed.is_empty() {
            return then(self, Some(()));
        }
        let save = move |world: &mut Self| world.db_save(&changed, &Folded::new());
        self.query(self.host_of(m), Access::Write, save, |world, lost| then(world, lost.map(|_| ())));
    }

    /// Fails them on the rows as they are, one after another, then writes the list down.
    fn quarantine_all(
        &mut self,
        m: usize,
        (mut poison, mut docket): (Vec<Looked>, Docket),
        then: impl FnOnce(&mut Self, Option<()>) + 'static,
    ) {
        let (host, now) = (self.host_of(m), self.manager_now(m));
        let Some(Looked { row, deaths, .. }) = poison.pop() else {
            let write = move |world: &mut Self| {
                let before = std::mem::replace(&mut world.db.docket, docket);
                let suspects = world.db.docket.suspects(QUARANTINE_AFTER);
                (before.suspects(QUARANTINE_AFTER) != suspects).then_some(suspects)
            };
            return self.query(host, Access::Write, write, move |world, suspects| {
                if let Some(Some(suspects)) = &suspects {
                    world.suspects_later(m, suspects.clone());
                }
                then(world, suspects.map(|_| ()));
            });
        };
        let id = row.id;
        let fail = move |world: &mut Self| world.db_quarantine(id, &deaths, now);
        self.query(host, Access::Write, fail, move |world, failed| {
            let Some(failed) = failed else { return then(world, None) };
            docket.explain(now);
            if failed {
                let floor = world.db.rows[&id].floor();
                world.floors_later(m, vec![floor]);
            }
            world.quarantine_all(m, (poison, docket), then);
        });
    }

    /// Answers whether it is failed by this.
    fn db_quarantine(
        &mut self,
        id: ObserverId,
        deaths: &Deaths,
        now: everwatch_core::clock::Timestamp,
    ) -> bool {
        let mut row = self.db.rows[&id].clone();
        let done = row.quarantine(deaths, now);
        row.watch = None;
        let mut folded = Folded::new();
        if let Some(settled) = row.seen.settled.as_ref().filter(|_| done)
            && let Settlement::Failed { error, attempts } = &settled.how
        {
            let event = RunEvent::Failed { error: error.clone(), attempts: *attempts };
            let key = Key { acquisitions: settled.key.acquisitions, seq: settled.key.seq };
            let heard = Heard { service: settled.service, key, at: now, event };
            folded.insert(id, vec![(row.generation, heard)]);
        }
        self.db_save(&[row], &folded);
        if done {
            self.on_concluded(Within::AMoment, |world| format!("{} was quarantined", world.observer(id)));
            self.on_quarantined(id);
        }
        done
    }
}
