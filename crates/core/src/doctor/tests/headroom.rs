//! Pools that cannot lose a service.

use super::*;

#[test]
fn missing_headroom_is_reported() {
    let sizes = |sizes: &'static [u32], needed: u64| {
        move |facts: &mut Facts| {
            let services =
                (1..).zip(sizes).map(|(number, size)| service(number, &format!("s{number}"), *size));
            fleet(facts).services = services.collect();
            fleet(facts).needed = [(Pool::default(), needed)].into();
        }
    };
    assert_eq!(found(sizes(&[10, 10, 10], 10)), NONE);
    let killed = |name: &'static str, secs_ago: u64| {
        move |facts: &mut Facts| {
            sizes(&[10], 10)(facts);
            let mut row = service(9, name, 10);
            assert!(row.on_session_gone(now().minus(Duration::from_secs(secs_ago))));
            fleet(facts).killed_by_hand = vec![row];
        }
    };
    assert_eq!(found(killed("x", 10)), ["Info service-killed service x"], "it comes back by itself");
    let too_big = "Warning too-big-to-lose service s1";
    assert_eq!(found(killed("x", 20)), ["Warning service-lost services", too_big], "it does not come back");
    assert_eq!(found(killed("s1", 10)), [too_big], "it is back");
    let cordoned = |facts: &mut Facts| {
        sizes(&[10, 10], 10)(facts);
        fleet(facts).services[1].heartbeat.as_mut().unwrap().state = Intent::Cordoned;
    };
    let told = diagnosed(cordoned).remove(0);
    assert!(told.cure.starts_with("`everwatch service uncordon s2`, or start another"), "{told:?}");
    let too_few = |facts: &mut Facts| {
        sizes(&[10, 3, 4], 18)(facts);
        for service in &mut fleet(facts).services[1..] {
            service.heartbeat.as_mut().unwrap().state = Intent::Cordoned;
        }
    };
    let told = diagnosed(too_few).remove(0);
    let adds = "`everwatch service uncordon s3`, which adds 4 slots, or start another service of pool default with at least 8";
    assert!(told.code == "pool-full" && told.cure.starts_with(adds), "{told:?}");
    assert_eq!(found(sizes(&[10, 10, 10], 11)), ["Info headroom pool default"]);
    let cure = diagnosed(sizes(&[10, 20, 30], 25)).remove(0).cure;
    assert_eq!(cure, "start another service of pool default with at least 15 slots");
    assert_eq!(found(sizes(&[10, 10, 10], 21)), ["Warning too-big-to-lose pool default"]);
    assert_eq!(found(sizes(&[10, 40, 10], 21)), ["Warning too-big-to-lose service s2"]);
    let sized: [(&'static [u32], &str); 3] = [
        (&[10, 10, 10], "losing any of the 3 services (10 of 30 slots each) leaves pool "),
        (&[9, 2, 9, 5], "losing one of the 2 largest services (9 of 25 slots each) leaves pool "),
        (&[1, 40], "losing s2 (40 of 41 slots) leaves pool "),
    ];
    for (all, named) in sized {
        let told = diagnosed(sizes(all, 21)).remove(0).what;
        assert!(told.starts_with(named), "{told}");
    }
    let resized = |facts: &mut Facts| {
        sizes(&[10, 10, 10], 21)(facts);
        fleet(facts).services[0].heartbeat.as_mut().unwrap().capacity = 4;
    };
    let cure = "`everwatch service capacity s1 default`, which restores 6 slots, or start another service of pool default ";
    let told = diagnosed(resized).remove(0);
    assert!(told.code == "too-big-to-lose" && told.cure.starts_with(cure), "{told:?}");
    let resized_and_cordoned = |facts: &mut Facts| {
        resized(facts);
        let heartbeat = fleet(facts).services[0].heartbeat.as_mut().unwrap();
        (heartbeat.state, heartbeat.held) = (Intent::Cordoned, 4);
    };
    let cure = "`everwatch service capacity s1 default`, then `everwatch service uncordon s1`, which restores 6 slots, or start ";
    let told = diagnosed(resized_and_cordoned).remove(0);
    assert!(told.cure.starts_with(cure), "{told:?}");
    assert_eq!(found(sizes(&[10, 10, 10], 31)), ["Warning pool-full pool default"]);
    assert_eq!(found(sizes(&[10, 10, 10], 60)), ["Warning pool-full pool default"]);
    assert_eq!(found(sizes(&[10, 10, 10], 61)), ["Critical pool-full pool default"], "most have no slot");
    assert_eq!(found(sizes(&[10], 0)), NONE, "nothing would be lost");
}

#[test]
fn a_cordoned_service_keeps_what_it_holds() {
    let keeping = |needed: u64| {
        move |facts: &mut Facts| {
            let services = [("a", 10), ("b", 10), ("c", 10)].into_iter().zip(1..);
            fleet(facts).services =
                services.map(|((name, size), number)| service(number, name, size)).collect();
            let heartbeat = fleet(facts).services[2].heartbeat.as_mut().unwrap();
            (heartbeat.state, heartbeat.held) = (Intent::Cordoned, 5);
            fleet(facts).needed = [(Pool::default(), needed)].into();
        }
    };
    assert_eq!(found(keeping(26)), ["Warning pool-full pool default"]);
    let told = diagnosed(keeping(25)).remove(0);
    assert!(
        told.code == "too-big-to-lose" && told.what.contains("default 10 slots short of the 25"),
        "{told:?}"
    );
    assert!(
        told.cure.starts_with("`everwatch service uncordon c`, which adds 5 slots, or start another"),
        "{told:?}"
    );
    assert_eq!(found(keeping(15)), ["Info headroom pool default"]);
}

#[test]
fn a_pool_without_an_active_service_is_reported() {
    let held_back = |state: Intent| {
        move |facts: &mut Facts| {
            fleet(facts).services.iter_mut().for_each(|it| it.heartbeat.as_mut().unwrap().state = state);
        }
    };
    for state in [Intent::Cordoned, Intent::Draining] {
        let told = diagnosed(held_back(state)).remove(0);
        assert_eq!((told.code, told.severity), ("no-active-service", Severity::Critical));
        assert!(told.what.contains("none of its 3 services takes observers"), "{told:?}");
        assert_eq!(told.cure, "`everwatch service uncordon a`");
    }
    let unequal = |facts: &mut Facts| {
        held_back(Intent::Cordoned)(facts);
        for (service, held) in fleet(facts).services.iter_mut().zip([8, 0, 2]) {
            service.heartbeat.as_mut().unwrap().held = held;
        }
    };
    assert_eq!(
        diagnosed(unequal).remove(0).cure,
        "`everwatch service uncordon b`",
        "it has the most free slots"
    );
    // Observers that have lost their service do not wait in the backlog.
    let nobody = |facts: &mut Facts| fleet(facts).services.clear();
    assert_eq!(found(nobody), ["Critical no-service pool default"]);
}
