//! The times of an observer: when it may start, and when it ends.

use crate::clock::{Timestamp, show};
use crate::record::observed::Settlement;
use crate::record::row::{Desired, Row};
use std::time::Duration;

/// How long after `finish_at` and the `grace` a manager waits for the report of the service before it ends the observer.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);

static STOPPED: Settlement = Settlement::Stopped;

impl Row {
    /// The `start_at` that a scheduled observer waits for.
    #[must_use]
    pub fn opens_at(&self) -> Option<Timestamp> {
        self.waiting.and_then(|waiting| waiting.opens_at).filter(|_| self.desired == Desired::Running)
    }

    /// The `start_at` of its definition, if that is in the future.
    #[must_use]
    pub fn starts_later(&self, now: Timestamp) -> Option<Timestamp> {
        self.definition.start_at.filter(|at| *at > now)
    }

    /// Its `start_at` has passed: it waits for a slot.
    pub(crate) fn open(&mut self, now: Timestamp) {
        if let Some(waiting) = &mut self.waiting
            && let Some(opened) = waiting.opens_at.take()
        {
            (waiting.since, self.modified_at) = (opened, now);
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

    /// Whether its `finish_at` has passed.
    #[must_use]
    pub fn is_past_finish(&self, now: Timestamp) -> bool {
        self.definition.finish_at.is_some_and(|at| at <= now)
    }

    /// When a manager ends it because of its `finish_at`; `None` if it has ended, is deleted or has no
    /// `finish_at`.
    #[must_use]
    pub fn finish_due_at(&self) -> Option<Timestamp> {
        let at = self.definition.finish_at?;
        if self.desired == Desired::Deleted || self.verdict().status.is_final() {
            return None;
        }
        let has_message = self.waiting.is_none() && self.generation > 0 && self.observed.settled.is_none();
        Some(if has_message { at.plus(self.definition.grace.saturating_add(FINISH_PATIENCE)) } else { at })
    }

    /// A manager ends it because its `finish_at` has passed.
    pub(crate) fn finish(&mut self, now: Timestamp) {
        let Some(at) = self.definition.finish_at else { return };
        (self.ending, self.promised, self.readmitted) = (None, None, None);
        (self.withdrawn_at, self.refused_since, self.publish_lease) = (None, None, None);
        self.settle_by_manager(Settlement::Finished { at }, now);
    }

    /// How its generation ended. An end at a `finish_at` that the definition no longer has counts as a stop.
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
