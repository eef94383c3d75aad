//! Why what waits for a slot finds none.

use crate::id::Pool;
use crate::service::{ServiceRow, ServiceState};

/// What keeps a pool from taking more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody serves it.
    NoService,
    /// All that serve it are cordoned, draining or not heard of.
    NoneTakes,
    /// All of so many slots are in use, after the newest beats.
    Full { slots: u32 },
}

impl Obstacle {
    /// As a sentence about this pool.
    #[must_use]
    pub fn explain(self, pool: &Pool) -> String {
        match self {
            Self::NoService => format!("no service in pool {pool}"),
            Self::NoneTakes => {
                format!("no service in pool {pool} takes anything now: cordoned, draining or not heard of")
            }
            Self::Full { slots } => format!("waiting for a slot in pool {pool}: all {slots} are in use"),
        }
    }
}

/// `None` if somebody has room, so that the wait is about to end.
#[must_use]
pub fn obstacle(pool: &Pool, services: &[ServiceRow]) -> Option<Obstacle> {
    let of_pool = |it: &&ServiceRow| it.birth.pool == *pool && !it.state().is_over();
    let mut living = services.iter().filter(of_pool).peekable();
    if living.peek().is_none() {
        return Some(Obstacle::NoService);
    }
    let mut active = living.filter(|it| it.state() == ServiceState::Active).peekable();
    if active.peek().is_none() {
        return Some(Obstacle::NoneTakes);
    }
    let (slots, free) = active.fold((0_u32, 0_u32), |(slots, free), it| {
        let (capacity, held) = (it.capacity(), it.held());
        (slots.saturating_add(capacity), free.saturating_add(capacity.saturating_sub(held)))
    });
    (free == 0).then_some(Obstacle::Full { slots })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::ServiceId;
    use crate::message::{Beat, Birth, Intent};
    use serde_json::json;
    use uuid::Uuid;

    fn service(state: Intent, (held, capacity): (u32, u32)) -> ServiceRow {
        let birth = json!({"name": "s", "pool": "gpu", "capacity": 9, "kinds": [], "version": "", "host": "",
            "labels": {}});
        let birth: Birth = serde_json::from_value(birth).unwrap();
        let id = ServiceId(Uuid::from_u128(1));
        let mut row = ServiceRow::born(id, birth, Timestamp(0), Timestamp(0));
        let beat =
            Beat { service: id, seq: 1, state, capacity, held, loop_lag_ms: 0, rss_bytes: 0, sent_at: None };
        assert!(row.on_beat(&beat, Timestamp(0)));
        row
    }

    fn told(services: &[ServiceRow]) -> String {
        let pool = Pool::new("gpu").unwrap();
        obstacle(&pool, services).map_or_else(String::new, |it| it.explain(&pool))
    }

    #[test]
    fn each_obstacle_is_told_and_room_is_none() {
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
