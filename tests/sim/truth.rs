//! What is committed is judged: the observed half of a row against the set of reports that went into
//! it, by a second, slower way of computing it; what rows and services say against what happened.

use crate::database::Folded;
use crate::world::World;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::RunEvent;
use everwatch_core::retry::Verdict;
use everwatch_core::row::Row;
use everwatch_core::seen::{Doing, Heard, Key, Settlement};
use everwatch_core::service::Ended;
use everwatch_core::slots::Outcome;

/// The observed half as the set of reports of one generation has it.
fn differs(row: &Row, reports: &Folded) -> Option<&'static str> {
    let of_row = reports.get(&row.id).into_iter().flatten();
    let heard: Vec<&Heard> =
        of_row.filter(|(generation, _)| *generation == row.generation).map(|it| &it.1).collect();
    let settles = |it: &&&Heard| it.event.settles();
    let begins = |it: &&Heard| matches!(it.event, RunEvent::Started { .. } | RunEvent::Erred { .. });
    let settled = heard.iter().filter(settles).min_by_key(|it| it.key);
    let latest = heard.iter().filter(|it| doing(&it.event).is_some()).max_by_key(|it| it.key);
    let same_settled = match (&row.seen.settled, settled) {
        (None, None) => true,
        (Some(seen), Some(heard)) => seen.key == heard.key && is(&seen.how, &heard.event),
        _ => false,
    };
    let same_latest = match (&row.seen.latest, latest) {
        (None, None) => true,
        (Some(seen), Some(heard)) => {
            // A list entry that only repeats its row is passed over, with its number.
            seen.key.acquisitions == heard.key.acquisitions
                && seen.service == heard.service
                && doing(&heard.event) == Some(word(&seen.doing))
        }
        _ => false,
    };
    if !same_settled {
        Some("settled")
    } else if !same_latest {
        Some("latest")
    } else {
        (row.seen.begun != heard.iter().any(begins)).then_some("begun")
    }
}

fn is(how: &Settlement, event: &RunEvent) -> bool {
    match (how, event) {
        (Settlement::Stopped, RunEvent::Stopped) | (Settlement::Completed, RunEvent::Completed) => true,
        (Settlement::Failed { attempts, .. }, RunEvent::Failed { attempts: told, .. }) => attempts == told,
        _ => false,
    }
}

fn doing(event: &RunEvent) -> Option<u8> {
    match event {
        RunEvent::Taken { .. } => Some(0),
        RunEvent::Started { .. } => Some(1),
        RunEvent::Erred { .. } => Some(2),
        RunEvent::HandedOver | RunEvent::HandedOverFor { .. } => Some(3),
        RunEvent::Refused { .. } => Some(4),
        RunEvent::Progress { .. } | RunEvent::Stopped | RunEvent::Completed | RunEvent::Failed { .. } => None,
    }
}

fn word(doing: &Doing) -> u8 {
    match doing {
        Doing::Held { .. } => 0,
        Doing::Running => 1,
        Doing::Restarting { .. } => 2,
        Doing::HandedOver | Doing::HandedOverFor { .. } => 3,
        Doing::Refused { .. } => 4,
    }
}

impl World {
    /// A row was committed.
    pub(crate) fn on_saved(&mut self, before: &Row, id: ObserverId) {
        let row = self.db.rows[&id].clone();
        if before.verdict() != row.verdict() {
            self.tell(|_| {
                let verdict = row.verdict();
                format!("row {}: {} {} ({})", row.wanted.name, verdict.status, row.epoch(), verdict.reason)
            });
        }
        if row.generation < before.generation {
            self.check.fail("I1", format!("the generation of {} went down", row.wanted.name));
        }
        if self.check.is_turned_back(row.id, row.generation) {
            // Two of its runs may have the same epoch, by no fault of ours.
            return;
        }
        if let Some(part) = differs(&row, &self.db.reports) {
            let text = format!("`{part}` of {} does not follow from its reports", row.wanted.name);
            self.check.fail("I2", text);
        }
        self.is_true(&row);
    }

    /// What a settlement says has happened.
    fn is_true(&mut self, row: &Row) {
        let Some(settled) = &row.seen.settled else { return };
        let Key { acquisitions, .. } = settled.key;
        let epoch = Epoch::new(row.generation, acquisitions);
        let of_run = |start: &usize| {
            let start = &self.check.starts[*start];
            start.id == row.id && start.epoch == epoch
        };
        let runs = self.check.alive.iter().any(of_run);
        let key = (row.id, epoch);
        let errors = self.check.errors.get(&key).copied().unwrap_or(0);
        let ended = self.check.finished.get(&key);
        let exhausted = row.wanted.retry.after(errors, 0.0) == Verdict::GiveUp;
        let holds = match &settled.how {
            Settlement::Stopped => true,
            Settlement::Completed => ended == Some(&Outcome::Done),
            Settlement::Failed { .. } if settled.service.0.is_nil() => return,
            Settlement::Failed { attempts, .. } => {
                matches!(ended, Some(Outcome::Failed(_))) || (exhausted && errors == *attempts)
            }
        };
        if runs || !holds {
            let text = format!("{} {epoch} is {:?}, which it is not", row.wanted.name, settled.how);
            self.check.fail("rows true", text);
        }
    }

    pub(crate) fn on_service_saved(&mut self, id: ServiceId) {
        let row = &self.db.services[&id];
        if row.end.is_some_and(|end| end.how == Ended::Lost) && self.broker.has_session(id) {
            let text = format!("{} is called lost and its session lives", row.birth.name);
            self.check.fail("lost only by the broker's word", text);
        }
    }

    /// It takes the deaths of five processes, and no others than its own may count.
    pub(crate) fn on_quarantined(&mut self, id: ObserverId) {
        let name = self.observer(id);
        self.tell(|_| format!("{name} is quarantined"));
        let others = self.check.deaths - self.check.poisoned;
        let excused = if self.check.poisoned > 0 { others > 0 } else { others >= 5 };
        if !self.is_poison(id) && !excused {
            let text = format!("{name} is quarantined, and {others} services died that it may be blamed for");
            self.check.fail("quarantine", text);
        }
    }

    /// The same, of everything that the broker kept and managers had time to read.
    pub(crate) fn unread(&self) -> Option<String> {
        let rows = self.db.rows.values().filter(|row| !swept(row));
        let rows = rows.filter(|row| !self.check.is_turned_back(row.id, row.generation));
        let mut wrong = rows.filter_map(|row| differs(row, &self.check.told).map(|part| (row, part)));
        wrong.next().map(|(row, part)| format!("`{part}` of {} is not what was reported", row.wanted.name))
    }
}

/// A manager's own settlement was never in the state queue.
fn swept(row: &Row) -> bool {
    row.seen.settled.as_ref().is_some_and(|settled| settled.service.0.is_nil())
}
