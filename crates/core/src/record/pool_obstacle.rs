//! Why an observer that waits for a slot finds none.

use crate::id::Pool;
use crate::record::service::ServiceRow;
use crate::record::taking::taking;
use std::collections::{BTreeMap, BTreeSet};

/// Why a pool cannot take more observers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// No service serves it.
    NoService,
    /// All its services are cordoned, draining or silent.
    NoneTakes,
    /// All slots are in use according to the latest heartbeats.
    Full { slots: u32 },
}

impl Obstacle {
    /// The obstacle as a sentence about this pool.
    #[must_use]
    pub fn explain(self, pool: &Pool) -> String {
        match self {
            Self::NoService => format!("no service in pool {pool}"),
            Self::NoneTakes => {
                format!("no service in pool {pool} takes anything now: cordoned, draining or silent")
            }
            Self::Full { slots } => format!("waiting for a slot in pool {pool}: all {slots} are in use"),
        }
    }
}

/// `None` if a service has room, so that the wait is about to end.
#[must_use]
pub fn obstacle(pool: &Pool, services: &[ServiceRow]) -> Option<Obstacle> {
    let of_pool = |it: &&ServiceRow| it.registration.pool == *pool && !it.state().is_over();
    let mut living = services.iter().filter(of_pool).peekable();
    if living.peek().is_none() {
        return Some(Obstacle::NoService);
    }
    let mut active = taking(services).into_iter().filter(|it| it.registration.pool == *pool).peekable();
    if active.peek().is_none() {
        return Some(Obstacle::NoneTakes);
    }
    let (slots, free) = active.fold((0_u32, 0_u32), |(slots, free), it| {
        let (capacity, held) = (it.capacity(), it.held());
        (slots.saturating_add(capacity), free.saturating_add(capacity.saturating_sub(held)))
    });
    (free == 0).then_some(Obstacle::Full { slots })
}

/// The obstacles of all pools at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Obstacles(BTreeMap<Pool, Option<Obstacle>>);

impl Obstacles {
    /// The obstacles in the pools of these living services.
    #[must_use]
    pub fn of(services: &[ServiceRow]) -> Self {
        let pools: BTreeSet<&Pool> = services.iter().map(|it| &it.registration.pool).collect();
        Self(pools.into_iter().map(|pool| (pool.clone(), obstacle(pool, services))).collect())
    }
    /// The obstacle of one pool.
    #[must_use]
    pub fn get(&self, pool: &Pool) -> Option<Obstacle> {
        self.0.get(pool).copied().unwrap_or(Some(Obstacle::NoService))
    }
    /// The pools that have services.
    pub fn iter(&self) -> impl Iterator<Item = (&Pool, Option<Obstacle>)> {
        self.0.iter().map(|(pool, obstacle)| (pool, *obstacle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::ServiceId;
    use crate::wire::heartbeat::{Heartbeat, Intent};
    use crate::wire::report::Registration;
    use serde_json::json;
    use uuid::Uuid;

    fn service(state: Intent, (held, capacity): (u32, u32)) -> ServiceRow {
        let registration = json!({"name": "s", "pool": "gpu", "capacity": 9, "kinds": [], "version": "", "host": "",
            "labels": {}});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        let id = ServiceId(Uuid::from_u128(1));
        let mut row = ServiceRow::registered(id, registration, Timestamp(0), Timestamp(0));
        let heartbeat = Heartbeat {
            service: id,
            seq: 1,
            state,
            capacity,
            held,
            loop_lag_ms: 0,
            rss_bytes: 0,
            sent_at: None,
            stalled: Vec::new(),
        };
        assert!(row.on_heartbeat(&heartbeat, Timestamp(0)));
        row
    }

    fn told(services: &[ServiceRow]) -> String {
        let pool = Pool::new("gpu").unwrap();
        obstacle(&pool, services).map_or_else(String::new, |it| it.explain(&pool))
    }

    #[test]
    fn each_obstacle_has_a_sentence_and_free_room_has_none() {
        use Intent::{Active, Cordoned, Draining};
        assert_eq!(told(&[]), "no service in pool gpu");
        let resting = [service(Cordoned, (0, 5)), service(Draining, (1, 5))];
        assert!(told(&resting).contains("takes anything now"));
        let full = [service(Active, (5, 5)), service(Active, (4, 3)), service(Cordoned, (0, 5))];
        assert_eq!(told(&full), "waiting for a slot in pool gpu: all 8 are in use");
        assert_eq!(told(&[service(Active, (5, 5)), service(Active, (2, 3))]), "");
        assert_eq!(obstacle(&Pool::default(), &full), Some(Obstacle::NoService), "another pool's slots");
        assert!(told(&[service(Active, (0, 0))]).contains("all 0"));
    }
}
