//! Work queues to which messages have returned. When a service dies in a full pool, its observers stay in the queue: no other service
//! receives one, so nothing but the queue tells managers before heartbeats are missed.

use crate::clock::Timestamp;
use crate::id::{Pool, ServiceId};
use crate::record::service::{ServiceRow, ServiceState};
use std::collections::BTreeMap;
use std::time::Duration;

/// A service sends a sign of life every second. One that has not sent any for this long is doubted while messages are back.
const SILENT_FOR: Duration = Duration::from_millis(1500);
/// How long services are doubted after a queue has grown. A service whose death made it grow is silent for [`SILENT_FOR`] by then.
const LASTS: Duration = Duration::from_secs(5);
/// The maximum number of services to doubt at a time, those that were silent for longest first. Managers share the signs of life, so
/// a manager among others may have missed those of living services.
const DOUBTED_MAX: usize = 20;

/// How many messages were ready in the work queue of each pool, and since when there are more than before.
#[derive(Debug, Default)]
pub struct QueueGrowth(BTreeMap<Pool, Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    ready: u32,
    grown_at: Option<Timestamp>,
}

impl QueueGrowth {
    /// Records a check of the queue; returns whether a service may have died.
    ///
    /// A queue also grows for a moment when managers publish. So it must still have ready messages at a later check.
    pub fn look(&mut self, pool: &Pool, ready: u32, now: Timestamp) -> bool {
        let before = self.0.get(pool).copied();
        let grown_at = match before {
            _ if ready == 0 => None,
            Some(before) if ready > before.ready => Some(now),
            Some(before) => before.grown_at,
            None => None,
        };
        self.0.insert(pool.clone(), Seen { ready, grown_at });
        let had_grown = before.is_some_and(|it| it.grown_at.is_some());
        had_grown && grown_at.is_some_and(|at| now.since(at) < LASTS)
    }

    /// The checks stopped: the next one counts as the first.
    pub fn interrupt(&mut self) {
        self.0.clear();
    }
}

/// The services of the pool that may have died: those without a recent sign of life. Services that are stopping or drained are left
/// out, because they return messages, and their reports say how they end. `heard_at` is the last sign of life of a service.
#[must_use]
pub fn doubted(
    services: &[ServiceRow],
    pool: &Pool,
    heard_at: impl Fn(&ServiceRow) -> Timestamp,
    now: Timestamp,
) -> Vec<ServiceId> {
    let mut doubted: Vec<(Timestamp, ServiceId)> = services
        .iter()
        .filter(|it| it.registration.pool == *pool && !it.state().is_over())
        .filter(|it| it.state() != ServiceState::Draining)
        .map(|it| (heard_at(it), it.id))
        .filter(|(heard, _)| now.since(*heard) >= SILENT_FOR)
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

    fn at(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    /// Checks every half second.
    fn looks(ready: &[u32]) -> Vec<bool> {
        let (mut growth, pool) = (QueueGrowth::default(), Pool::default());
        ready.iter().zip(0..).map(|(ready, place)| growth.look(&pool, *ready, at(place * 500))).collect()
    }

    #[test]
    fn messages_that_stay_after_the_queue_has_grown_are_told_for_a_while() {
        let told = looks(&[[0].as_slice(), &[4; 14]].concat());
        assert_eq!(told.iter().position(|it| *it), Some(2), "one check later");
        assert_eq!(told.iter().filter(|it| **it).count(), 9, "until 5 s after the growth: {told:?}");
        assert_eq!(
            looks(&[2, 2, 3, 3]),
            [false, false, false, true],
            "on top of messages that waited before"
        );
    }

    #[test]
    fn messages_that_are_taken_at_once_are_those_of_managers() {
        assert_eq!(looks(&[0, 4, 0, 3, 0, 0]), [false; 6]);
        assert_eq!(looks(&[9, 9, 9, 5, 5]), [false; 5], "they wait, and there are not more");
    }

    #[test]
    fn the_first_check_after_a_pause_tells_nothing() {
        let (mut growth, pool) = (QueueGrowth::default(), Pool::default());
        growth.look(&pool, 0, at(0));
        growth.look(&pool, 4, at(500));
        growth.interrupt();
        assert!(!growth.look(&pool, 4, at(1000)) && !growth.look(&pool, 4, at(1500)));
    }

    #[test]
    fn the_silent_services_of_the_pool_are_doubted_except_those_that_stop() {
        let row = |number: u128, pool: &str, heard: i64| {
            let mut row = service(pool, 10, &["ticker"]);
            (row.id, row.heard_at) = (ServiceId(Uuid::from_u128(number)), at(heard));
            row
        };
        let (mut stopping, mut lost) = (holding(row(3, "a", 0), 4), row(4, "a", 0));
        stopping.heartbeat.as_mut().unwrap().state = Intent::Draining;
        lost.on_session_gone(at(9));
        let all =
            [row(1, "a", 8000), row(2, "a", 5000), stopping, lost, row(5, "b", 1000), row(6, "a", 9000)];
        let ids = doubted(&all, &Pool::new("a").unwrap(), |it| it.heard_at, at(10_000));
        assert_eq!(ids.iter().map(|it| it.0.as_u128()).collect::<Vec<_>>(), [2, 1]);
        let many: Vec<ServiceRow> = (1..50).map(|number| row(number, "a", 0)).collect();
        assert_eq!(doubted(&many, &Pool::new("a").unwrap(), |it| it.heard_at, at(10_000)).len(), DOUBTED_MAX);
    }
}
