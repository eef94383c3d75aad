//! The slots that the observers of a pool need, and how many of its services can be lost before observers wait for a slot.

use crate::id::Pool;
use crate::record::service::{ServiceRow, ServiceState};
use crate::record::status::Status;
use std::collections::BTreeMap;

/// The slots that observers need, by pool. `weights` is the sum of the weights of the observers with one status in one pool;
/// `behind_limits` are the slots of observers that wait for a place of a limit: these need no slot until a place is free.
#[must_use]
pub fn needed_slots<'a>(
    weights: impl IntoIterator<Item = (&'a Pool, Status, u64)>,
    behind_limits: impl IntoIterator<Item = (&'a Pool, u64)>,
) -> BTreeMap<Pool, u64> {
    let mut needed: BTreeMap<Pool, u64> = BTreeMap::new();
    for (pool, _, weight) in weights.into_iter().filter(|(_, status, _)| status.uses_slot()) {
        *needed.entry(pool.clone()).or_default() += weight;
    }
    for (pool, slots) in behind_limits {
        if let Some(needed) = needed.get_mut(pool) {
            *needed = needed.saturating_sub(slots);
        }
    }
    needed
}

/// The slots that a service offers to the observers of its pool: a cordoned one keeps those that it has, and takes no others.
#[must_use]
pub fn offered_slots(service: &ServiceRow) -> u32 {
    match service.state() {
        ServiceState::Active | ServiceState::Standby => service.capacity(),
        ServiceState::Cordoned => service.held(),
        ServiceState::Draining | ServiceState::Suspect | ServiceState::Lost | ServiceState::Gone => 0,
    }
}

/// How many of the largest services can be lost at once while the rest has the slots that observers need; `None` if the
/// slots do not suffice already.
#[must_use]
pub fn losses_survived(capacities: &[u32], needed: u64) -> Option<usize> {
    let mut sizes: Vec<u64> = capacities.iter().map(|size| u64::from(*size)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut room: u64 = sizes.iter().sum();
    if room < needed {
        return None;
    }
    let survives = |size: &&u64| {
        room -= **size;
        room >= needed
    };
    Some(sizes.iter().take_while(survives).count())
}

/// The number of services of one pool that can be lost, the largest first, while the others have the slots that observers
/// need.
///
/// Only active and standby services have slots for more observers; cordoned ones keep what they hold. At least one service that takes
/// observers must remain.
/// Observers that weigh more than one slot may need more room than this says, because each of them needs its slots on one
/// service.
#[must_use]
pub fn failure_tolerance<'a>(
    services: impl IntoIterator<Item = &'a ServiceRow>,
    needed: u64,
    is_single: bool,
) -> usize {
    let takes = |it: &&ServiceRow| matches!(it.state(), ServiceState::Active | ServiceState::Standby);
    let (taking, others): (Vec<&ServiceRow>, Vec<&ServiceRow>) = services.into_iter().partition(takes);
    let mut sizes: Vec<u32> = taking.into_iter().map(offered_slots).collect();
    let most = sizes.len().saturating_sub(1);
    if is_single {
        // Any of the others may become the one that runs all observers.
        let all_suffice = sizes.iter().all(|size| u64::from(*size) >= needed);
        return if all_suffice { most } else { 0 };
    }
    sizes.extend(others.into_iter().map(offered_slots));
    losses_survived(&sizes, needed).unwrap_or(0).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::{holding, service};
    use crate::wire::heartbeat::Intent;

    fn of(sizes: &[u32], needed: u64) -> usize {
        let services: Vec<_> = sizes.iter().map(|size| service("one", *size, &["ticker"])).collect();
        failure_tolerance(&services, needed, false)
    }

    #[test]
    fn observers_behind_a_limit_need_no_slot() {
        let pool = |name: &str| Pool::new(name).unwrap();
        let (a, b) = (pool("a"), pool("b"));
        let weights = [
            (&a, Status::Processing, 5),
            (&a, Status::Created, 3),
            (&a, Status::OnDeleting, 1),
            (&a, Status::Paused, 40),
            (&b, Status::Created, 2),
        ];
        let behind = [(&a, 2), (&b, 9), (&pool("c"), 1)];
        assert_eq!(needed_slots(weights, behind), [(a.clone(), 7), (b.clone(), 0)].into());
    }

    #[test]
    fn losses_survived_counts_the_largest_services_first() {
        for (sizes, needed, survived) in [
            (&[10, 10, 10][..], 10, Some(2)),
            (&[10, 10, 10], 11, Some(1)),
            (&[1, 30, 1], 2, Some(1)),
            (&[1, 30, 1], 3, Some(0)),
            (&[1, 30, 1], 33, None),
            (&[], 0, Some(0)),
            (&[5, 5], 0, Some(2)),
        ] {
            assert_eq!(losses_survived(sizes, needed), survived, "{sizes:?} for {needed}");
        }
    }

    #[test]
    fn the_largest_services_are_lost_first() {
        assert_eq!([of(&[], 0), of(&[10], 0), of(&[10], 5)], [0, 0, 0], "one service must remain");
        assert_eq!([of(&[10, 10, 10], 20), of(&[10, 10, 10], 21), of(&[10, 10, 10], 10)], [1, 0, 2]);
        assert_eq!([of(&[10, 40, 10], 20), of(&[10, 40, 10], 21)], [1, 0]);
        assert_eq!(of(&[10, 10, 10], 31), 0, "observers wait already");
    }

    #[test]
    fn each_service_of_a_single_pool_must_have_room_for_all() {
        let of = |sizes: &[u32], needed| {
            let services: Vec<_> = sizes.iter().map(|size| service("one", *size, &["ticker"])).collect();
            failure_tolerance(&services, needed, true)
        };
        assert_eq!([of(&[10, 10], 10), of(&[10, 9, 10], 10), of(&[10], 3), of(&[], 0)], [1, 0, 0, 0]);
    }

    #[test]
    fn a_cordoned_service_has_the_slots_that_it_uses() {
        let mut cordoned = holding(service("b", 10, &["ticker"]), 3);
        cordoned.heartbeat.as_mut().expect("the service has sent one").state = Intent::Cordoned;
        let services = [service("a", 10, &["ticker"]), cordoned, service("c", 10, &["ticker"])];
        assert_eq!(
            [failure_tolerance(&services, 13, false), failure_tolerance(&services, 14, false)],
            [1, 0]
        );
    }

    #[test]
    fn a_service_that_takes_no_observers_has_no_room() {
        let mut draining = holding(service("b", 10, &["ticker"]), 3);
        draining.heartbeat.as_mut().expect("the service has sent one").state = Intent::Draining;
        let services = [service("a", 10, &["ticker"]), draining, service("c", 10, &["ticker"])];
        assert_eq!(
            [failure_tolerance(&services, 10, false), failure_tolerance(&services, 11, false)],
            [1, 0]
        );
    }
}
