//! Which messages were lost with a work queue that no longer exists.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::row::Row;

/// Whether a message was in a lost work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLostQueue {
    No,
    /// A service that is not known to have ended holds it: check it again later.
    Held,
    Yes,
}

impl Row {
    /// The work queue of its pool was re-created at `made_at`, and messages published before are gone.
    ///
    /// The obvious test compares the two times alone. But they come from two clocks, so a service whose clock is
    /// ahead would cause observers that already run from the new queue to be republished. Instead, a living service
    /// that holds the observer proves that its message is there.
    #[must_use]
    pub fn in_lost_queue(&self, made_at: Timestamp, living: &[ServiceId]) -> InLostQueue {
        let there = self.generation > 0 && self.publish_lease.is_none() && self.observed.settled.is_none();
        if !there || self.published_at.is_some_and(|published| published >= made_at) {
            return InLostQueue::No;
        }
        let held = self.holder().is_some_and(|holder| living.contains(&holder));
        if held { InLostQueue::Held } else { InLostQueue::Yes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row_policy::RowPolicy;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn service(number: u128) -> ServiceId {
        ServiceId(Uuid::from_u128(number))
    }
    fn row() -> Row {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default());
        row.confirmed(1, at(1));
        row
    }
    fn hear(row: &mut Row, event: RunEvent, secs: i64) {
        let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
        let seq = u64::try_from(secs).unwrap();
        row.apply(service(9), seq, at(secs), &report, at(secs));
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }

    #[test]
    fn messages_held_by_a_living_service_survive_the_loss_of_the_queue() {
        let mut row = row();
        assert_eq!(row.in_lost_queue(at(1), &[]), InLostQueue::No, "published into the new queue");
        assert_eq!(row.in_lost_queue(at(2), &[]), InLostQueue::Yes);
        hear(&mut row, started(), 3);
        // The clock of the service that created the queue is ten minutes ahead.
        assert_eq!(row.in_lost_queue(at(600), &[service(9)]), InLostQueue::Held);
        assert_eq!(row.in_lost_queue(at(600), &[service(8)]), InLostQueue::Yes);
        hear(&mut row, RunEvent::Stopped, 4);
        assert_eq!(row.in_lost_queue(at(600), &[]), InLostQueue::No, "settled");
    }

    #[test]
    fn messages_published_into_a_deleted_queue_are_lost() {
        let mut row = row();
        assert_eq!(row.in_lost_queue(at(2), &[]), InLostQueue::Yes);
        assert_eq!(row.in_lost_queue(at(1), &[]), InLostQueue::No);
        row.republish(at(3), &RowPolicy::default());
        assert_eq!(row.in_lost_queue(at(9), &[]), InLostQueue::No, "its publish is under way");
        hear(&mut row, started(), 4);
        assert_eq!(row.in_lost_queue(at(9), &[]), InLostQueue::Yes);
        assert_eq!(row.in_lost_queue(at(4), &[]), InLostQueue::No);
        hear(&mut row, RunEvent::Stopped, 5);
        assert_eq!(row.in_lost_queue(at(9), &[]), InLostQueue::No);
    }
}
