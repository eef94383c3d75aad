//! When checks of a work queue show that a message is not in it: the queue has been quiet for long enough, or two
//! searches of a queue that is never empty did not find the message.

use crate::clock::Timestamp;
use crate::id::ObserverId;
use crate::record::row::Row;
use crate::record::service::ServiceRow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row_policy::RowPolicy;
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
            weight_max: 1,
            message_version: crate::wire::message::VERSION,
            host: String::new(),
            labels: BTreeMap::new(),
            pool_single: false,
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
}
