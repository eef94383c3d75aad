//! Transcripts: each input with all effects that must follow, in order.

use super::*;
use crate::clock::Timestamp;
use crate::id::Kind;
use crate::id::Name;
use crate::observer::definition::ObserverDefinition;
use crate::wire::command::Cause;
use crate::wire::work::DecodedWork;
use serde_json::json;
use uuid::Uuid;

pub(super) struct Script {
    pub(super) slots: Slots<u32>,
    pub(super) now: Now,
}

pub(super) fn id() -> ObserverId {
    ObserverId(Uuid::from_u128(1))
}

pub(super) fn work(generation: u32, extra: &serde_json::Value) -> DecodedWork {
    let mut body = json!({"kind": "ticker", "retry": {"kind": "fixed", "every": "1s", "attempts": 2}});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    let definition = ObserverDefinition::parse(body, &Name::new("w").unwrap()).unwrap();
    DecodedWork::Ours(Box::new(Work::of(id(), generation, &definition).unwrap()))
}

impl Script {
    pub(super) fn new() -> Self {
        let policy = SlotPolicy {
            kinds: [Kind::new("ticker").unwrap()].into(),
            announce_readiness: [].into(),
            weight_max: 1,
            fence_grace: Duration::from_millis(500),
            consumers: 2,
            refuse_first: Duration::from_secs(1),
            refuse_max: Duration::from_secs(60),
        };
        let now = Now { mono: Duration::ZERO, wall: Timestamp(0), chance: 0.5 };
        Self { slots: Slots::new(policy), now }
    }
    pub(super) fn at(&mut self, millis: u64) -> &mut Self {
        self.now.mono = Duration::from_millis(millis);
        self.now.wall = Timestamp(i64::try_from(millis).unwrap());
        self
    }
    /// Feeds one input and compares every effect, none missing and none unexpected.
    #[track_caller]
    pub(super) fn on(&mut self, input: Input<u32>, expected: &[&str]) -> &mut Self {
        let effects: Vec<String> = self.slots.step(input, self.now).iter().map(told).collect();
        assert_eq!(effects, expected);
        self
    }
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.slots.next_deadline(self.now)
    }
}

fn told(effect: &Effect<u32>) -> String {
    let report = |word: &str, it: &RunReport| {
        let event = format!("{:?}", it.event);
        let event = event.split([' ', '{']).next().unwrap_or_default().to_owned();
        format!("{word} {event} {}", it.epoch)
    };
    match effect {
        Effect::Start { epoch, attempt, .. } => format!("start {epoch} attempt {attempt}"),
        Effect::Cancel { reason: CancelReason::Replaced, .. } => "cancel".to_owned(),
        Effect::Cancel { reason, .. } => format!("cancel {reason:?}"),
        Effect::Abort { .. } => "abort".to_owned(),
        Effect::Report(it) => report("report", it),
        Effect::Settle(it) => report("settle", it),
        Effect::Announce(it) => report("announce", it),
        Effect::Ack(receipt) => format!("ack {receipt}"),
        Effect::Release(receipt, it) => format!("ack {receipt}, then {}", report("report", it)),
        Effect::Requeue(receipt) => format!("requeue {receipt}"),
        Effect::Lost { epoch, .. } => format!("lost {epoch}"),
        Effect::StepBack { until } => format!("step back until {} s", until.as_secs_f64()),
    }
}

pub(super) fn delivered(receipt: u32, generation: u32, acquisitions: u32) -> Input<u32> {
    Input::Delivered { receipt, read: work(generation, &json!({})), acquisitions }
}
pub(super) fn ended(generation: u32, acquisitions: u32, outcome: Outcome) -> Input<u32> {
    Input::Ended { id: id(), epoch: Epoch::new(generation, acquisitions), outcome }
}
pub(super) fn confirmed(generation: u32, acquisitions: u32) -> Input<u32> {
    Input::Confirmed { id: id(), epoch: Epoch::new(generation, acquisitions) }
}
pub(super) fn revocation(below: Epoch) -> Input<u32> {
    Input::Revocations(vec![Revocation { id: id(), below, cause: None }])
}

#[test]
fn a_run_goes_from_delivery_to_a_confirmed_settlement() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(revocation(Epoch::after_generation(1)), &["cancel"])
        .on(revocation(Epoch::after_generation(1)), &[])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"])
        .on(confirmed(1, 0), &["ack 7"])
        .on(confirmed(1, 0), &[]);
}

#[test]
fn managers_learn_when_a_message_that_counts_towards_limits_is_gone() {
    let read = || work(1, &json!({"limits": ["a"]}));
    let stop = || revocation(Epoch::after_generation(1));
    Script::new()
        .on(
            Input::Delivered { receipt: 7, read: read(), acquisitions: 0 },
            &["start 1.0 attempt 1", "report Started 1.0"],
        )
        .on(stop(), &["cancel"])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"])
        .on(confirmed(1, 0), &["ack 7, then report Released 1.0"])
        .on(Input::Delivered { receipt: 8, read: read(), acquisitions: 1 }, &["settle Stopped 1.1"])
        .on(confirmed(1, 1), &["ack 8, then report Released 1.1"]);
}

#[test]
fn no_run_below_a_revocation_starts() {
    Script::new()
        .on(revocation(Epoch::after_generation(1)), &[])
        .on(delivered(7, 1, 3), &["settle Stopped 1.3"])
        .on(confirmed(1, 3), &["ack 7"])
        .on(delivered(8, 2, 0), &["start 2.0 attempt 1", "report Started 2.0"]);
}

#[test]
fn an_error_is_retried_and_the_last_attempt_gives_up() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(ended(1, 0, Outcome::Errored("x".into())), &["report Errored 1.0"])
        .at(999)
        .on(Input::Wake, &[])
        .at(1000)
        .on(Input::Wake, &["start 1.0 attempt 2", "report Started 1.0"])
        .on(ended(1, 0, Outcome::Errored("x".into())), &["settle Failed 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
}

#[test]
fn an_inventory_repeats_the_error_of_a_restarting_observer() {
    let mut script = Script::new();
    script
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .at(100)
        .on(ended(1, 0, Outcome::Errored("x".into())), &["report Errored 1.0"])
        .at(600);
    let errored = RunEvent::Errored { attempt: 1, error: "x".to_owned(), next_at: Timestamp(1100) };
    let entries = script.slots.list();
    assert_eq!(entries[0].event, errored);
    // A row that has this error already is not written again.
    let definition = ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("w").unwrap()).unwrap();
    let policy = crate::record::row_policy::RowPolicy::default();
    let mut row = crate::record::row::Row::created(id(), definition, Timestamp(0), &policy);
    let service = crate::id::ServiceId(Uuid::from_u128(9));
    assert!(!row.repeats(service, &entries[0]));
    row.apply(service, 1, Timestamp(100), &entries[0], Timestamp(100));
    assert!(row.repeats(service, &entries[0]));
    let other = RunReport {
        event: RunEvent::Errored { attempt: 1, error: "y".to_owned(), next_at: Timestamp(1100) },
        ..entries[0].clone()
    };
    assert!(!row.repeats(service, &other));
}

#[test]
fn code_that_does_not_end_is_aborted_after_its_grace() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(revocation(Epoch::after_generation(1)), &["cancel"])
        .at(10_000)
        .on(Input::Wake, &["abort"])
        .on(ended(1, 0, Outcome::Aborted), &["settle Stopped 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
}

#[test]
fn a_drain_hands_over_all_observers_and_takes_no_more() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(Input::Drain(None), &["cancel Drained"])
        .on(ended(1, 0, Outcome::Done), &["report HandedOver 1.0", "requeue 7"])
        .on(delivered(8, 1, 1), &["requeue 8"]);
}

#[test]
fn a_redelivery_without_overlap_waits_twice_the_fence_grace() {
    let read = work(1, &json!({"overlap": "forbid"}));
    Script::new()
        .on(Input::Delivered { receipt: 7, read, acquisitions: 1 }, &["report Held 1.1"])
        .at(999)
        .on(Input::Wake, &[])
        .at(1000)
        .on(Input::Wake, &["start 1.1 attempt 1", "report Started 1.1"]);
}

/// The next generation starts as soon as this one is settled, possibly on a third service.
#[test]
fn a_redelivery_without_overlap_ends_no_sooner_than_it_would_start() {
    let arrives = || {
        let read = work(1, &json!({"overlap": "forbid"}));
        Input::Delivered { receipt: 7, read, acquisitions: 1 }
    };
    let over = |script: &mut Script| {
        script.at(999).on(Input::Wake, &[]).at(1000).on(Input::Wake, &["settle Stopped 1.1"]);
        script.on(confirmed(1, 1), &["ack 7"]);
    };
    let mut script = Script::new();
    script.on(revocation(Epoch::after_generation(1)), &[]).on(arrives(), &[]);
    over(&mut script);
    let mut script = Script::new();
    script.on(arrives(), &["report Held 1.1"]).at(300).on(revocation(Epoch::after_generation(1)), &[]);
    over(&mut script);
}

#[test]
fn the_later_copy_starts_after_the_earlier_is_settled() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(delivered(8, 2, 0), &["cancel"])
        .on(ended(1, 0, Outcome::Done), &["settle Stopped 1.0"])
        .on(confirmed(1, 0), &["ack 7", "start 2.0 attempt 1", "report Started 2.0"])
        .on(delivered(9, 1, 1), &["settle Stopped 1.1"])
        .on(confirmed(1, 1), &["ack 9"]);
}

#[test]
fn a_refused_message_passes_all_consumers_then_waits_longer_each_round() {
    let foreign = || {
        let body =
            br#"{"v": 9, "id": "00000000-0000-0000-0000-000000000001", "generation": 1, "kind": "new"}"#;
        Input::Delivered { receipt: 7, read: Work::read(body).unwrap(), acquisitions: 0 }
    };
    let back = &["report Refused 1.0", "requeue 7"];
    let mut script = Script::new();
    // This service has two consumers: the message passes both, then waits before the next round. While it waits here, and
    // a while longer, the queue serves other services first: one of them may run it.
    for pause in [0, 0].into_iter().chain([1000, 0].repeat(8)).chain([2000, 0, 4000]) {
        let at = u64::try_from(script.now.mono.as_millis()).unwrap() + pause;
        let steps_back = format!("step back until {} s", Duration::from_millis(at).as_secs() + 2);
        script.on(foreign(), &[&steps_back, "report Held 1.0"]);
        if pause > 0 {
            script.at(at - 1).on(Input::Wake, &[]);
        }
        script.at(at).on(Input::Wake, back);
    }
    // Long after, because it has run elsewhere, a refusal counts as the first again.
    let at = u64::try_from(script.now.mono.as_millis()).unwrap() + 121_000;
    let steps_back = format!("step back until {} s", at / 1000 + 2);
    script.at(at).on(foreign(), &[&steps_back, "report Held 1.0"]).on(Input::Wake, back);
    script.on(revocation(Epoch::after_generation(1)), &[]).on(foreign(), &["settle Stopped 1.0"]);
}

#[test]
fn a_late_input_of_an_old_run_has_no_effect() {
    Script::new()
        .on(delivered(7, 2, 0), &["start 2.0 attempt 1", "report Started 2.0"])
        .on(ended(1, 0, Outcome::Done), &[])
        .on(confirmed(1, 0), &[]);
}

#[test]
fn suspects_are_announced_and_start_one_at_a_time() {
    let other = ObserverId(Uuid::from_u128(2));
    let second = |receipt| {
        let DecodedWork::Ours(mut it) = work(1, &json!({})) else { unreachable!() };
        it.id = other;
        Input::Delivered { receipt, read: DecodedWork::Ours(it), acquisitions: 0 }
    };
    let mut script = Script::new();
    script
        .on(Input::CrashLooping(vec![id(), other]), &[])
        .on(delivered(1, 1, 2), &["announce Held 1.2"])
        .on(second(2), &["announce Held 1.0"])
        .at(100)
        .on(Input::Announced { id: id(), epoch: Epoch::new(1, 1) }, &[])
        .on(Input::Announced { id: id(), epoch: Epoch::new(1, 2) }, &[])
        .on(Input::Announced { id: other, epoch: Epoch::new(1, 0) }, &[])
        .at(1_100)
        // The chance is one half, which selects the second of two.
        .on(Input::Wake, &["start 1.0 attempt 1", "report Started 1.0"])
        .at(61_099)
        .on(Input::Wake, &[])
        .at(61_100)
        .on(Input::Wake, &["start 1.2 attempt 1", "report Started 1.2"]);
}

#[test]
fn suspects_start_at_once_when_the_cause_is_found() {
    let other = ObserverId(Uuid::from_u128(2));
    let mut script = Script::new();
    script
        .on(Input::CrashLooping(vec![id()]), &[])
        .on(delivered(1, 1, 2), &["announce Held 1.2"])
        .on(Input::Announced { id: id(), epoch: Epoch::new(1, 2) }, &[])
        .at(500)
        .on(Input::CrashLooping(vec![id(), other]), &[])
        .on(Input::Wake, &[])
        .on(Input::CrashLooping(vec![other]), &[])
        .on(Input::Wake, &["start 1.2 attempt 1", "report Started 1.2"]);
    let mut script = Script::new();
    script
        .on(Input::CrashLooping(vec![id()]), &[])
        .on(delivered(1, 1, 2), &["announce Held 1.2"])
        .on(Input::CrashLooping(Vec::new()), &[])
        .on(Input::Announced { id: id(), epoch: Epoch::new(1, 2) }, &[])
        .on(Input::Wake, &["start 1.2 attempt 1", "report Started 1.2"]);
}

#[test]
fn a_late_confirm_of_an_announcement_acknowledges_nothing() {
    let mut script = Script::new();
    script
        .on(Input::CrashLooping(vec![id()]), &[])
        .on(delivered(1, 1, 2), &["announce Held 1.2"])
        .on(
            Input::Revocations(vec![Revocation { id: id(), below: Epoch::after_generation(1), cause: None }]),
            &["settle Stopped 1.2"],
        )
        .on(Input::Announced { id: id(), epoch: Epoch::new(1, 2) }, &[])
        .on(Input::Confirmed { id: id(), epoch: Epoch::new(1, 2) }, &["ack 1"]);
}

#[test]
fn starts_beyond_the_rate_wait_and_are_reported() {
    let policy = Script::new().slots.policy;
    let pace = Pace::new(0.1, &BTreeMap::new());
    let mut script = Script::new();
    script.slots = Slots::new(policy).with_pace(pace);
    script.on(delivered(1, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"]);
    // The retry delay is shorter than the wait for the turn.
    script.on(ended(1, 0, Outcome::Errored("e".into())), &["report Errored 1.0"]);
    script.at(1000).on(Input::Wake, &[]);
    assert_eq!(
        script.slots.list()[0].event,
        RunEvent::Held { reason: "start rate".to_owned(), refuses: false }
    );
    script.at(12_499).on(Input::Wake, &[]);
    script.at(12_500).on(Input::Wake, &["start 1.0 attempt 2", "report Started 1.0"]);
    script.on(ended(1, 0, Outcome::Done), &["settle Completed 1.0"]);
    script.on(confirmed(1, 0), &["ack 1"]);
    script.on(delivered(2, 2, 0), &["report Held 2.0"]);
    script.at(60_000).on(Input::Wake, &["start 2.0 attempt 1", "report Started 2.0"]);
}

#[test]
fn code_that_announces_readiness_runs_once_it_has_done_so() {
    let mut script = Script::new();
    script.slots.policy.announce_readiness = [Kind::new("ticker").unwrap()].into();
    let ready = |attempt| Input::Ready { id: id(), epoch: Epoch::new(1, 0), attempt };
    let errored = || ended(1, 0, Outcome::Errored("e".to_owned()));
    script
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Starting 1.0"])
        .on(errored(), &["report Errored 1.0"])
        .on(ready(1), &[])
        .at(1000)
        .on(Input::Wake, &["start 1.0 attempt 2", "report Starting 1.0"])
        .on(ready(1), &[])
        .on(Input::Ready { id: id(), epoch: Epoch::new(1, 1), attempt: 2 }, &[])
        .at(3000);
    let entry = |script: &Script| script.slots.list().remove(0).event;
    assert_eq!(entry(&script), RunEvent::Starting { attempt: 2, started_at: Timestamp(1000) });
    script.on(ready(2), &["report Started 1.0"]).on(ready(2), &[]);
    assert_eq!(entry(&script), RunEvent::Started { attempt: 2, started_at: Timestamp(1000) });
}

#[test]
fn code_learns_why_it_must_stop() {
    let running = || {
        let mut script = Script::new();
        script.on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"]);
        script
    };
    for (cause, expected) in [
        (None, "cancel"),
        (Some(RevocationCause::Deleted), "cancel Deleted"),
        (Some(RevocationCause::Paused), "cancel Paused"),
        (Some(RevocationCause::Restarted), "cancel Restarted"),
        (Some(RevocationCause::Other), "cancel"),
    ] {
        let below = Epoch::after_generation(1);
        running().on(Input::Revocations(vec![Revocation { id: id(), below, cause }]), &[expected]);
    }
    for (cause, expected) in [
        (Cause::Move, "cancel Moved"),
        (Cause::Rebalance, "cancel Moved"),
        (Cause::Drain, "cancel Drained"),
        (Cause::Resize, "cancel Drained"),
        (Cause::Stall, "cancel Drained"),
        (Cause::Memory, "cancel Drained"),
    ] {
        running().on(Input::HandOver(vec![id()], cause), &[expected]);
    }
    running().on(Input::Drain(None), &["cancel Drained"]);
}

#[test]
fn code_that_is_done_may_leave_a_result() {
    Script::new()
        .on(delivered(7, 1, 0), &["start 1.0 attempt 1", "report Started 1.0"])
        .on(ended(1, 0, Outcome::DoneWith("1".to_owned())), &["settle CompletedWith 1.0"])
        .on(confirmed(1, 0), &["ack 7"]);
}
