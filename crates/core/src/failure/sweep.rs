//! When a manager searches a work queue for the messages of observers that are meant to end, and what it does with each
//! message that it takes.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::row::{Row, RowPolicy};

/// Whether a manager must search the queue of this row's pool for its message: the observer is meant to end, and no
/// living service reports that it holds it. An observer that lost its service waits in the queue like one that never
/// ran; in a full pool nothing else would ever end it.
#[must_use]
pub fn wants_sweep(row: &Row, now: Timestamp, policy: &RowPolicy, lives: impl Fn(ServiceId) -> bool) -> bool {
    row.awaits_end() && now.since(row.modified_at) >= policy.sweep_after && !row.holder().is_some_and(lives)
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
        Some(row) if generation == row.generation && row.awaits_end() => Sweep::Settle,
        Some(_) => Sweep::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
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
}
