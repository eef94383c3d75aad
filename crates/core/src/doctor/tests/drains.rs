//! Drains that cannot go on.

use super::*;

#[test]
fn stuck_drains_are_reported() {
    let drain = |room: u32| {
        move |facts: &mut Facts| {
            let drain = Drain { asked_at: now(), of: 5, per_second: 100, until: None, force: false };
            let orders = crate::capacity::maintenance::Orders {
                cordoned: true,
                drain: Some(drain),
                ..Default::default()
            };
            fleet(facts).orders.insert("a".to_owned(), orders);
            let services = &mut fleet(facts).services;
            services[0].heartbeat.as_mut().unwrap().state = Intent::Draining;
            services[0].heartbeat.as_mut().unwrap().held = 5;
            services.truncate(2);
            services[1].heartbeat.as_mut().unwrap().held = 10 - room;
        }
    };
    assert!(found(drain(0)).contains(&"Warning drain-waits service a".to_owned()));
    assert!(!found(drain(1)).contains(&"Warning drain-waits service a".to_owned()));
    let beside_a_cordoned_one = |facts: &mut Facts| {
        drain(0)(facts);
        let mut cordoned = service(7, "d", 10);
        cordoned.heartbeat.as_mut().unwrap().state = Intent::Cordoned;
        fleet(facts).services.push(cordoned);
    };
    let findings = diagnosed(beside_a_cordoned_one);
    let waits = findings.iter().find(|it| it.code == "drain-waits").unwrap();
    assert!(waits.cure.starts_with("`everwatch service uncordon d`, start another service"), "{waits:?}");
    let without_another = |facts: &mut Facts| {
        drain(0)(facts);
        fleet(facts).services.truncate(1);
    };
    let codes: Vec<_> = diagnosed(without_another).into_iter().map(|it| it.code).collect();
    assert!(codes.contains(&"no-active-service") && !codes.contains(&"drain-waits"), "{codes:?}");
}
