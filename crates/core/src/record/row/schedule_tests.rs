use super::*;
use crate::id::{Name, ObserverId, Pool, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::due::{DueStep, due_step};
use crate::record::events::{EventKind, happenings};
use crate::record::status::Status;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::{Value, json};
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn policy() -> RowPolicy {
    RowPolicy::default()
}
fn definition(more: &Value) -> ObserverDefinition {
    let mut body = json!({"kind": "job"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap()
}
/// A run at each full minute.
fn minutely(if_running: &str) -> Value {
    json!({"schedule": {"cron": "* * * * *", "if_running": if_running, "catch_up": "90s"}})
}
fn created(more: &Value) -> Row {
    let row = Row::created(ObserverId(Uuid::from_u128(1)), definition(more), at(5), &policy());
    assert!(row.starts_later(at(5)).is_some(), "it has no slot yet");
    row.created_waiting()
}
fn hear(row: &mut Row, event: RunEvent, secs: i64) {
    let report = RunReport { id: row.id, epoch: row.epoch(), event };
    let seq = u64::try_from(secs).unwrap();
    row.apply(ServiceId(Uuid::from_u128(9)), seq, at(secs), &report, at(secs));
}
/// The step of the reconciler, which must change the row.
fn due(row: &Row, secs: i64) -> Row {
    match due_step(row, at(secs), &policy()) {
        Some(DueStep::Save(row) | DueStep::Revoke(row) | DueStep::Publish(row)) => row,
        other => panic!("{other:?}"),
    }
}
fn start(mut row: Row, secs: i64) -> Row {
    row.admit(at(secs), &policy());
    row.confirmed(row.generation, at(secs));
    hear(&mut row, RunEvent::Started { attempt: 1, started_at: at(secs) }, secs);
    row
}
/// It runs since 61 s, for the time 60 s.
fn running(if_running: &str) -> Row {
    start(due(&created(&minutely(if_running)), 60), 61)
}
fn is(row: &Row, expected: &str) {
    let verdict = row.verdict();
    let shown = format!("{} {} {} {:?}", row.generation, verdict.status, verdict.reason, row.slot());
    assert_eq!(shown, expected);
}
fn scheduled_for(row: &Row) -> Option<Timestamp> {
    row.executions.as_ref().unwrap().scheduled_for
}
fn failed() -> RunEvent {
    RunEvent::Failed { error: "no such host".to_owned(), attempts: 3 }
}

#[test]
fn a_run_starts_at_each_time_and_its_outcome_is_kept() {
    let row = created(&minutely("skip"));
    is(&row, "0 Scheduled starts at 1970-01-01T00:01:00.000Z None");
    assert_eq!((row.due_at(&policy()), due_step(&row, at(59), &policy())), (Some(at(60)), None));
    let opened = due(&row, 60);
    is(&opened, "0 Created waiting for a slot in pool default Waiting");
    let mut row = start(opened, 61);
    is(&row, "1 Processing  Admitted");
    assert_eq!(
        (scheduled_for(&row), row.last_execution(), row.due_at(&policy())),
        (Some(at(60)), None, None)
    );
    let before = row.clone();
    hear(&mut row, RunEvent::Completed, 70);
    is(&row, "1 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    let events: Vec<_> = happenings(Some(&before), &row).into_iter().map(|event| event.kind).collect();
    assert_eq!(events, [EventKind::Completed, EventKind::Scheduled]);
    let completed = Execution { scheduled_for: Some(at(60)), ended_at: at(70), error: None };
    assert_eq!(row.last_execution(), Some(completed.clone()));
    let mut row = start(due(&row, 120), 121);
    is(&row, "2 Processing  Admitted");
    assert_eq!((scheduled_for(&row), row.last_execution()), (Some(at(120)), Some(completed)));
    hear(&mut row, failed(), 130);
    is(&row, "2 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    assert_eq!((row.last_execution().unwrap().error.as_deref(), row.failures), (Some("no such host"), 1));
    assert_eq!((row.ended_at, row.forget_at(&policy())), (None, None));
    assert!(row.revocation().below > row.epoch(), "a redelivery must not start it once more");
}

#[test]
fn a_time_during_a_run_is_skipped_queued_or_restarts_it() {
    let mut skips = running("skip");
    assert_eq!(due_step(&skips, at(181), &policy()), None);
    hear(&mut skips, RunEvent::Completed, 185);
    is(&skips, "1 Scheduled starts at 1970-01-01T00:04:00.000Z None");

    let mut queues = running("queue");
    assert_eq!(due_step(&queues, at(181), &policy()), None);
    hear(&mut queues, RunEvent::Completed, 185);
    is(&queues, "1 Created waiting for a slot in pool default Waiting");
    let queues = start(queues, 186);
    assert_eq!(scheduled_for(&queues), Some(at(180)), "the latest of two");

    let restarts = running("restart");
    assert_eq!(restarts.due_at(&policy()), Some(at(120)));
    let mut restarts = due(&restarts, 120);
    is(&restarts, "1 Processing told to stop, then restarts Admitted");
    assert_eq!((scheduled_for(&restarts), restarts.restarts_at()), (Some(at(120)), None));
    hear(&mut restarts, RunEvent::Stopped, 121);
    let restarts = due(&restarts, 121);
    is(&restarts, "2 Created to be published Admitted");
    assert_eq!(restarts.due_at(&policy()), Some(at(151)), "its lease");
    assert_eq!(restarts.restarts_at(), Some(at(180)));
}

#[test]
fn a_trigger_after_a_change_of_the_pool_waits_for_a_slot_only() {
    let mut row = running("restart");
    let mut moved = row.definition.as_ref().clone();
    moved.pool = Pool::new("other").unwrap();
    row.update(moved, at(70), &policy()).unwrap();
    hear(&mut row, RunEvent::Stopped, 71);
    assert_eq!(row.trigger(at(72), &policy()), Ok(true));
    assert_eq!((row.is_waiting(), row.opens_at(), scheduled_for(&row)), (true, None, None));
}

#[test]
fn a_time_before_the_code_has_started_restarts_nothing() {
    let mut row = due(&created(&minutely("restart")), 60);
    row.admit(at(61), &policy());
    row.confirmed(1, at(61));
    let row = due(&row, 120);
    is(&row, "1 Created waiting for a slot in pool default Admitted");
    assert_eq!((scheduled_for(&row), row.restarts_at()), (Some(at(60)), Some(at(180))));
}

#[test]
fn of_the_times_that_no_manager_saw_the_latest_one_counts_if_it_is_recent() {
    let row = created(&minutely("skip"));
    let late = due(&row, 200);
    is(&late, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!(scheduled_for(&start(late, 201)), Some(at(180)));
    let hourly = json!({"schedule": {"cron": "0 * * * *", "catch_up": "10m"}});
    is(&due(&created(&hourly), 3600 + 600), "0 Created waiting for a slot in pool default Waiting");
    is(&due(&created(&hourly), 3600 + 601), "0 Scheduled starts at 1970-01-01T02:00:00.000Z None");
    // The report of the end arrives late, too.
    let mut ended = running("skip");
    let report = RunReport { id: ended.id, epoch: ended.epoch(), event: RunEvent::Completed };
    ended.apply(ServiceId(Uuid::from_u128(9)), 99, at(70), &report, at(200));
    is(&ended, "1 Created waiting for a slot in pool default Waiting");
    // A queued time is one before the end, however late the report; a later one is caught up like any other.
    let hourly = json!({"schedule": {"cron": "0 * * * *", "catch_up": "10m", "if_running": "queue"}});
    let hourly = start(due(&created(&hourly), 3600), 3601);
    for (ended_at, expected) in [
        (7300, "1 Created waiting for a slot in pool default Waiting"),
        (3700, "1 Scheduled starts at 1970-01-01T03:00:00.000Z None"),
    ] {
        let mut queues = hourly.clone();
        let report = RunReport { id: queues.id, epoch: queues.epoch(), event: RunEvent::Completed };
        queues.apply(ServiceId(Uuid::from_u128(9)), 99_999, at(ended_at), &report, at(7200 + 700));
        is(&queues, expected);
    }
    // A restart that no manager requested in time.
    let hourly = json!({"schedule": {"cron": "0 * * * *", "catch_up": "10m", "if_running": "restart"}});
    let hourly = start(due(&created(&hourly), 3600), 3601);
    is(&due(&hourly, 7200 + 600), "1 Processing told to stop, then restarts Admitted");
    is(&due(&hourly, 7200 + 601), "1 Processing  Admitted");
    // However little is caught up: managers look only once a second.
    let prompt = json!({"schedule": {"cron": "* * * * *", "catch_up": "0s"}});
    is(&due(&created(&prompt), 69), "0 Created waiting for a slot in pool default Waiting");
    is(&due(&created(&prompt), 71), "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
}

#[test]
fn times_that_pass_during_a_pause_start_nothing() {
    let mut row = created(&minutely("skip"));
    row.pause(at(10), &policy()).unwrap();
    is(&row, "0 Paused  None");
    assert_eq!(row.due_at(&policy()), None);
    row.resume(at(90), &policy()).unwrap();
    is(&row, "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    // It completes when it is told to stop.
    let mut row = running("queue");
    row.pause(at(70), &policy()).unwrap();
    hear(&mut row, RunEvent::Completed, 71);
    is(&row, "1 Paused  None");
    assert_eq!(row.ended_at, None);
    row.resume(at(130), &policy()).unwrap();
    is(&row, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
}

#[test]
fn a_request_starts_a_run_between_two_times() {
    let mut row = created(&minutely("skip"));
    assert_eq!(row.trigger(at(30), &policy()), Ok(true));
    is(&row, "0 Created waiting for a slot in pool default Waiting");
    assert_eq!(row.trigger(at(31), &policy()), Ok(false));
    let mut row = start(row, 32);
    assert_eq!(scheduled_for(&row), None);
    // What was too old to be caught up is not the time of a request either.
    let mut hourly = created(&json!({"schedule": {"cron": "0 * * * *", "catch_up": "10m"}}));
    hourly = due(&hourly, 3600 + 700);
    hourly.trigger(at(3600 + 800), &policy()).unwrap();
    assert_eq!(scheduled_for(&start(hourly, 3600 + 801)), None);
    assert_eq!(row.trigger(at(33), &policy()), Err(Refusal::Active));
    hear(&mut row, RunEvent::Completed, 34);
    is(&row, "1 Scheduled starts at 1970-01-01T00:01:00.000Z None");

    let mut queues = running("queue");
    assert_eq!(queues.trigger(at(70), &policy()), Ok(true));
    assert_eq!(queues.trigger(at(71), &policy()), Ok(false));
    hear(&mut queues, failed(), 80);
    is(&queues, "1 Created waiting for a slot in pool default Waiting");
    let mut queues = start(queues, 81);
    hear(&mut queues, RunEvent::Completed, 90);
    is(&queues, "2 Scheduled starts at 1970-01-01T00:02:00.000Z None");

    let mut restarts = running("restart");
    assert_eq!(restarts.trigger(at(70), &policy()), Ok(true));
    is(&restarts, "1 Processing told to stop, then restarts Admitted");
    assert_eq!(scheduled_for(&restarts), None);

    let mut paused = created(&minutely("skip"));
    paused.pause(at(10), &policy()).unwrap();
    assert_eq!(paused.trigger(at(11), &policy()), Err(Refusal::Paused));
    let mut plain = Row::created(ObserverId(Uuid::from_u128(1)), definition(&json!({})), at(0), &policy());
    assert_eq!(plain.trigger(at(11), &policy()), Err(Refusal::NoSchedule));
}

#[test]
fn a_quarantined_observer_stays_failed() {
    let mut row = running("skip");
    row.settle_by_manager(Settlement::Failed { error: "it ended 5 services".into(), attempts: 1 }, at(70));
    assert_eq!((row.verdict().status, row.due_at(&policy())), (Status::Failed, Some(at(70 + 3 * 86_400))));
    let mut triggered = row.clone();
    row.retry(at(130), &policy()).unwrap();
    is(&row, "1 Scheduled starts at 1970-01-01T00:03:00.000Z None");
    triggered.trigger(at(130), &policy()).unwrap();
    is(&triggered, "1 Created waiting for a slot in pool default Waiting");
}

#[test]
fn a_wait_for_a_slot_that_is_given_up_ends_one_run_only() {
    let mut body = minutely("skip");
    body["start_within"] = json!("20s");
    let waits = due(&created(&body), 60);
    assert_eq!(waits.due_at(&policy()), Some(at(80)));
    let row = due(&waits, 80);
    is(&row, "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    let error = row.last_execution().unwrap().error.unwrap();
    assert_eq!(error, "did not start within 20s (start_within)");
}

#[test]
fn start_at_and_finish_at_limit_the_times() {
    let mut body = minutely("skip");
    (body["start_at"], body["finish_at"]) = (json!("1970-01-01T00:02:00Z"), json!("1970-01-01T00:04:00Z"));
    let row = created(&body);
    is(&row, "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    let mut row = start(due(&row, 120), 121);
    hear(&mut row, RunEvent::Completed, 185);
    is(&row, "1 Scheduled starts at 1970-01-01T00:04:00.000Z None");
    is(&due(&row, 240), "1 Completed ended at its finish_at, 1970-01-01T00:04:00.000Z None");
}

#[test]
fn a_change_of_the_schedule_restarts_nothing() {
    let mut row = running("skip");
    let hourly = definition(&json!({"schedule": {"cron": "0 * * * *"}}));
    assert_eq!(row.update(hourly, at(70), &policy()), Ok(true));
    is(&row, "1 Processing  Admitted");
    hear(&mut row, RunEvent::Completed, 80);
    is(&row, "1 Scheduled starts at 1970-01-01T01:00:00.000Z None");
    row.update(definition(&minutely("skip")), at(90), &policy()).unwrap();
    is(&row, "1 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    let mut freed = row.clone();
    freed.update(definition(&json!({})), at(95), &policy()).unwrap();
    is(&freed, "1 Created waiting for a slot in pool default Waiting");
    assert_eq!(freed.executions, None);
    // One that has completed begins to repeat; one that rests has completed.
    let mut once = Row::created(ObserverId(Uuid::from_u128(1)), definition(&json!({})), at(0), &policy());
    hear(&mut once, RunEvent::Completed, 10);
    once.update(definition(&minutely("skip")), at(70), &policy()).unwrap();
    is(&once, "1 Scheduled starts at 1970-01-01T00:02:00.000Z None");
    assert_eq!(once.ended_at, None);
    let mut rests = running("skip");
    rests.pause(at(70), &policy()).unwrap();
    hear(&mut rests, RunEvent::Completed, 71);
    rests.update(definition(&json!({})), at(75), &policy()).unwrap();
    is(&rests, "1 Completed  None");
    assert_eq!(rests.ended_at, Some(at(75)));
}

#[test]
fn a_restored_database_starts_nothing_for_times_before_the_restore() {
    let mut row = created(&minutely("skip"));
    row.restored(at(70));
    let row = due(&row, 71);
    is(&row, "0 Scheduled starts at 1970-01-01T00:02:00.000Z None");
}

#[test]
fn a_wait_for_a_status_that_a_schedule_never_reaches_is_refused() {
    let reachable = |row: &Row| -> Vec<Status> {
        Status::ALL.into_iter().filter(|status| row.may_become(*status)).collect()
    };
    use Status::{Created, Failed, Processing, Scheduled};
    assert_eq!(reachable(&running("skip")), [Scheduled, Created, Processing, Failed]);
    assert_eq!(reachable(&created(&minutely("skip"))), [Scheduled, Created, Processing, Failed]);
}
