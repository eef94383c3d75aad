//! Every state of a slot with every input: the snapshot records the effects, so that a change of any pair shows.

#![expect(clippy::unwrap_used, reason = "a failing test says so by panicking")]

use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Kind, Name, ObserverId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::run::slots::{Effect, Input, Now, Outcome, SlotPolicy, Slots};
use everwatch_core::wire::command::{Cause, Revocation};
use everwatch_core::wire::report::RunReport;
use everwatch_core::wire::work::{DecodedWork, Work};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;
use uuid::Uuid;

const ID: ObserverId = ObserverId(Uuid::from_u128(1));
/// The run that every state is about.
const RUN: (u32, u32) = (2, 1);

fn now(secs: u64) -> Now {
    let mono = Duration::from_secs(secs);
    Now { mono, wall: Timestamp(i64::try_from(mono.as_millis()).unwrap()), chance: 0.5 }
}

fn work(generation: u32, kind: &str, overlap: &str) -> DecodedWork {
    let retry = json!({"kind": "fixed", "every": "10s", "attempts": 2});
    let definition = json!({"kind": kind, "retry": retry, "overlap": overlap, "grace": "30s"});
    let definition = ObserverDefinition::parse(definition, &Name::new("w").unwrap()).unwrap();
    DecodedWork::Ours(Box::new(Work::of(ID, generation, &definition).unwrap()))
}

fn delivered(receipt: u32, (generation, acquisitions): (u32, u32)) -> Input<u32> {
    Input::Delivered { receipt, read: work(generation, "ticker", "allow"), acquisitions }
}
fn special(kind: &str, overlap: &str) -> Input<u32> {
    Input::Delivered { receipt: 1, read: work(RUN.0, kind, overlap), acquisitions: RUN.1 }
}
fn ended(outcome: Outcome) -> Input<u32> {
    Input::Ended { id: ID, epoch: Epoch::new(RUN.0, RUN.1), outcome }
}
fn revocation(below: Epoch) -> Input<u32> {
    Input::Revocations(vec![Revocation { id: ID, below, cause: None }])
}
fn doomed() -> Input<u32> {
    revocation(Epoch::after_generation(RUN.0))
}
fn take() -> Input<u32> {
    delivered(1, RUN)
}

/// Its attempt takes at most a second, and it ends when the database's clock shows [`FINISH`].
fn timed() -> Input<u32> {
    let Input::Delivered { receipt, read: DecodedWork::Ours(work), acquisitions } = take() else {
        unreachable!()
    };
    let work = Work { attempt_timeout: Some(Duration::from_secs(1)), finish_at: Some(FINISH), ..*work };
    Input::Delivered { receipt, read: DecodedWork::Ours(Box::new(work)), acquisitions }
}
const FINISH: Timestamp = Timestamp(1_000_000);

type Path = fn() -> Vec<Input<u32>>;

/// How each state is reached.
const STATES: [(&str, Path); 15] = [
    ("absent", Vec::new),
    ("absent, under a revocation", || vec![doomed()]),
    ("waiting", || vec![special("ticker", "forbid")]),
    ("announced, a suspect", || vec![Input::CrashLooping(vec![ID]), take()]),
    ("running", || vec![take()]),
    ("backoff", || vec![take(), ended(Outcome::Errored("e".into()))]),
    ("ending by a revocation", || vec![take(), doomed()]),
    ("ending by hand-over", || vec![take(), Input::Drain(None)]),
    ("ending by a time-out", || vec![timed(), Input::Wake]),
    ("ending by its finish_at", || vec![timed(), Input::Time(FINISH), Input::Wake]),
    ("backoff, with a finish_at", || vec![timed(), Input::Wake, ended(Outcome::Done)]),
    ("refusing", || vec![special("unknown", "allow")]),
    ("settling", || vec![take(), ended(Outcome::Done)]),
    ("unstarted, settling", || vec![doomed(), take()]),
    ("with a later copy behind", || vec![take(), delivered(2, (3, 0))]),
];

type Make = fn() -> Input<u32>;

const INPUTS: [(&str, Make); 21] = [
    ("delivery of the run before", || delivered(9, (RUN.0, 0))),
    ("delivery of the next run", || delivered(9, (RUN.0, RUN.1 + 1))),
    ("delivery of the next generation", || delivered(9, (RUN.0 + 1, 0))),
    ("revocation under the run", || revocation(Epoch::new(RUN.0, RUN.1))),
    ("revocation over the run", || revocation(Epoch::new(RUN.0, RUN.1 + 1))),
    ("revocation over the generation", doomed),
    ("ended: done", || ended(Outcome::Done)),
    ("ended: failed", || ended(Outcome::Failed("f".into()))),
    ("ended: error", || ended(Outcome::Errored("e".into()))),
    ("ended: aborted", || ended(Outcome::Aborted)),
    ("ended: another run", || Input::Ended { id: ID, epoch: Epoch::new(RUN.0, 0), outcome: Outcome::Done }),
    ("confirmed", || Input::Confirmed { id: ID, epoch: Epoch::new(RUN.0, RUN.1) }),
    ("announced", || Input::Announced { id: ID, epoch: Epoch::new(RUN.0, RUN.1) }),
    ("suspected", || Input::CrashLooping(vec![ID])),
    ("the deadline", || Input::Wake),
    ("time", || Input::Time(FINISH)),
    ("hand it over", || Input::HandOver(vec![ID], Cause::Move)),
    ("hand over all but one", || Input::HandOverDownTo(1, Cause::Drain)),
    ("hand over all", || Input::HandOverDownTo(0, Cause::Drain)),
    ("drain", || Input::Drain(None)),
    ("abort all", || Input::AbortAll),
];

fn told(effect: &Effect<u32>) -> String {
    let report = |word: &str, it: &RunReport| {
        let event = format!("{:?}", it.event);
        let event = event.split([' ', '{']).next().unwrap_or_default().to_owned();
        format!("{word} {event} {}", it.epoch)
    };
    match effect {
        Effect::Start { epoch, attempt, .. } => format!("start {epoch} attempt {attempt}"),
        Effect::Cancel { .. } => "cancel".to_owned(),
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

#[test]
fn every_state_with_every_input() {
    let mut table = String::new();
    for (state, path) in STATES {
        writeln!(table, "{state}").unwrap();
        for (input, make) in INPUTS {
            let policy = SlotPolicy {
                kinds: [Kind::new("ticker").unwrap()].into(),
                announce_readiness: [].into(),
                weight_max: 1,
                fence_grace: Duration::from_millis(500),
                consumers: 2,
                refuse_first: Duration::from_secs(1),
                refuse_max: Duration::from_secs(60),
            };
            let mut slots = Slots::new(policy);
            for (second, step) in (0..).zip(path()) {
                slots.step(step, now(second));
            }
            let effects = slots.step(make(), now(60));
            // I7: an acknowledgement follows only a confirm.
            let acks = effects.iter().any(|effect| matches!(effect, Effect::Ack(_) | Effect::Release(..)));
            assert!(!acks || input == "confirmed", "{state} + {input} acknowledges");
            let effects: Vec<_> = effects.iter().map(told).collect();
            let effects = if effects.is_empty() { "nothing".to_owned() } else { effects.join(", ") };
            writeln!(table, "  + {input:33} -> {effects}; holds {}", slots.held()).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
