//! What a manager does with a row that is due: snapshot and time in, one step out. The step does not depend on why the
//! manager looks; the next look retries it.

use crate::clock::Timestamp;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;

/// The step for one row.
#[derive(Debug, Clone, PartialEq)]
pub enum DueStep {
    /// Its retention is over: delete the row.
    Forget,
    /// Save the row, then send its revocation.
    Revoke(Row),
    /// Save the row.
    Save(Row),
    /// Its generation is new: save the row, send its revocation, then publish it.
    Publish(Row),
}

impl DueStep {
    /// The row to save.
    #[must_use]
    pub fn row(&self) -> Option<&Row> {
        match self {
            Self::Forget => None,
            Self::Revoke(row) | Self::Save(row) | Self::Publish(row) => Some(row),
        }
    }
}

/// The step of a row that is due; `None` if another manager has done it in the meantime.
#[must_use]
pub fn due_step(row: &Row, now: Timestamp, policy: &RowPolicy) -> Option<DueStep> {
    if row.forget_at(policy).is_some_and(|at| at <= now) {
        return Some(DueStep::Forget);
    }
    if row.finish_due_at().is_some_and(|at| at <= now) {
        let mut row = row.clone();
        row.finish(now);
        return Some(DueStep::Revoke(row));
    }
    if row.not_started_at().is_some_and(|at| at <= now) {
        let mut row = row.clone();
        row.fail_not_started(now);
        return Some(DueStep::Revoke(row));
    }
    if [row.opens_at(), row.shut_at()].into_iter().flatten().any(|at| at <= now) {
        let mut row = row.clone();
        row.wait_anew(now);
        return Some(DueStep::Save(row));
    }
    if row.restarts_at().is_some_and(|at| at <= now) {
        let mut row = row.clone();
        row.restart_for_schedule(now, policy);
        return Some(if row.awaits_end() { DueStep::Revoke(row) } else { DueStep::Save(row) });
    }
    let readmits = row.readmitted == Some(row.generation);
    if row.wants_republish() && (readmits || row.is_between_windows(now)) {
        let mut row = row.clone();
        row.wait_for_slot(now, now);
        return Some(DueStep::Save(row));
    }
    let lease_over = row.publish_lease.is_some_and(|mark| mark.until <= now);
    if lease_over && readmits {
        // The next generation ends like this one: then it waits for a slot.
        let mut row = row.clone();
        row.republish_unsure(now, policy);
        return Some(DueStep::Publish(row));
    }
    // Two messages of one observer would count once towards its limits.
    if lease_over || row.wants_republish() && !row.awaits_release() {
        // This includes a row that is meant to end: its message may never have reached the queue, and only the
        // service that gets the message can report the end.
        let mut row = row.clone();
        row.republish(now, policy);
        if row.awaits_end() {
            row.command(now, policy);
        }
        return Some(DueStep::Publish(row));
    }
    if row.fails_at(policy).is_some_and(|at| at <= now) {
        let mut row = row.clone();
        row.fail_refused(now);
        return Some(DueStep::Revoke(row));
    }
    let silent = row.resend.is_none_or(|repeat| repeat.next_at <= now);
    if row.awaits_end() && silent {
        let mut row = row.clone();
        row.command(now, policy);
        return Some(DueStep::Revoke(row));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::status::Status;
    use crate::wire::command::Revocation;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn policy() -> RowPolicy {
        RowPolicy::default()
    }
    fn row() -> Row {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &policy())
    }
    fn report(row: &mut Row, event: RunEvent, secs: i64) {
        let report = RunReport { id: row.id, epoch: row.epoch(), event };
        row.apply(ServiceId(Uuid::from_u128(9)), 1, at(secs), &report, at(secs));
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }
    /// The step, which must publish a new generation.
    fn published(row: &Row, secs: i64) -> Row {
        match due_step(row, at(secs), &policy()) {
            Some(DueStep::Publish(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_publish_is_repeated_as_the_next_generation_after_its_lease() {
        let row = row();
        assert_eq!(due_step(&row, at(29), &policy()), None);
        let next = published(&row, 30);
        assert_eq!((next.generation, next.publish_lease.unwrap().failures), (2, 1));
        assert_eq!(next.revocation(), Revocation { id: row.id, below: Epoch::first_of(2), cause: None });
        assert_eq!(due_step(&next, at(31), &policy()), None);
    }

    #[test]
    fn a_lease_is_renewed_while_its_publish_is_in_progress() {
        let mut row = row();
        let until = row.publish_lease.unwrap().until;
        let renews = [9, 10, 29, 30].map(|secs| policy().renews(until, at(secs)));
        assert_eq!(renews, [false, true, true, false]);
        assert!(row.renew(1, at(20), &policy()));
        assert_eq!(due_step(&row, at(49), &policy()), None);
        assert!(due_step(&row, at(50), &policy()).is_some());
        assert!(!row.renew(2, at(20), &policy()), "another generation's");
        report(&mut row, started(), 21);
        assert!(!row.renew(1, at(22), &policy()), "a report proves the publish");
    }

    #[test]
    fn an_unconfirmed_publish_is_repeated_with_growing_pauses() {
        let mut row = row();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(row.publish_unconfirmed(row.generation, at(100), &policy()));
            assert_eq!(due_step(&row, at(100 + pause - 1), &policy()), None);
            row = published(&row, 100 + pause);
        }
        assert_eq!(row.generation, 9);
        assert!(!row.publish_unconfirmed(8, at(100), &policy()), "an older generation");
    }

    #[test]
    fn an_inventory_entry_is_redundant_until_the_attempt_changes() {
        let (mut row, holder) = (row(), ServiceId(Uuid::from_u128(9)));
        let entry = |attempt, acquisitions| RunReport {
            id: row.id,
            epoch: Epoch::new(1, acquisitions),
            event: RunEvent::Started { attempt, started_at: at(1) },
        };
        let (same, next, other_run) = (entry(1, 0), entry(2, 0), entry(1, 1));
        assert!(!row.repeats(holder, &same), "nothing was reported yet");
        report(&mut row, started(), 1);
        assert!(row.repeats(holder, &same));
        assert_eq!(row.digest(), Some(same.digest()));
        row.digest_is_stale = true;
        assert!(!row.repeats(holder, &same), "applying it writes the digest");
        row.digest_is_stale = false;
        assert!(!row.repeats(holder, &next) && !row.repeats(holder, &other_run));
        assert!(!row.repeats(ServiceId(Uuid::from_u128(8)), &same), "another holder");
        row.apply(holder, 2, at(2), &RunReport { event: RunEvent::HandedOver, ..same.clone() }, at(2));
        assert!(!row.repeats(holder, &same), "handed over");
        assert_eq!(row.digest(), None);
    }

    #[test]
    fn a_running_observer_needs_nothing() {
        let mut row = row();
        report(&mut row, started(), 1);
        assert_eq!(due_step(&row, at(1_000_000), &policy()), None);
    }

    #[test]
    fn a_delete_is_repeated_until_answered_and_then_forgotten() {
        let mut row = row();
        report(&mut row, started(), 1);
        row.delete(at(10), &policy());
        assert_eq!(due_step(&row, at(11), &policy()), None);
        let Some(DueStep::Revoke(again)) = due_step(&row, at(12), &policy()) else { panic!() };
        assert_eq!(again.revocation(), row.revocation());
        assert_eq!(again.resend.unwrap().next_at, at(16));
        report(&mut row, RunEvent::Stopped, 13);
        assert_eq!(row.verdict().status, Status::Deleted);
        assert_eq!(due_step(&row, at(20), &policy()), None);
        assert_eq!(due_step(&row, at(13 + 3600), &policy()), Some(DueStep::Forget));
    }

    #[test]
    fn completed_and_failed_observers_are_forgotten_after_their_own_times() {
        let hour = 3600;
        for (event, keep) in [
            (RunEvent::Completed, hour),
            (RunEvent::CompletedWith { result: "7".to_owned() }, hour),
            (RunEvent::Failed { error: "no such host".to_owned(), attempts: 1 }, 72 * hour),
        ] {
            let mut row = row();
            report(&mut row, started(), 1);
            report(&mut row, event, 2);
            assert_eq!(due_step(&row, at(2 + keep - 1), &policy()), None);
            assert_eq!(due_step(&row, at(2 + keep), &policy()), Some(DueStep::Forget));
        }
    }

    #[test]
    fn a_delete_before_the_confirm_republishes_under_a_revocation() {
        let mut row = row();
        row.delete(at(1), &policy());
        let next = published(&row, 30);
        assert_eq!(next.revocation().below, Epoch::after_generation(2));
        assert_eq!(next.verdict().status, Status::OnDeleting);
    }

    #[test]
    fn a_stopped_observer_that_should_run_is_republished() {
        let mut row = row();
        report(&mut row, RunEvent::Stopped, 1);
        assert_eq!(published(&row, 1).generation, 2);
    }
}
