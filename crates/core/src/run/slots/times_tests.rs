//! Transcripts of time-outs and of `finish_at`.

use super::tests::*;
use super::*;
use crate::id::Kind;
use crate::observer::retry::Retry;
use crate::wire::command::Cause;
use crate::wire::work::DecodedWork;
use serde_json::json;

const FINISH: &str = "1970-01-01T00:01:00Z";

fn timed() -> Input<u32> {
    let retry =
        json!({"kind": "exponential", "first": "1s", "max": "1s", "attempts": 2, "reset_after": "5s"});
    let read = work(1, &json!({"attempt_timeout": "10s", "grace": "2s", "retry": retry}));
    Input::Delivered { receipt: 7, read, acquisitions: 0 }
}
fn finite(acquisitions: u32, extra: &serde_json::Value) -> Input<u32> {
    let mut body = json!({"finish_at": FINISH, "grace": "2s"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Input::Delivered { receipt: 7, read: work(1, &body), acquisitions }
}
/// It runs, and its attempt has taken its longest time.
fn timed_out() -> Script {
    let mut script = Script::new();
    script.on(timed(), &["start 1.0 attempt 1", "report Started 1.0"]);
    assert_eq!(script.deadline(), Some(Duration::from_secs(10)));
    script.at(9_999).on(Input::Wake, &[]).at(10_000).on(Input::Wake, &["cancel TimedOut"]);
    script
}
/// It runs until a minute after the start of the service.
fn running() -> Script {
    let mut script = Script::new();
    script.on(finite(0, &json!({})), &["start 1.0 attempt 1", "report Started 1.0"]);
    assert_eq!(script.deadline(), Some(Duration::from_secs(60)));
    script
}
fn errors(script: &mut Script, outcome: Outcome) -> String {
    let effects = script.slots.step(ended(1, 0, outcome), script.now);
    let [Effect::Report(report) | Effect::Settle(report)] = &effects[..] else { panic!("{effects:?}") };
    match &report.event {
        RunEvent::Errored { error, .. } | RunEvent::Failed { error, .. } => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_attempt_that_takes_too_long_is_an_error_whatever_its_code_returns() {
    for outcome in
        [Outcome::Done, Outcome::Failed("x".into()), Outcome::Errored("x".into()), Outcome::Aborted]
    {
        assert_eq!(errors(&mut timed_out(), outcome), "timed out after 10s (attempt_timeout)");
    }
    timed_out().at(11_999).on(Input::Wake, &[]).at(12_000).on(Input::Wake, &["abort"]);
}

/// Even after `reset_after`: otherwise an observer whose attempts take longer than that would never give up.
#[test]
fn attempts_that_time_out_are_counted() {
    timed_out()
        .on(ended(1, 0, Outcome::Done), &["report Errored 1.0"])
        .at(12_000)
        .on(Input::Wake, &["start 1.0 attempt 2", "report Started 1.0"])
        .at(22_000)
        .on(Input::Wake, &["cancel TimedOut"])
        .on(ended(1, 0, Outcome::Done), &["settle Failed 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
    assert!(Retry::default().reset_after().is_some());
}

#[test]
fn an_attempt_in_time_ends_as_ever() {
    let mut script = Script::new();
    script
        .on(timed(), &["start 1.0 attempt 1", "report Started 1.0"])
        .at(9_000)
        .on(ended(1, 0, Outcome::Done), &["settle Completed 1.0"]);
    assert_eq!(script.deadline(), None);
}

#[test]
fn a_revocation_or_a_handover_takes_over_the_end_of_a_timed_out_attempt() {
    timed_out()
        .on(revocation(Epoch::after_generation(1)), &[])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"]);
    timed_out()
        .on(Input::Drain(None), &[])
        .on(ended(1, 0, Outcome::Done), &["report HandedOver 1.0", "requeue 7"]);
    // It counts as one that stays.
    timed_out()
        .on(Input::HandOverDownTo(1, Cause::Resize), &[])
        .on(ended(1, 0, Outcome::Done), &["report Errored 1.0"]);
    timed_out()
        .on(Input::HandOverDownTo(0, Cause::Resize), &[])
        .on(ended(1, 0, Outcome::Done), &["report HandedOverFor 1.0", "requeue 7"]);
}

#[test]
fn a_running_observer_is_told_to_finish_in_time() {
    running()
        .at(59_999)
        .on(Input::Wake, &[])
        .at(60_000)
        .on(Input::Wake, &["cancel Finished"])
        .at(62_000)
        .on(Input::Wake, &["abort"])
        .on(ended(1, 0, Outcome::Aborted), &["settle Finished 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
    for (outcome, expected) in [
        (Outcome::Done, "settle Finished 1.0"),
        (Outcome::Errored("x".into()), "settle Finished 1.0"),
        (Outcome::DoneWith("7".into()), "settle CompletedWith 1.0"),
    ] {
        running().at(60_000).on(Input::Wake, &["cancel Finished"]).on(ended(1, 0, outcome), &[expected]);
    }
}

#[test]
fn the_database_s_clock_decides() {
    let time = |secs: i64| Input::Time(Timestamp(secs * 1000));
    let mut script = running();
    script.at(1_000).on(time(31), &[]);
    assert_eq!(script.deadline(), Some(Duration::from_secs(30)));
    script.at(30_000).on(Input::Wake, &["cancel Finished"]);
    // The machine's clock is a minute fast.
    let mut script = Script::new();
    script.on(time(0), &[]);
    script.now.wall = Timestamp(60_000);
    script.on(finite(0, &json!({})), &["start 1.0 attempt 1", "report Started 1.0"]).on(Input::Wake, &[]);
}

#[test]
fn what_does_not_run_finishes_without_a_start() {
    // It arrives late.
    Script::new()
        .at(60_000)
        .on(finite(0, &json!({})), &["settle Finished 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
    // It waits for its next attempt.
    running()
        .at(59_500)
        .on(ended(1, 0, Outcome::Errored("x".into())), &["report Errored 1.0"])
        .at(60_000)
        .on(Input::Wake, &["settle Finished 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
    // An older run may still be ending elsewhere: it settles when that has certainly ended.
    let apart = finite(1, &json!({"overlap": "forbid"}));
    Script::new()
        .at(59_500)
        .on(apart, &["report Held 1.1"])
        .at(60_000)
        .on(Input::Wake, &[])
        .at(60_500)
        .on(Input::Wake, &["settle Finished 1.1"]);
    // No service of its pool can run it.
    Script::new()
        .on(finite(0, &json!({"kind": "other"})), &["step back until 2 s", "report Held 1.0"])
        .at(0)
        .on(Input::Wake, &["report Refused 1.0", "requeue 7"])
        .on(finite(1, &json!({"kind": "other"})), &["step back until 2 s", "report Held 1.1"])
        .on(Input::Wake, &["report Refused 1.1", "requeue 7"])
        .at(59_800)
        .on(finite(2, &json!({"kind": "other"})), &["step back until 62.8 s", "report Held 1.2"])
        .at(60_000)
        .on(Input::Wake, &["settle Finished 1.2"]);
    let late = finite(1, &json!({"overlap": "forbid"}));
    Script::new().at(60_000).on(late, &[]).at(61_000).on(Input::Wake, &["settle Finished 1.1"]);
}

#[test]
fn a_revocation_takes_over_the_wait_of_what_never_started() {
    let late = finite(1, &json!({"overlap": "forbid"}));
    Script::new()
        .at(60_000)
        .on(late, &[])
        .on(revocation(Epoch::after_generation(1)), &[])
        .at(61_000)
        .on(Input::Wake, &["settle Stopped 1.1"]);
}

#[test]
fn a_handover_becomes_a_finish_and_a_finish_becomes_a_revocation() {
    running()
        .at(59_000)
        .on(Input::Drain(None), &["cancel Drained"])
        .at(60_000)
        .on(Input::Wake, &[])
        .on(ended(1, 0, Outcome::Done), &["settle Finished 1.0"]);
    running()
        .at(60_000)
        .on(Input::Wake, &["cancel Finished"])
        .on(revocation(Epoch::after_generation(1)), &[])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"]);
    running()
        .at(59_000)
        .on(revocation(Epoch::after_generation(1)), &["cancel"])
        .at(60_000)
        .on(Input::Wake, &[])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"]);
}

/// The monotonic clock counts finer than the wall clock: a time that is computed again may differ by a millisecond.
#[test]
fn every_report_of_a_start_tells_the_same_time() {
    let mut script = Script::new();
    script.slots.policy.announce_readiness = [Kind::new("ticker").unwrap()].into();
    script.now.mono = Duration::from_micros(10_900);
    script.now.wall = Timestamp(500);
    let at = |effects: &[Effect<u32>]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Report(RunReport {
                event: RunEvent::Starting { started_at, .. } | RunEvent::Started { started_at, .. },
                ..
            }) => Some(*started_at),
            _ => None,
        })
    };
    let first = at(&script.slots.step(timed(), script.now));
    script.now.mono = Duration::from_micros(12_100);
    script.now.wall = Timestamp(502);
    let ready = Input::Ready { id: id(), epoch: Epoch::new(1, 0), attempt: 1 };
    let second = at(&script.slots.step(ready, script.now));
    assert_eq!((first, second), (Some(Timestamp(500)), Some(Timestamp(500))));
    let RunEvent::Started { started_at, .. } = script.slots.list()[0].event else { panic!() };
    assert_eq!(started_at, Timestamp(500), "also in an inventory");
}

fn windowed(acquisitions: u32) -> Input<u32> {
    let DecodedWork::Ours(work) = work(1, &json!({"grace": "2s"})) else { panic!() };
    let closes_at = Some(Timestamp(60_000));
    Input::Delivered {
        receipt: 7,
        read: DecodedWork::Ours(Box::new(Work { closes_at, ..*work })),
        acquisitions,
    }
}

#[test]
fn a_run_ends_with_its_window_and_a_later_delivery_does_not_start() {
    let mut script = Script::new();
    script.on(windowed(0), &["start 1.0 attempt 1", "report Started 1.0"]);
    assert_eq!(script.deadline(), Some(Duration::from_secs(60)));
    script
        .at(59_999)
        .on(Input::Wake, &[])
        .at(60_000)
        .on(Input::Wake, &["cancel WindowClosed"])
        // Its result belongs to a run that goes on in the next window.
        .on(ended(1, 0, Outcome::DoneWith("1".into())), &["settle Finished 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
    Script::new().at(60_000).on(windowed(1), &["settle Finished 1.1"]);
}
