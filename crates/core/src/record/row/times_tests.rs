use super::*;
use crate::id::{Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::due::{DueStep, due_step};
use crate::record::operations::Refusal;
use crate::record::row::Slot;
use crate::record::row_policy::RowPolicy;
use crate::record::status::Status;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::{Value, json};
use uuid::Uuid;

const START: &str = "1970-01-01T00:01:00Z";
const FINISH: &str = "1970-01-01T00:02:00Z";

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn policy() -> RowPolicy {
    RowPolicy::default()
}
fn definition(times: &Value) -> ObserverDefinition {
    let mut body = json!({"kind": "ticker"});
    body.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
    ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap()
}
fn row(times: &Value) -> Row {
    Row::created(ObserverId(Uuid::from_u128(1)), definition(times), at(0), &policy())
}
fn hear(row: &mut Row, event: RunEvent, secs: i64) {
    let report = RunReport { id: row.id, epoch: row.epoch(), event };
    let seq = u64::try_from(secs).unwrap();
    row.apply(ServiceId(Uuid::from_u128(9)), seq, at(secs), &report, at(secs));
}
fn running(times: &Value) -> Row {
    let mut row = row(times);
    hear(&mut row, RunEvent::Started { attempt: 1, started_at: at(1) }, 1);
    row
}
fn finished() -> RunEvent {
    RunEvent::Finished { at: at(120) }
}
/// The step at its due time and none before it; returns the row after it.
fn due(row: &Row, secs: i64) -> Row {
    assert_eq!(row.due_at(&policy()), Some(at(secs)));
    assert_eq!(due_step(row, at(secs).minus(Duration::from_millis(1)), &policy()), None);
    match due_step(row, at(secs), &policy()) {
        Some(DueStep::Save(row) | DueStep::Revoke(row)) => row,
        other => panic!("{other:?}"),
    }
}
fn is(row: &Row, expected: &str) {
    let verdict = row.verdict();
    assert_eq!(
        format!("{} {} {} {:?}", row.generation, verdict.status, verdict.reason, row.slot()),
        expected
    );
}

#[test]
fn before_its_start_it_uses_no_slot_and_then_it_waits_for_one() {
    let row = row(&json!({"start_at": START})).created_waiting();
    is(&row, "0 Scheduled starts at 1970-01-01T00:01:00.000Z None");
    assert_eq!(row.rank(&policy()), None);
    let opened = due(&row, 60);
    is(&opened, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!((opened.waiting.unwrap().since, opened.due_at(&policy())), (at(60), None));
}

#[test]
fn whatever_lets_it_run_again_waits_for_its_start() {
    let times = json!({"start_at": START});
    let mut failed = running(&times);
    hear(&mut failed, RunEvent::Failed { error: "no".into(), attempts: 1 }, 2);
    failed.retry(at(3), &policy()).unwrap();
    is(&failed, "1 Scheduled starts at 1970-01-01T00:01:00.000Z None");
    assert_eq!(failed.failures, 1);
    assert_eq!(failed.restart(at(4), &policy()), Ok(false), "nothing runs");
    failed.pause(at(5), &policy()).unwrap();
    is(&failed, "1 Paused  None");
    assert_eq!(failed.due_at(&policy()), None);
    failed.resume(at(6), &policy()).unwrap();
    is(&failed, "1 Scheduled starts at 1970-01-01T00:01:00.000Z None");
    failed.pause(at(7), &policy()).unwrap();
    failed.resume(at(61), &policy()).unwrap();
    is(&failed, "1 Created waiting for a slot in pool default Waiting");
}

#[test]
fn a_change_of_its_start_moves_the_moment_and_restarts_nothing() {
    let mut it = row(&json!({"start_at": START})).created_waiting();
    it.update(definition(&json!({"start_at": FINISH})), at(1), &policy()).unwrap();
    assert_eq!(it.opens_at(), Some(at(120)));
    assert_eq!(crate::record::health::standing(&it), None, "it is not meant to run now");
    it.update(definition(&json!({})), at(2), &policy()).unwrap();
    is(&it, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!(it.waiting.unwrap().since, at(2));
    it.update(definition(&json!({"start_at": FINISH})), at(3), &policy()).unwrap();
    is(&it, "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    let mut runs = running(&json!({}));
    runs.update(definition(&json!({"start_at": FINISH})), at(2), &policy()).unwrap();
    is(&runs, "1 Processing  Admitted");
}

#[test]
fn its_service_ends_it_in_time_and_a_manager_if_no_service_does() {
    let mut told = running(&json!({"finish_at": FINISH}));
    hear(&mut told, finished(), 121);
    is(&told, "1 Completed ended at its finish_at, 1970-01-01T00:02:00.000Z None");
    assert!(due_step(&told, at(3000), &policy()).is_none());
    let silent = running(&json!({"finish_at": FINISH}));
    let ended = due(&silent, 135);
    is(&ended, "1 Completed ended at its finish_at, 1970-01-01T00:02:00.000Z None");
    assert!(ended.revocation().below > ended.epoch(), "its run must end");
    assert_eq!(ended.commanded_at, Some(at(135)), "also services that register later are told");
}

#[test]
fn what_has_no_message_ends_at_once() {
    let times = json!({"finish_at": FINISH});
    let waits = row(&times).created_waiting();
    is(&due(&waits, 120), "0 Completed ended at its finish_at, 1970-01-01T00:02:00.000Z None");
    let mut rests = running(&times);
    rests.pause(at(2), &policy()).unwrap();
    hear(&mut rests, RunEvent::Stopped, 3);
    is(&due(&rests, 120), "1 Completed ended at its finish_at, 1970-01-01T00:02:00.000Z None");
    // A restart whose stop was reported just before does not start again.
    let mut restarts = running(&times);
    restarts.restart(at(119), &policy()).unwrap();
    hear(&mut restarts, RunEvent::Stopped, 120);
    let Some(DueStep::Revoke(ended)) = due_step(&restarts, at(120), &policy()) else { panic!() };
    assert_eq!(ended.verdict().status, Status::Completed);
    let mut deleted = running(&times);
    deleted.delete(at(2), &policy());
    assert_eq!(deleted.finish_due_at(), None);
}

#[test]
fn after_its_finish_it_is_not_started_again() {
    let mut it = running(&json!({"finish_at": FINISH}));
    hear(&mut it, finished(), 121);
    for act in [Row::retry, Row::restart, Row::resume] {
        assert_eq!(act(&mut it.clone(), at(130), &policy()), Err(Refusal::FinishAtPassed(at(120))));
    }
    assert_eq!(
        it.update(definition(&json!({"finish_at": FINISH, "spec": {"every": "9s"}})), at(130), &policy()),
        Ok(true)
    );
    is(&it, "1 Completed ended at its finish_at, 1970-01-01T00:02:00.000Z None");
    it.update(definition(&json!({})), at(131), &policy()).unwrap();
    is(&it, "1 Created waiting for a slot in pool default Waiting");
}

#[test]
fn what_waits_too_long_for_a_slot_fails() {
    let mut it = row(&json!({"start_within": "10s", "start_at": START})).created_waiting();
    assert_eq!(it.not_started_at(), None, "its start is in the future");
    it = due(&it, 60);
    let failed = due(&it, 70);
    is(&failed, "0 Failed did not start within 10s (start_within) None");
    let mut again = failed.clone();
    again.retry(at(80), &policy()).unwrap();
    is(&again, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!((again.failures, again.due_at(&policy())), (0, Some(at(90))), "it did not run");
    // Also while no service offers its kind.
    again.withhold(at(81));
    is(&due(&again, 90), "0 Failed did not start within 10s (start_within) None");
    let mut admitted = it.clone();
    admitted.admit(at(65), &policy());
    assert_eq!(admitted.not_started_at(), None);
    it.pause(at(65), &policy()).unwrap();
    assert_eq!(it.not_started_at(), None);
}

#[test]
fn a_wait_for_the_end_of_a_paused_observer_is_possible() {
    let mut rests = running(&json!({"finish_at": FINISH}));
    rests.pause(at(2), &policy()).unwrap();
    hear(&mut rests, RunEvent::Stopped, 3);
    let reachable = |row: &Row| Status::ALL.into_iter().filter(|it| row.may_become(*it)).collect::<Vec<_>>();
    assert_eq!(reachable(&rests), [Status::Paused, Status::Completed]);
    let scheduled = row(&json!({"start_at": START})).created_waiting();
    assert!(scheduled.may_become(Status::Created) && !rests.may_become(Status::Scheduled));
}

/// The service ended the run before it heard of the new definition.
#[test]
fn an_end_at_a_former_finish_is_a_stop() {
    let mut it = running(&json!({"finish_at": FINISH}));
    it.update(definition(&json!({})), at(119), &policy()).unwrap();
    hear(&mut it, finished(), 121);
    assert!(matches!(due_step(&it, at(121), &policy()), Some(DueStep::Publish(_))));
    let mut rests = running(&json!({"finish_at": FINISH}));
    rests.pause(at(118), &policy()).unwrap();
    rests.update(definition(&json!({})), at(119), &policy()).unwrap();
    hear(&mut rests, finished(), 121);
    is(&rests, "1 Paused  None");
    assert_eq!(rests.slot(), Slot::None);
}

/// Open in the second and in the fourth minute of each day.
fn windows() -> Value {
    let open = json!([{"from": "00:01", "to": "00:02"}, {"from": "00:03", "to": "00:04"}]);
    json!({"windows": {"time_zone": "UTC", "open": open}})
}
/// It runs since the second minute.
fn in_its_window() -> Row {
    let mut it = due(&row(&windows()).created_waiting(), 60);
    it.admit(at(61), &policy());
    assert_eq!(it.closes_at, Some(at(120)));
    hear(&mut it, RunEvent::Started { attempt: 1, started_at: at(62) }, 62);
    it
}

#[test]
fn an_observer_waits_for_its_window_and_ends_with_it() {
    let created = row(&windows()).created_waiting();
    is(&created, "0 Scheduled starts at 1970-01-01T00:01:00.000Z None");
    let mut it = in_its_window();
    is(&it, "1 Processing  Admitted");
    // The service's clock is a little ahead.
    hear(&mut it, finished(), 119);
    let Some(DueStep::Save(mut it)) = due_step(&it, at(119), &policy()) else { panic!() };
    is(&it, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    assert_eq!(it.failures, 0);
    it = due(&it, 180);
    is(&it, "1 Created waiting for a slot in pool default Waiting");
    it.admit(at(181), &policy());
    is(&it, "2 Created to be published Admitted");
    assert_eq!(it.closes_at, Some(at(240)));
}

#[test]
fn a_run_that_nobody_ends_with_its_window_is_ended_by_a_manager() {
    let it = due(&in_its_window(), 135);
    assert!(it.revocation().below > it.epoch(), "its run must end");
    let Some(DueStep::Save(it)) = due_step(&it, at(135), &policy()) else { panic!() };
    is(&it, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
}

#[test]
fn a_wait_for_a_slot_ends_with_the_window() {
    let waits = due(&row(&windows()).created_waiting(), 60);
    is(&due(&waits, 120), "0 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    // No manager was there when it closed and opened again.
    let Some(DueStep::Save(late)) = due_step(&waits, at(200), &policy()) else { panic!() };
    is(&late, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!(late.due_at(&policy()), Some(at(240)));
    // Nor when it should have opened.
    let missed = row(&windows()).created_waiting();
    let Some(DueStep::Save(missed)) = due_step(&missed, at(130), &policy()) else { panic!() };
    is(&missed, "0 Scheduled starts at 1970-01-01T00:03:00.000Z None");
}

#[test]
fn what_lets_it_run_again_waits_for_the_next_window() {
    let mut failed = in_its_window();
    hear(&mut failed, RunEvent::Failed { error: "no".into(), attempts: 1 }, 90);
    failed.retry(at(130), &policy()).unwrap();
    is(&failed, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    let mut restarts = in_its_window();
    restarts.restart(at(118), &policy()).unwrap();
    hear(&mut restarts, RunEvent::Stopped, 121);
    let Some(DueStep::Save(restarts)) = due_step(&restarts, at(121), &policy()) else { panic!() };
    is(&restarts, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    // A publish that is repeated outside of the window starts nothing.
    let mut lost = in_its_window();
    lost.republish(at(130), &policy());
    assert_eq!(lost.closes_at, Some(at(130)));
    let mut rests = in_its_window();
    rests.pause(at(100), &policy()).unwrap();
    hear(&mut rests, finished(), 120);
    is(&rests, "1 Paused  None");
    assert_eq!(rests.due_at(&policy()), None);
    assert!(in_its_window().may_become(Status::Scheduled));
}

#[test]
fn a_completion_and_a_finish_end_it_for_good() {
    let mut done = in_its_window();
    hear(&mut done, RunEvent::Completed, 90);
    is(&done, "1 Completed  None");
    assert!(due_step(&done, at(1000), &policy()).is_none());
    let mut both = windows();
    both["finish_at"] = json!("1970-01-01T00:01:30Z");
    let mut it = row(&both).created_waiting();
    it = due(&it, 60);
    it.admit(at(61), &policy());
    hear(&mut it, RunEvent::Started { attempt: 1, started_at: at(62) }, 62);
    is(&due(&it, 105), "1 Completed ended at its finish_at, 1970-01-01T00:01:30.000Z None");
    // Between two windows, too.
    both["finish_at"] = json!("1970-01-01T00:02:30Z");
    let waits = due(&row(&both).created_waiting(), 60);
    let closed = due(&waits, 120);
    is(&due(&closed, 150), "0 Completed ended at its finish_at, 1970-01-01T00:02:30.000Z None");
}

#[test]
fn new_windows_apply_at_once() {
    let mut it = in_its_window();
    let longer = json!({"windows": {"time_zone": "UTC", "open": [{"from": "00:01", "to": "00:30"}]}});
    it.update(definition(&longer), at(70), &policy()).unwrap();
    is(&it, "1 Processing told to stop, then restarts Admitted");
    hear(&mut it, RunEvent::Stopped, 71);
    let Some(DueStep::Publish(it)) = due_step(&it, at(71), &policy()) else { panic!() };
    assert_eq!(it.closes_at, Some(at(1800)));
    let mut scheduled = row(&windows()).created_waiting();
    scheduled.update(definition(&json!({})), at(10), &policy()).unwrap();
    is(&scheduled, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!(scheduled.due_at(&policy()), None);
}
