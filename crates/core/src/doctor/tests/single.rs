//! The slots of single pools.

use super::*;

/// The services of one single pool: the slots of each, and what the first one holds.
fn pool(sizes: &'static [u32], held: u32, needed: u64) -> impl FnOnce(&mut Facts) {
    move |facts: &mut Facts| {
        let services = (1..).zip(sizes).map(|(number, size)| {
            let mut service = service(number, &format!("s{number}"), *size);
            service.registration.pool_single = true;
            if number == 1 {
                service.heartbeat.as_mut().unwrap().held = held;
            }
            service
        });
        fleet(facts).services = services.collect();
        fleet(facts).single_pools = [Pool::default()].into();
        fleet(facts).needed = [(Pool::default(), needed)].into();
    }
}

#[test]
fn each_standby_of_a_single_pool_needs_a_slot_for_every_observer() {
    assert_eq!(found(pool(&[10, 10, 10], 10, 10)), NONE);
    assert_eq!(found(pool(&[10, 10], 10, 10)), ["Info headroom pool default"]);
    assert_eq!(found(pool(&[10], 10, 10)), ["Warning too-big-to-lose service s1"]);
    assert_eq!(found(pool(&[10, 10, 9], 10, 10)), ["Warning too-big-to-lose service s3"]);
    assert_eq!(found(pool(&[10, 20, 30], 10, 11)), ["Warning pool-full pool default"]);
    assert_eq!(found(pool(&[10], 0, 0)), NONE);
    let small = diagnosed(pool(&[10, 10, 9], 10, 10)).remove(0);
    assert_eq!(small.cure, "`everwatch service capacity s3 10`");
    let full = diagnosed(pool(&[10, 20, 30], 10, 11)).remove(0);
    assert_eq!(full.what, "pool default needs 11 slots, and its active service has 10");
}

#[test]
fn a_service_that_disagrees_about_its_pool_is_found() {
    let disagrees = |facts: &mut Facts| {
        pool(&[10, 10, 10], 10, 10)(facts);
        fleet(facts).services[1].registration.pool_single = false;
    };
    assert_eq!(found(disagrees), ["Warning pool-single service s2", "Info headroom pool default"]);
    assert_eq!(diagnosed(disagrees).remove(0).cure, "set service.pool_single = true for s2, and restart it");
    let ordinary = |facts: &mut Facts| {
        pool(&[10, 10, 10], 10, 10)(facts);
        fleet(facts).single_pools.clear();
    };
    let all = diagnosed(ordinary);
    let told =
        all.iter().filter(|it| it.code == "pool-single" && it.what.starts_with("pool default is not single"));
    assert_eq!(told.count(), 3, "{all:?}");
}
