//! Which services take observers: the slots of all others are no capacity.

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
    fn one_service_of_a_single_pool_takes() {
        assert_eq!(capacities(&[single(9, 0), single(5, 0), single(7, 0)]), [5], "any may be the active one");
        assert_eq!(capacities(&[single(5, 0), single(9, 1), single(7, 0)]), [9], "it holds an observer");
        assert_eq!(capacities(&[single(5, 5), single(9, 1), single(20, 0)]), [9], "the former one is dead");
        let mut suspect = single(9, 9);
        suspect.suspect(crate::clock::Timestamp(1));
        assert_eq!(capacities(&[suspect, single(7, 0), service("a", 3, &[])]), [3, 7]);
    }
}
