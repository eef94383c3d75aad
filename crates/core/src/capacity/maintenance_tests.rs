use super::*;
use crate::id::{Name, ObserverId};
use crate::observer::definition::ObserverDefinition;
use crate::record::row_policy::RowPolicy;
use crate::wire::heartbeat::Heartbeat;
use crate::wire::report::Registration;
use serde_json::json;
use uuid::Uuid;

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn service(number: u32, held: u32, state: Intent) -> ServiceRow {
    let id = ServiceId(Uuid::from_u128(number.into()));
    let registration = Registration {
        name: Name::new(&format!("s{number}")).unwrap(),
        pool: Pool::default(),
        capacity: 10,
        kinds: Vec::new(),
        version: "0.0.1".to_owned(),
        weight_max: 1,
        message_version: crate::wire::message::VERSION,
        host: String::new(),
        labels: BTreeMap::new(),
        pool_single: false,
        predecessor: None,
    };
    let mut row = ServiceRow::registered(id, registration, at(0), at(0));
    let heartbeat = Heartbeat {
        service: id,
        seq: 1,
        state,
        capacity: 10,
        held,
        loop_lag_ms: 0,
        rss_bytes: 0,
        sent_at: None,
        stalled: Vec::new(),
    };
    row.on_heartbeat(&heartbeat, at(0));
    row
}

fn drain(per_second: u32, until: Option<i64>, force: bool) -> DrainRequest {
    let (per_second, force) = (Some(per_second), Some(force));
    DrainRequest { asked_at: at(1), of: 8, per_second, until: until.map(at), force }
}

fn book(orders: Orders) -> OrderBook {
    [("s1".to_owned(), orders)].into()
}

fn draining(drain: DrainRequest) -> OrderBook {
    let mut orders = Orders::default();
    assert!(orders.drain(drain));
    book(orders)
}

/// With empty work queues.
fn plan(services: &[ServiceRow], book: &OrderBook, now: Timestamp) -> FleetPlan {
    plan_fleet(services, &ReportedSlots::default(), book, now)
}

fn told(plan: &FleetPlan) -> Vec<u32> {
    plan.hand_over.iter().map(|it| it.down_to.unwrap()).collect()
}

#[test]
fn a_service_that_ignores_an_order_is_sent_it_again() {
    let mut orders = Orders::default();
    assert!(orders.cordon(at(1)));
    assert!(!orders.cordon(at(2)), "it is cordoned already");
    let services = [service(1, 3, Intent::Active), service(2, 3, Intent::Active)];
    let first = plan(&services, &book(orders.clone()), at(2));
    assert_eq!(first.directives, [(services[0].id, orders.directives())]);
    let services = [service(1, 3, Intent::Cordoned)];
    assert_eq!(plan(&services, &book(orders.clone()), at(2)), FleetPlan::default());
    assert!(orders.uncordon(at(3)));
    assert_eq!(plan(&services, &book(orders), at(3)).directives.len(), 1);
}

#[test]
fn a_capacity_override_and_its_removal_are_sent() {
    let mut orders = Orders::default();
    assert!(orders.resize(Some(4), at(1)));
    let services = [service(1, 3, Intent::Active)];
    assert_eq!(plan(&services, &book(orders.clone()), at(1)).directives[0].1.capacity, Some(4));
    assert!(orders.resize(None, at(2)));
    assert!(plan(&services, &book(orders), at(2)).directives.is_empty(), "ten is its own capacity");
}

#[test]
fn a_drain_moves_what_others_have_room_for_at_its_pace() {
    let full = [service(1, 8, Intent::Draining), service(2, 10, Intent::Active)];
    assert!(told(&plan(&full, &draining(drain(5, None, false)), at(2))).is_empty());
    let room = [service(1, 8, Intent::Draining), service(2, 7, Intent::Active)];
    assert_eq!(told(&plan(&room, &draining(drain(5, None, false)), at(2))), [5]);
    assert_eq!(told(&plan(&room, &draining(drain(2, None, false)), at(2))), [6]);
    let cordoned = [service(1, 8, Intent::Draining), service(2, 0, Intent::Cordoned)];
    assert!(told(&plan(&cordoned, &draining(drain(5, None, false)), at(2))).is_empty());
}

#[test]
fn force_keeps_the_pace_and_a_deadline_ignores_it() {
    let alone = [service(1, 8, Intent::Draining)];
    assert_eq!(told(&plan(&alone, &draining(drain(5, None, true)), at(2))), [3]);
    let late = draining(drain(5, Some(10), false));
    assert!(told(&plan(&alone, &late, at(9))).is_empty());
    assert_eq!(told(&plan(&alone, &late, at(10))), [0]);
}

#[test]
fn two_draining_services_share_the_room() {
    let mut both = draining(drain(50, None, false));
    both.insert("s2".to_owned(), both["s1"].clone());
    let services =
        [service(1, 8, Intent::Draining), service(2, 8, Intent::Draining), service(3, 0, Intent::Active)];
    assert_eq!(told(&plan(&services, &both, at(2))), [0, 6]);
}

#[test]
fn a_drain_ends_when_nothing_is_held_and_the_cordon_stays() {
    let mut book = draining(drain(5, None, false));
    assert!(plan(&[service(1, 1, Intent::Draining)], &book, at(2)).drained.is_empty());
    // The latest heartbeat may predate the drain.
    assert!(plan(&[service(1, 0, Intent::Active)], &book, at(2)).drained.is_empty());
    let heard = |secs| ServiceRow { heard_at: at(secs), ..service(1, 0, Intent::Draining) };
    assert!(plan(&[heard(0)], &book, at(2)).drained.is_empty(), "the service may have taken observers since");
    assert_eq!(plan(&[heard(1)], &book, at(2)).drained, ["s1"]);
    // Observers have started after the latest heartbeat.
    let mut reported = ReportedSlots { held: [(heard(1).id, 2)].into(), ..ReportedSlots::default() };
    assert!(plan_fleet(&[heard(1)], &reported, &book, at(2)).drained.is_empty());
    reported.held.insert(heard(1).id, 0);
    assert_eq!(plan_fleet(&[heard(1)], &reported, &book, at(2)).drained, ["s1"]);
    let orders = book.get_mut("s1").unwrap();
    assert!(orders.drained(at(3)) && orders.cordoned);
}

#[test]
fn a_drain_leaves_room_for_the_observers_of_a_service_that_has_restarted() {
    let mut services = [service(1, 7, Intent::Draining), service(2, 0, Intent::Active)];
    let book = draining(drain(5, None, false));
    for (queued, moved) in [(10, &[][..]), (9, &[6]), (7, &[4]), (0, &[2])] {
        let queued = [(Pool::default(), queued)].into();
        let reported = ReportedSlots { queued, ..ReportedSlots::default() };
        assert_eq!(told(&plan_fleet(&services, &reported, &book, at(2))), moved, "{reported:?}");
    }
    // They run there again, and its next heartbeat will show it, or its first one.
    services[1].heartbeat = None;
    for (held, moved) in [(10, &[][..]), (9, &[6]), (0, &[2])] {
        let held = [(services[1].id, held)].into();
        let reported = ReportedSlots { held, ..ReportedSlots::default() };
        assert_eq!(told(&plan_fleet(&services, &reported, &book, at(2))), moved, "{reported:?}");
    }
}

#[test]
fn a_service_that_was_replaced_or_is_silent_may_hold_nothing() {
    let former = service(1, 7, Intent::Active);
    let mut next = service(2, 0, Intent::Active);
    next.registration.name = former.registration.name.clone();
    next.registered_at = at(9);
    let (mut silent, other) = (service(3, 5, Intent::Active), service(4, 5, Intent::Active));
    silent.suspect_since = Some(at(3));
    let sure = sure_holders(&[former, next.clone(), silent, other.clone()]);
    assert_eq!(sure, [next.id, other.id]);
}

#[test]
fn observers_that_will_not_start_need_no_slot() {
    let definition = |body| ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap();
    let row = |weight: u16| {
        let definition = definition(json!({"kind": "ticker", "weight": weight}));
        Row::created(ObserverId(Uuid::from_u128(weight.into())), definition, at(0), &RowPolicy::default())
    };
    let (mut refused, mut deleted) = (row(8), row(16));
    refused.refused_since = Some(at(1));
    deleted.confirmed(1, at(1));
    deleted.delete(at(2), &RowPolicy::default());
    assert!(deleted.awaits_end());
    assert_eq!(queued_slots(&[row(1), row(3), refused, deleted]), 4);
}

fn room(free: u32) -> Room {
    Room { free, queued: 0 }
}

#[test]
fn drain_progress_names_the_obstacle() {
    let it = draining(drain(5, None, false)).remove("s1").unwrap().drain.unwrap();
    let halfway = progress(&it, &service(1, 3, Intent::Draining), room(4), at(2));
    assert_eq!(halfway, DrainProgress { of: 8, moved: 5, waits: None });
    let unheard = progress(&it, &service(1, 0, Intent::Active), room(4), at(2));
    assert_eq!((unheard.of, unheard.moved), (8, 0), "an old heartbeat does not show it");
    let stuck = progress(&it, &service(1, 3, Intent::Draining), room(0), at(2));
    assert_eq!(stuck.waits.as_deref(), Some("no other service of pool default has a free slot"));
    let queued = progress(&it, &service(1, 3, Intent::Draining), Room { free: 2, queued: 2 }, at(2));
    let waits = "the free slots of pool default go to observers that wait in its queue";
    assert_eq!(queued.waits.as_deref(), Some(waits));
}

#[test]
fn a_service_that_missed_the_end_of_its_drain_is_sent_it_again() {
    let mut book = draining(drain(5, None, false));
    let service = [service(1, 3, Intent::Draining)];
    assert!(plan(&service, &book, at(2)).directives.is_empty(), "it follows");
    assert!(book.get_mut("s1").unwrap().uncordon(at(3)));
    let directives = book["s1"].directives();
    assert!(!directives.draining && !directives.cordoned);
    assert_eq!(plan(&service, &book, at(4)).directives, [(service[0].id, directives)]);
}

#[test]
fn an_unconfirmed_order_is_shown_as_unconfirmed() {
    let told = |orders: &Orders, state, seconds| unconfirmed(orders, &service(1, 3, state), at(seconds));
    let mut orders = Orders::default();
    assert_eq!(told(&orders, Intent::Active, 100), None, "there is no order");
    orders.cordon(at(100));
    assert_eq!(told(&orders, Intent::Active, 101).unwrap(), "cordon asked, not confirmed yet");
    assert_eq!(told(&orders, Intent::Cordoned, 101), None);
    assert_eq!(told(&orders, Intent::Draining, 101), None, "it is stopping");
    // A version that does not know the order keeps sending heartbeats as active.
    let late = told(&orders, Intent::Active, 220).unwrap();
    assert_eq!(late, "cordon asked, not confirmed for 2m: its version, 0.0.1, may not know the order");
    orders.drain(DrainRequest { asked_at: at(300), ..drain(5, None, false) });
    assert_eq!(told(&orders, Intent::Cordoned, 301).unwrap(), "drain asked, not confirmed yet");
    assert_eq!(told(&orders, Intent::Draining, 301), None);
    orders.uncordon(at(400));
    assert_eq!(told(&orders, Intent::Cordoned, 401).unwrap(), "uncordon asked, not confirmed yet");
    assert_eq!(told(&orders, Intent::Draining, 401).unwrap(), "uncordon asked, not confirmed yet");
    assert_eq!(told(&orders, Intent::Draining, 416), None, "it is stopping");
    orders.resize(Some(7), at(500));
    assert_eq!(told(&orders, Intent::Active, 501).unwrap(), "capacity 7 asked, not confirmed yet");
    let mut over = service(1, 3, Intent::Active);
    over.on_gone(at(600));
    assert_eq!(unconfirmed(&orders, &over, at(700)), None);
}

#[test]
fn an_order_is_unconfirmed_until_the_first_heartbeat_of_a_new_process() {
    let registered =
        |secs| ServiceRow { heartbeat: None, registered_at: at(secs), ..service(1, 0, Intent::Active) };
    let mut orders = Orders::default();
    assert_eq!(unconfirmed(&orders, &registered(100), at(101)), None, "there is no order");
    orders.cordon(at(100));
    // The order is older than the process, or the reverse.
    for secs in [90, 99, 110] {
        let told = unconfirmed(&orders, &registered(secs), at(111));
        assert_eq!(told.as_deref(), Some("cordon asked, not confirmed yet"), "{secs}");
    }
    assert_eq!(unconfirmed(&orders, &registered(110), at(125)), None, "it is silent for another reason");
    orders.uncordon(at(126));
    assert_eq!(unconfirmed(&orders, &registered(110), at(127)), None);
}

#[test]
fn a_repeated_request_to_drain_keeps_what_it_leaves_out() {
    let bare = |secs| DrainRequest { asked_at: at(secs), of: 3, per_second: None, until: None, force: None };
    let mut orders = Orders::default();
    orders.drain(bare(1));
    let first = Drain { asked_at: at(1), of: 3, per_second: DRAIN_PACE, until: None, force: false };
    assert_eq!(orders.drain, Some(first));
    orders.drain(DrainRequest { per_second: Some(5), until: Some(at(60)), force: Some(true), ..bare(2) });
    orders.drain(bare(3));
    let kept = Drain { asked_at: at(3), per_second: 5, until: Some(at(60)), force: true, ..first };
    assert_eq!(orders.drain, Some(kept));
    orders.drain(DrainRequest { until: Some(at(90)), force: Some(false), ..bare(4) });
    assert_eq!(orders.drain, Some(Drain { asked_at: at(4), until: Some(at(90)), force: false, ..kept }));
    orders.uncordon(at(5));
    orders.drain(bare(6));
    assert_eq!(orders.drain, Some(Drain { asked_at: at(6), ..first }), "the former drain had ended");
}

#[test]
fn a_drain_that_waits_names_its_deadline() {
    let told = |until| {
        let orders = draining(drain(5, until, false)).remove("s1").unwrap();
        progress(&orders.drain.unwrap(), &service(1, 3, Intent::Draining), Room::default(), at(20)).waits
    };
    let full = "no other service of pool default has a free slot";
    assert_eq!(told(None).unwrap(), full);
    assert_eq!(told(Some(92)).unwrap(), format!("{full}; in 1m 12s, it hands the rest over all the same"));
    assert_eq!(told(Some(20)), None, "it does so now");
}
