//! The actions that a user can request on an existing observer; each returns whether anything changed.
//!
//! A run must end before the next generation begins. So an action on a live observer only marks its generation as
//! ending, and the report of the end causes the next publish.

use crate::clock::Timestamp;
use crate::id::{Pool, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::row::{Desired, FORMER_POOLS_MAX, Row};
use crate::record::row_policy::RowPolicy;
use crate::record::status::Status;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The number of idempotency keys that a row remembers.
const ACTED_MAX: usize = 8;

/// Why a row refuses an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is deleted or being deleted.
    Deleted,
    /// Only a failed observer can be retried.
    NotFailed,
    /// It is paused: resume it instead.
    Paused,
    /// Its `finish_at` has passed.
    FinishAtPassed(Timestamp),
    /// It has no schedule.
    NoSchedule,
    /// An execution is active, and its schedule skips times during one.
    Active,
}

type Asked = Result<bool, Refusal>;

impl Row {
    /// Requests its delete. Repeatable; returns whether anything changed.
    pub fn delete(&mut self, now: Timestamp, policy: &RowPolicy) -> bool {
        if self.desired == Desired::Deleted {
            return false;
        }
        self.desired = Desired::Deleted;
        (self.waiting, self.behind) = (None, None);
        self.delete_requested_at = Some(now);
        self.modified_at = now;
        self.ended_at = None;
        self.settle_into(now);
        if self.verdict().status == Status::OnDeleting {
            self.command(now, policy);
        }
        true
    }

    /// Requests its delete, but only if it has this status; returns whether anything changed.
    ///
    /// # Errors
    /// Its status, if that is another one.
    pub fn delete_if(
        &mut self,
        only_if: Option<Status>,
        now: Timestamp,
        policy: &RowPolicy,
    ) -> Result<bool, Status> {
        let status = self.verdict().status;
        if only_if.is_some_and(|wanted| wanted != status) {
            Err(status)
        } else {
            Ok(self.delete(now, policy))
        }
    }

    /// The pools whose services may hold a message of this observer. `None`: the services of any pool may.
    #[must_use]
    pub fn possible_pools(&self) -> Option<BTreeSet<Pool>> {
        let pools = self.former_pools.iter().chain([&self.definition.pool]).cloned();
        (self.former_pools.len() < FORMER_POOLS_MAX).then(|| pools.collect())
    }
    /// A new observer that must not run yet: nothing is published, and its generation is 0.
    #[must_use]
    pub fn created_paused(mut self) -> Self {
        (self.desired, self.generation, self.publish_lease) = (Desired::Paused, 0, None);
        self
    }

    /// Retries a failed observer.
    ///
    /// # Errors
    /// If it is deleted, has not failed, or its `finish_at` has passed.
    pub fn retry(&mut self, now: Timestamp, _policy: &RowPolicy) -> Asked {
        self.refuse_deleted()?;
        self.refuse_finished(now)?;
        if self.verdict().status != Status::Failed {
            return Err(Refusal::NotFailed);
        }
        self.desired = Desired::Running;
        self.schedule_from(now);
        self.wait_for_slot(now, now);
        Ok(true)
    }

    /// Stops it until it is resumed. An observer that has ended by itself stays as it is.
    ///
    /// # Errors
    /// If it is deleted.
    pub fn pause(&mut self, now: Timestamp, policy: &RowPolicy) -> Asked {
        self.refuse_deleted()?;
        if self.desired == Desired::Paused || self.verdict().status.is_final() {
            return Ok(false);
        }
        self.desired = Desired::Paused;
        self.modified_at = now;
        if self.awaits_end() {
            self.command(now, policy);
        }
        Ok(true)
    }

    /// Lets it run again: at once if it has ended, otherwise as soon as it has.
    ///
    /// # Errors
    /// If it is deleted, or its `finish_at` has passed.
    pub fn resume(&mut self, now: Timestamp, policy: &RowPolicy) -> Asked {
        self.refuse_deleted()?;
        self.refuse_finished(now)?;
        if self.desired == Desired::Running {
            return Ok(false);
        }
        let rests = self.verdict().status == Status::Paused;
        self.desired = Desired::Running;
        self.modified_at = now;
        if rests {
            self.schedule_from(now);
            self.wait_for_slot(now, now);
        } else if self.observed.settled.is_some() && self.wants_republish() {
            // It ended by itself after a restart was promised, and gave up its slot while it was paused.
            self.wait_for_slot(now, now);
        } else if !self.verdict().status.is_final() {
            // Services were told that this generation ends; they may not have received that yet.
            (self.ending, self.withdrawn_at) = (Some(self.generation), None);
            self.command(now, policy);
        }
        Ok(true)
    }

    /// Stops it and starts it again, in the same slot; an observer that has ended by itself waits for a slot. One that
    /// waits already stays as it is.
    ///
    /// # Errors
    /// If it is deleted or paused, or its `finish_at` has passed.
    pub fn restart(&mut self, now: Timestamp, policy: &RowPolicy) -> Asked {
        self.refuse_deleted()?;
        self.refuse_finished(now)?;
        if self.desired == Desired::Paused && !self.verdict().status.is_final() {
            return Err(Refusal::Paused);
        }
        if self.has_its_place_in_line() || self.opens_at().is_some() {
            return Ok(false);
        }
        self.desired = Desired::Running;
        self.renew_run(now, policy);
        Ok(true)
    }

    /// The service that must hand it over so that another one gets it; `None` if no service holds it.
    ///
    /// # Errors
    /// If it is deleted or paused.
    pub fn leaves(&self) -> Result<Option<ServiceId>, Refusal> {
        self.refuse_deleted()?;
        match (self.desired, self.verdict().status.is_final()) {
            (_, true) => Ok(None),
            (Desired::Paused, false) => Err(Refusal::Paused),
            (Desired::Running | Desired::Deleted, false) => Ok(self.observed.holder()),
        }
    }

    /// Replaces the definition. If that changes the run, the observer restarts.
    ///
    /// # Errors
    /// If it is deleted.
    pub fn update(
        &mut self,
        mut definition: ObserverDefinition,
        now: Timestamp,
        policy: &RowPolicy,
    ) -> Asked {
        self.refuse_deleted()?;
        definition.imply_limits(&self.definition);
        if definition == *self.definition {
            return Ok(false);
        }
        let runs_otherwise = !definition.runs_like(&self.definition);
        let changes_line = definition.pool != self.definition.pool
            || definition.limits != self.definition.limits
            || definition.weight != self.definition.weight;
        let has_ended = self.verdict().status.is_final();
        let changes_schedule = definition.schedule != self.definition.schedule;
        let changes_start = changes_schedule
            || definition.start_at != self.definition.start_at
            || definition.windows != self.definition.windows;
        if definition.pool != self.definition.pool && self.former_pools.len() < FORMER_POOLS_MAX {
            self.former_pools.insert(self.definition.pool.clone());
        }
        self.definition = Arc::new(definition);
        self.revise(now);
        self.modified_at = now;
        if changes_schedule {
            self.schedule_from(now);
        }
        if let Some(waiting) = self.waiting.filter(|_| changes_start || changes_line) {
            self.wait_for_slot(waiting.since.min(now), now);
        }
        if runs_otherwise && self.desired == Desired::Running && !self.is_past_finish(now) {
            // An end at a former `finish_at` counts as a stop, but it has given up the slot.
            if has_ended || changes_line && self.wants_republish() {
                self.wait_for_slot(now, now);
            } else {
                self.renew_run(now, policy);
            }
        }
        if changes_line {
            // It has a slot of its former pool and places of its former limits only.
            self.readmitted = self.has_message().then_some(self.generation);
        }
        if changes_schedule {
            // Its end may now be that of a run only, or the other way round.
            self.note_settled(now);
        }
        Ok(true)
    }

    /// Replaces the definition and optionally pauses or resumes it: one change, one generation.
    ///
    /// # Errors
    /// If it is deleted.
    pub fn change_to(
        &mut self,
        definition: ObserverDefinition,
        paused: Option<bool>,
        now: Timestamp,
        policy: &RowPolicy,
    ) -> Asked {
        // Pauses first and resumes last, so that no generation begins twice.
        let rests = if paused == Some(true) { self.pause(now, policy)? } else { false };
        let resumes = paused == Some(false) && self.desired == Desired::Paused;
        let updated = self.update(definition, now, policy)?;
        // The new definition would otherwise start an observer that had ended.
        let rests = if paused == Some(true) { self.pause(now, policy)? || rests } else { rests };
        let resumed = if resumes { self.resume(now, policy)? } else { false };
        Ok(rests || updated || resumed)
    }

    pub(super) fn renew_run(&mut self, now: Timestamp, policy: &RowPolicy) {
        let waits_for_release = self.wants_republish() && self.awaits_release();
        if self.has_its_place_in_line() || self.opens_at().is_some() || waits_for_release {
            self.modified_at = now;
        } else if self.wants_republish() && self.readmitted == Some(self.generation) {
            self.wait_for_slot(now, now);
        } else if self.wants_republish() {
            self.republish(now, policy);
        } else if self.observed.settled.is_some() || self.generation == 0 {
            self.wait_for_slot(now, now);
        } else {
            (self.ending, self.promised) = (Some(self.generation), Some(self.generation));
            self.withdrawn_at = None;
            self.modified_at = now;
            self.command(now, policy);
        }
    }

    /// Calls `act`, unless the row remembers a request with this key: then the row stays as it is and the result is
    /// `Ok(true)`, as it was for that request. A request without a key always acts.
    ///
    /// # Errors
    /// Those of `act`.
    pub fn act_once(&mut self, key: Option<Uuid>, act: impl FnOnce(&mut Self) -> Asked) -> Asked {
        if key.is_some_and(|key| self.acted.contains(&key)) {
            return Ok(true);
        }
        let asked = act(self);
        if let (Some(key), Ok(true)) = (key, asked) {
            if self.acted.len() >= ACTED_MAX {
                self.acted.remove(0);
            }
            self.acted.push(key);
        }
        asked
    }

    pub(super) fn refuse_finished(&self, now: Timestamp) -> Result<(), Refusal> {
        match self.definition.finish_at {
            Some(at) if at <= now => Err(Refusal::FinishAtPassed(at)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn refuse_deleted(&self) -> Result<(), Refusal> {
        if self.desired == Desired::Deleted { Err(Refusal::Deleted) } else { Ok(()) }
    }
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
