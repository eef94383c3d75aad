//! Observers that the database does not know because it was restored from a backup or lost. Running observers are
//! authoritative, so managers adopt them; they end only observers that were forgotten after their end.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, Pool};
use crate::observer::definition::{ObserverDefinition, OnFull};
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::wire::command::Revocation;
use crate::wire::message::Unreadable;
use crate::wire::report::{RunEvent, RunReport};
use crate::wire::work::{DecodedWork, Work};
use std::time::Duration;

/// How long the id of a forgotten observer is remembered, so that a leftover message does not pass for a new observer.
pub const REMEMBERED: Duration = Duration::from_secs(365 * 86_400);

/// The decision about a report on an observer without a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Its service holds it: request its details.
    Ask,
    /// It ended long ago: end this run.
    End(Revocation),
    /// The reporting service no longer holds it: wait for the report of the next service.
    Pass,
}

/// `forgotten`: its row existed and was forgotten after its end.
#[must_use]
pub fn unknown(report: &RunReport, forgotten: bool) -> Unknown {
    let comes_again = matches!(report.event, RunEvent::Refused { .. });
    let below = Epoch::after_generation(report.epoch.generation());
    match (report.event.holds(), forgotten) {
        (true, false) => Unknown::Ask,
        (true, true) => Unknown::End(Revocation { id: report.id, below, cause: None }),
        (false, true) if comes_again => Unknown::End(Revocation { id: report.id, below, cause: None }),
        (false, _) => Unknown::Pass,
    }
}

/// The row of an observer from its holder's description; `body` is its work message.
///
/// # Errors
/// If the message is not readable here, or does not belong to the run.
pub fn adopted(
    run: &RunReport,
    body: &str,
    pool: &Pool,
    now: Timestamp,
    policy: &RowPolicy,
) -> Result<Row, Unreadable> {
    let work = match Work::read(body.as_bytes())? {
        DecodedWork::Ours(work) => work,
        DecodedWork::Foreign(_, why) => return Err(Unreadable(why)),
    };
    if (work.id, work.generation) != (run.id, run.epoch.generation()) {
        return Err(Unreadable(format!(
            "it is the message of {} in generation {}",
            work.id, work.generation
        )));
    }
    let unreadable = |error: serde_json::Error| Unreadable(format!("its spec: {error}"));
    let definition = ObserverDefinition {
        spec: serde_json::from_str(work.spec.get()).map_err(unreadable)?,
        name: work.name,
        namespace: work.namespace,
        kind: work.kind,
        pool: pool.clone(),
        labels: work.labels,
        retry: work.retry,
        overlap: work.overlap,
        grace: work.grace,
        // It already has a slot.
        on_full: OnFull::Queue,
        priority: work.priority,
        weight: work.weight,
        limits: work.limits,
        start_at: None,
        start_within: None,
        finish_at: work.finish_at,
        windows: work.windows,
        schedule: work.schedule,
        attempt_timeout: work.attempt_timeout,
    };
    let mut row = Row::created(work.id, definition, now, policy);
    (row.generation, row.publish_lease, row.published_at) = (work.generation, None, Some(now));
    row.closes_at = work.closes_at;
    row.take_places();
    row.schedule_from(now);
    if let Some(executions) = &mut row.executions {
        executions.scheduled_for = work.scheduled_for;
    }
    Ok(row)
}

/// The new name of an observer whose name is taken by another one. The obvious way ends one of the two, but nothing
/// shows which one to keep, so both continue.
#[must_use]
pub fn other_name(name: &Name, id: ObserverId) -> Name {
    let id = id.0.simple().to_string();
    // The first part of an id is a timestamp, which neighboring ids share.
    let tail = &id[id.len() - 12..];
    let kept: String = name.as_str().chars().take(100).collect();
    Name::new(&format!("{kept}-{tail}")).unwrap_or_else(|_| name.clone())
}

/// The most generations that an observer may have had since the backup was made.
pub const RESTORED: u32 = 1000;

impl Row {
    /// The database was restored from a backup, so later publishes are unknown. Runs continue under their epochs; the
    /// next publish has a higher generation than every message that may exist.
    pub fn restored(&mut self, now: Timestamp) {
        self.reserve = self.generation.max(self.reserve).saturating_add(RESTORED);
        if self.publish_lease.take().is_some() {
            // An expired lease would republish the observer beside a run that followed the backup.
            self.published_at = self.published_at.or(Some(now));
        }
        self.schedule_from(now);
        self.modified_at = now;
    }

    /// Whether a report proves a publish that this database does not know and does not expect, because it was restored
    /// or has lost writes.
    #[must_use]
    pub fn is_behind(&self, report: &RunReport) -> bool {
        report.epoch.generation() > self.generation.max(self.reserve)
    }

    /// Whether it would be republished although its run may continue unreported. So it waits for the end of safe mode;
    /// until then, every service has sent its inventory.
    #[must_use]
    pub fn waits_for_lists(&self) -> bool {
        self.reserve > 0 && (self.wants_republish() || self.waiting.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ServiceId;
    use crate::record::status::Status;
    use serde_json::json;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn run(generation: u32, event: RunEvent) -> RunReport {
        let id = ObserverId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0123_4567_89ab));
        RunReport { id, epoch: Epoch::new(generation, 2), event }
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }
    fn definition() -> ObserverDefinition {
        let body = json!({"name": "a", "kind": "ticker", "spec": {"every": "1s"}, "pool": "p", "grace": "3s",
            "labels": {"app": "x"}, "retry": {"kind": "fixed", "every": "2s", "attempts": 3}, "overlap": "forbid"});
        ObserverDefinition::parse(body, &Name::new("b").unwrap()).unwrap()
    }
    fn body(generation: u32) -> String {
        serde_json::to_string(&Work::of(run(1, started()).id, generation, &definition()).unwrap()).unwrap()
    }

    #[test]
    fn unknown_observers_are_requested_and_forgotten_ones_are_ended() {
        let revocation =
            Revocation { id: run(1, started()).id, below: Epoch::after_generation(7), cause: None };
        let taken = RunEvent::Held { reason: "redelivered".into(), refuses: false };
        let refused = RunEvent::Refused { why: "kind".into() };
        for (event, known, forgotten) in [
            (started(), Unknown::Ask, Unknown::End(revocation)),
            (taken, Unknown::Ask, Unknown::End(revocation)),
            (refused, Unknown::Pass, Unknown::End(revocation)),
            (RunEvent::HandedOver, Unknown::Pass, Unknown::Pass),
            (RunEvent::Stopped, Unknown::Pass, Unknown::Pass),
        ] {
            let report = run(7, event);
            assert_eq!((unknown(&report, false), unknown(&report, true)), (known, forgotten), "{report:?}");
        }
    }

    #[test]
    fn an_adopted_row_describes_the_running_observer() {
        let policy = RowPolicy::default();
        let run = run(7, started());
        let mut row = adopted(&run, &body(7), &definition().pool, at(5), &policy).unwrap();
        assert_eq!(
            ObserverDefinition { on_full: OnFull::Reject, ..ObserverDefinition::clone(&row.definition) },
            definition()
        );
        assert_eq!((row.generation, row.publish_lease, row.due_at(&policy)), (7, None, None));
        row.apply(ServiceId(Uuid::from_u128(9)), 1, at(6), &run, at(6));
        assert_eq!((row.verdict().status, row.epoch()), (Status::Processing, Epoch::new(7, 2)));
        assert!(row.delete(at(7), &policy));
        assert_eq!(row.revocation().below, Epoch::after_generation(7));
    }

    #[test]
    fn a_message_of_another_run_is_not_adopted() {
        let policy = RowPolicy::default();
        let why = |body: &str| {
            adopted(&run(7, started()), body, &Pool::default(), at(5), &policy).unwrap_err().to_string()
        };
        assert!(why(&body(6)).contains("generation 6"), "{}", why(&body(6)));
        assert!(why("{}").contains("not a work message"));
        let newer = body(7).replacen("\"v\":1", "\"v\":3", 1);
        assert!(why(&newer).contains("version 3"), "{}", why(&newer));
    }

    fn row() -> Row {
        Row::created(run(1, started()).id, definition(), at(0), &RowPolicy::default())
    }
    fn hear(row: &mut Row, generation: u32, event: RunEvent, secs: i64) {
        let seq = u64::try_from(secs).unwrap();
        row.apply(ServiceId(Uuid::from_u128(9)), seq, at(secs), &run(generation, event), at(secs));
    }

    #[test]
    fn after_a_restore_runs_continue_and_the_next_publish_has_a_higher_generation() {
        let policy = RowPolicy::default();
        let mut row = row();
        hear(&mut row, 1, started(), 1);
        row.restored(at(50));
        assert_eq!((row.epoch(), row.answer(&run(1, started()))), (Epoch::new(1, 2), None), "it continues");
        let since = run(900, started());
        assert!(!row.is_behind(&since) && row.is_behind(&run(1002, started())));
        hear(&mut row, 900, started(), 51);
        assert_eq!(row.answer(&since), None);
        assert_eq!(row.answer(&run(1, started())).unwrap().below, Epoch::new(900, 2), "older runs end");
        assert!(row.is_behind(&run(1002, started())), "the reserve remains");
        row.republish(at(52), &policy);
        assert_eq!((row.generation, row.reserve), (1002, 0));
        row.restored(at(53));
        row.restored(at(54));
        row.republish(at(55), &policy);
        assert_eq!(row.generation, 3003, "the same backup may be restored twice");
    }

    #[test]
    fn an_observer_resumed_after_the_backup_is_paused_again() {
        let policy = RowPolicy::default();
        let mut row = row();
        row.pause(at(1), &policy).unwrap();
        hear(&mut row, 1, RunEvent::Stopped, 2);
        row.restored(at(50));
        hear(&mut row, 2, started(), 51);
        let since = run(2, started());
        assert_eq!(row.answer(&since).unwrap().below, Epoch::after_generation(2));
        hear(&mut row, 2, RunEvent::Stopped, 52);
        assert_eq!((row.verdict().status, row.due_at(&policy)), (Status::Paused, None));
    }

    #[test]
    fn a_report_ahead_of_its_row_raises_the_generation() {
        let mut row = row();
        let ahead = run(2, started());
        assert!(row.is_behind(&ahead));
        hear(&mut row, 2, started(), 1);
        assert_eq!((row.generation, row.is_behind(&ahead)), (2, false));
    }

    #[test]
    fn after_a_restore_publishes_wait_for_the_inventories() {
        let policy = RowPolicy::default();
        let mut leased = row();
        leased.restored(at(50));
        assert_eq!(leased.due_at(&policy), None, "its publish is not repeated because it may run");
        let mut stopped = row();
        hear(&mut stopped, 1, RunEvent::Stopped, 1);
        assert!(stopped.wants_republish() && !stopped.waits_for_lists());
        stopped.restored(at(50));
        assert!(stopped.waits_for_lists());
        hear(&mut stopped, 2, started(), 51);
        assert!(!stopped.wants_republish(), "the run that followed the backup continues");
    }

    #[test]
    fn observers_with_the_same_name_get_distinct_names() {
        let id = run(1, started()).id;
        assert_eq!(other_name(&Name::new("a").unwrap(), id).as_str(), "a-0123456789ab");
        let long = Name::new(&"x".repeat(128)).unwrap();
        assert!(other_name(&long, id).as_str().ends_with("x-0123456789ab"));
    }
}
