//! Reports in, health out.

use super::*;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::reason::{ReasonCode, explain, stored_code};
use crate::record::row_policy::RowPolicy;
use crate::wire::command::Cause;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::{Value, json};
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}

fn row_with(retry: &Value) -> Row {
    let body = json!({"kind": "ticker", "retry": retry});
    let definition = ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap();
    let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default());
    row.confirmed(1, at(0));
    row
}

fn row() -> Row {
    row_with(&json!({"kind": "exponential"}))
}

/// A report of run `run` at a second that also defines its order.
fn hear(row: &mut Row, run: u32, secs: i64, event: RunEvent) {
    let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, run), event };
    let seq = u64::try_from(secs).unwrap();
    row.apply(ServiceId(Uuid::from_u128(u128::from(run) + 9)), seq, at(secs), &report, at(secs));
}

fn starts(row: &mut Row, run: u32, secs: i64, attempt: u32) {
    hear(row, run, secs, RunEvent::Started { attempt, started_at: at(secs) });
}

fn errs(row: &mut Row, run: u32, secs: i64, attempt: u32) {
    let event = RunEvent::Errored { attempt, error: "e".into(), next_at: at(secs + 1) };
    hear(row, run, secs, event);
}

fn taken(reason: &str, refuses: bool) -> RunEvent {
    RunEvent::Held { reason: reason.to_owned(), refuses }
}

fn health(row: &Row, secs: i64) -> Option<&'static str> {
    standing(row).map(|it| it.at(true, at(secs)).as_str())
}

#[test]
fn every_health_value_round_trips() {
    for health in Health::ALL {
        assert_eq!(health.as_str().parse(), Ok(health));
        assert_eq!(json!(health), json!(health.as_str()));
    }
    assert!("green".parse::<Health>().unwrap_err().contains("running, restarting"));
}

#[test]
fn health_of_an_observer_without_errors() {
    let mut row = row();
    assert_eq!(health(&row, 0), Some("waiting"), "in the queue");
    hear(&mut row, 0, 1, taken(hold_reasons::START_RATE, false));
    assert_eq!(health(&row, 1), Some("waiting"), "held until its turn");
    starts(&mut row, 0, 2, 1);
    assert_eq!(health(&row, 2), Some("running"));
    hear(&mut row, 0, 3, RunEvent::HandedOverFor { cause: Cause::Drain });
    assert_eq!(health(&row, 5), Some("moving"));
    assert_eq!(health(&row, 6), Some("waiting"), "no service has taken it within 3 s");
    hear(&mut row, 1, 4, taken(hold_reasons::REDELIVERED, false));
    assert_eq!(health(&row, 4), Some("moving"), "taken by the next service");
    starts(&mut row, 1, 5, 1);
    assert_eq!(health(&row, 5), Some("running"), "a move is no error");
    assert_eq!(row.restarts(), 0);
    row.delete(at(6), &RowPolicy::default());
    assert_eq!(health(&row, 6), Some("stopping"));
    hear(&mut row, 1, 7, RunEvent::Stopped);
    assert_eq!(health(&row, 7), None);
}

#[test]
fn an_observer_that_should_not_run_has_no_health() {
    for event in [RunEvent::Completed, RunEvent::Failed { error: "e".into(), attempts: 1 }] {
        let mut row = row();
        starts(&mut row, 0, 1, 1);
        hear(&mut row, 0, 2, event);
        assert_eq!(health(&row, 2), None);
    }
    let mut paused = row();
    starts(&mut paused, 0, 1, 1);
    paused.pause(at(2), &RowPolicy::default()).unwrap();
    assert_eq!(health(&paused, 2), Some("stopping"));
    hear(&mut paused, 0, 3, RunEvent::Stopped);
    assert_eq!(health(&paused, 3), None);
}

#[test]
fn services_that_a_person_kills_make_no_crash_loop() {
    for excused in [false, true] {
        let mut row = row();
        for run in 0..4 {
            starts(&mut row, run, 1 + 10 * i64::from(run), 1);
            if excused {
                row.excuse(|service| service == ServiceId(Uuid::from_u128(u128::from(run) + 9)));
            }
        }
        let expected = if excused { "running" } else { "restarting" };
        assert_eq!((is_crash_looping(&row.observed), health(&row, 32)), (!excused, Some(expected)));
        assert_eq!(row.crash_check.is_some(), !excused);
        assert!(!row.excuse(|_| false));
    }
}

#[test]
fn a_requested_restart_is_stopping_then_waiting() {
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    row.restart(at(2), &RowPolicy::default()).unwrap();
    assert_eq!(health(&row, 2), Some("stopping"));
    hear(&mut row, 0, 3, RunEvent::Stopped);
    assert_eq!(health(&row, 3), Some("waiting"), "a manager has yet to publish its next generation");
}

#[test]
fn a_crash_loop_is_never_running() {
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    assert_eq!(health(&row, 1), Some("running"), "it has not failed yet");
    // Each attempt runs for four minutes: shorter than the policy takes to forget an error.
    for attempt in 1..6 {
        let begun = 1 + 300 * i64::from(attempt - 1);
        errs(&mut row, 0, begun + 240, attempt);
        assert_eq!(health(&row, begun + 241), Some("restarting"), "backing off");
        starts(&mut row, 0, begun + 300, attempt + 1);
        for second in [300, 420, 539] {
            assert_eq!(health(&row, begun + second), Some("restarting"), "attempt {attempt} at {second}");
        }
        assert_eq!(row.restarts(), attempt);
    }
}

#[test]
fn restarts_are_counted_across_moves_until_the_observer_is_healthy() {
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    errs(&mut row, 0, 2, 1);
    starts(&mut row, 0, 3, 2);
    errs(&mut row, 0, 4, 2);
    assert_eq!(row.restarts(), 1, "the second restart has not begun");
    // Its service dies, and the next attempt is one on another service.
    starts(&mut row, 1, 10, 1);
    assert_eq!(row.restarts(), 2);
    errs(&mut row, 1, 11, 1);
    starts(&mut row, 1, 12, 2);
    assert_eq!(row.restarts(), 3);
    // It has run without an error when that service dies, too, but not for long enough.
    starts(&mut row, 2, 300, 1);
    assert_eq!(row.restarts(), 3);
    starts(&mut row, 3, 310, 1);
    assert_eq!(row.restarts(), 3);
    starts(&mut row, 4, 311, 1);
    assert_eq!(row.restarts(), 0, "it has forgotten the error at 11");
    errs(&mut row, 4, 312, 1);
    // Reports of an earlier run that arrive late.
    errs(&mut row, 3, 310, 1);
    starts(&mut row, 5, 320, 1);
    assert_eq!(row.restarts(), 5, "so it never was healthy");
    row.restart(at(321), &RowPolicy::default()).unwrap();
    hear(&mut row, 5, 322, RunEvent::Stopped);
    row.republish(at(323), &RowPolicy::default());
    assert_eq!((row.restarts(), row.errors.len()), (0, 0));
}

#[test]
fn restarts_of_more_runs_than_are_remembered_are_counted() {
    let mut row = row();
    // Each run fails twice within a minute, and its service dies.
    for run in 0..50_u32 {
        let begun = 1 + 60 * i64::from(run);
        starts(&mut row, run, begun, 1);
        assert_eq!(row.restarts(), 2 * run, "run {run}");
        errs(&mut row, run, begun + 10, 1);
        starts(&mut row, run, begun + 20, 2);
        errs(&mut row, run, begun + 30, 2);
        // Reports that arrive again.
        errs(&mut row, run / 2, 1 + 60 * i64::from(run / 2) + 10, 1);
    }
    let healthy = 60 * 50 + 1000;
    starts(&mut row, 50, healthy, 1);
    assert_eq!(row.restarts(), 0, "it ran for long enough");
    for run in 50..80_u32 {
        let begun = healthy + 60 * i64::from(run - 50);
        starts(&mut row, run, begun, 1);
        assert_eq!(row.restarts(), run - 50, "run {run}");
        errs(&mut row, run, begun + 10, 1);
    }
}

#[test]
fn a_restarted_observer_counts_as_running_after_its_reset_time() {
    let never = json!({"kind": "fixed", "every": "1s"});
    let long = json!({"kind": "exponential", "reset_after": "20m"});
    let at_once = json!({"kind": "exponential", "reset_after": "0s"});
    for (retry, secs) in [(json!({"kind": "exponential"}), 300), (never, 300), (long, 1200), (at_once, 60)] {
        let mut row = row_with(&retry);
        starts(&mut row, 0, 1, 1);
        errs(&mut row, 0, 2, 1);
        starts(&mut row, 0, 10, 2);
        assert_eq!(health(&row, 10 + secs - 1), Some("restarting"), "{secs}");
        assert_eq!(health(&row, 10 + secs), Some("running"), "{secs}");
    }
}

#[test]
fn a_move_does_not_hide_a_crash_loop_and_blames_no_old_error() {
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    errs(&mut row, 0, 2, 1);
    hear(&mut row, 0, 3, RunEvent::HandedOver);
    assert_eq!(health(&row, 3), Some("moving"));
    starts(&mut row, 1, 4, 1);
    assert_eq!(health(&row, 5), Some("restarting"), "it failed two seconds before its move");
    assert_eq!(health(&row, 304), Some("running"));
    hear(&mut row, 1, 1000, RunEvent::HandedOver);
    starts(&mut row, 2, 1001, 1);
    assert_eq!(health(&row, 1001), Some("running"), "its error is long ago");
}

#[test]
fn a_start_rate_between_two_attempts_is_a_part_of_the_crash_loop() {
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    errs(&mut row, 0, 2, 1);
    hear(&mut row, 0, 3, taken(hold_reasons::START_RATE, false));
    assert_eq!(health(&row, 3), Some("restarting"));
}

#[test]
fn a_suspect_counts_as_restarting_before_its_code_fails() {
    let mut row = row();
    hear(&mut row, 2, 1, taken(hold_reasons::SUSPECTED, false));
    assert_eq!(health(&row, 1), Some("restarting"));
}

#[test]
fn an_observer_whose_services_die_soon_after_its_start_is_restarting() {
    let mut row = row();
    starts(&mut row, 0, 0, 1);
    starts(&mut row, 1, 50, 1);
    assert_eq!(health(&row, 50), Some("running"), "once is a failover");
    starts(&mut row, 2, 70, 1);
    assert_eq!(
        [health(&row, 70), health(&row, 129), health(&row, 130)].map(Option::unwrap),
        ["restarting", "restarting", "running"]
    );
    let told = explain(&row, true, &[], at(70));
    assert_eq!(told.code.map(ReasonCode::as_str), Some("crash-looping"), "{}", told.reason);
    starts(&mut row, 3, 200, 1);
    assert_eq!(health(&row, 200), Some("running"), "the run before this one was long enough");
}

#[test]
fn repeated_handovers_do_not_make_a_crash_loop() {
    let mut row = row();
    for run in 0..4 {
        starts(&mut row, run, i64::from(run) * 10, 1);
        assert_eq!(health(&row, i64::from(run) * 10), Some("running"));
        hear(&mut row, run, i64::from(run) * 10 + 5, RunEvent::HandedOver);
    }
}

#[test]
fn an_observer_without_a_service_is_waiting() {
    let refused = RunEvent::Refused { why: "kind".into() };
    for event in [refused, taken("kind", true), taken("something newer", false)] {
        let mut row = row();
        hear(&mut row, 0, 1, event);
        assert_eq!(health(&row, 1), Some("waiting"));
    }
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    assert!(row.on_unlisted(ServiceId(Uuid::from_u128(9)), 2, at(2)));
    assert_eq!(health(&row, 2), Some("waiting"), "its service no longer has it");
}

#[test]
fn an_observer_of_a_lost_service_is_waiting() {
    let lost = |row: &Row| standing(row).unwrap().at(false, at(999));
    let mut row = row();
    starts(&mut row, 0, 1, 1);
    assert_eq!(lost(&row), Health::Waiting);
    errs(&mut row, 0, 2, 1);
    assert_eq!(lost(&row), Health::Waiting, "nor does a back-off end");
    row.delete(at(3), &RowPolicy::default());
    assert_eq!(lost(&row), Health::Stopping);
}

#[test]
fn code_that_is_not_ready_does_not_count_as_running() {
    let starting = |secs: i64, attempt| RunEvent::Starting { attempt, started_at: at(secs) };
    let mut row = row();
    hear(&mut row, 0, 1, starting(1, 1));
    assert_eq!(health(&row, 1), Some("waiting"));
    assert_eq!(row.verdict().reason.code(), Some(ReasonCode::NotReady));
    starts(&mut row, 0, 2, 1);
    assert_eq!((health(&row, 2), row.verdict().reason.code()), (Some("running"), None));
    hear(&mut row, 1, 3, starting(3, 1));
    assert_eq!(health(&row, 3), Some("moving"), "on the next service");
    errs(&mut row, 1, 4, 1);
    hear(&mut row, 1, 5, starting(5, 2));
    assert_eq!(health(&row, 5), Some("restarting"), "after an error");
    let held = explain(&row, true, &[], at(5));
    assert_eq!(held.code, Some(ReasonCode::RecentlyFailed), "{held:?}");
    assert_eq!(stored_code(&row), held.code, "what the filters of the stores compare");
    assert_eq!(
        held.reason,
        "started again after an error; it counts as running after 5m without another error"
    );
}
