//! The backlog: observers that wait in the database until a manager admits them, that is, publishes their message
//! because a slot is free.

use crate::clock::Timestamp;
use crate::observer::definition::PRIORITY_MAX;
use crate::record::observed::Settlement;
use crate::record::row::{Desired, Places, Row};
use crate::record::row_policy::RowPolicy;
use serde::{Deserialize, Serialize};

/// An observer that waits in the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// When it began to wait for a slot; while it is scheduled, the time that it waits for.
    pub since: Timestamp,
    /// The time that it waits for before it waits for a slot: its `start_at`, its next window or the next time of its
    /// schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
}

/// Whether an observer uses one of its pool's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Its message may be in the queue or held by a service.
    Admitted,
    /// It waits in the backlog.
    Waiting,
    /// It uses none and waits for none.
    None,
}

impl Slot {
    /// The value as text; empty for none.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Waiting => "waiting",
            Self::None => "",
        }
    }
}

/// A rank is a priority, a number of failures and a time, the most significant part first. A time in milliseconds has
/// this many bits, enough until the year 2248.
const TIME_BITS: u32 = 43;
const FAILURE_BITS: u32 = 10;

impl Row {
    /// Whether it is to run and waits for a slot.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.slot() == Slot::Waiting
    }

    /// Whether it uses or awaits a slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        let has_no_message = self.generation == 0 || self.observed.settled.is_some();
        if self.waiting.is_some() {
            if self.waits_in_backlog() && self.behind.is_none() { Slot::Waiting } else { Slot::None }
        } else if self.is_withdrawn() && has_no_message || !self.verdict().status.uses_slot() {
            Slot::None
        } else {
            Slot::Admitted
        }
    }

    /// Whether it waits for a slot, for a place of a limit, or for the release of its last message.
    pub(crate) fn has_its_place_in_line(&self) -> bool {
        self.is_waiting() || self.is_behind_limit() || self.waiting.is_some() && self.awaits_release()
    }

    /// Whether a manager may admit it as soon as its pool and its limits have room.
    pub(super) fn waits_in_backlog(&self) -> bool {
        let waits = self.waiting.is_some() && self.desired == Desired::Running;
        waits && self.withdrawn_at.is_none() && self.opens_at().is_none() && self.used_limits().is_none()
    }

    /// Its place in the backlog: managers admit the observers of a pool in ascending order. `None` if it does not wait.
    ///
    /// Without aging, the order is: higher priority, fewer failures since the last completion, longer wait. With aging,
    /// each point of priority counts as that much waiting.
    #[must_use]
    pub fn rank(&self, policy: &RowPolicy) -> Option<i64> {
        self.is_waiting().then(|| self.rank_when_waiting(policy)).flatten()
    }

    /// Its place among the observers that wait for a place of the same limit. `None` if it does not wait for one.
    #[must_use]
    pub fn limit_rank(&self, policy: &RowPolicy) -> Option<i64> {
        self.is_behind_limit().then(|| self.rank_when_waiting(policy)).flatten()
    }

    fn rank_when_waiting(&self, policy: &RowPolicy) -> Option<i64> {
        let Waiting { since, .. } = self.waiting?;
        let priority = i64::from(self.definition.priority);
        let below_highest =
            |priority: i64| (i64::from(PRIORITY_MAX) - priority) << (TIME_BITS + FAILURE_BITS);
        Some(match policy.aging {
            None => {
                let failures = i64::from(self.failures).min((1 << FAILURE_BITS) - 1);
                let since = since.0.clamp(0, (1 << TIME_BITS) - 1);
                below_highest(priority) + (failures << TIME_BITS) + since
            }
            // A change of the setting leaves ranks of both forms in the backlog. The part for the priority is that of
            // priority 0, so that they compare by time and not by form.
            Some(aging) => {
                let point = i64::try_from(aging.as_millis()).unwrap_or(i64::MAX);
                below_highest(0) + since.0.saturating_sub(priority.saturating_mul(point))
            }
        })
    }

    /// A new observer for which its pool has no slot, or whose time has not come: nothing is published, and its
    /// generation is 0.
    #[must_use]
    pub fn created_waiting(mut self) -> Self {
        (self.generation, self.publish_lease) = (0, None);
        self.wait(self.created_at, self.created_at);
        self
    }

    /// Waits from now on: for the time at which it may start, if that is in the future, otherwise for a slot.
    pub(super) fn wait(&mut self, since: Timestamp, now: Timestamp) {
        let opens_at = self.starts_later(now);
        self.waiting = Some(Waiting { since: opens_at.unwrap_or(since), opens_at });
        self.behind = None;
        self.closes_at = self.window_end(now);
    }

    /// Lets it wait for a slot, first for the time at which it may start. It has no message: it has ended, or was never
    /// published.
    pub(crate) fn wait_for_slot(&mut self, since: Timestamp, now: Timestamp) {
        if self.waiting.is_none() {
            match self.settlement() {
                Some(Settlement::Failed { .. }) => self.failures = self.failures.saturating_add(1),
                Some(Settlement::Completed | Settlement::Finished { .. }) => self.failures = 0,
                Some(Settlement::Stopped | Settlement::NotStarted { .. }) | None => {}
            }
        }
        if !matches!(self.settlement(), Some(Settlement::Stopped)) {
            self.preempted = None;
        }
        self.wait(since, now);
        (self.ending, self.promised, self.readmitted) = (None, None, None);
        (self.withdrawn_at, self.refused_since, self.resend) = (None, None, None);
        (self.ended_at, self.modified_at) = (None, now);
    }

    /// Admits it: publishes its next generation.
    pub fn admit(&mut self, now: Timestamp, policy: &RowPolicy) {
        self.republish(now, policy);
    }

    /// Publishes its next generation, because its message may never have reached the queue or was lost with it. If it was
    /// to wait for a slot again after this generation, it does so after the next one, which only ends.
    pub fn republish_unsure(&mut self, now: Timestamp, policy: &RowPolicy) {
        let readmits = self.readmitted == Some(self.generation);
        let former = self.places.as_ref().map(|places| places.pool.clone());
        self.republish(now, policy);
        if readmits {
            // A service that ends a run whose definition names no limits does not report that the message is gone, and the
            // queue of a former pool may still have the earlier message. An observer without places has not been admitted
            // to those of its new limits.
            let moved = former.as_ref() != Some(&self.definition.pool);
            let in_doubt = moved || self.definition.limits.is_empty();
            let places = self.places.take().filter(|_| former.is_some());
            self.places = places.map(|it| Places { in_doubt: it.in_doubt || in_doubt, ..it });
            (self.ending, self.readmitted) = (Some(self.generation), Some(self.generation));
            self.command(now, policy);
        }
    }

    /// Ends its run and lets it return to the backlog, because a limit is enforced; returns whether that is new.
    pub fn give_up_slot(&mut self, now: Timestamp, policy: &RowPolicy) -> bool {
        let runs = self.desired == Desired::Running && self.has_message();
        if !runs || self.readmitted == Some(self.generation) {
            return false;
        }
        (self.ending, self.readmitted) = (Some(self.generation), Some(self.generation));
        self.modified_at = now;
        self.command(now, policy);
        true
    }

    /// Takes it out of the order of the backlog until a service of its pool offers its kind; returns whether it waited.
    pub fn withhold(&mut self, now: Timestamp) -> bool {
        if !self.is_waiting() {
            return false;
        }
        (self.withdrawn_at, self.modified_at) = (Some(now), now);
        self.refused_since = self.refused_since.or(Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::due::{DueStep, due_step};
    use crate::record::status::Status;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::{Value, json};
    use std::time::Duration;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn policy() -> RowPolicy {
        RowPolicy::default()
    }
    fn definition(more: &Value) -> ObserverDefinition {
        let mut body = json!({"kind": "ticker"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap()
    }
    fn row(priority: i8, secs: i64) -> Row {
        let definition = definition(&json!({"priority": priority}));
        Row::created(ObserverId(Uuid::from_u128(1)), definition, at(secs), &policy())
    }
    fn hear(row: &mut Row, event: RunEvent, secs: i64) {
        let report = RunReport { id: row.id, epoch: row.epoch(), event };
        let seq = u64::try_from(secs).unwrap();
        row.apply(ServiceId(Uuid::from_u128(9)), seq, at(secs), &report, at(secs));
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }
    fn failed() -> RunEvent {
        RunEvent::Failed { error: "no".to_owned(), attempts: 1 }
    }
    fn is(row: &Row, expected: &str) {
        let verdict = row.verdict();
        let shown = format!("{} {} {} {:?}", row.generation, verdict.status, verdict.reason, row.slot());
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_new_observer_without_a_slot_waits_and_is_published_when_admitted() {
        let mut row = row(0, 5).created_waiting();
        is(&row, "0 Created waiting for a slot in pool default Waiting");
        assert_eq!((row.due_at(&policy()), due_step(&row, at(9999), &policy())), (None, None));
        row.admit(at(10), &policy());
        is(&row, "1 Created to be published Admitted");
        assert_eq!(row.rank(&policy()), None);
    }

    #[test]
    fn the_order_is_priority_then_failures_then_time() {
        let mut failed_once = row(5, 1).created_waiting();
        failed_once.failures = 1;
        let rows = [
            row(100, 9).created_waiting(),
            row(5, 3).created_waiting(),
            row(5, 4).created_waiting(),
            failed_once,
            row(0, 1).created_waiting(),
            row(-100, 1).created_waiting(),
        ];
        let ranks: Vec<i64> = rows.iter().map(|row| row.rank(&policy()).unwrap()).collect();
        assert!(ranks.is_sorted() && ranks[0] > 0, "{ranks:?}");
        assert!(rows[0].rank(&policy()) < row(100, 10).created_waiting().rank(&policy()));
    }

    #[test]
    fn with_aging_a_long_wait_outweighs_a_priority() {
        let policy = RowPolicy { aging: Some(Duration::from_secs(600)), ..policy() };
        let rank = |priority, secs| row(priority, secs).created_waiting().rank(&policy).unwrap();
        assert!(rank(1, 1599) < rank(0, 1000) && rank(0, 1000) < rank(1, 1601));
        assert!(rank(-1, 0) < rank(0, 601) && rank(0, 599) < rank(-1, 0));
        // Ranks from before the setting was changed compare with new ones by time and priority.
        let before = |priority| row(priority, 1000).created_waiting().rank(&RowPolicy::default()).unwrap();
        assert!(before(1) < rank(100, 1000) && rank(-100, 1000) < before(-1));
    }

    #[test]
    fn a_retried_observer_waits_behind_those_with_fewer_failures() {
        let mut it = row(0, 0);
        hear(&mut it, started(), 1);
        hear(&mut it, failed(), 2);
        is(&it, "1 Failed gave up after 1 attempt: no None");
        assert_eq!(it.retry(at(3), &policy()), Ok(true));
        is(&it, "1 Created waiting for a slot in pool default Waiting");
        assert_eq!((it.failures, it.due_at(&policy())), (1, None));
        it.admit(at(4), &policy());
        is(&it, "2 Created to be published Admitted");
        hear(&mut it, started(), 5);
        hear(&mut it, RunEvent::Completed, 6);
        assert_eq!(it.restart(at(7), &policy()), Ok(true));
        assert_eq!((it.failures, it.is_waiting()), (0, true));
    }

    #[test]
    fn a_restart_keeps_its_slot_and_a_change_of_the_pool_does_not() {
        let mut it = row(0, 0);
        hear(&mut it, started(), 1);
        it.restart(at(2), &policy()).unwrap();
        hear(&mut it, RunEvent::Stopped, 3);
        assert!(matches!(due_step(&it, at(3), &policy()), Some(DueStep::Publish(_))));
        let mut it = row(0, 0);
        hear(&mut it, started(), 1);
        it.update(definition(&json!({"pool": "gpu"})), at(2), &policy()).unwrap();
        is(&it, "1 Processing told to stop, then restarts Admitted");
        hear(&mut it, RunEvent::Stopped, 3);
        let Some(DueStep::Save(mut it)) = due_step(&it, at(4), &policy()) else { panic!() };
        is(&it, "1 Created waiting for a slot in pool gpu Waiting");
        it.admit(at(5), &policy());
        is(&it, "2 Created to be published Admitted");
    }

    #[test]
    fn another_weight_releases_first() {
        let mut it = row(0, 0);
        hear(&mut it, started(), 1);
        it.update(definition(&json!({"weight": 3})), at(2), &policy()).unwrap();
        is(&it, "1 Processing told to stop, then restarts Admitted");
        hear(&mut it, RunEvent::Stopped, 3);
        let Some(DueStep::Save(it)) = due_step(&it, at(4), &policy()) else { panic!() };
        is(&it, "1 Created waiting for 3 free slots in pool default Waiting");
    }

    #[test]
    fn a_pause_gives_up_the_place_and_a_delete_ends_the_wait() {
        let mut it = row(0, 0).created_waiting();
        assert_eq!(it.pause(at(5), &policy()), Ok(true));
        is(&it, "0 Paused  None");
        assert_eq!(it.resume(at(6), &policy()), Ok(true));
        assert_eq!(it.waiting.map(|it| it.since), Some(at(6)));
        assert_eq!(it.restart(at(7), &policy()), Ok(false), "there is no run to restart");
        assert!(it.delete(at(8), &policy()));
        is(&it, "0 Deleted  None");
        // The same after a run that failed.
        let mut it = row(0, 0);
        hear(&mut it, failed(), 1);
        it.retry(at(2), &policy()).unwrap();
        it.pause(at(3), &policy()).unwrap();
        is(&it, "1 Paused  None");
        it.resume(at(4), &policy()).unwrap();
        assert_eq!((it.failures, it.is_waiting()), (1, true));
        it.delete(at(5), &policy());
        assert_eq!(it.verdict().status, Status::Deleted);
    }

    #[test]
    fn a_change_while_it_waits_starts_nothing() {
        let mut it = row(0, 0).created_waiting();
        let before = it.rank(&policy());
        let urgent = definition(&json!({"priority": 7, "spec": {"every": "2s"}}));
        assert_eq!(it.update(urgent, at(1), &policy()), Ok(true));
        is(&it, "0 Created waiting for a slot in pool default Waiting");
        assert!(it.rank(&policy()) < before);
        // A running observer does not restart for a new priority.
        let mut runs = row(0, 0);
        hear(&mut runs, started(), 1);
        runs.update(definition(&json!({"priority": 7})), at(2), &policy()).unwrap();
        is(&runs, "1 Processing  Admitted");
    }

    #[test]
    fn an_observer_whose_kind_no_service_offers_leaves_the_order_and_fails_in_time() {
        let mut it = row(0, 0).created_waiting();
        assert!(it.withhold(at(10)) && !it.withhold(at(11)));
        is(&it, "0 Created no active service of pool default that runs kind ticker has a free slot None");
        assert_eq!(it.due_at(&policy()), Some(at(910)));
        let mut back = it.clone();
        assert!(back.release(at(20)));
        assert_eq!((back.waiting.map(|it| it.since), back.due_at(&policy())), (Some(at(0)), None));
        let mut offered = it.clone();
        assert!(offered.readmit(at(20)) && offered.is_waiting() && !offered.readmit(at(21)));
        let Some(DueStep::Revoke(failed)) = due_step(&it, at(910), &policy()) else { panic!() };
        assert_eq!((failed.verdict().status, failed.slot()), (Status::Failed, Slot::None));
    }

    /// The database was restored: it runs, although this row says that it waits.
    #[test]
    fn a_run_of_a_later_generation_ends_the_wait() {
        let mut it = row(0, 0).created_waiting();
        it.restored(at(50));
        assert!(it.waits_for_lists());
        let report = RunReport { id: it.id, epoch: Epoch::new(1, 0), event: started() };
        it.apply(ServiceId(Uuid::from_u128(9)), 1, at(51), &report, at(51));
        is(&it, "1 Processing  Admitted");
    }
}
