//! Messages that are not where they should be: when a manager concludes that an observer's message is
//! gone, and what it does then. Every conclusion is safe, as the next generation's floor ends the old one.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::row::{Row, RowPolicy};
use crate::seen::{Doing, Key, Settled, Settlement};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// What is known of one work queue: since when every look showed nothing ready and somebody consuming.
/// `0/0` is the broker's way of saying "I do not know", so that is no such look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quiet {
    since: Option<Timestamp>,
}

impl Quiet {
    /// Another look at the queue.
    pub fn look(&mut self, ready: u32, consumers: u32, now: Timestamp) {
        let quiet = ready == 0 && consumers > 0;
        self.since = if quiet { self.since.or(Some(now)) } else { None };
    }
    /// Looks stopped (no session, a hold): the next one is the first again.
    pub fn interrupt(&mut self) {
        self.since = None;
    }
    /// Whether it has lasted for `orphan_after`.
    #[must_use]
    pub fn lasts(&self, now: Timestamp, orphan_after: Duration) -> bool {
        self.since.is_some_and(|since| now.since(since) >= orphan_after)
    }
}

/// What becomes of a row that nobody seems to hold, in a pool whose queue is quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    /// Somebody holds it, or may still report it.
    No,
    /// Publish it again.
    Reissue,
    /// It was to end: it has.
    End,
}

/// `ended` are the services that are over, with the moment at which that was noted; a holder that is in
/// neither list was forgotten long ago.
#[must_use]
pub fn orphan(
    row: &Row,
    living: &[ServiceId],
    ended: &BTreeMap<ServiceId, Timestamp>,
    now: Timestamp,
    orphan_after: Duration,
) -> Orphan {
    let published = row.generation > 0 && row.mark.is_none() && row.seen.settled.is_none();
    let holder = row.seen.latest.as_ref().map(|latest| latest.service);
    let held = row.seen.holder().is_some_and(|holder| living.contains(&holder));
    let alone_since = holder.and_then(|holder| ended.get(&holder).copied()).unwrap_or(row.modified_at);
    let long = now.since(alone_since.max(row.modified_at)) >= orphan_after;
    if !published || held || !long {
        Orphan::No
    } else if row.awaits_end() {
        Orphan::End
    } else {
        Orphan::Reissue
    }
}

impl Row {
    /// Whether nobody could run it for so long that it fails.
    #[must_use]
    pub fn fails_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let refused = matches!(self.seen.latest.as_ref()?.doing, Doing::Refused { .. });
        let since = self.seen.refused_since.filter(|_| refused && self.seen.settled.is_none())?;
        Some(since.plus(policy.refused_max))
    }

    /// Nobody could run it: it failed. A service's own word on its end would count more.
    pub fn fail_refused(&mut self, now: Timestamp) {
        let why = match self.seen.latest.as_ref().map(|latest| &latest.doing) {
            Some(Doing::Refused { why }) => why.clone(),
            _ => return,
        };
        let error = format!("no service of pool {} could run it: {why}", self.wanted.pool);
        self.settle_by_manager(Settlement::Failed { error, attempts: 0 }, now);
    }

    /// Its message is gone, and it was to end: it has.
    pub fn end_orphan(&mut self, now: Timestamp) {
        self.settle_by_manager(Settlement::Stopped, now);
    }

    /// A service's own word on the end counts more.
    fn settle_by_manager(&mut self, how: Settlement, now: Timestamp) {
        let key = Key { acquisitions: self.epoch().acquisitions(), seq: u64::MAX };
        self.settle_at(key, how, now);
    }

    pub(crate) fn settle_at(&mut self, key: Key, how: Settlement, now: Timestamp) {
        self.seen.settled = Some(Settled { key, service: ServiceId(Uuid::nil()), at: now, how });
        self.note_settled(now);
    }

    /// The work queue of its pool was made anew at `made_at`: whatever was published before is gone.
    #[must_use]
    pub fn is_lost_with_queue(&self, made_at: Timestamp) -> bool {
        let there = self.generation > 0 && self.mark.is_none() && self.seen.settled.is_none();
        there && self.published_at.is_none_or(|published| published < made_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId};
    use crate::message::{RunEvent, RunReport};
    use crate::observer::Wanted;
    use crate::plan::plan_row;
    use crate::status::Status;
    use serde_json::json;

    const AFTER: Duration = Duration::from_secs(90);

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn service(number: u128) -> ServiceId {
        ServiceId(Uuid::from_u128(number))
    }
    fn row() -> Row {
        let wanted = Wanted::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let mut row = Row::created(ObserverId(Uuid::from_u128(1)), wanted, at(0), &RowPolicy::default());
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
    fn a_queue_is_quiet_only_while_every_look_shows_it() {
        let mut quiet = Quiet::default();
        quiet.look(0, 2, at(0));
        quiet.look(0, 1, at(60));
        assert!(!quiet.lasts(at(89), AFTER) && quiet.lasts(at(90), AFTER));
        for (ready, consumers) in [(1, 2), (0, 0)] {
            quiet.look(ready, consumers, at(100));
            assert!(!quiet.lasts(at(1000), AFTER), "{ready}/{consumers}");
            quiet.look(0, 1, at(100));
            assert!(quiet.lasts(at(190), AFTER));
        }
        quiet.interrupt();
        assert!(!quiet.lasts(at(1000), AFTER));
    }

    #[test]
    fn a_message_that_nobody_took_from_a_quiet_queue_is_published_again() {
        let (row, none) = (row(), BTreeMap::new());
        assert_eq!(orphan(&row, &[], &none, at(90), AFTER), Orphan::No);
        assert_eq!(orphan(&row, &[], &none, at(91), AFTER), Orphan::Reissue);
        let mut leased = row.clone();
        leased.reissue(at(5), &RowPolicy::default());
        assert_eq!(orphan(&leased, &[], &none, at(999), AFTER), Orphan::No, "its publish is under way");
    }

    #[test]
    fn whoever_lives_keeps_what_it_holds() {
        let (mut row, none) = (row(), BTreeMap::new());
        hear(&mut row, started(), 2);
        assert_eq!(orphan(&row, &[service(9)], &none, at(999), AFTER), Orphan::No);
        let ended = BTreeMap::from([(service(9), at(500))]);
        assert_eq!(orphan(&row, &[], &ended, at(589), AFTER), Orphan::No, "its redelivery may be on its way");
        assert_eq!(orphan(&row, &[], &ended, at(590), AFTER), Orphan::Reissue);
        row.delete(at(501), &RowPolicy::default());
        assert_eq!(orphan(&row, &[], &ended, at(591), AFTER), Orphan::End);
        row.end_orphan(at(591));
        assert_eq!(row.verdict().status, Status::Deleted);
    }

    #[test]
    fn what_nobody_can_run_fails_after_a_while_and_may_be_brought_back() {
        let mut row = row();
        let refused = |why: &str| RunEvent::Refused { why: why.to_owned() };
        hear(&mut row, refused("kind x is unknown"), 10);
        hear(&mut row, refused("kind x is unknown"), 800);
        let policy = RowPolicy::default();
        assert_eq!(row.due_at(&policy), Some(at(10 + 900)));
        assert_eq!(plan_row(&row, at(909), &policy), None);
        let step = plan_row(&row, at(910), &policy).unwrap();
        assert_eq!((step.row.verdict().status, step.publish), (Status::Failed, false));
        assert_eq!(step.floor.unwrap().below, Epoch::after_generation(1));
        assert!(step.row.verdict().reason.to_string().contains("kind x is unknown"));
        let mut row = step.row;
        let again = RunReport { id: row.id, epoch: Epoch::new(1, 5), event: refused("kind x is unknown") };
        assert!(row.answer(&again).is_some(), "whoever still has it hears that it is over");
        assert_eq!(row.retry(at(1000), &policy), Ok(true));
        assert_eq!(row.verdict().status, Status::Created);
        hear(&mut row, refused("kind x is unknown"), 1001);
        hear(&mut row, started(), 1002);
        assert_eq!(row.fails_at(&policy), None, "somebody could");
    }

    #[test]
    fn what_was_published_into_a_queue_that_is_gone_is_lost() {
        let mut row = row();
        assert!(row.is_lost_with_queue(at(2)) && !row.is_lost_with_queue(at(1)));
        row.reissue(at(3), &RowPolicy::default());
        assert!(!row.is_lost_with_queue(at(9)), "its publish is under way");
        hear(&mut row, started(), 4);
        assert!(row.is_lost_with_queue(at(9)) && !row.is_lost_with_queue(at(4)));
        hear(&mut row, RunEvent::Stopped, 5);
        assert!(!row.is_lost_with_queue(at(9)));
    }
}
