//! Observers that the database does not know: it was restored from a backup, or lost. What runs is the truth,
//! so it is adopted; only what was forgotten after its end is ended for good.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, Pool};
use crate::message::{Floor, RunEvent, RunReport, Unreadable, Work, WorkRead};
use crate::observer::{OnFull, Wanted};
use crate::row::{Row, RowPolicy};
use std::time::Duration;

/// How long the id of a forgotten observer is known, so that a leftover of it is not taken for a new one.
pub const REMEMBERED: Duration = Duration::from_secs(365 * 86_400);

/// What becomes of a report about an observer that no row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Its service holds it: ask what it is.
    Ask,
    /// It was over long ago.
    End(Floor),
    /// Nobody holds it any more by this report: whoever gets it next tells of it.
    Pass,
}

/// `forgotten`: its row was there and was forgotten after its end.
#[must_use]
pub fn unknown(report: &RunReport, forgotten: bool) -> Unknown {
    let comes_again = matches!(report.event, RunEvent::Refused { .. });
    let below = Epoch::after_generation(report.epoch.generation());
    match (report.event.holds(), forgotten) {
        (true, false) => Unknown::Ask,
        (true, true) => Unknown::End(Floor { id: report.id, below }),
        (false, true) if comes_again => Unknown::End(Floor { id: report.id, below }),
        (false, _) => Unknown::Pass,
    }
}

/// The row of an observer as its holder describes it: `body` is its work message.
///
/// # Errors
/// If the message cannot be read here, or is not that of the run.
pub fn adopted(
    run: &RunReport,
    body: &str,
    pool: &Pool,
    now: Timestamp,
    policy: &RowPolicy,
) -> Result<Row, Unreadable> {
    let work = match Work::read(body.as_bytes())? {
        WorkRead::Ours(work) => work,
        WorkRead::Foreign(_, why) => return Err(Unreadable(why)),
    };
    if (work.id, work.generation) != (run.id, run.epoch.generation()) {
        return Err(Unreadable(format!(
            "it is the message of {} in generation {}",
            work.id, work.generation
        )));
    }
    let unreadable = |error: serde_json::Error| Unreadable(format!("its spec: {error}"));
    let wanted = Wanted {
        spec: serde_json::from_str(work.spec.get()).map_err(unreadable)?,
        name: work.name,
        kind: work.kind,
        pool: pool.clone(),
        labels: work.labels,
        retry: work.retry,
        overlap: work.overlap,
        grace: work.grace,
        // It has its slot.
        on_full: OnFull::Queue,
    };
    let mut row = Row::created(work.id, wanted, now, policy);
    (row.generation, row.mark, row.published_at) = (work.generation, None, Some(now));
    Ok(row)
}

/// What an observer is called from now on whose name another one has. Both go on: naively, one of the two is
/// ended, and nobody knows which was the one to keep.
#[must_use]
pub fn other_name(name: &Name, id: ObserverId) -> Name {
    let id = id.0.simple().to_string();
    // The beginning of an id is a time, which neighbours share.
    let tail = &id[id.len() - 12..];
    let kept: String = name.as_str().chars().take(100).collect();
    Name::new(&format!("{kept}-{tail}")).unwrap_or_else(|_| name.clone())
}

/// How many generations an observer may have gone through since the backup was made.
pub const RESTORED: u32 = 1000;

impl Row {
    /// The database was restored from a backup: what was published since then is unknown. What runs goes on
    /// under the epochs that it has; the next publish is above all that may be there.
    pub fn restored(&mut self, now: Timestamp) {
        self.reserve = self.generation.max(self.reserve).saturating_add(RESTORED);
        if self.mark.take().is_some() {
            // Naively, its lease is over and it is published again beside the run that followed the backup.
            self.published_at = self.published_at.or(Some(now));
        }
        self.modified_at = now;
    }

    /// Whether a report tells of a publish that this database does not know of and does not expect: it was
    /// restored, or has lost what it had written.
    #[must_use]
    pub fn is_behind(&self, report: &RunReport) -> bool {
        report.epoch.generation() > self.generation.max(self.reserve)
    }

    /// Whether it would be published again though its run may go on unheard of. So it waits for the end of
    /// the hold, and every service has told what it holds by then.
    #[must_use]
    pub fn waits_for_lists(&self) -> bool {
        self.reserve > 0 && self.wants_reissue()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ServiceId;
    use crate::status::Status;
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
    fn wanted() -> Wanted {
        let body = json!({"name": "a", "kind": "ticker", "spec": {"every": "1s"}, "pool": "p", "grace": "3s",
            "labels": {"app": "x"}, "retry": {"kind": "fixed", "every": "2s", "attempts": 3}, "overlap": "forbid"});
        Wanted::parse(body, &Name::new("b").unwrap()).unwrap()
    }
    fn body(generation: u32) -> String {
        serde_json::to_string(&Work::of(run(1, started()).id, generation, &wanted()).unwrap()).unwrap()
    }

    #[test]
    fn whoever_holds_what_nobody_knows_is_asked_and_what_was_forgotten_is_ended() {
        let floor = Floor { id: run(1, started()).id, below: Epoch::after_generation(7) };
        let taken = RunEvent::Taken { reason: "redelivered".into(), refuses: false };
        let refused = RunEvent::Refused { why: "kind".into() };
        for (event, known, forgotten) in [
            (started(), Unknown::Ask, Unknown::End(floor)),
            (taken, Unknown::Ask, Unknown::End(floor)),
            (refused, Unknown::Pass, Unknown::End(floor)),
            (RunEvent::HandedOver, Unknown::Pass, Unknown::Pass),
            (RunEvent::Stopped, Unknown::Pass, Unknown::Pass),
        ] {
            let report = run(7, event);
            assert_eq!((unknown(&report, false), unknown(&report, true)), (known, forgotten), "{report:?}");
        }
    }

    #[test]
    fn what_is_adopted_is_what_runs() {
        let policy = RowPolicy::default();
        let run = run(7, started());
        let mut row = adopted(&run, &body(7), &wanted().pool, at(5), &policy).unwrap();
        assert_eq!(Wanted { on_full: OnFull::Reject, ..row.wanted.clone() }, wanted());
        assert_eq!((row.generation, row.mark, row.due_at(&policy)), (7, None, None));
        row.apply(ServiceId(Uuid::from_u128(9)), 1, at(6), &run, at(6));
        assert_eq!((row.verdict().status, row.epoch()), (Status::Processing, Epoch::new(7, 2)));
        assert!(row.delete(at(7), &policy));
        assert_eq!(row.floor().below, Epoch::after_generation(7));
    }

    #[test]
    fn what_is_not_the_message_of_the_run_is_not_adopted() {
        let policy = RowPolicy::default();
        let why = |body: &str| {
            adopted(&run(7, started()), body, &Pool::default(), at(5), &policy).unwrap_err().to_string()
        };
        assert!(why(&body(6)).contains("generation 6"), "{}", why(&body(6)));
        assert!(why("{}").contains("not a work message"));
        let newer = body(7).replacen("\"v\":1", "\"v\":2", 1);
        assert!(why(&newer).contains("version 2"), "{}", why(&newer));
    }

    fn row() -> Row {
        Row::created(run(1, started()).id, wanted(), at(0), &RowPolicy::default())
    }
    fn hear(row: &mut Row, generation: u32, event: RunEvent, secs: i64) {
        let seq = u64::try_from(secs).unwrap();
        row.apply(ServiceId(Uuid::from_u128(9)), seq, at(secs), &run(generation, event), at(secs));
    }

    #[test]
    fn after_a_restore_what_runs_runs_on_and_the_next_publish_is_above_all_that_may_be_there() {
        let policy = RowPolicy::default();
        let mut row = row();
        hear(&mut row, 1, started(), 1);
        row.restored(at(50));
        assert_eq!((row.epoch(), row.answer(&run(1, started()))), (Epoch::new(1, 2), None), "it runs on");
        let since = run(900, started());
        assert!(!row.is_behind(&since) && row.is_behind(&run(1002, started())));
        hear(&mut row, 900, started(), 51);
        assert_eq!(row.answer(&since), None);
        assert_eq!(row.answer(&run(1, started())).unwrap().below, Epoch::new(900, 2), "what is older ends");
        assert!(row.is_behind(&run(1002, started())), "the reserve stands");
        row.reissue(at(52), &policy);
        assert_eq!((row.generation, row.reserve), (1002, 0));
        row.restored(at(53));
        row.restored(at(54));
        row.reissue(at(55), &policy);
        assert_eq!(row.generation, 3003, "the same backup may be restored twice");
    }

    #[test]
    fn what_was_resumed_since_the_backup_rests_again_as_its_row_says() {
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
    fn a_report_ahead_of_its_row_is_noticed_and_raises_it() {
        let mut row = row();
        let ahead = run(2, started());
        assert!(row.is_behind(&ahead));
        hear(&mut row, 2, started(), 1);
        assert_eq!((row.generation, row.is_behind(&ahead)), (2, false));
    }

    #[test]
    fn after_a_restore_nothing_is_published_before_services_have_told_what_they_hold() {
        let policy = RowPolicy::default();
        let mut leased = row();
        leased.restored(at(50));
        assert_eq!(leased.due_at(&policy), None, "its publish is not repeated: it may run");
        let mut stopped = row();
        hear(&mut stopped, 1, RunEvent::Stopped, 1);
        assert!(stopped.wants_reissue() && !stopped.waits_for_lists());
        stopped.restored(at(50));
        assert!(stopped.waits_for_lists());
        hear(&mut stopped, 2, started(), 51);
        assert!(!stopped.wants_reissue(), "the run that followed the backup goes on");
    }

    #[test]
    fn two_of_one_name_are_told_apart() {
        let id = run(1, started()).id;
        assert_eq!(other_name(&Name::new("a").unwrap(), id).as_str(), "a-0123456789ab");
        let long = Name::new(&"x".repeat(128)).unwrap();
        assert!(other_name(&long, id).as_str().ends_with("x-0123456789ab"));
    }
}
