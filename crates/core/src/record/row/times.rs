//! The times of an observer: when it may start, and when it ends.

use crate::clock::{Timestamp, show};
use crate::record::observed::Settlement;
use crate::record::row::{Desired, Row};
use crate::record::row_policy::RowPolicy;
use crate::record::status::Status;
use std::time::Duration;

/// How long after the end of a run and its `grace` a manager waits for the report of the service before it ends the run.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);
const A_DAY: Duration = Duration::from_secs(86_400);

static STOPPED: Settlement = Settlement::Stopped;

impl Row {
    /// The time that a scheduled observer waits for: its `start_at`, its next window or the next time of its schedule.
    #[must_use]
    pub fn opens_at(&self) -> Option<Timestamp> {
        self.waiting.and_then(|waiting| waiting.opens_at).filter(|_| self.desired == Desired::Running)
    }

    /// When it may start, if that is in the future: after its `start_at`, in a window, or at a time of its schedule.
    #[must_use]
    pub fn starts_later(&self, now: Timestamp) -> Option<Timestamp> {
        let start = if self.definition.schedule.is_some() {
            // No time is known: look again in a day.
            self.next_execution(now).unwrap_or(now.plus(A_DAY))
        } else {
            self.in_a_window(self.definition.start_at.map_or(now, |at| at.max(now)))
        };
        (start > now).then_some(start)
    }

    /// Whether it has windows, and none of them is open.
    pub(crate) fn is_between_windows(&self, now: Timestamp) -> bool {
        self.in_a_window(now) > now
    }

    /// The first time from `earliest` on that is in a window.
    fn in_a_window(&self, earliest: Timestamp) -> Timestamp {
        let Some(windows) = &self.definition.windows else { return earliest };
        // A service may end a run a little before this clock shows the end of the window.
        let earliest = match self.observed.settled.as_ref().map(|settled| &settled.how) {
            Some(Settlement::Finished { at }) if self.closes_at == Some(*at) => earliest.max(*at),
            _ => earliest,
        };
        // No opening is known: look again in a day.
        windows.open_at(earliest).map_or(earliest.plus(A_DAY), |open| open.from.max(earliest))
    }

    /// The end of the window that is open now, or `now` if none is open; `None` if it has no windows, or if they have no
    /// gap within ten years.
    pub(crate) fn window_end(&self, now: Timestamp) -> Option<Timestamp> {
        match self.definition.windows.as_ref()?.open_at(now) {
            Some(open) if open.from <= now => open.until,
            // A message that is published now starts nothing.
            Some(_) | None => Some(now),
        }
    }

    /// When the window closes in which it waits for a slot.
    pub(crate) fn shut_at(&self) -> Option<Timestamp> {
        let waits = self.waiting.is_some() && self.desired == Desired::Running && self.opens_at().is_none();
        self.closes_at.filter(|_| waits)
    }

    /// The time that it waited for has come, or the window in which it waited for a slot has closed.
    pub(crate) fn wait_anew(&mut self, now: Timestamp) {
        if let Some(waiting) = self.waiting {
            self.wait(waiting.since, now);
            self.modified_at = now;
        }
    }

    /// When a manager fails it because it still waits for a slot.
    #[must_use]
    pub fn not_started_at(&self) -> Option<Timestamp> {
        let waits = self.desired == Desired::Running && self.opens_at().is_none();
        let waiting = self.waiting.filter(|_| waits)?;
        Some(waiting.since.plus(self.definition.start_within?))
    }

    /// A manager fails it because it has waited for a slot for its `start_within`.
    pub(crate) fn fail_not_started(&mut self, now: Timestamp) {
        let within = self.definition.start_within.map_or_else(String::new, show);
        let error = format!("did not start within {within} (start_within)");
        (self.withdrawn_at, self.refused_since) = (None, None);
        self.settle_by_manager(Settlement::NotStarted { error }, now);
    }

    /// When the row may be forgotten.
    #[must_use]
    pub fn forget_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let ended = self.ended_at.filter(|_| self.batch.is_none() && !self.awaits_release())?;
        let keep = match self.verdict().status {
            Status::Deleted => policy.retention_deleted,
            Status::Completed => policy.retention_completed,
            Status::Failed => policy.retention_failed,
            Status::Scheduled
            | Status::Created
            | Status::Processing
            | Status::OnDeleting
            | Status::Paused => return None,
        };
        Some(ended.plus(keep))
    }

    /// Whether its `finish_at` has passed.
    #[must_use]
    pub fn is_past_finish(&self, now: Timestamp) -> bool {
        self.definition.finish_at.is_some_and(|at| at <= now)
    }

    /// When its run ends: at its `finish_at` or at the end of its window.
    fn ends_at(&self) -> Option<Timestamp> {
        let closes_at = self.closes_at.filter(|_| self.has_message());
        [self.definition.finish_at, closes_at].into_iter().flatten().min()
    }

    pub(crate) fn has_message(&self) -> bool {
        self.waiting.is_none() && self.generation > 0 && self.observed.settled.is_none()
    }

    /// When a manager ends it because of its `finish_at`, or ends its run because its window has closed; `None` if it has
    /// ended, is deleted or has no end.
    #[must_use]
    pub fn finish_due_at(&self) -> Option<Timestamp> {
        let at = self.ends_at()?;
        if self.desired == Desired::Deleted || self.verdict().status.is_final() {
            return None;
        }
        let patience = self.definition.grace.saturating_add(FINISH_PATIENCE);
        Some(if self.has_message() { at.plus(patience) } else { at })
    }

    /// A manager ends it because its `finish_at` has passed, or its run because its window has closed.
    pub(crate) fn finish(&mut self, now: Timestamp) {
        let Some(at) = self.ends_at() else { return };
        (self.ending, self.promised, self.readmitted) = (None, None, None);
        (self.withdrawn_at, self.refused_since, self.publish_lease) = (None, None, None);
        self.settle_by_manager(Settlement::Finished { at }, now);
    }

    /// How its generation ended. An end at the end of a window, or at a `finish_at` that the definition no longer has,
    /// counts as a stop.
    #[must_use]
    pub fn settlement(&self) -> Option<&Settlement> {
        let how = &self.observed.settled.as_ref()?.how;
        match how {
            Settlement::Finished { at } if self.definition.finish_at != Some(*at) => Some(&STOPPED),
            how => Some(how),
        }
    }
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
