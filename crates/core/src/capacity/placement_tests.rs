use super::*;
use crate::id::{Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::due::{DueStep, due_step};
use crate::record::reason::{ReasonCode, explain};
use crate::record::status::Status;
use crate::wire::heartbeat::{Heartbeat, Intent};
use crate::wire::report::{Registration, RunEvent, RunReport};
use serde_json::json;
use uuid::Uuid;

const SERVICE: ServiceId = ServiceId(Uuid::from_u128(9));

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn policy() -> RowPolicy {
    RowPolicy::default()
}

/// A row with generation 1, published at 0 s.
fn row() -> Row {
    let definition = ObserverDefinition::parse(json!({"kind": "b"}), &Name::new("o").unwrap()).unwrap();
    let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &policy());
    row.confirmed(1, at(0));
    row
}

fn hear(row: &mut Row, secs: i64, event: RunEvent) {
    let report = RunReport { id: row.id, epoch: row.epoch(), event };
    row.apply(SERVICE, u64::try_from(secs).unwrap() + 1, at(secs), &report, at(secs));
}

fn refused() -> RunEvent {
    RunEvent::Refused { why: "kind `b` is not offered by this service".to_owned() }
}

fn service(kinds: &[&str], (held, capacity): (u32, u32), state: Intent) -> ServiceRow {
    let kinds: Vec<_> = kinds.iter().map(|kind| json!({"name": kind})).collect();
    let registration = json!({"name": "s", "pool": "default", "capacity": capacity, "kinds": kinds, "version": "",
        "host": "", "labels": {}});
    let registration: Registration = serde_json::from_value(registration).unwrap();
    let mut row = ServiceRow::registered(SERVICE, registration, at(0), at(0));
    let heartbeat = Heartbeat {
        service: SERVICE,
        seq: 1,
        state,
        capacity,
        held,
        loop_lag_ms: 0,
        rss_bytes: 0,
        sent_at: None,
        stalled: Vec::new(),
    };
    assert!(row.on_heartbeat(&heartbeat, at(0)));
    row
}

fn withdrawn() -> Row {
    let mut row = row();
    hear(&mut row, 1, refused());
    assert!(row.withdraw(at(6), &policy()));
    row
}

#[test]
fn placement_depends_on_the_services_that_run_the_kind() {
    let told = |withdrawn, services: &[ServiceRow]| {
        let refused = Refused { pool: Pool::default(), kind: Kind::new("b").unwrap(), withdrawn, count: 7 };
        refused.placement(services)
    };
    let other = service(&["a"], (0, 10), Intent::Active);
    assert_eq!(told(false, &[]), Placement::Withdraw);
    assert_eq!(told(false, std::slice::from_ref(&other)), Placement::Withdraw);
    assert_eq!(told(true, std::slice::from_ref(&other)), Placement::Leave);
    let full = service(&["a", "b"], (10, 10), Intent::Active);
    assert_eq!(told(false, &[other.clone(), full.clone()]), Placement::Withdraw, "it has no room");
    assert_eq!(told(true, &[other.clone(), full]), Placement::Leave);
    let cordoned = service(&["b"], (0, 10), Intent::Cordoned);
    assert_eq!(told(true, &[cordoned]), Placement::Leave);
    let able = service(&["a", "b"], (6, 10), Intent::Active);
    assert_eq!(told(false, &[other.clone(), able.clone()]), Placement::Leave, "it takes them");
    assert_eq!(told(true, &[other, able]), Placement::Release(4), "no more than it has free slots");
    assert_eq!(told(true, &[service(&["b"], (0, 10), Intent::Active)]), Placement::Release(7));
    let group = Refused { pool: Pool::default(), kind: Kind::new("b").unwrap(), withdrawn: true, count: 7 };
    let offered = |services: &[ServiceRow]| group.is_offered(services);
    let full = service(&["a", "b"], (10, 10), Intent::Active);
    assert!(offered(&[full]) && !offered(&[service(&["a"], (0, 10), Intent::Active)]) && !offered(&[]));
    let mut older = service(&["b"], (0, 10), Intent::Active);
    older.registration.message_version = crate::wire::message::VERSION - 1;
    assert_eq!(told(false, &[older]), Placement::Withdraw, "it cannot read the messages");
    let mut elsewhere = service(&["b"], (0, 10), Intent::Active);
    elsewhere.registration.pool = Pool::new("edge").unwrap();
    assert_eq!(told(true, &[elsewhere]), Placement::Leave, "another pool's slots");
}

#[test]
fn a_refused_observer_is_withdrawn_and_returns_as_the_next_generation() {
    let mut row = row();
    assert!(!row.withdraw(at(3600), &policy()), "no service has refused it");
    hear(&mut row, 1, refused());
    assert!(!row.withdraw(at(5), &policy()), "too early");
    assert!(row.withdraw(at(6), &policy()));
    assert!(!row.withdraw(at(7), &policy()), "once");
    assert_eq!(row.revocation().below.generation(), 2, "the holder of its message ends it");
    let told = explain(&row, true, &[], at(6));
    assert_eq!((told.status, told.code), (Status::Created, Some(ReasonCode::Withdrawing)));
    // The command is repeated until the end is reported.
    let Some(DueStep::Revoke(again)) = due_step(&row, at(9), &policy()) else { panic!() };
    assert_eq!(again.revocation(), row.revocation());

    hear(&mut row, 8, RunEvent::Stopped);
    assert_eq!(due_step(&row, at(60), &policy()), None, "it waits");
    let told = explain(&row, true, &[], at(60));
    assert_eq!((told.status, told.code), (Status::Created, Some(ReasonCode::NoServiceForKind)));
    assert_eq!(told.health, Some(crate::record::health::Health::Waiting));

    assert!(!row.readmit(at(70)), "services have refused it: it returns when one of them has a free slot");
    assert!(row.release(at(70)) && !row.release(at(70)));
    assert_eq!(
        (row.waiting.map(|it| it.since), row.is_waiting()),
        (Some(at(6)), true),
        "since it was withdrawn"
    );
    row.admit(at(71), &policy());
    assert_eq!((row.generation, row.withdrawn_at, row.refused_since), (2, None, None));
}

#[test]
fn a_start_cancels_a_withdrawal_and_a_withdrawn_observer_ends() {
    let mut row = row();
    hear(&mut row, 1, refused());
    hear(&mut row, 4, RunEvent::Started { attempt: 1, started_at: at(4) });
    assert!(!row.withdraw(at(20), &policy()));
    // The command and the start cross on the wire.
    let mut row = withdrawn();
    let start = RunReport {
        id: row.id,
        epoch: row.epoch(),
        event: RunEvent::Started { attempt: 1, started_at: at(7) },
    };
    hear(&mut row, 7, start.event.clone());
    assert_eq!(row.answer(&start), Some(row.revocation()));
    hear(&mut row, 8, RunEvent::Completed);
    assert_eq!((row.verdict().status, row.is_withdrawn()), (Status::Completed, false));
    assert!(!row.release(at(9)));
}

#[test]
fn user_requests_on_a_withdrawn_observer_take_effect() {
    let policy = policy();
    for settled in [false, true] {
        let made = || {
            let mut row = withdrawn();
            if settled {
                hear(&mut row, 8, RunEvent::Stopped);
            }
            row
        };
        let after_its_end = |mut row: Row| {
            if row.observed.settled.is_none() && row.generation == 1 {
                hear(&mut row, 9, RunEvent::Stopped);
            }
            row
        };
        let mut row = made();
        assert!(row.delete(at(9), &policy));
        assert_eq!(after_its_end(row).verdict().status, Status::Deleted, "settled: {settled}");
        let mut row = made();
        assert_eq!(row.pause(at(9), &policy), Ok(true));
        assert_eq!(after_its_end(row.clone()).verdict().status, Status::Paused, "settled: {settled}");
        assert_eq!(row.resume(at(10), &policy), Ok(true));
        let row = after_its_end(row);
        assert!(row.wants_republish() || row.is_waiting(), "settled: {settled}: {row:?}");
        let mut row = made();
        assert_eq!(row.restart(at(9), &policy), Ok(true));
        let row = after_its_end(row);
        assert!(row.wants_republish() || row.is_waiting(), "settled: {settled}: {row:?}");
    }
}

#[test]
fn a_withdrawn_observer_fails_after_the_refusal_limit() {
    let mut row = withdrawn();
    hear(&mut row, 8, RunEvent::Stopped);
    assert_eq!(row.fails_at(&policy()), Some(at(901)), "15 minutes after the first refusal");
    let Some(DueStep::Revoke(failed)) = due_step(&row, at(901), &policy()) else { panic!() };
    assert_eq!(failed.verdict().status, Status::Failed);
    assert!(!failed.is_withdrawn());
    let mut again = failed;
    assert_eq!(again.retry(at(902), &policy()), Ok(true));
    assert_eq!((again.is_waiting(), again.withdrawn_at, again.refused_since), (true, None, None));
}
