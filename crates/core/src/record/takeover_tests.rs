//! A run that another service has taken over.

use super::row::Row;
use super::row_policy::RowPolicy;
use super::status::Status;
use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::json;
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}

fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

fn row() -> Row {
    let definition = ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
    let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default());
    row.confirmed(1, at(1));
    row
}

fn hear(row: &mut Row, event: RunEvent, secs: i64) {
    let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
    let seq = u64::try_from(secs).unwrap();
    row.apply(service(9), seq, at(secs), &report, at(secs));
}

fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: at(1) }
}

#[test]
fn a_run_taken_over_by_another_service_is_revoked_on_its_old_service() {
    let mut row = row();
    hear(&mut row, started(), 2);
    let before = row.clone();
    let taken = RunReport { id: row.id, epoch: Epoch::new(1, 1), event: started() };
    row.apply(service(8), 1, at(3), &taken, at(3));
    let (service_9, revocation) = row.taken_over_from(&before).unwrap();
    assert_eq!((service_9, revocation.below), (service(9), Epoch::new(1, 1)));
    assert_eq!(row.taken_over_from(&row), None, "no change");
    let mut same = row.clone();
    same.apply(service(8), 2, at(4), &RunReport { epoch: Epoch::new(1, 2), ..taken }, at(4));
    assert_eq!(same.taken_over_from(&row), None, "it has come back to the same service");
    let mut handed_over = before.clone();
    hear(&mut handed_over, RunEvent::HandedOver, 3);
    assert_eq!(row.taken_over_from(&handed_over), None, "the service has let go of it");
}

#[test]
fn a_run_stopped_after_a_takeover_does_not_end_its_generation() {
    let mut row = row();
    hear(&mut row, started(), 2);
    let later = |event| RunReport { id: row.id, epoch: Epoch::new(1, 1), event };
    let (started, stopped, completed) =
        (later(started()), later(RunEvent::Stopped), later(RunEvent::Completed));
    let earlier_stops = RunReport { epoch: Epoch::new(1, 0), ..stopped.clone() };
    row.apply(service(8), 1, at(3), &started, at(3));
    row.apply(service(9), 9, at(4), &earlier_stops, at(4));
    assert_eq!((row.holder(), row.wants_republish()), (Some(service(8)), false));
    let mut ended = row.clone();
    ended.apply(service(8), 2, at(5), &completed, at(5));
    assert_eq!(ended.verdict().status, Status::Completed);
    // Once the later run is told to stop, it reports its own end.
    row.delete(at(6), &RowPolicy::default());
    assert_eq!(row.verdict().status, Status::OnDeleting);
    row.apply(service(8), 2, at(7), &stopped, at(7));
    assert_eq!(row.verdict().status, Status::Deleted);
}
