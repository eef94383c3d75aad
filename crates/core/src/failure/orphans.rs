//! Orphans: when a manager concludes that an observer's message is gone, and what it does then. Each conclusion is
//! safe because the revocation of the next generation ends the old one.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::observed::Settlement;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use std::collections::BTreeMap;
use std::time::Duration;

/// The decision about a row that apparently no service holds, in a pool whose queue is quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    /// A service holds it, or may still report it.
    No,
    /// Republish it.
    Republish,
    /// It was meant to end, so it has ended.
    End,
}

/// The service that last reported it, whether or not the service still holds it.
#[must_use]
pub fn last_holder(row: &Row) -> Option<ServiceId> {
    row.observed.latest.as_ref().map(|latest| latest.service)
}

/// `ended` lists the services that have ended, each with the time at which a manager recorded the end; a holder in
/// neither list was forgotten long ago.
#[must_use]
pub fn orphan(
    row: &Row,
    living: &[ServiceId],
    ended: &BTreeMap<ServiceId, Timestamp>,
    now: Timestamp,
    orphan_after: Duration,
) -> Orphan {
    let published = row.generation > 0 && row.publish_lease.is_none() && row.observed.settled.is_none();
    let holder = last_holder(row);
    let held = row.holder().is_some_and(|holder| living.contains(&holder));
    let alone_since = holder.and_then(|holder| ended.get(&holder).copied()).unwrap_or(row.modified_at);
    let long = now.since(alone_since.max(row.modified_at)) >= orphan_after;
    if !published || held || !long {
        Orphan::No
    } else if row.awaits_end() {
        Orphan::End
    } else {
        Orphan::Republish
    }
}

impl Row {
    /// Lets it run again, because its message is gone: in the same slot, unless it counts towards limits. After a restore
    /// of the database, more observers may count towards a limit than it allows.
    pub fn replace_lost(&mut self, now: Timestamp, policy: &RowPolicy) {
        if self.places.is_none() {
            return self.republish(now, policy);
        }
        let since = self.published_at.unwrap_or(self.created_at);
        self.settle_by_manager(Settlement::Stopped, now);
        self.note_message_gone();
        self.wait_for_slot(since, now);
    }

    /// Its holder sent an inventory chunk for a range of ids, and this observer is not in it; `seq` numbers the
    /// inventory. Returns whether that is new. If its end is on its way to another manager, this has no effect.
    pub fn on_unlisted(&mut self, service: ServiceId, seq: u64, now: Timestamp) -> bool {
        let held = self.holder() == Some(service);
        let before = self.observed.latest.as_ref().is_some_and(|latest| latest.key.seq < seq);
        if !held || !before {
            return false;
        }
        (self.unlisted, self.modified_at) = (Some(now), now);
        true
    }

    /// Ends it: its message is gone, and it was meant to end.
    pub fn end_orphan(&mut self, now: Timestamp) {
        self.note_message_gone();
        self.settle_by_manager(Settlement::Stopped, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row_policy::RowPolicy;
    use crate::record::status::Status;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;
    use uuid::Uuid;

    const AFTER: Duration = Duration::from_secs(90);

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
    fn a_message_missing_from_a_quiet_queue_is_republished() {
        let (row, none) = (row(), BTreeMap::new());
        assert_eq!(orphan(&row, &[], &none, at(90), AFTER), Orphan::No);
        assert_eq!(orphan(&row, &[], &none, at(91), AFTER), Orphan::Republish);
        let mut leased = row.clone();
        leased.republish(at(5), &RowPolicy::default());
        assert_eq!(orphan(&leased, &[], &none, at(999), AFTER), Orphan::No, "its publish is under way");
    }

    #[test]
    fn observers_of_a_living_service_are_not_orphans() {
        let (mut row, none) = (row(), BTreeMap::new());
        hear(&mut row, started(), 2);
        assert_eq!(orphan(&row, &[service(9)], &none, at(999), AFTER), Orphan::No);
        let ended = BTreeMap::from([(service(9), at(500))]);
        assert_eq!(orphan(&row, &[], &ended, at(589), AFTER), Orphan::No, "its redelivery may be on its way");
        assert_eq!(orphan(&row, &[], &ended, at(590), AFTER), Orphan::Republish);
        row.delete(at(501), &RowPolicy::default());
        assert_eq!(orphan(&row, &[], &ended, at(591), AFTER), Orphan::End);
        row.end_orphan(at(591));
        assert_eq!(row.verdict().status, Status::Deleted);
    }

    #[test]
    fn an_observer_missing_from_its_holders_inventory_is_an_orphan() {
        let (mut row, none, living) = (row(), BTreeMap::new(), [service(9)]);
        hear(&mut row, started(), 2);
        assert!(!row.on_unlisted(service(8), 9, at(60)), "the inventory of another service proves nothing");
        assert!(!row.on_unlisted(service(9), 2, at(60)), "it was started after the inventory was made");
        assert!(row.on_unlisted(service(9), 3, at(60)) && !row.on_unlisted(service(9), 4, at(120)));
        assert_eq!((row.holder(), row.verdict().status), (None, Status::Processing));
        assert!(row.verdict().reason.to_string().contains("does not have it"));
        assert_eq!(orphan(&row, &living, &none, at(149), AFTER), Orphan::No);
        assert_eq!(orphan(&row, &living, &none, at(150), AFTER), Orphan::Republish);
        // The next inventory names it.
        let entry = RunReport { id: row.id, epoch: row.epoch(), event: started() };
        assert!(!row.repeats(service(9), &entry));
        row.apply(service(9), 5, at(150), &entry, at(150));
        assert_eq!((row.holder(), row.verdict().reason.to_string()), (Some(service(9)), String::new()));
        row.on_unlisted(service(9), 6, at(160));
        row.republish(at(170), &RowPolicy::default());
        assert_eq!(row.unlisted, None);
    }
}
