//! The executions of an observer with a schedule: each starts at a time of the schedule, and the observer waits for the next
//! time when it ends.

use crate::clock::Timestamp;
use crate::observer::schedule::IfRunning;
use crate::record::observed::{Settled, Settlement};
use crate::record::operations::Refusal;
use crate::record::row::{Desired, Row};
use crate::record::row_policy::RowPolicy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Managers look once a second. An execution that starts later than this after its time is late.
const PROMPT: Duration = Duration::from_secs(10);
/// The longest error of a last execution, in characters.
const ERROR_MAX_CHARS: usize = 500;

/// Which times of its schedule an observer has used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Executions {
    /// Times up to this one start no execution any more.
    pub used_until: Timestamp,
    /// The time for which its current or latest execution started; `None` if a request started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// When a manager restarts its execution, because of [`IfRunning::Restart`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_at: Option<Timestamp>,
    /// A request wants one more execution after the current one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// How the execution before the current one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Execution>,
}

/// How an execution for a time of a schedule ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The time for which it started; `None` if a request started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// `None` if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Row {
    /// Whether the end of its execution is not its own end: it waits for the next time of its schedule.
    #[must_use]
    pub fn will_execute_again(&self) -> bool {
        let by_manager = || self.observed.settled.as_ref().is_some_and(Settled::is_by_manager);
        self.definition.schedule.is_some()
            && match self.settlement() {
                Some(Settlement::Completed | Settlement::NotStarted { .. }) => true,
                // It would end more services.
                Some(Settlement::Failed { attempts, .. }) => !(*attempts > 0 && by_manager()),
                Some(Settlement::Finished { .. } | Settlement::Stopped) | None => false,
            }
    }

    /// How its latest execution that has ended did so; `None` without a schedule.
    #[must_use]
    pub fn last_execution(&self) -> Option<Execution> {
        let executions = self.executions.as_ref()?;
        self.ended_execution().or_else(|| executions.last.clone())
    }

    fn ended_execution(&self) -> Option<Execution> {
        let settled = self.observed.settled.as_ref()?;
        let error = match self.settlement()? {
            Settlement::Completed => None,
            Settlement::Failed { error, .. } | Settlement::NotStarted { error } => {
                Some(error.chars().take(ERROR_MAX_CHARS).collect())
            }
            Settlement::Finished { .. } | Settlement::Stopped => return None,
        };
        let scheduled_for = self.executions.as_ref().and_then(|executions| executions.scheduled_for);
        Some(Execution { scheduled_for, ended_at: settled.at, error })
    }

    /// The time of its schedule for which an execution starts now, or the next one; `None` without a schedule, or if no time is
    /// left.
    pub(super) fn next_execution(&self, now: Timestamp) -> Option<Timestamp> {
        let (schedule, used) = (self.definition.schedule.as_ref()?, self.used_until());
        let missed = schedule.latest(used, now, self.id);
        let missed = missed.filter(|time| now.since(*time) <= schedule.catch_up.max(PROMPT));
        missed.or_else(|| schedule.next_after(used.max(now), self.id))
    }

    /// The next times after `now` at which an execution of it starts.
    #[must_use]
    pub fn next_executions(&self, now: Timestamp, count: usize) -> Vec<Timestamp> {
        let Some(schedule) = &self.definition.schedule else { return Vec::new() };
        let mut times = schedule.preview(self.used_until().max(now), self.id, count);
        times.retain(|time| self.definition.finish_at.is_none_or(|end| *time < end));
        times
    }

    /// Times of its schedule up to this one start no execution.
    fn used_until(&self) -> Timestamp {
        let used = self.executions.as_ref().map_or(self.created_at, |executions| executions.used_until);
        let first = self.definition.start_at.map_or(used, |at| Timestamp(at.0.saturating_sub(1)));
        used.max(first)
    }

    /// The times of its schedule start over: those that have passed start nothing.
    pub(crate) fn schedule_from(&mut self, now: Timestamp) {
        self.executions = self.definition.schedule.is_some().then(|| Executions {
            used_until: now,
            restarts_at: self.restart_after(now),
            ..self.executions.take().unwrap_or_default()
        });
    }

    fn restart_after(&self, now: Timestamp) -> Option<Timestamp> {
        let schedule = self.definition.schedule.as_ref()?;
        let restarts = schedule.if_running == IfRunning::Restart;
        restarts.then(|| schedule.next_after(now, self.id)).flatten()
    }

    /// Its next execution is published for the latest time that has passed.
    pub(super) fn start_execution(&mut self, now: Timestamp) {
        let Some(schedule) = &self.definition.schedule else { return };
        let executions = Executions {
            used_until: now,
            scheduled_for: schedule
                .latest(self.used_until(), now, self.id)
                .map(|at| at.minus(schedule.delay(self.id))),
            restarts_at: self.restart_after(now),
            queued: false,
            last: self.last_execution(),
        };
        self.executions = Some(executions);
    }

    /// If its execution has ended and its schedule has not, it waits for the next time.
    pub(super) fn wait_for_next_execution(&mut self, now: Timestamp) {
        let waits = self.desired == Desired::Running && self.waiting.is_none() && !self.wants_republish();
        let Some(schedule) = self.definition.schedule.clone().filter(|_| waits && self.will_execute_again())
        else {
            return;
        };
        let used = self.used_until();
        // No manager may have been alive at a time after the end.
        let end = self.observed.settled.as_ref().map_or(now, |settled| settled.at.min(now));
        let passed = schedule.if_running == IfRunning::Queue && schedule.latest(used, end, self.id).is_some();
        let executions = self.executions.get_or_insert_default();
        let starts_next = std::mem::take(&mut executions.queued) || passed;
        executions.used_until = if passed { used } else { used.max(end) };
        self.wait_for_slot(now, now);
        if starts_next {
            self.start_next(now);
        }
    }

    /// It does not wait for a time any more, only for a slot.
    fn start_next(&mut self, now: Timestamp) {
        if let Some(waiting) = &mut self.waiting {
            (waiting.since, waiting.opens_at) = (now, None);
        }
        self.modified_at = now;
    }

    /// When a manager restarts its run for the next time of its schedule.
    pub(crate) fn restarts_at(&self) -> Option<Timestamp> {
        let runs = self.desired == Desired::Running && self.has_message() && !self.awaits_end();
        self.executions.as_ref().filter(|_| runs)?.restarts_at
    }

    /// Restarts its execution because a time of its schedule has come, if its code has started.
    pub(crate) fn restart_for_schedule(&mut self, now: Timestamp, policy: &RowPolicy) {
        self.modified_at = now;
        // A time before the code has started is skipped.
        if self.observed.begun && self.next_execution(now).is_some_and(|at| at <= now) {
            self.start_execution(now);
            self.renew_run(now, policy);
        } else {
            self.schedule_from(now);
        }
    }

    /// Starts an execution now, whatever its schedule says; returns whether anything changed.
    ///
    /// # Errors
    /// If it is deleted or paused, has no schedule, or its `finish_at` has passed; if an execution is active, and its schedule
    /// skips times during an execution.
    pub fn trigger(&mut self, now: Timestamp, policy: &RowPolicy) -> Result<bool, Refusal> {
        self.refuse_deleted()?;
        self.refuse_finished(now)?;
        let Some(schedule) = &self.definition.schedule else { return Err(Refusal::NoSchedule) };
        let if_running = schedule.if_running;
        if self.desired == Desired::Paused {
            return Err(Refusal::Paused);
        }
        if self.verdict().status.is_final() {
            self.schedule_from(now);
            self.wait_for_slot(now, now);
            self.start_next(now);
            return Ok(true);
        }
        if self.opens_at().is_some() {
            self.schedule_from(now);
            self.start_next(now);
            return Ok(true);
        }
        if self.waiting.is_some() {
            return Ok(false);
        }
        match if_running {
            IfRunning::Skip => return Err(Refusal::Active),
            IfRunning::Queue => {
                let executions = self.executions.get_or_insert_default();
                if std::mem::replace(&mut executions.queued, true) {
                    return Ok(false);
                }
                self.modified_at = now;
            }
            IfRunning::Restart => {
                self.renew_run(now, policy);
                self.start_next(now);
                self.executions.get_or_insert_default().scheduled_for = None;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
