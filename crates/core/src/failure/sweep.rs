//! When a manager searches a work queue for the messages of observers that are meant to end, and what it does with each
//! message that it takes.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::ServiceId;
use crate::record::observed::Settlement;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::wire::report::{RunEvent, RunReport};
use uuid::Uuid;

/// Whether a manager must search the queue of this row's pool for its message: the observer is meant to end, and no
/// living service reports that it holds it. An observer that lost its service waits in the queue like one that never
/// ran; in a full pool nothing else would ever end it. The same holds for the message of an observer that has ended: the
/// places of its limits are in use as long as that message is there.
#[must_use]
pub fn wants_sweep(row: &Row, now: Timestamp, policy: &RowPolicy, lives: impl Fn(ServiceId) -> bool) -> bool {
    let waits = row.awaits_end() || row.awaits_release();
    let long_enough = is_recalled(row) || now.since(row.modified_at) >= policy.sweep_after;
    waits && long_enough && !row.holder().is_some_and(lives)
}

/// Whether its message must leave the queue at once, because it would take a slot that another observer needs.
fn is_recalled(row: &Row) -> bool {
    row.preempted.is_some() && row.gives_slot_back()
}

/// The decision about a work message that a sweep has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Give it back to the queue.
    Keep,
    /// Its generation is over: acknowledge it.
    Stale,
    /// Its observer is meant to end, and the sweep holds the message, so no service does: settle the row, then
    /// acknowledge the message.
    Settle,
}

/// `row` is `None` for an id that the database does not know.
#[must_use]
pub fn plan_sweep(row: Option<&Row>, generation: u32) -> Sweep {
    match row {
        None => Sweep::Keep,
        Some(row) if generation < row.generation => Sweep::Stale,
        Some(row) if generation == row.generation && (row.awaits_end() || row.awaits_release()) => {
            Sweep::Settle
        }
        Some(_) => Sweep::Keep,
    }
}

impl Row {
    /// Settles it as stopped: the sweep holds its message, which the broker has handed out `acquisitions` times.
    ///
    /// The obvious way reports the stop with that number. But a broker that was restored from a backup counts from an
    /// older number than services have reported; such a stop would be taken for the end of an earlier run, and the
    /// observer would wait for the end of a run that is over.
    pub fn settle_swept(&mut self, acquisitions: u32, now: Timestamp) {
        self.note_message_gone();
        if self.observed.settled.is_some() {
            self.modified_at = now;
            return;
        }
        if acquisitions < self.epoch().acquisitions() {
            self.settle_by_manager(Settlement::Stopped, now);
            return;
        }
        let epoch = Epoch::new(self.generation, acquisitions);
        let report = RunReport { id: self.id, epoch, event: RunEvent::Stopped };
        self.apply(ServiceId(Uuid::nil()), 1, now, &report, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::status::Status;
    use serde_json::json;

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
    #[test]
    fn a_sweep_ends_deleted_and_stale_messages_and_returns_the_rest() {
        let mut row = row();
        assert_eq!(plan_sweep(None, 1), Sweep::Keep);
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Keep);
        row.delete(at(1), &policy());
        let nobody = |_| false;
        assert!(
            !wants_sweep(&row, at(30), &policy(), nobody) && wants_sweep(&row, at(31), &policy(), nobody)
        );
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Settle);
        row.republish(at(2), &policy());
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Stale);
        // Once it has run, a sweep leaves it to its service as long as the service lives.
        report(&mut row, started(), 3);
        assert!(
            !wants_sweep(&row, at(99), &policy(), |_| true) && wants_sweep(&row, at(99), &policy(), nobody)
        );
        assert_eq!(plan_sweep(Some(&row), 2), Sweep::Settle);
    }

    #[test]
    fn a_swept_message_settles_its_observer_whatever_the_broker_counts() {
        for acquisitions in [0, 1, 2, 3] {
            let mut row = row();
            row.confirmed(1, at(1));
            for run in 0..3 {
                let epoch = Epoch::new(1, run);
                let report = RunReport { id: row.id, epoch, event: started() };
                row.apply(ServiceId(Uuid::from_u128(run.into())), 1, at(2), &report, at(2));
            }
            row.delete(at(3), &policy());
            row.settle_swept(acquisitions, at(4));
            assert_eq!(row.verdict().status, Status::Deleted, "{acquisitions}");
        }
    }
}
