//! Orphans: when a manager concludes that an observer's message is gone, and what it does then. Each conclusion is
//! safe because the revocation of the next generation ends the old one.

use crate::clock::Timestamp;
use crate::id::{ObserverId, ServiceId};
use crate::record::observed::{Key, Settled, Settlement};
use crate::record::row::{Row, RowPolicy};
use crate::record::service::ServiceRow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// Since when every check of one work queue has shown no ready message and at least one consumer. The broker reports
/// `0/0` if it does not know, so such a check does not count as quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quiet {
    since: Option<Timestamp>,
}

impl Quiet {
    /// Records a check of the queue.
    pub fn look(&mut self, ready: u32, consumers: u32, now: Timestamp) {
        let quiet = ready == 0 && consumers > 0;
        self.since = if quiet { self.since.or(Some(now)) } else { None };
    }
    /// The checks stopped (no session, or safe mode): the next one counts as the first.
    pub fn interrupt(&mut self) {
        self.since = None;
    }
    /// Whether the queue has been quiet for `orphan_after`.
    #[must_use]
    pub fn lasts(&self, now: Timestamp, orphan_after: Duration) -> bool {
        self.since.is_some_and(|since| now.since(since) >= orphan_after)
    }
}

/// The results of searches in one queue that is never empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Searches {
    looked_at: Option<Timestamp>,
    /// Observers that no service holds and that were not in the queue: when each was last modified, and since when it
    /// is absent. The row's version cannot replace the modification time: repeating a command to an observer raises it.
    absent: BTreeMap<ObserverId, (Timestamp, Timestamp)>,
}

/// A search takes messages and gives them back, so searches must not be frequent.
const SELDOM: u32 = 10;

impl Searches {
    /// Whether the next search is due. The first one waits as well: a manager knows nothing when it starts.
    pub fn is_due(&mut self, now: Timestamp, orphan_after: Duration) -> bool {
        let since = *self.looked_at.get_or_insert(now);
        let pause = if self.absent.is_empty() { orphan_after * SELDOM } else { orphan_after };
        now.since(since) >= pause
    }

    /// Records a search of all ready messages, with the rows that should have a message and have no holder.
    pub fn look(&mut self, unheld: &[Row], found: &BTreeSet<ObserverId>, now: Timestamp) {
        let absent = unheld.iter().filter(|row| !found.contains(&row.id)).map(|row| {
            let known = self.absent.get(&row.id).filter(|(modified_at, _)| *modified_at == row.modified_at);
            (row.id, (row.modified_at, known.map_or(now, |(_, since)| *since)))
        });
        self.absent = absent.collect();
        self.looked_at = Some(now);
    }

    /// Whether two searches that far apart did not find it, no report about it arrived in between, and each living
    /// service has sent its inventory since the first search; `listed_at` is the oldest of these inventories.
    #[must_use]
    pub fn is_missed(
        &self,
        row: &Row,
        listed_at: Option<Timestamp>,
        now: Timestamp,
        orphan_after: Duration,
    ) -> bool {
        self.absent.get(&row.id).is_some_and(|(modified_at, since)| {
            *modified_at == row.modified_at
                && now.since(*since) >= orphan_after
                && listed_at.is_none_or(|listed| listed > *since)
        })
    }
}

/// The time of the oldest among the services' latest inventories; `None` without services. A service that has never
/// sent an inventory counts as the beginning of time.
#[must_use]
pub fn listed_at<'a>(services: impl Iterator<Item = &'a ServiceRow>) -> Option<Timestamp> {
    services.filter(|it| it.end.is_none()).map(|it| it.listed_at.unwrap_or(Timestamp(0))).min()
}

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

    /// When it fails, unless a service that can run it takes it before.
    #[must_use]
    pub fn fails_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let since = self.refused_since.filter(|_| self.observed.settled.is_none() || self.is_withdrawn())?;
        Some(since.plus(policy.refused_max))
    }

    /// Fails it because no service could run it. A service's own report of its end takes precedence.
    pub fn fail_refused(&mut self, now: Timestamp) {
        let Some(why) = self.observed.refusal() else { return };
        let error = format!("no service of pool {} could run it: {why}", self.definition.pool);
        self.settle_by_manager(Settlement::Failed { error, attempts: 0 }, now);
    }

    /// Ends it: its message is gone, and it was meant to end.
    pub fn end_orphan(&mut self, now: Timestamp) {
        self.settle_by_manager(Settlement::Stopped, now);
    }

    /// A service's own report of the end takes precedence.
    fn settle_by_manager(&mut self, how: Settlement, now: Timestamp) {
        let key = Key { acquisitions: self.epoch().acquisitions(), seq: u64::MAX };
        self.settle_at(key, how, now);
    }

    pub(crate) fn settle_at(&mut self, key: Key, how: Settlement, now: Timestamp) {
        self.observed.settled = Some(Settled { key, service: ServiceId(Uuid::nil()), at: now, how });
        self.commanded_at = Some(now);
        self.note_settled(now);
    }

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

/// Whether a message was in a lost work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLostQueue {
    No,
    /// A service that is not known to have ended holds it: check it again later.
    Held,
    Yes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::due::{DueStep, due_step};
    use crate::record::status::Status;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;

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
    fn a_queue_is_quiet_only_while_every_check_shows_it() {
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
    fn a_message_missing_from_a_quiet_queue_is_republished() {
        let (row, none) = (row(), BTreeMap::new());
        assert_eq!(orphan(&row, &[], &none, at(90), AFTER), Orphan::No);
        assert_eq!(orphan(&row, &[], &none, at(91), AFTER), Orphan::Republish);
        let mut leased = row.clone();
        leased.republish(at(5), &RowPolicy::default());
        assert_eq!(orphan(&leased, &[], &none, at(999), AFTER), Orphan::No, "its publish is under way");
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
    fn an_observer_that_no_service_can_run_fails_and_can_be_retried() {
        let mut row = row();
        let refused = |why: &str| RunEvent::Refused { why: why.to_owned() };
        hear(&mut row, refused("kind x is unknown"), 10);
        hear(&mut row, refused("kind x is unknown"), 800);
        let policy = RowPolicy::default();
        assert_eq!(row.due_at(&policy), Some(at(10 + 900)));
        assert_eq!(due_step(&row, at(909), &policy), None);
        let Some(DueStep::Revoke(failed)) = due_step(&row, at(910), &policy) else { panic!() };
        assert_eq!(failed.verdict().status, Status::Failed);
        assert_eq!(failed.revocation().below, Epoch::after_generation(1));
        assert!(failed.verdict().reason.to_string().contains("kind x is unknown"));
        let mut row = failed;
        let again = RunReport { id: row.id, epoch: Epoch::new(1, 5), event: refused("kind x is unknown") };
        assert!(row.answer(&again).is_some(), "a service that still holds it learns that it is over");
        assert_eq!(row.retry(at(1000), &policy), Ok(true));
        assert_eq!(row.verdict().status, Status::Created);
        hear(&mut row, refused("kind x is unknown"), 1001);
        hear(&mut row, started(), 1002);
        assert_eq!(row.fails_at(&policy), None, "a service could run it");
    }

    #[test]
    fn a_start_between_two_refusals_resets_the_refusal_time() {
        let (mut row, policy) = (row(), RowPolicy::default());
        let refused = || RunEvent::Refused { why: "kind x is unknown".to_owned() };
        let held = |refuses| RunEvent::Held { reason: "r".to_owned(), refuses };
        hear(&mut row, refused(), 10);
        hear(&mut row, started(), 11);
        assert_eq!(row.fails_at(&policy), None);
        hear(&mut row, refused(), 2000);
        assert_eq!(due_step(&row, at(2001), &policy), None, "its service has restarted");
        assert_eq!(row.fails_at(&policy), Some(at(2900)));
        // A service that cannot run it holds it for a while between two refusals.
        hear(&mut row, held(true), 2001);
        assert_eq!(row.fails_at(&policy), Some(at(2900)));
        let Some(DueStep::Revoke(failed)) = due_step(&row, at(2900), &policy) else { panic!() };
        assert_eq!(failed.verdict().status, Status::Failed);
        // A service that can run it lets it wait for its turn.
        hear(&mut row, held(false), 2002);
        assert_eq!(row.fails_at(&policy), None);
    }

    #[test]
    fn the_refusal_time_is_measured_by_one_clock() {
        let (mut row, policy) = (row(), RowPolicy::default());
        let event = RunEvent::Refused { why: "kind x is unknown".to_owned() };
        let report = RunReport { id: row.id, epoch: Epoch::new(1, 0), event };
        // The clock of this service is an hour behind.
        row.apply(service(9), 1, at(-3590), &report, at(10));
        assert_eq!(row.fails_at(&policy), Some(at(910)));
    }

    #[test]
    fn a_run_taken_over_by_another_service_is_revoked_on_its_old_service() {
        let mut row = row();
        hear(&mut row, started(), 2);
        let before = row.clone();
        let taken = RunReport { id: row.id, epoch: Epoch::new(1, 1), event: started() };
        row.apply(service(8), 1, at(3), &taken, at(3));
        let (service_9, revocation) = row.taken_over_from(&before).unwrap();
        assert_eq!((service_9, revocation.below), (service(9), Epoch::new(1, 1)));
        assert_eq!(row.taken_over_from(&row), None, "no change");
        let mut same = row.clone();
        same.apply(service(8), 2, at(4), &RunReport { epoch: Epoch::new(1, 2), ..taken }, at(4));
        assert_eq!(same.taken_over_from(&row), None, "it has come back to the same service");
        let mut handed_over = before.clone();
        hear(&mut handed_over, RunEvent::HandedOver, 3);
        assert_eq!(row.taken_over_from(&handed_over), None, "the service has let go of it");
    }

    #[test]
    fn a_run_stopped_after_a_takeover_does_not_end_its_generation() {
        let mut row = row();
        hear(&mut row, started(), 2);
        let later = |event| RunReport { id: row.id, epoch: Epoch::new(1, 1), event };
        let (started, stopped, completed) =
            (later(started()), later(RunEvent::Stopped), later(RunEvent::Completed));
        let earlier_stops = RunReport { epoch: Epoch::new(1, 0), ..stopped.clone() };
        row.apply(service(8), 1, at(3), &started, at(3));
        row.apply(service(9), 9, at(4), &earlier_stops, at(4));
        assert_eq!((row.holder(), row.wants_republish()), (Some(service(8)), false));
        let mut ended = row.clone();
        ended.apply(service(8), 2, at(5), &completed, at(5));
        assert_eq!(ended.verdict().status, Status::Completed);
        // Once the later run is told to stop, it reports its own end.
        row.delete(at(6), &RowPolicy::default());
        assert_eq!(row.verdict().status, Status::OnDeleting);
        row.apply(service(8), 2, at(7), &stopped, at(7));
        assert_eq!(row.verdict().status, Status::Deleted);
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

    #[test]
    fn in_a_busy_queue_two_searches_and_all_inventories_prove_an_orphan() {
        let (row, nothing) = (row(), BTreeSet::new());
        let found = BTreeSet::from([row.id]);
        let mut searches = Searches::default();
        assert!(!searches.is_due(at(0), AFTER) && !searches.is_due(at(899), AFTER));
        assert!(searches.is_due(at(900), AFTER));
        let one = std::slice::from_ref(&row);
        searches.look(one, &found, at(900));
        assert!(!searches.is_due(at(1799), AFTER) && searches.is_due(at(1800), AFTER));
        searches.look(one, &nothing, at(1800));
        assert!(!searches.is_due(at(1889), AFTER) && searches.is_due(at(1890), AFTER));
        searches.look(one, &nothing, at(1890));
        let missed = |row: &Row, listed| searches.is_missed(row, listed, at(1890), AFTER);
        assert!(missed(&row, Some(at(1801))) && missed(&row, None));
        assert!(!missed(&row, Some(at(1800))), "a service may hold it");
        assert!(!missed(&Row { modified_at: at(1850), ..row.clone() }, None), "a report about it arrived");
        assert!(missed(&Row { version: 7, ..row.clone() }, None), "it was told again to end");
        let mut again = searches.clone();
        again.look(one, &found, at(1980));
        assert!(!again.is_missed(&row, None, at(1980), AFTER));
    }

    #[test]
    fn the_oldest_inventory_of_all_services_counts() {
        let registration = crate::wire::report::Registration {
            name: Name::new("s").unwrap(),
            pool: crate::id::Pool::default(),
            capacity: 1,
            kinds: Vec::new(),
            version: String::new(),
            message_version: crate::wire::message::VERSION,
            host: String::new(),
            labels: BTreeMap::new(),
            predecessor: None,
        };
        let mut services =
            [1, 2].map(|number| ServiceRow::registered(service(number), registration.clone(), at(0), at(0)));
        assert_eq!(listed_at([].iter()), None);
        assert!(services[0].on_list(at(5)));
        assert_eq!(listed_at(services.iter()), Some(at(0)), "one has never sent an inventory");
        services[1].on_session_gone(at(6));
        assert!(!services[1].on_list(at(7)));
        assert_eq!(listed_at(services.iter()), Some(at(5)));
    }

    #[test]
    fn the_chunks_of_an_inventory_cover_all_ids() {
        use crate::wire::message::BATCH_MAX;
        use crate::wire::report::{InventoryChunk, InventoryRange};
        assert_eq!(
            InventoryChunk::all(1, Vec::new())[0].range,
            Some(InventoryRange { after: None, upto: None })
        );
        let id = |number: usize| ObserverId(Uuid::from_u128(number as u128));
        let entry = |number| RunReport { id: id(number), epoch: Epoch::new(1, 0), event: started() };
        let all = InventoryChunk::all(7, (0..BATCH_MAX * 2 + 1).rev().map(entry).collect());
        let ranges: Vec<InventoryRange> = all.iter().filter_map(|chunk| chunk.range).collect();
        let (first, second) = (Some(id(BATCH_MAX - 1)), Some(id(BATCH_MAX * 2 - 1)));
        let range = |after, upto| InventoryRange { after, upto };
        assert_eq!(ranges, [range(None, first), range(first, second), range(second, None)]);
        assert_eq!(all.iter().map(|chunk| chunk.entries.len()).sum::<usize>(), BATCH_MAX * 2 + 1);
        assert!(all.iter().all(|chunk| (chunk.inventory, chunk.chunks) == (7, 3)));
    }
}
