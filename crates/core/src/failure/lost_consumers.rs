//! Work queues that have lost consumers. The broker removes the consumers of a service at once when its connection ends, whereas a
//! manager misses its heartbeats only after some time, and sees its observers on other services only if these have room.

use crate::clock::Timestamp;
use crate::id::{Pool, ServiceId};
use crate::record::service::{ServiceRow, ServiceState};
use std::collections::BTreeMap;

/// The maximum number of services to doubt for one queue; those that were heard of last are left out.
const DOUBTED_MAX: usize = 100;

/// The consumers of the work queue of each pool.
#[derive(Debug, Default)]
pub struct ConsumerCounts(BTreeMap<Pool, Count>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Stable(u32),
    /// There were more at the check before.
    Fallen(u32),
}

impl ConsumerCounts {
    /// Records a check of the queue; returns whether a service may have died.
    ///
    /// The answer follows one check after the one that shows fewer consumers. By then, a service that was stopped has also been
    /// recorded as stopped, and one that only replaced its consumers has the new ones.
    pub fn look(&mut self, pool: &Pool, consumers: u32) -> bool {
        let before = self.0.get(pool).copied();
        let (count, is_lost) = match before {
            Some(Count::Stable(before)) if consumers < before => (Count::Fallen(consumers), false),
            Some(Count::Fallen(before)) => (Count::Stable(consumers), consumers <= before),
            _ => (Count::Stable(consumers), false),
        };
        self.0.insert(pool.clone(), count);
        is_lost
    }

    /// The checks stopped: the next one counts as the first.
    pub fn interrupt(&mut self) {
        self.0.clear();
    }
}

/// The services that may have died: all of the pool except those that are stopping or drained, whose consumers are expected to go.
#[must_use]
pub fn doubted(services: &[ServiceRow], pool: &Pool) -> Vec<ServiceId> {
    let mut doubted: Vec<(Timestamp, ServiceId)> = services
        .iter()
        .filter(|it| it.registration.pool == *pool && !it.state().is_over())
        .filter(|it| it.state() != ServiceState::Draining)
        .map(|it| (it.heard_at, it.id))
        .collect();
    doubted.sort_unstable();
    doubted.into_iter().take(DOUBTED_MAX).map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::{holding, service};
    use crate::wire::heartbeat::Intent;
    use uuid::Uuid;

    fn looks(consumers: &[u32]) -> Vec<bool> {
        let (mut counts, pool) = (ConsumerCounts::default(), Pool::default());
        consumers.iter().map(|it| counts.look(&pool, *it)).collect()
    }

    #[test]
    fn a_lost_consumer_is_told_one_check_later_and_once() {
        assert_eq!(looks(&[3, 2, 2, 2]), [false, false, true, false]);
        assert_eq!(looks(&[3, 2, 1, 1]), [false, false, true, false], "two were lost within two checks");
        assert_eq!(looks(&[3, 0, 0]), [false, false, true], "the last one");
    }

    #[test]
    fn a_consumer_that_is_replaced_is_none_that_is_lost() {
        assert_eq!(looks(&[3, 2, 3, 3]), [false; 4]);
        assert_eq!(looks(&[1, 2, 3]), [false; 3], "new ones");
    }

    #[test]
    fn the_first_check_after_a_pause_tells_nothing() {
        let (mut counts, pool) = (ConsumerCounts::default(), Pool::default());
        assert!(!counts.look(&pool, 3));
        counts.interrupt();
        assert!(!counts.look(&pool, 2) && !counts.look(&pool, 2));
    }

    #[test]
    fn the_services_of_the_pool_are_doubted_except_those_that_stop() {
        let row = |number: u128, pool: &str, heard: i64| {
            let mut row = service(pool, 10, &["ticker"]);
            (row.id, row.heard_at) = (ServiceId(Uuid::from_u128(number)), Timestamp(heard));
            row
        };
        let (mut stopping, mut lost) = (holding(row(3, "a", 0), 4), row(4, "a", 0));
        stopping.heartbeat.as_mut().unwrap().state = Intent::Draining;
        lost.on_session_gone(Timestamp(9));
        let all = [row(1, "a", 8), row(2, "a", 5), stopping, lost, row(5, "b", 1)];
        let ids: Vec<u128> =
            doubted(&all, &Pool::new("a").unwrap()).iter().map(|it| it.0.as_u128()).collect();
        assert_eq!(ids, [2, 1]);
    }
}
