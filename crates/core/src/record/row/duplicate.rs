//! A message that exists twice: somebody copied it, for example with a tool that moves messages between queues.

use super::Row;
use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::wire::report::{RunEvent, RunReport};

impl Row {
    /// Ends this generation if a second service reports a run that a first one still has; the next generation follows.
    ///
    /// The broker counts how often it has delivered a message, so two services have the same epoch only if there are two
    /// messages. No order between the two runs exists, so both end. The next generation starts when the first of them has
    /// ended, so it may run beside the other one for the grace of that run.
    pub(super) fn end_duplicate(&mut self, service: ServiceId, report: &RunReport, now: Timestamp) {
        let runs = matches!(
            report.event,
            RunEvent::Starting { .. } | RunEvent::Started { .. } | RunEvent::Errored { .. }
        );
        let acquisitions = report.epoch.acquisitions();
        let others = self.observed.runs.iter().any(|run| {
            run.acquisitions == acquisitions && run.service != service && !run.over && run.left.is_none()
        });
        if !runs || !others || self.observed.settled.is_some() || self.ending == Some(self.generation) {
            return;
        }
        // The next generation is not promised: if the first run completes, the observer has completed.
        self.ending = Some(self.generation);
        self.withdrawn_at = None;
        self.duplicated_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::due::{DueStep, due_step};
    use crate::record::events::{EventKind, happenings};
    use crate::record::row::Desired;
    use crate::record::row_policy::RowPolicy;
    use crate::record::status::Status;
    use serde_json::json;
    use uuid::Uuid;

    fn row() -> Row {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let id = ObserverId(Uuid::from_u128(1));
        let mut row = Row::created(id, definition, Timestamp(0), &RowPolicy::default());
        row.confirmed(1, Timestamp(1));
        row
    }

    /// A report of a run, and its answer: whether the sender must end the run.
    fn hear(row: &mut Row, service: u128, acquisitions: u32, event: RunEvent) -> bool {
        let report = RunReport { id: row.id, epoch: Epoch::new(1, acquisitions), event };
        let now = row.modified_at.plus(std::time::Duration::from_secs(1));
        let seq = u64::try_from(now.0).unwrap();
        row.apply(ServiceId(Uuid::from_u128(service)), seq, now, &report, now);
        row.answer(&report).is_some()
    }

    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: Timestamp(1) }
    }

    #[test]
    fn both_runs_of_a_message_that_exists_twice_end_and_one_follows() {
        let mut row = row();
        assert!(!hear(&mut row, 1, 0, started()));
        let before = row.clone();
        assert!(hear(&mut row, 2, 0, started()), "the second service ends its run");
        let told: Vec<EventKind> = happenings(Some(&before), &row).iter().map(|it| it.kind).collect();
        assert!(told.contains(&EventKind::Duplicated), "{told:?}");
        assert!(
            hear(&mut row, 1, 0, started()),
            "an inventory of the first service repeats its run: it ends too"
        );
        hear(&mut row, 2, 0, RunEvent::Stopped);
        let Some(DueStep::Publish(next)) = due_step(&row, row.modified_at, &RowPolicy::default()) else {
            panic!("the next generation follows");
        };
        assert_eq!((next.generation, next.desired), (2, Desired::Running));
    }

    #[test]
    fn runs_one_after_the_other_are_no_duplicates() {
        let errored = || RunEvent::Errored { attempt: 1, error: "e".to_owned(), next_at: Timestamp(9) };
        type Reports = Vec<(u128, u32, RunEvent)>;
        let cases: [(&str, Reports); 5] = [
            ("the same service again", vec![(1, 0, started()), (1, 0, errored()), (1, 0, started())]),
            ("a redelivery", vec![(1, 0, started()), (2, 1, started()), (1, 0, errored())]),
            ("a handover", vec![(1, 0, started()), (1, 0, RunEvent::HandedOver), (2, 1, started())]),
            ("an end", vec![(1, 0, started()), (1, 0, RunEvent::Completed), (2, 0, started())]),
            ("a refusal", vec![(1, 0, RunEvent::Refused { why: "kind".to_owned() }), (2, 1, started())]),
        ];
        for (what, reports) in cases {
            let mut row = row();
            for (service, acquisitions, event) in reports {
                hear(&mut row, service, acquisitions, event);
            }
            assert_eq!((row.ending, row.duplicated_at), (None, None), "{what}");
        }
    }

    #[test]
    fn an_observer_that_completes_meanwhile_does_not_run_again() {
        let mut row = row();
        hear(&mut row, 1, 0, started());
        hear(&mut row, 2, 0, started());
        hear(&mut row, 1, 0, RunEvent::Completed);
        hear(&mut row, 2, 0, RunEvent::Stopped);
        assert!(!row.wants_republish());
        assert_eq!(row.verdict().status, Status::Completed);
    }

    #[test]
    fn a_paused_observer_stays_paused_and_its_duplicate_ends() {
        let mut row = row();
        hear(&mut row, 1, 0, started());
        row.pause(Timestamp(5000), &RowPolicy::default()).unwrap();
        assert!(hear(&mut row, 2, 0, started()));
        hear(&mut row, 2, 0, RunEvent::Stopped);
        assert_eq!(row.desired, Desired::Paused);
        assert!(!row.wants_republish());
    }
}
