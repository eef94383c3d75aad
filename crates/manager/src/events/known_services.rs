//! What events and gaps need to know of services: names, pools, and their last signs of life.

use crate::lock::lock;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Pool, ServiceId};
use everwatch_core::record::service::ServiceRow;
use everwatch_store::Named;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// Services whose names are remembered; beyond it, all are forgotten.
const KNOWN_MAX: usize = 50_000;
/// A heartbeat that a service sent before its death is read at most this much later. If the service is not lost by then, it has handed over
/// what started elsewhere: what it loses later has another gap.
const LATE: Duration = Duration::from_secs(1);

/// What events contain of a service beside its id.
#[derive(Debug, Default)]
pub(crate) struct KnownServices {
    services: Mutex<HashMap<ServiceId, KnownService>>,
}

#[derive(Debug)]
struct KnownService {
    name: String,
    pool: Pool,
    /// When this manager last learned of a sign of life.
    heard_at: Timestamp,
    /// From when the gaps of its observers count, once they run elsewhere.
    silence: Option<Silence>,
}

/// The silence in which other services took over observers of a service. A heartbeat that arrives shortly after the first of them has started
/// does not change when it began: all gaps of one loss, and the event about it, count from the same sign of life.
#[derive(Debug, Clone, Copy)]
struct Silence {
    since: Timestamp,
    /// When the first observer started elsewhere, or the service was lost.
    begun_at: Timestamp,
    is_lost: bool,
}

impl KnownServices {
    pub(crate) fn learn(&self, rows: &[ServiceRow]) {
        let mut known = lock(&self.services);
        let new = rows.iter().filter(|row| !known.contains_key(&row.id)).count();
        if known.len() + new > KNOWN_MAX {
            known.clear();
        }
        for row in rows {
            let known = known.entry(row.id).or_insert_with(|| KnownService {
                name: row.registration.name.to_string(),
                pool: row.registration.pool.clone(),
                heard_at: row.heard_at,
                silence: None,
            });
            known.heard_at = known.heard_at.max(row.heard_at);
        }
    }

    /// Those that this manager does not know.
    pub(crate) fn strangers(&self, services: impl Iterator<Item = ServiceId>) -> Vec<ServiceId> {
        let known = lock(&self.services);
        services.filter(|service| !known.contains_key(service)).collect()
    }

    /// A heartbeat.
    pub(crate) fn heard(&self, service: ServiceId, at: Timestamp) {
        if let Some(known) = lock(&self.services).get_mut(&service) {
            known.heard_at = known.heard_at.max(at);
        }
    }

    /// When this manager last learned of a sign of life.
    pub(crate) fn heard_at(&self, service: ServiceId) -> Option<Timestamp> {
        lock(&self.services).get(&service).map(|known| known.heard_at)
    }

    /// An observer of this service, which has not reported its end, runs on another service: the sign of life from which its gap counts.
    pub(crate) fn replaced(&self, service: ServiceId, now: Timestamp) -> Option<Timestamp> {
        self.silent(service, now, false)
    }

    /// The service is lost: the sign of life from which its silence counts.
    pub(crate) fn lost(&self, service: ServiceId, now: Timestamp) -> Option<Timestamp> {
        self.silent(service, now, true)
    }

    fn silent(&self, service: ServiceId, now: Timestamp, is_lost: bool) -> Option<Timestamp> {
        let mut known = lock(&self.services);
        let it = known.get_mut(&service)?;
        let present = it.silence.filter(|silence| silence.is_lost || now.since(silence.begun_at) <= LATE);
        let mut silence = present.unwrap_or(Silence { since: it.heard_at, begun_at: now, is_lost });
        silence.is_lost |= is_lost;
        it.silence = Some(silence);
        Some(silence.since)
    }

    pub(crate) fn pool(&self, service: ServiceId) -> Option<Pool> {
        lock(&self.services).get(&service).map(|known| known.pool.clone())
    }

    /// Empty if this manager does not know it.
    pub(crate) fn name(&self, service: ServiceId) -> String {
        lock(&self.services).get(&service).map_or_else(String::new, |known| known.name.clone())
    }

    pub(crate) fn named(&self, service: ServiceId) -> Named {
        Named::service(service, self.name(service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn registered() -> ServiceRow {
        let registration =
            json!({"name": "a", "pool": "default", "capacity": 10, "kinds": [], "version": "1", "host": "h"});
        let registration = serde_json::from_value(registration).unwrap();
        ServiceRow::registered(ServiceId(Uuid::from_u128(1)), registration, Timestamp(0), Timestamp(0))
    }

    #[test]
    fn all_gaps_of_one_loss_and_its_event_count_from_the_same_sign_of_life() {
        let at = |secs: i64| Timestamp(secs * 1000);
        let row = registered();
        let service = row.id;
        let known = KnownServices::default();
        assert_eq!((known.replaced(service, at(5)), known.lost(service, at(5))), (None, None), "not known");
        known.learn(&[row]);
        known.heard(service, at(100));
        assert_eq!(known.replaced(service, at(103)), Some(at(100)));
        // It was sent before the death, and is read after the first start elsewhere.
        known.heard(service, at(104));
        assert_eq!(known.heard_at(service), Some(at(104)));
        assert_eq!(known.replaced(service, at(104)), Some(at(100)));
        assert_eq!(known.lost(service, at(104)), Some(at(100)));
        assert_eq!(known.replaced(service, at(500)), Some(at(100)), "it waited for a slot");
    }

    #[test]
    fn a_service_that_handed_over_and_lives_has_another_gap_when_it_is_lost() {
        let row = registered();
        let (service, known) = (row.id, KnownServices::default());
        known.learn(&[row]);
        known.heard(service, Timestamp(7000));
        assert_eq!(known.replaced(service, Timestamp(7100)), Some(Timestamp(7000)));
        known.heard(service, Timestamp(90_000));
        assert_eq!(
            known.lost(service, Timestamp(91_000)),
            Some(Timestamp(90_000)),
            "the earlier gap is over"
        );
        assert_eq!(known.replaced(service, Timestamp(120_000)), Some(Timestamp(90_000)));
    }
}
