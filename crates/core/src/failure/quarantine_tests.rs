//! Deaths of processes, network failures, and the observers that are blamed.

use super::*;
use crate::observer::definition::ObserverDefinition;
use crate::record::row_policy::RowPolicy;
use crate::record::status::Status;
use crate::wire::heartbeat::{Heartbeat, StalledObserver};
use crate::wire::hold_reasons;
use crate::wire::report::{Predecessor, Registration, RunEvent, RunReport};
use serde_json::json;
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn service(number: u32) -> ServiceId {
    ServiceId(Uuid::from_u128(u128::from(number) + 100))
}
fn row(id: u128) -> Row {
    let definition = ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
    let mut row = Row::created(ObserverId(Uuid::from_u128(id)), definition, at(0), &RowPolicy::default());
    row.confirmed(1, at(0));
    row
}
fn hear(row: &mut Row, run: u32, event: RunEvent, secs: i64) {
    let report = RunReport { id: row.id, epoch: Epoch::new(1, run), event };
    row.apply(service(run), u64::try_from(secs).unwrap(), at(secs), &report, at(secs));
}
fn start(row: &mut Row, run: u32, secs: i64) {
    hear(row, run, RunEvent::Started { attempt: 1, started_at: at(secs) }, secs);
}
/// A service that registered at one time, and whose last sign of life and loss are at another.
fn lost(number: u32, name: &str, (registered, heard): (i64, i64), predecessor: Option<u32>) -> ServiceRow {
    let registration = Registration {
        name: Name::new(name).unwrap(),
        pool: crate::id::Pool::default(),
        capacity: 1,
        kinds: Vec::new(),
        version: String::new(),
        weight_max: 1,
        message_version: crate::wire::message::VERSION,
        host: String::new(),
        labels: BTreeMap::new(),
        pool_single: false,
        predecessor: predecessor.map(|it| Predecessor { service: service(it), ended: "fenced".to_owned() }),
    };
    let mut row = ServiceRow::registered(service(number), registration, at(registered), at(heard));
    row.on_session_gone(at(heard));
    row
}

#[test]
fn a_process_is_dead_when_it_does_not_come_back() {
    let one = [lost(0, "s0", (0, 10), None)];
    assert!(killed(&one, at(69)).is_empty(), "it may come back");
    assert_eq!(killed(&one, at(70))[&service(0)].at, at(10));
    let fresh = [lost(0, "s0", (0, 10), None), lost(1, "s0", (11, 20), None)];
    assert_eq!(
        killed(&fresh, at(21)).keys().collect::<Vec<_>>(),
        [&service(0)],
        "a new process has its name"
    );
    let flap = [lost(0, "s0", (0, 10), None), lost(1, "s0", (11, 20), Some(0))];
    assert!(killed(&flap, at(21)).is_empty() && !killed(&flap, at(900)).contains_key(&service(0)));
    let mut gone = lost(0, "s0", (0, 10), None);
    gone.on_gone(at(11));
    assert!(killed(&[gone], at(900)).is_empty(), "it unregistered");
}

#[test]
fn five_process_deaths_quarantine_and_five_lost_sessions_do_not() {
    for (flaps, expected) in [(false, Status::Failed), (true, Status::Processing)] {
        let (mut row, mut services) = (row(1), Vec::new());
        for run in 0..6_u32 {
            let secs = i64::from(run) * 20;
            start(&mut row, run, secs);
            let before = run.checked_sub(1).filter(|_| flaps);
            services.push(lost(run, "s", (secs, secs + 5), before));
        }
        assert!(row.is_crash_check_due(at(102)), "the third delivery and later");
        services.pop();
        // Long after: no other process came back.
        let deaths = row.deaths(&killed(&services, at(200)), at(200));
        let mut docket = CrashLedger::default();
        docket.charge(row.id, &deaths, 5, at(200));
        if !flaps {
            assert_eq!((deaths.len(), docket.sentence(row.id, at(200))), (5, CrashVerdict::Wait));
        }
        if docket.sentence(row.id, at(203)) == CrashVerdict::Quarantine {
            assert!(row.quarantine(&deaths, at(203)));
        }
        assert_eq!(row.verdict().status, expected);
    }
}

#[test]
fn a_service_that_was_replaced_for_a_stall_counts_against_the_stalled_observer_alone() {
    let stalls = |number: u32, state: Intent, stalled: &[u128]| {
        let mut row = lost(number, "s", (0, 5), None);
        row.end = None;
        let stalled = stalled.iter().map(|id| StalledObserver {
            id: ObserverId(Uuid::from_u128(*id)),
            name: Name::new("a").unwrap(),
            stalled_ms: 60_000,
        });
        let heartbeat = Heartbeat {
            service: row.id,
            seq: 1,
            state,
            capacity: 1,
            held: 1,
            loop_lag_ms: 0,
            rss_bytes: 0,
            sent_at: None,
            stalled: stalled.collect(),
        };
        assert!(row.on_heartbeat(&heartbeat, at(900)));
        assert!(row.on_session_gone(at(900)));
        row
    };
    let count = |row: &Row, service: ServiceRow| row.deaths(&killed(&[service], at(990)), at(990)).len();
    let (mut culprit, mut beside) = (row(1), row(2));
    start(&mut culprit, 0, 1);
    start(&mut beside, 0, 1);
    let replaced = stalls(0, Intent::Draining, &[1]);
    assert_eq!((count(&culprit, replaced.clone()), count(&beside, replaced)), (1, 0));
    let died = stalls(0, Intent::Active, &[1]);
    assert_eq!(count(&culprit, died), 0, "it died of something else");
}

#[test]
fn a_quarantined_observer_names_its_services_and_can_be_retried() {
    let mut row = row(1);
    start(&mut row, 0, 1);
    let deaths = services(0..2);
    assert!(row.quarantine(&deaths, at(9)) && !row.quarantine(&deaths, at(9)));
    assert!(row.observed.last_error.as_ref().unwrap().value.contains("s0, s1"));
    hear(&mut row, 0, RunEvent::Stopped, 10);
    assert_eq!(row.verdict().status, Status::Failed, "a run that the revocation stopped does not revive it");
    assert_eq!(row.revocation().below, Epoch::after_generation(1));
    assert_eq!(row.retry(at(10), &RowPolicy::default()), Ok(true));
    assert_eq!((row.verdict().status, row.is_waiting()), (Status::Created, true));
}

#[test]
fn only_deaths_soon_after_a_start_without_handover_count() {
    let mut row = row(1);
    for (run, secs) in [(0, 0), (1, 100), (2, 110), (3, 120)] {
        start(&mut row, run, secs);
    }
    hear(&mut row, 2, RunEvent::HandedOver, 115);
    let services = [(0, 51), (1, 105), (2, 116)].map(|(run, died)| lost(run, "s", (0, died), None));
    let killed = killed(&services, at(500));
    assert_eq!(row.deaths(&killed, at(500)).len(), 1, "the second alone");
    assert!(row.deaths(&killed, at(701)).is_empty(), "long ago");
}

/// The observer fails every ten seconds, and a user kills each of its services, first after two minutes, then after 30 s.
#[test]
fn an_observer_that_fails_often_is_not_blamed_for_services_that_survived_it() {
    for (lived, blamed) in [(120, 0), (30, 5)] {
        let (mut row, mut services) = (row(1), Vec::new());
        for run in 0..5_u32 {
            let begun = i64::from(run) * (lived + 1);
            for attempt in 0..lived / 10 {
                let secs = begun + attempt * 10;
                start(&mut row, run, secs);
                let error = RunEvent::Errored { attempt: 1, error: "e".into(), next_at: at(secs + 10) };
                hear(&mut row, run, error, secs + 5);
            }
            services.push(lost(run, "s", (begun, begun + lived), None));
        }
        let now = at(5 * (lived + 1)).plus(REBORN_WITHIN);
        assert_eq!(row.deaths(&killed(&services, now), now).len(), blamed, "each lived for {lived} s");
    }
}

#[test]
fn graceful_moves_are_not_counted_as_crashes() {
    let mut row = row(1);
    for run in 0..6 {
        start(&mut row, run, i64::from(run));
        hear(&mut row, run, RunEvent::HandedOver, i64::from(run));
    }
    assert_eq!(row.crash_check, None);
    let mut killed_twice = self::row(2);
    for run in 0..3 {
        start(&mut killed_twice, run, i64::from(run));
    }
    assert_eq!(killed_twice.crash_check.unwrap().next_at, at(4));
    start(&mut killed_twice, 3, 3);
    assert_eq!(killed_twice.crash_check.unwrap().next_at, at(4), "it is not postponed");
    for _ in 0..100 {
        killed_twice.reschedule_check(CrashVerdict::Wait, killed_twice.crash_check.unwrap().next_at);
    }
    let mut looks = 0;
    while let Some(watch) = killed_twice.crash_check {
        killed_twice.reschedule_check(CrashVerdict::None, watch.next_at);
        looks += 1;
    }
    let last = killed_twice.crash_check.map_or(looks, |_| 0);
    assert!((5..20).contains(&last), "{last}: it ends");
}

/// The services with these numbers; each died in the second of its number.
fn services(numbers: std::ops::Range<u32>) -> Deaths {
    let death = |it: u32| {
        let name = Name::new(&format!("s{it}")).unwrap();
        (service(it), Death { name, at: at(it.into()), run: Epoch::new(1, it) })
    };
    numbers.map(death).collect()
}
/// Services in another place that died at the same times.
fn elsewhere(place: u32, numbers: std::ops::Range<u32>) -> Deaths {
    let moved = services(numbers).into_values().enumerate();
    moved.map(|(index, it)| (service(place * 100 + u32::try_from(index).unwrap()), it)).collect()
}
fn observer(number: u128) -> ObserverId {
    ObserverId(Uuid::from_u128(number))
}

#[test]
fn mass_failures_quarantine_no_observer() {
    let mut docket = CrashLedger::default();
    let ids: Vec<_> = (0..11_u32).map(|it| (observer(it.into()), elsewhere(it, 0..5))).collect();
    for (id, deaths) in &ids[..10] {
        docket.charge(*id, deaths, 5, at(5));
    }
    assert_eq!(docket.suspects(5).len(), 10);
    assert_eq!(docket.sentence(ids[0].0, at(7)), CrashVerdict::Wait, "reports about others may arrive");
    assert_eq!(docket.sentence(ids[0].0, at(8)), CrashVerdict::Quarantine);
    docket.charge(ids[10].0, &ids[10].1, 5, at(6));
    assert!(ids.iter().all(|(id, _)| docket.sentence(*id, at(8)) == CrashVerdict::Weather));
    assert!(docket.suspects(5).is_empty());
    docket.forget(at(604));
    assert_eq!(docket.sentence(ids[0].0, at(604)), CrashVerdict::None);
    for (count, expected) in [(1, CrashVerdict::None), (2, CrashVerdict::Suspect), (5, CrashVerdict::Wait)] {
        docket.charge(ids[0].0, &services(604..604 + count), 5, at(609));
        assert_eq!(docket.sentence(ids[0].0, at(609)), expected);
    }
}

#[test]
fn all_suspects_start_one_at_a_time_before_the_deciding_death() {
    let (killed_twice, near) = (observer(1), observer(2));
    let mut docket = CrashLedger::default();
    docket.charge(killed_twice, &services(0..2), 5, at(2));
    docket.charge(near, &services(0..3), 5, at(3));
    assert_eq!(docket.suspects(5), [], "two services killed on purpose delay no observer");
    docket.charge(near, &services(0..4), 5, at(4));
    assert_eq!(docket.suspects(5), [killed_twice, near], "the next death must belong to one observer");
    for (quarantine_after, count) in [(0, 2), (2, 2), (3, 2), (6, 0), (usize::MAX, 0)] {
        assert_eq!(docket.suspects(quarantine_after).len(), count, "{quarantine_after}");
    }
}

#[test]
fn collateral_crashes_do_not_quarantine() {
    let (poison, beside, other) = (observer(1), observer(2), observer(3));
    let mut docket = CrashLedger::default();
    docket.charge(poison, &services(0..6), 5, at(6));
    docket.charge(beside, &services(0..6), 5, at(6));
    docket.charge(other, &elsewhere(1, 0..5), 5, at(6));
    assert_eq!(docket.sentence(poison, at(9)), CrashVerdict::Wait, "either may be the cause");
    assert_eq!(docket.sentence(beside, at(9)), CrashVerdict::Wait);
    assert_eq!(docket.sentence(other, at(9)), CrashVerdict::Quarantine, "it shares no death with them");
    docket.charge(poison, &services(0..7), 5, at(10));
    assert_eq!(docket.sentence(poison, at(10)), CrashVerdict::Quarantine);
    docket.explain(at(10));
    assert_eq!(docket.suspects(5), []);
    docket.charge(beside, &services(0..6), 5, at(11));
    assert_eq!(docket.sentence(beside, at(20)), CrashVerdict::None);
    docket.charge(beside, &services(0..16), 5, at(16));
    assert_eq!(docket.sentence(beside, at(19)), CrashVerdict::Quarantine, "its own deaths count");
}

/// Only the newest deaths of the culprit are known, but also the older ones of an observer that died beside it.
#[test]
fn one_quarantine_explains_the_deaths_of_the_next() {
    let (mut docket, [poison, other]) = (CrashLedger::default(), [1, 2].map(observer));
    docket.charge(other, &elsewhere(2, 0..2), 2, at(5));
    docket.charge(poison, &services(0..3), 2, at(5));
    let sentenced = |docket: &CrashLedger, secs| docket.sentences([poison, other].into_iter(), at(secs));
    let expected = [(poison, CrashVerdict::Quarantine), (other, CrashVerdict::Wait)];
    assert_eq!(sentenced(&docket, 8), BTreeMap::from(expected));
    docket.explain(at(8));
    docket.charge(other, &elsewhere(2, 0..2), 2, at(9));
    assert_eq!(sentenced(&docket, 20)[&other], CrashVerdict::None, "its deaths preceded the quarantine");
}

#[test]
fn the_newest_death_decides_and_not_the_number_of_deaths() {
    let (poison, beside) = (observer(1), observer(2));
    for known in [3..18, 10..18] {
        let mut docket = CrashLedger::default();
        docket.charge(beside, &services(0..10), 5, at(18));
        docket.charge(poison, &services(known), 5, at(18));
        assert_eq!(docket.sentence(beside, at(30)), CrashVerdict::Wait);
        assert_eq!(docket.sentence(poison, at(30)), CrashVerdict::Quarantine);
    }
}

#[test]
fn a_restarted_or_stopping_crash_looping_observer_keeps_its_deaths() {
    let (poison, beside) = (observer(1), observer(2));
    let mut docket = CrashLedger::default();
    docket.charge(poison, &services(0..4), 5, at(4));
    docket.charge(poison, &Deaths::new(), 5, at(5));
    docket.charge(beside, &services(0..4), 5, at(5));
    assert_eq!(docket.charged().collect::<Vec<_>>(), [poison, beside]);
    let mut row = row(1);
    for run in 0..3 {
        start(&mut row, run, i64::from(run));
    }
    row.delete(at(4), &RowPolicy::default());
    hear(&mut row, 2, RunEvent::Stopped, 5);
    assert!(row.is_crash_check_due(at(6)), "it caused the deaths, not the observers beside it");
    assert!(!row.quarantine(&services(0..5), at(6)));
    let died = [0, 1, 2].map(|run| lost(run, "s", (0, 4), None));
    let (before, killed) = (row.deaths(&killed(&died, at(100)), at(100)), killed(&died, at(100)));
    row.republish(at(7), &RowPolicy::default());
    assert_eq!((before.len(), row.deaths(&killed, at(100))), (3, before));
}

/// A service that dies while the broker blocks publishers never sends its last reports.
#[test]
fn unreported_runs_clear_other_observers_and_quarantine_none() {
    let (mut poison, mut beside) = (row(1), row(2));
    // Both die with services 0 to 2, then in turn with others. Two runs of the culprit have no report.
    for run in [0, 1, 2, 5] {
        start(&mut poison, run, 1);
    }
    for run in 0..5 {
        start(&mut beside, run, 1);
    }
    assert_eq!(poison.unheard_runs(), BTreeSet::from([Epoch::new(1, 3), Epoch::new(1, 4)]));
    assert!(beside.unheard_runs().is_empty());
    let mut docket = CrashLedger::default();
    docket.enter(&poison, &[services(0..3), services(5..6)].into_iter().flatten().collect(), 4, at(10));
    docket.enter(&beside, &services(0..5), 4, at(10));
    assert_eq!(docket.sentence(beside.id, at(20)), CrashVerdict::Wait);
    assert_eq!(
        docket.sentence(poison.id, at(20)),
        CrashVerdict::Wait,
        "two deaths of the other are known, one of this one"
    );
    // It keeps dying, alone.
    for run in [6, 7] {
        start(&mut poison, run, 21);
    }
    docket.enter(&poison, &services(5..8), 4, at(30));
    assert_eq!(docket.sentence(beside.id, at(30)), CrashVerdict::Wait);
    assert_eq!(docket.sentence(poison.id, at(30)), CrashVerdict::Quarantine);
}

/// Suspects start one at a time: the others report that they wait, and die with a service that they did not end.
#[test]
fn a_run_reported_as_waiting_clears_no_other_observer() {
    let (mut poison, mut beside) = (row(1), row(2));
    for run in 0..5 {
        start(&mut poison, run, 1);
    }
    start(&mut beside, 0, 1);
    start(&mut beside, 1, 1);
    for run in 2..6 {
        hear(
            &mut beside,
            run,
            RunEvent::Held { reason: hold_reasons::SUSPECTED.to_owned(), refuses: false },
            1,
        );
    }
    assert!(beside.unheard_runs().is_empty());
    let mut docket = CrashLedger::default();
    docket.enter(&poison, &services(0..5), 5, at(10));
    docket.enter(&beside, &services(0..2), 5, at(10));
    assert_eq!(docket.sentence(poison.id, at(20)), CrashVerdict::Quarantine);
}

/// A user deletes the culprit and creates it again: the new one has ended one service so far.
#[test]
fn deaths_before_a_suspect_was_deleted_count_against_no_other() {
    let (poison, beside) = (observer(1), observer(2));
    let mut docket = CrashLedger::default();
    docket.charge(poison, &services(0..7), 5, at(7));
    docket.charge(beside, &services(0..7), 5, at(7));
    docket.leave(observer(9), at(7));
    assert_eq!(docket.charged().count(), 2, "one that was not blamed changes nothing");
    docket.leave(poison, at(7));
    docket.charge(beside, &services(0..9), 5, at(9));
    assert_eq!(docket.sentence(beside, at(20)), CrashVerdict::None, "one death after that");
    docket.charge(beside, &services(0..13), 5, at(13));
    assert_eq!(docket.sentence(beside, at(20)), CrashVerdict::Quarantine, "five deaths after that");
}

/// In safe mode, no observer is quarantined, and a culprit may end hundreds of services.
#[test]
fn deaths_before_the_suspects_start_alone_decide_nothing() {
    let (mut poison, mut beside) = (row(1), row(2));
    let mut docket = CrashLedger::default();
    // The culprit's newest runs ended before any report, so only the other one is known to have died with 4 to 8.
    docket.enter(&poison, &services(0..4), 5, at(8));
    docket.enter(&beside, &services(0..9), 5, at(8));
    start(&mut poison, 3, 3);
    start(&mut beside, 8, 8);
    docket.list([&poison, &beside].into_iter(), 5);
    assert_eq!(docket.sentence(beside.id, at(20)), CrashVerdict::Wait, "it did not start alone");
    // Each starts alone; the culprit ends another service.
    start(&mut beside, 9, 30);
    start(&mut poison, 9, 30);
    docket.enter(&poison, &services(0..4).into_iter().chain(services(9..10)).collect(), 5, at(40));
    docket.list([&poison, &beside].into_iter(), 5);
    assert_eq!(docket.sentence(beside.id, at(60)), CrashVerdict::Wait);
    assert_eq!(docket.sentence(poison.id, at(60)), CrashVerdict::Quarantine);
}

/// Rows remember their newest runs only, so two observers may share deaths that neither remembers of the other.
#[test]
fn without_a_known_shared_death_only_a_death_alone_decides() {
    let (mut poison, mut beside) = (row(1), row(2));
    let mut docket = CrashLedger::default();
    docket.enter(&poison, &services(0..5), 5, at(8));
    docket.enter(&beside, &services(5..10), 5, at(8));
    start(&mut poison, 9, 3);
    start(&mut beside, 9, 8);
    docket.list([&poison, &beside].into_iter(), 5);
    for id in [poison.id, beside.id] {
        assert_eq!(docket.sentence(id, at(20)), CrashVerdict::Wait, "no service has died of it alone");
    }
    docket.enter(&poison, &services(0..5).into_iter().chain(services(10..11)).collect(), 5, at(40));
    assert_eq!(docket.sentence(poison.id, at(60)), CrashVerdict::Quarantine);
    assert_eq!(docket.sentence(beside.id, at(60)), CrashVerdict::Wait);
}
