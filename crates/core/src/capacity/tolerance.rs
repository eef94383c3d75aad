//! How many services a pool can lose before observers wait for a slot.

use crate::record::service::{ServiceRow, ServiceState};

/// The number of services that can be lost, the largest first, while the others have the slots that observers `need`.
///
/// `services` are those of one pool. Only active and standby services count, because no other service takes observers. At
/// least one service must remain. Observers that weigh more than one slot may need more room than this says, because
/// each of them needs its slots on one service.
#[must_use]
pub fn tolerance<'a>(
    services: impl IntoIterator<Item = &'a ServiceRow>,
    needed: u64,
    is_single: bool,
) -> usize {
    let takes = |it: &&ServiceRow| matches!(it.state(), ServiceState::Active | ServiceState::Standby);
    let mut sizes: Vec<u64> = services.into_iter().filter(takes).map(|it| it.capacity().into()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let others = sizes.len().saturating_sub(1);
    if is_single {
        // Any of the others may become the one that runs all observers.
        return if sizes.iter().all(|size| *size >= needed) { others } else { 0 };
    }
    let mut room: u64 = sizes.iter().sum();
    let can_lose = |size: &&u64| {
        room -= **size;
        room >= needed
    };
    sizes.iter().take(others).take_while(can_lose).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::{holding, service};
    use crate::wire::heartbeat::Intent;

    fn of(sizes: &[u32], needed: u64) -> usize {
        let services: Vec<_> = sizes.iter().map(|size| service("one", *size, &["ticker"])).collect();
        tolerance(&services, needed, false)
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
            tolerance(&services, needed, true)
        };
        assert_eq!([of(&[10, 10], 10), of(&[10, 9, 10], 10), of(&[10], 3), of(&[], 0)], [1, 0, 0, 0]);
    }

    #[test]
    fn a_service_that_takes_no_observers_has_no_room() {
        let mut draining = holding(service("b", 10, &["ticker"]), 3);
        draining.heartbeat.as_mut().expect("the service has sent one").state = Intent::Draining;
        let services = [service("a", 10, &["ticker"]), draining, service("c", 10, &["ticker"])];
        assert_eq!([tolerance(&services, 10, false), tolerance(&services, 11, false)], [1, 0]);
    }
}
