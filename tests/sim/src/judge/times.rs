//! Checks times: no code starts before its `start_at`, after its `finish_at` or outside of its windows, and none runs on
//! after them; no time of a schedule starts two runs. Histories with times have exact wall clocks.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::machine::EPOCH_MS;
use crate::record::Fact;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::{Desired, Row};
use everwatch_core::record::status::Status;
use std::collections::BTreeMap;

/// A service that decides at the very moment may start code this much later, in ms.
const AT_ONCE: i64 = 1000;
/// How long code may run on while nothing is wrong, in ms: its grace of 3 s, and 2 s.
const RUNS_ON: i64 = 5000;
/// How long a row may take to be completed while nothing is wrong, in ms: a manager waits 5 s for its service.
const COMPLETED_WITHIN: i64 = 15_000;

/// How long a row may wait for a time that has passed while nothing is wrong, in ms.
const OPENED_WITHIN: i64 = 5000;

fn wall(now: u64) -> i64 {
    EPOCH_MS + i64::try_from(now).unwrap()
}

/// Whether an observer with this definition has windows, and none of them is open at this time.
pub(super) fn is_between_windows(definition: &ObserverDefinition, at: Timestamp) -> bool {
    let windows = definition.windows.as_ref();
    windows.is_some_and(|windows| windows.open_at(at).is_none_or(|open| open.from > at))
}

/// The same throughout the last `ms`.
fn was_between_windows(definition: &ObserverDefinition, now: i64, ms: i64) -> bool {
    [now, now - ms].into_iter().all(|at| is_between_windows(definition, Timestamp(at)))
}

pub(super) fn hear(now: u64, fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    let Fact::Started(start) = fact else { return Ok(()) };
    let Some(row) = known.row(start.id) else { return Ok(()) };
    let (definition, now) = (&row.definition, wall(now));
    if let Some(Timestamp(at)) = definition.start_at {
        *exercised.entry("starts in time").or_default() += 1;
        if now < at {
            return breach(
                "times",
                format!("{} starts {} ms before its start_at", definition.name, at - now),
            );
        }
    }
    if definition.windows.is_some() {
        *exercised.entry("starts in a window").or_default() += 1;
    }
    if was_between_windows(definition, now, AT_ONCE) {
        return breach("times", format!("{} starts outside of its windows", definition.name));
    }
    match definition.finish_at {
        Some(Timestamp(at)) if now > at + AT_ONCE => {
            breach("times", format!("{} starts {} ms after its finish_at", definition.name, now - at))
        }
        _ => Ok(()),
    }
}

/// The times for which runs of observers with a schedule have ended, and the generation of each.
#[derive(Default)]
pub(super) struct Schedules {
    ended: BTreeMap<(ObserverId, Timestamp), u32>,
}

impl Schedules {
    pub(super) fn hear(&mut self, now: u64, fact: &Fact, exercised: &mut Exercised) -> Verdict {
        let Fact::Saved { after: row, .. } = fact else { return Ok(()) };
        let ended_by = row.observed.settled.as_ref().map(|settled| settled.service.0);
        let status = row.verdict().status;
        let has_ended = matches!(status, Status::Completed | Status::Failed);
        if row.definition.schedule.is_some()
            && row.definition.finish_at.is_none()
            && has_ended
            && ended_by.is_some_and(|service| !service.is_nil())
        {
            return breach("times", format!("{} is {status} after an execution", row.definition.name));
        }
        let Some(scheduled_for) = row.executions.as_ref().and_then(|executions| executions.scheduled_for)
        else {
            return Ok(());
        };
        let name = &row.definition.name;
        if wall(now) < scheduled_for.0 {
            return breach("times", format!("a run of {name} begins before its time, {scheduled_for}"));
        }
        if row.opens_at().is_some() {
            *exercised.entry("runs of a schedule").or_default() += 1;
            self.ended.insert((row.id, scheduled_for), row.generation);
        } else if row.waiting.is_none()
            && self.ended.get(&(row.id, scheduled_for)).is_some_and(|ended| row.generation > *ended)
        {
            return breach("times", format!("{name} runs for {scheduled_for} once more"));
        }
        Ok(())
    }
}

pub(super) fn tick(now: u64, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
    if !known.is_untroubled(now) {
        return Ok(());
    }
    let late = |row: &Row| row.definition.finish_at.map_or(i64::MIN, |at| wall(now) - at.0);
    for start in known.alive.iter().map(|start| &known.starts[start]) {
        if let Some(row) = known.row(start.id)
            && late(&row) > RUNS_ON
        {
            let text = format!("{} runs {} ms after its finish_at", row.definition.name, late(&row));
            return breach("times", text);
        }
        if let Some(row) = known.row(start.id)
            && was_between_windows(&row.definition, wall(now), RUNS_ON)
        {
            return breach("times", format!("{} runs outside of its windows", row.definition.name));
        }
    }
    let opened = |row: &&Row| row.opens_at().is_some_and(|at| at.0 + OPENED_WITHIN < wall(now));
    if let Some(row) = known.rows().iter().find(opened) {
        return breach("times", format!("{} still waits for a time that has passed", row.definition.name));
    }
    for row in known.rows().iter().filter(|row| late(row) > COMPLETED_WITHIN) {
        *exercised.entry("ends in time").or_default() += 1;
        if row.desired != Desired::Deleted && !row.verdict().status.is_final() {
            let (name, verdict) = (&row.definition.name, row.verdict());
            let text = format!("{name} is {} {} ms after its finish_at", verdict.status, late(row));
            return breach("times", text);
        }
    }
    Ok(())
}
