//! Checks that the conclusions of managers are true. A manager declares a service lost only if the broker
//! confirms that its session has ended. In safe mode, managers conclude nothing from silence. No observer
//! fails without a cause. No observer is republished while its message exists.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::observed::Settlement;
use everwatch_core::record::row::{Desired, Row};
use everwatch_core::record::service::{Ended, ServiceRow};
use everwatch_core::wire::report::RunEvent;
use std::collections::BTreeSet;

/// How long, in ms, a manager may still act on what it decided before safe mode was switched on.
const SWITCHES_WITHIN: u64 = 16_000;
/// How long managers take to read a report, in ms. After that, they know of a reported start.
const READS_WITHIN: u64 = 2000;
/// The longest pause between two attempts of a manager to reach the database, in ms.
const TRIES_EVERY: u64 = 5000;
/// How long services must have refused an observer before it fails, in ms.
const REFUSED_MAX: u64 = 900_000;

#[derive(Default)]
pub(super) struct Conclusions {
    lost: BTreeSet<ServiceId>,
}

impl Conclusions {
    pub(super) fn hear(
        &mut self,
        now: u64,
        fact: &Fact,
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        match fact {
            Fact::ServiceSaved { row } => self.on_service(now, row, known, exercised),
            Fact::Saved { request: Some(_), before: Some(before), after } => {
                on_published((before, after), known, exercised)
            }
            Fact::Saved { request: None, before: Some(before), after } => {
                on_published((before, after), known, exercised)?;
                on_failed(now, (before, after), known, exercised)?;
                on_republished(now, (before, after), known, exercised)
            }
            _ => Ok(()),
        }
    }

    fn on_service(
        &mut self,
        now: u64,
        row: &ServiceRow,
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        if row.end.is_none_or(|end| end.how != Ended::Lost) || !self.lost.insert(row.id) {
            return Ok(());
        }
        *exercised.entry("lost services").or_default() += 1;
        let name = &row.registration.name;
        if known.sessions.get(&row.id).is_some_and(|session| session.open) {
            return breach("lost services", format!("{name} is called lost and its session lives"));
        }
        in_safe_mode(now, known, || format!("{name} is called lost"))
    }
}

fn in_safe_mode(now: u64, known: &Knowledge, what: impl Fn() -> String) -> Verdict {
    if known.safe_mode_since.is_some_and(|since| now - since > SWITCHES_WITHIN) {
        return breach("safe mode", format!("{}, in safe mode", what()));
    }
    Ok(())
}

/// Checks an observer that a manager has declared failed.
fn on_failed(
    now: u64,
    (before, after): (&Row, &Row),
    known: &Knowledge,
    exercised: &mut Exercised,
) -> Verdict {
    let (None, Some(settled)) = (&before.observed.settled, &after.observed.settled) else { return Ok(()) };
    let Settlement::Failed { error, .. } = &settled.how else { return Ok(()) };
    if !settled.service.0.is_nil() {
        return Ok(());
    }
    let name = &after.definition.name;
    *exercised.entry("failed by a manager").or_default() += 1;
    if error.starts_with("quarantined") {
        in_safe_mode(now, known, || format!("{name} is quarantined"))?;
        let others = known.deaths.saturating_sub(known.deadly_deaths);
        let excused = if known.deadly_deaths > 0 { others > 0 } else { others >= 5 };
        if !known.is_deadly(after.id) && !excused {
            let text = format!("{name} is quarantined, and {others} services died that it may be blamed for");
            return breach("failed by a manager", text);
        }
        return Ok(());
    }
    let newest_run = known.started_at.get(&after.id).is_some_and(|at| now - at < REFUSED_MAX);
    if newest_run {
        return breach(
            "failed by a manager",
            format!("{name} fails because no service could run it, and a service has run it"),
        );
    }
    Ok(())
}

/// Checks a row that says that its message was published: the broker must have confirmed it, or a service
/// must have reported it.
fn on_published((before, after): (&Row, &Row), known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let (id, generation) = (after.id, after.generation);
    if before.published_at.is_some() && before.generation == generation || after.published_at.is_none() {
        return Ok(());
    }
    *exercised.entry("published").or_default() += 1;
    let reports = known.reports.get(&id).into_iter().flatten();
    let reported = reports.filter(|it| it.3.epoch.generation() == generation).count() > 0;
    if reported || known.confirmed.contains(&(id, generation)) {
        return Ok(());
    }
    let text =
        format!("generation {generation} of {} is called published, unconfirmed", after.definition.name);
    breach("published", text)
}

/// Checks a republish that a manager decided by itself.
fn on_republished(
    now: u64,
    (before, after): (&Row, &Row),
    known: &Knowledge,
    exercised: &mut Exercised,
) -> Verdict {
    // A report with a higher generation also raises the generation, without a publish.
    let raised =
        after.generation > before.generation && before.generation > 0 && after.publish_lease.is_some();
    let has_message = !before.wants_republish() && (!before.is_waiting() || before.waits_for_lists());
    if !raised || !has_message || known.is_rewound(before.id, before.generation) {
        return Ok(());
    }
    *exercised.entry("republished").or_default() += 1;
    let (id, generation) = (before.id, before.generation);
    let leased = before.publish_lease.is_some();
    if !leased && !known.work_lost {
        in_safe_mode(now, known, || format!("{} is republished", before.definition.name))?;
    }
    // The restored database does not contain what the managers had recorded since the backup.
    if known.restored || before.desired != Desired::Running {
        return Ok(());
    }
    if !is_there(id, generation, known) || (leased && !was_reported(now, id, generation, known)) {
        return Ok(());
    }
    let text = format!(
        "{} is republished as generation {}, and generation {generation} is at {:?}",
        before.definition.name,
        after.generation,
        known.messages.get(&(id, generation)),
    );
    breach("republished", text)
}

/// Whether the message is ready in the queue, or a service has received it.
fn is_there(id: ObserverId, generation: u32, known: &Knowledge) -> bool {
    use super::knowledge::Place;
    match known.messages.get(&(id, generation)) {
        Some(Place::Ready | Place::Held { arrived: true, .. }) => true,
        Some(Place::Held { arrived: false, .. } | Place::Abandoned) | None => false,
    }
}

fn was_reported(now: u64, id: ObserverId, generation: u32, known: &Knowledge) -> bool {
    if known.may_be_unread(now) {
        return false;
    }
    known.reports.get(&id).into_iter().flatten().any(|(at, _, _, run)| {
        let started = matches!(run.event, RunEvent::Started { .. });
        let could_be_read =
            if known.database_back_at == 0 { *at } else { known.database_back_at + TRIES_EVERY };
        let read = now >= could_be_read.max(*at) + READS_WITHIN;
        started && run.epoch.generation() == generation && read
    })
}
