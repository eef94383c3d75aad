//! Whether an observer does its work: one word beside its status, computed from the row and never stored as a truth
//! of its own. The stores keep what [`standing`] returns beside the row, so that a list can be filtered by it.
//!
//! The obvious rule calls an observer running whenever its code executes. But an observer that fails repeatedly
//! executes between two failures, so a crash loop would look healthy half of the time. Instead, an observer that was
//! started after an error counts as restarting until it has run without an error for as long as its retry policy
//! takes to forget an error. The same holds for an observer that ends its services: its code reports no error.

use crate::clock::Timestamp;
use crate::record::observed::{FailedAttempt, Key, Observed, Run, RunPhase, TENURES_MAX};
use crate::record::row::{Desired, Row};
use crate::wire::hold_reasons;
use crate::wire::report::RunEvent;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long an observer runs without an error before it counts as running again, where its retry policy names no
/// `reset_after`.
pub const STEADY_AFTER: Duration = Duration::from_secs(300);
/// The shortest such time: a policy that forgets errors at once does not make a crash loop healthy.
pub const STEADY_AFTER_MIN: Duration = Duration::from_secs(60);
/// How long an observer that was handed over counts as moving; then it is waiting, usually because no service has room.
pub const MOVES_WITHIN: Duration = Duration::from_secs(3);

/// A run that ends without a report within this time of its start was cut short: its service died, or lost the broker.
pub const CUT_SHORT_WITHIN: Duration = Duration::from_secs(60);
/// This many runs in a row that were cut short make a crash loop.
const CUT_SHORT_RUNS: usize = 2;

/// The number of runs whose errors are remembered one by one.
const ERRORS_MAX: usize = TENURES_MAX;

/// Whether an observer does its work. An observer that is not meant to run (paused, completed, failed or deleted) has
/// no health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Its code executes, and has not failed recently.
    Running,
    /// Its code has failed recently, or its last runs were cut short: it waits for its next attempt, or has not yet run
    /// long enough to count as running.
    Restarting,
    /// It waits to be published, for a slot, for its turn or for a service that can run it, or its code was started and
    /// has not announced that it is ready.
    Waiting,
    /// It is on its way from one service to another. If no service takes it within [`MOVES_WITHIN`], it is waiting.
    Moving,
    /// It was deleted, paused or restarted by request, and its run has not ended yet.
    Stopping,
}

impl Health {
    /// Every value, the healthy one first.
    pub const ALL: [Self; 5] = [Self::Running, Self::Restarting, Self::Waiting, Self::Moving, Self::Stopping];

    /// The value as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Restarting => "restarting",
            Self::Waiting => "waiting",
            Self::Moving => "moving",
            Self::Stopping => "stopping",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Health {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|health| health.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("`{text}` is not a health: one of {words}")
        })
    }
}

/// The health that follows from a row alone; it holds as long as its service lives and `steady_at` has not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub health: Health,
    /// When another health follows, if nothing happens: an observer whose code executes after an error
    /// becomes running, and one that moves becomes waiting.
    pub steady_at: Option<Timestamp>,
}

impl Standing {
    /// The health at this moment. The filters of the stores follow the same rule in SQL.
    #[must_use]
    pub fn at(self, holder_lives: bool, now: Timestamp) -> Health {
        match self.health {
            Health::Running | Health::Restarting if !holder_lives => Health::Waiting,
            Health::Restarting if self.is_past(now) => Health::Running,
            Health::Moving if self.is_past(now) => Health::Waiting,
            health => health,
        }
    }

    fn is_past(self, now: Timestamp) -> bool {
        self.steady_at.is_some_and(|steady| steady <= now)
    }
}

/// The health that follows from the row alone; `None` if the observer is not meant to run now.
#[must_use]
pub fn standing(row: &Row) -> Option<Standing> {
    let plain = |health| Some(Standing { health, steady_at: None });
    if row.awaits_end() && row.withdrawn_at.is_none() {
        return plain(Health::Stopping);
    }
    match (row.desired, row.observed.settled.is_some()) {
        (Desired::Paused | Desired::Deleted, _) => None,
        (Desired::Running, _) if row.opens_at().is_some() => None,
        (Desired::Running, _) if row.waiting.is_some() => plain(Health::Waiting),
        (Desired::Running, true) if row.wants_republish() || row.is_withdrawn() => plain(Health::Waiting),
        (Desired::Running, true) => None,
        (Desired::Running, false) if row.unlisted.is_some() => plain(Health::Waiting),
        (Desired::Running, false) => Some(of_run(row)),
    }
}

fn of_run(row: &Row) -> Standing {
    let plain = |health| Standing { health, steady_at: None };
    let seen = &row.observed;
    match seen.latest.as_ref().map(|latest| &latest.phase) {
        Some(RunPhase::HandedOver | RunPhase::HandedOverFor { .. }) => {
            let steady_at = seen.latest.as_ref().map(|latest| latest.at.plus(MOVES_WITHIN));
            Standing { health: Health::Moving, steady_at }
        }
        None | Some(RunPhase::Refused { .. } | RunPhase::Held { refuses: true, .. }) => {
            plain(Health::Waiting)
        }
        Some(RunPhase::Restarting { .. }) => plain(Health::Restarting),
        Some(RunPhase::Held { reason, .. }) if reason == hold_reasons::SUSPECTED => plain(Health::Restarting),
        Some(RunPhase::Held { .. }) if failed_in_this_run(seen) => plain(Health::Restarting),
        Some(RunPhase::Held { reason, .. }) if hold_reasons::is_redelivery(reason) && seen.begun => {
            plain(Health::Moving)
        }
        Some(RunPhase::Held { .. }) => plain(Health::Waiting),
        Some(RunPhase::Starting) if failed_before(row) => plain(Health::Restarting),
        Some(RunPhase::Starting) if seen.runs.len() > 1 => plain(Health::Moving),
        Some(RunPhase::Starting) => plain(Health::Waiting),
        Some(RunPhase::Running) => match steady_at(row) {
            None => plain(Health::Running),
            steady_at => Standing { health: Health::Restarting, steady_at },
        },
    }
}

/// Whether its code failed in the run that holds it. A service reports a start rate that delays the next attempt in the
/// same way as one that delays the first start.
fn failed_in_this_run(seen: &Observed) -> bool {
    let run = seen.latest.as_ref().map(|latest| latest.key.acquisitions);
    run.is_some() && seen.errored_at.as_ref().map(|errored| errored.key.acquisitions) == run
}

/// Whether its code was started after an error, which it has not forgotten since.
fn failed_before(row: &Row) -> bool {
    failed_in_this_run(&row.observed) || steady_at(row).is_some()
}

/// When code that executes counts as running; `None` if it does already.
fn steady_at(row: &Row) -> Option<Timestamp> {
    let started = row.observed.started.as_ref()?;
    let after_crashes = is_crash_looping(&row.observed).then(|| started.value.at.plus(CUT_SHORT_WITHIN));
    steady_after_an_error(row).max(after_crashes)
}

/// When it counts as running again after its last error; `None` if no error came before its newest start, or if its
/// retry policy had forgotten that error by then. A move does not make an observer forget its errors.
pub(crate) fn steady_after_an_error(row: &Row) -> Option<Timestamp> {
    let (started, errored) = (row.observed.started.as_ref()?, row.observed.errored_at.as_ref()?);
    let after = steady_after(row);
    let same_run = started.key.acquisitions == errored.key.acquisitions;
    let lately = started.value.at.since(errored.value) < after;
    (same_run || lately).then(|| started.value.at.plus(after))
}

/// Whether its services die, or lose the broker, soon after its starts: it is a suspect, or each of the two runs before
/// the newest one was cut short. The time at which such a run ended is unknown, but it is before the next start.
pub(crate) fn is_crash_looping(seen: &Observed) -> bool {
    let newest = seen.started.as_ref().map(|started| started.key.acquisitions);
    // A run that was refused never starts, so this one waited as a suspect.
    if newest.is_some_and(|newest| seen.waited.contains(&newest)) {
        return true;
    }
    let is_cut_short = |(run, next): (&Run, &Run)| match (&run.started, &next.started) {
        (Some(started), Some(next)) => !run.over && next.value.since(started.value) < CUT_SHORT_WITHIN,
        _ => false,
    };
    let newest = seen.runs.iter().rev();
    let pairs = newest.clone().skip(1).zip(newest).take(CUT_SHORT_RUNS);
    seen.runs.len() > CUT_SHORT_RUNS && pairs.into_iter().all(is_cut_short)
}

/// How long its code has to run without an error to count as running.
#[must_use]
pub fn steady_after(row: &Row) -> Duration {
    row.definition.retry.reset_after().unwrap_or(STEADY_AFTER).max(STEADY_AFTER_MIN)
}

impl Row {
    /// How often its code was started again after an error since the last time that it ran for as long as its retry policy
    /// takes to forget an error. A move does not make an observer forget its errors.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        let Some(started) = &self.observed.started else { return 0 };
        let newest = started.key.acquisitions;
        let begun = |acquisitions| {
            let run = self.observed.runs.iter().find(|it| it.acquisitions == acquisitions);
            run.and_then(|it| Some(it.started.as_ref()?.value))
        };
        let mut count = started.value.attempt.saturating_sub(1);
        let mut next = begun(newest).unwrap_or(started.value.at);
        for (acquisitions, failed) in self.errors.range(..newest).rev() {
            if next.since(failed.at) >= steady_after(self) {
                break;
            }
            count = count.saturating_add(failed.attempt).saturating_add(failed.earlier);
            next = begun(*acquisitions).unwrap_or(failed.at);
        }
        count
    }

    /// Notes an attempt that ended with an error, if the report is about one. The result does not depend on the order of the reports.
    pub(super) fn join_error(&mut self, (key, at): (Key, Timestamp), event: &RunEvent) {
        let RunEvent::Errored { attempt, .. } = event else { return };
        let failed = FailedAttempt { seq: key.seq, attempt: *attempt, at, earlier: 0 };
        let oldest = self.errors.keys().next().filter(|_| self.errors.len() >= ERRORS_MAX);
        // It is counted already, or was too late to count.
        if oldest.is_some_and(|oldest| key.acquisitions < *oldest) {
            return;
        }
        let known = self.errors.entry(key.acquisitions).or_insert(failed);
        if failed.seq > known.seq {
            *known = FailedAttempt { earlier: known.earlier, ..failed };
        }
        if self.errors.len() > ERRORS_MAX {
            self.merge_oldest_errors();
        }
    }

    /// Counts the errors of the oldest run among those of the next one, unless the observer ran for long enough between them.
    fn merge_oldest_errors(&mut self) {
        let steady_after = steady_after(self);
        let Some((_, oldest)) = self.errors.pop_first() else { return };
        let Some(mut next) = self.errors.first_entry() else { return };
        let run = self.observed.runs.iter().find(|it| it.acquisitions == *next.key());
        let begun = run.and_then(|it| it.started.as_ref()).map_or(next.get().at, |started| started.value);
        if begun.since(oldest.at) < steady_after {
            next.get_mut().earlier = oldest.earlier.saturating_add(oldest.attempt);
        }
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
