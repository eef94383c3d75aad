//! Which services take observers, and the slots that a pool has because of them.

use crate::id::Pool;
use crate::record::service::{ServiceRow, ServiceState};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The active services; of a single pool, the one whose slots count. Databases count in the same way.
///
/// The broker chooses the active service of a single pool and does not report its choice. A service that holds observers
/// is the active one. After a handover, the heartbeat of the former one may still report observers: then the larger of
/// the two counts. If no service holds observers, the smallest one counts: whichever service the broker chooses has at
/// least its slots.
#[must_use]
pub fn taking(services: &[ServiceRow]) -> Vec<&ServiceRow> {
    let mut all = Vec::new();
    let mut single: BTreeMap<&Pool, &ServiceRow> = BTreeMap::new();
    for service in services {
        match service.state() {
            ServiceState::Active if !service.registration.pool_single => all.push(service),
            ServiceState::Active | ServiceState::Standby => {
                let chosen = single.entry(&service.registration.pool).or_insert(service);
                if precedence(service) < precedence(chosen) {
                    *chosen = service;
                }
            }
            ServiceState::Cordoned
            | ServiceState::Draining
            | ServiceState::Suspect
            | ServiceState::Lost
            | ServiceState::Gone => {}
        }
    }
    all.extend(single.into_values());
    all
}

/// The slots of one or more pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slots {
    /// The slots of services that take observers, and those that cordoned services use: they keep what they hold.
    pub capacity: u32,
    /// The free slots of services that take observers.
    pub free: u32,
}

/// The slots of the services, by pool.
#[must_use]
pub fn slots_by_pool(services: &[ServiceRow]) -> BTreeMap<&Pool, Slots> {
    let mut all: BTreeMap<&Pool, Slots> = BTreeMap::new();
    let free = |it: &ServiceRow| it.capacity().saturating_sub(it.held());
    let taking = taking(services).into_iter().map(|it| (it, it.capacity(), free(it)));
    let cordoned =
        services.iter().filter(|it| it.state() == ServiceState::Cordoned).map(|it| (it, it.held(), 0));
    for (service, capacity, free) in taking.chain(cordoned) {
        let pool = all.entry(&service.registration.pool).or_default();
        pool.capacity = pool.capacity.saturating_add(capacity);
        pool.free = pool.free.saturating_add(free);
    }
    all
}

fn precedence(service: &ServiceRow) -> (bool, Result<u32, Reverse<u32>>) {
    let holds = service.state() == ServiceState::Active;
    let capacity = service.capacity();
    (!holds, if holds { Err(Reverse(capacity)) } else { Ok(capacity) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::{holding, service};

    fn capacities(services: &[ServiceRow]) -> Vec<u32> {
        taking(services).iter().map(|it| it.capacity()).collect()
    }
    fn single(capacity: u32, held: u32) -> ServiceRow {
        let mut service = service("one", capacity, &["ticker"]);
        service.registration.pool_single = true;
        if held > 0 { holding(service, held) } else { service }
    }

    #[test]
    fn all_active_services_of_an_ordinary_pool_take() {
        assert_eq!(
            capacities(&[service("a", 5, &[]), service("a", 7, &[]), service("b", 1, &[])]),
            [5, 7, 1]
        );
    }

    #[test]
    fn a_cordoned_service_offers_the_slots_that_it_uses() {
        let mut cordoned = holding(service("one", 10, &[]), 6);
        cordoned.heartbeat.as_mut().unwrap().state = crate::wire::heartbeat::Intent::Cordoned;
        let services = [holding(service("one", 5, &[]), 2), cordoned];
        let all: Vec<Slots> = slots_by_pool(&services).into_values().collect();
        assert_eq!(all, [Slots { capacity: 11, free: 3 }]);
        let mut suspect = services;
        suspect.iter_mut().for_each(|it| assert!(it.suspect(crate::clock::Timestamp(1))));
        assert_eq!(slots_by_pool(&suspect).len(), 0);
    }

    #[test]
    fn one_service_of_a_single_pool_takes() {
        assert_eq!(capacities(&[single(9, 0), single(5, 0), single(7, 0)]), [5], "any may be the active one");
        assert_eq!(capacities(&[single(5, 0), single(9, 1), single(7, 0)]), [9], "it holds an observer");
        assert_eq!(capacities(&[single(5, 5), single(9, 1), single(20, 0)]), [9], "the former one is dead");
        let mut suspect = single(9, 9);
        suspect.suspect(crate::clock::Timestamp(1));
        assert_eq!(capacities(&[suspect, single(7, 0), service("a", 3, &[])]), [3, 7]);
    }
}
