//! Transcripts: each input with all effects that must follow, in order.

use super::*;
use crate::capacity::blocks::BlockEffect;
use crate::clock::Timestamp;
use crate::id::{Kind, Name};
use crate::observer::definition::ObserverDefinition;
use crate::run::slots::SlotPolicy;
use crate::wire::report::InventoryRange;
use serde_json::json;
use std::fmt::Write as _;
use uuid::Uuid;

const ME: ServiceId = ServiceId(Uuid::from_u128(9));

struct Script {
    machine: Machine<u32>,
    now: Now,
}

fn id(number: u128) -> ObserverId {
    ObserverId(Uuid::from_u128(number))
}

fn told(effect: &Effect<u32>) -> String {
    let event = |it: &RunReport| {
        let text = format!("{:?}", it.event);
        let word = text.split([' ', '{', '(']).next().unwrap_or_default();
        format!("{word} {}", it.id.0.as_u128())
    };
    match effect {
        Effect::Start { work, .. } => format!("start {}", work.id.0.as_u128()),
        Effect::Cancel { id, .. } => format!("cancel {}", id.0.as_u128()),
        Effect::Abort { id } => format!("abort {}", id.0.as_u128()),
        Effect::Report(it) => format!("report {}", event(it)),
        Effect::Settle(it) => format!("settle {}", event(it)),
        Effect::Announce(it) => format!("announce {}", event(it)),
        Effect::Ack(receipt) => format!("ack {receipt}"),
        Effect::Release(receipt, it) => format!("ack {receipt}, then report {}", event(it)),
        Effect::Requeue(receipt) => format!("requeue {receipt}"),
        Effect::Lost { id, .. } => format!("lost {}", id.0.as_u128()),
        Effect::Block(BlockEffect::Open { prefetch, priority, .. }) => {
            let mut text = format!("open {prefetch}");
            if *priority < 0 {
                write!(text, " at priority {priority}").unwrap();
            }
            text
        }
        Effect::Block(BlockEffect::Cancel { .. }) => "cancel a block".to_owned(),
        Effect::Block(BlockEffect::Close { .. }) => "close a channel".to_owned(),
        Effect::Ready => "ready".to_owned(),
        Effect::Directed { capacity, .. } => format!("directed to {capacity} slots"),
        Effect::Describe(ids) => format!("describe {}", ids.len()),
        Effect::List(ranges) => format!("list {}", ranges.len()),
        Effect::AnswerLogs(_) => "answer logs".to_owned(),
        Effect::Checkpoints(_) => "pass on checkpoints".to_owned(),
        Effect::Permits(_) => "pass on permits".to_owned(),
    }
}

fn delivered(block: u32, observer: u128) -> Input<u32> {
    let definition = json!({"kind": "ticker", "grace": "10s"});
    let definition = ObserverDefinition::parse(definition, &Name::new("w").unwrap()).unwrap();
    let read = DecodedWork::Ours(Box::new(Work::of(id(observer), 1, &definition).unwrap()));
    let receipt = u32::try_from(observer).unwrap();
    Input::Delivered { block: BlockId(block), receipt, read, acquisitions: 0 }
}

fn stopped(observer: u128) -> Input<u32> {
    Input::Ended { id: id(observer), epoch: Epoch::new(1, 0), outcome: Outcome::Done }
}

fn directives(revision: u64, cordoned: bool, capacity: Option<u32>) -> Input<u32> {
    let directives = ServiceDirectives { revision, cordoned, capacity, ..ServiceDirectives::default() };
    Input::Command(Command::Directives { service: ME, directives })
}

fn hand_over(ids: &[u128], down_to: Option<u32>) -> Input<u32> {
    let ids = ids.iter().copied().map(id).collect();
    let asked =
        HandOver { service: ME, ids, down_to, rest: Duration::from_secs(10), cause: Cause::Rebalance };
    Input::Command(Command::HandOver(asked))
}

fn welcome() -> Welcome {
    Welcome::new(ME, Vec::new())
}

impl Script {
    fn new(capacity: u32) -> Self {
        Self::with(Blocks::new(capacity))
    }
    fn with(blocks: Blocks) -> Self {
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
        Self { machine: Machine::new(ME, Slots::new(policy), blocks), now }
    }
    /// Registered, welcomed, with all blocks open.
    fn serving(capacity: u32) -> Self {
        Self::new(capacity).served()
    }
    fn served(mut self) -> Self {
        let it = &mut self;
        it.machine.step(Input::Registered, it.now);
        it.machine.step(Input::Command(Command::Welcome(Box::new(welcome()))), it.now);
        while !it.machine.ready {
            it.now.mono += Duration::from_millis(50);
            it.machine.step(Input::Wake, it.now);
        }
        self
    }
    fn after(&mut self, millis: u64) -> &mut Self {
        self.now.mono += Duration::from_millis(millis);
        self
    }
    /// Feeds one input and compares every effect, none missing and none unexpected.
    #[track_caller]
    fn on(&mut self, input: Input<u32>, expected: &[&str]) -> &mut Self {
        let effects: Vec<String> = self.machine.step(input, self.now).iter().map(told).collect();
        assert_eq!(effects, expected);
        self
    }
}

#[test]
fn no_work_is_taken_before_the_welcome_and_the_service_is_ready_once_all_blocks_are_open() {
    let mut script = Script::new(2);
    assert_eq!(script.machine.next_deadline(script.now), None, "it is not registered yet");
    script.after(3000).on(Input::Wake, &[]).on(Input::Registered, &[]);
    assert_eq!(script.machine.next_deadline(script.now), Some(Duration::from_secs(4)));
    let welcome = Command::Welcome(Box::new(welcome()));
    script.after(300).on(Input::Command(welcome), &["open 1"]);
    script.after(50).on(Input::Wake, &["open 1", "ready"]);
    assert_eq!(script.machine.next_deadline(script.now), None, "nothing is left to do without an input");
}

#[test]
fn without_a_manager_the_welcome_is_awaited_for_a_second() {
    let mut script = Script::new(1);
    script.on(Input::Registered, &[]).after(999).on(Input::Wake, &[]);
    script.after(1).on(Input::Wake, &["open 1", "ready"]);
}

#[test]
fn a_late_welcome_still_brings_the_directives_of_the_predecessor() {
    let mut script = Script::new(1);
    script.on(Input::Registered, &[]).after(1000).on(Input::Wake, &["open 1", "ready"]);
    let cordoned = ServiceDirectives { revision: 1, cordoned: true, ..ServiceDirectives::default() };
    let late = Welcome { directives: Some(cordoned), ..welcome() };
    script.on(Input::Command(Command::Welcome(Box::new(late))), &["directed to 1 slots", "cancel a block"]);
    assert_eq!(script.machine.intent(), Intent::Cordoned);
}

#[test]
fn directives_of_an_older_revision_or_for_another_service_have_no_effect() {
    let mut script = Script::serving(2);
    script.on(directives(5, true, None), &["directed to 2 slots", "cancel a block", "cancel a block"]);
    script.on(directives(5, false, None), &[]).on(directives(4, false, Some(9)), &[]);
    let other = ServiceId(Uuid::from_u128(1));
    let newer = ServiceDirectives { revision: 6, ..ServiceDirectives::default() };
    script.on(Input::Command(Command::Directives { service: other, directives: newer }), &[]);
    assert_eq!((script.machine.intent(), script.machine.capacity()), (Intent::Cordoned, 2));
}

#[test]
fn observers_are_handed_over_only_when_no_more_messages_arrive() {
    let mut script = Script::serving(2);
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(hand_over(&[7], None), &["cancel a block", "cancel a block"]);
    script.on(Input::BlockEnded(BlockId(2)), &[]);
    script.on(Input::BlockEnded(BlockId(4)), &["close a channel", "cancel 7"]);
    script.on(stopped(7), &["report HandedOverFor 7", "requeue 7", "close a channel"]);
    script.after(499).on(Input::Wake, &[]).after(1).on(Input::Wake, &["open 1 at priority -3"]);
}

#[test]
fn observers_are_handed_over_also_if_the_broker_confirms_a_cancel_late() {
    let mut script = Script::serving(2);
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(hand_over(&[7], None), &["cancel a block", "cancel a block"]);
    script.on(Input::BlockEnded(BlockId(2)), &[]);
    for _ in 0..7 {
        script.after(100).on(Input::Wake, &[]);
    }
    let ended = ["close a channel", "cancel 7", "open 1 at priority -3"];
    script.on(Input::BlockEnded(BlockId(4)), &ended);
    script.on(stopped(7), &["report HandedOverFor 7", "requeue 7"]);
}

#[test]
fn the_end_of_a_cordon_also_ends_what_waits_to_be_handed_over() {
    let mut script = Script::serving(2);
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(hand_over(&[7], None), &["cancel a block", "cancel a block"]);
    script.on(directives(1, false, None), &["directed to 2 slots"]);
    script.after(500).on(Input::BlockEnded(BlockId(4)), &["open 1 at priority -3"]);
}

#[test]
fn a_smaller_capacity_hands_over_the_surplus_once() {
    let mut script = Script::serving(2);
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(delivered(4, 8), &["start 8", "report Started 8"]);
    script.on(directives(1, false, Some(1)), &["directed to 1 slots", "cancel a block", "cancel a block"]);
    script.on(Input::BlockEnded(BlockId(2)), &[]).on(Input::BlockEnded(BlockId(4)), &["cancel 7"]);
    script.on(Input::Wake, &[]);
    script.on(stopped(7), &["report HandedOverFor 7", "requeue 7", "close a channel"]);
    assert_eq!((script.machine.held(), script.machine.observers()), (1, 1));
}

#[test]
fn the_end_of_a_drain_ends_what_it_has_requested() {
    let drained = || {
        let mut script = Script::serving(2);
        script.on(delivered(2, 7), &["start 7", "report Started 7"]);
        script.on(directives(1, true, None), &["directed to 2 slots", "cancel a block", "cancel a block"]);
        script.on(Input::BlockEnded(BlockId(2)), &[]).on(Input::BlockEnded(BlockId(4)), &["close a channel"]);
        let rest = Duration::ZERO;
        let asked = HandOver { service: ME, ids: Vec::new(), down_to: Some(0), rest, cause: Cause::Drain };
        script.on(Input::Command(Command::HandOver(asked)), &[]);
        script
    };
    drained().after(300).on(Input::Wake, &["cancel 7"]);
    let mut script = drained();
    script.after(100).on(directives(2, false, None), &["directed to 2 slots", "open 1"]);
    script.after(5000).on(Input::Wake, &[]);
    assert_eq!(script.machine.observers(), 1);
}

#[test]
fn an_unreadable_message_uses_a_slot_until_it_is_parked() {
    let mut script = Script::serving(1);
    script.on(Input::Unreadable { block: BlockId(2) }, &[]);
    assert_eq!((script.machine.held(), script.machine.observers()), (1, 0));
    script.on(Input::Freed(BlockId(2)), &[]);
    assert_eq!(script.machine.held(), 0);
}

#[test]
fn a_service_that_stops_hands_everything_over_and_opens_nothing() {
    let mut script = Script::serving(2);
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(Input::Drain(None), &["cancel 7"]);
    assert_eq!(script.machine.intent(), Intent::Draining);
    script.on(Input::BlockEnded(BlockId(2)), &[]).on(Input::BlockEnded(BlockId(4)), &[]);
    script.after(5000).on(Input::AbortAll, &["abort 7"]);
    script.on(stopped(7), &["report HandedOver 7", "requeue 7"]).after(60_000).on(Input::Wake, &[]);
}

#[test]
fn questions_of_managers_are_passed_on_if_they_are_for_this_service() {
    let mut script = Script::serving(1);
    let ask = |service| Input::Command(Command::Describe { service, ids: vec![id(1)] });
    let list = |service| Input::Command(Command::ListHeld { service, ranges: vec![InventoryRange::ALL] });
    let other = ServiceId(Uuid::from_u128(1));
    script.on(ask(ME), &["describe 1"]).on(ask(other), &[]);
    script.on(list(ME), &["list 1"]).on(list(other), &[]);
}

fn active_of_single_pool() -> Script {
    let mut script = Script::with(Blocks::single(5)).served();
    script.on(delivered(2, 7), &["start 7", "report Started 7"]);
    script.on(delivered(2, 8), &["start 8", "report Started 8"]);
    script
}

#[test]
fn a_cordon_in_a_single_pool_hands_everything_over() {
    let mut script = active_of_single_pool();
    script.on(directives(1, true, None), &["directed to 5 slots", "cancel a block"]);
    script.on(delivered(2, 9), &["start 9", "report Started 9"]);
    script.on(Input::BlockEnded(BlockId(2)), &["cancel 7", "cancel 8", "cancel 9"]);
    script.on(Input::Wake, &[]);
    script.on(stopped(7), &["report HandedOverFor 7", "requeue 7"]);
    script.on(stopped(8), &["report HandedOverFor 8", "requeue 8"]);
    script.on(stopped(9), &["report HandedOverFor 9", "requeue 9", "close a channel"]);
    script.after(60_000).on(Input::Wake, &[]);
    script.on(directives(2, false, None), &["directed to 5 slots", "open 5"]);
}

#[test]
fn a_new_capacity_in_a_single_pool_hands_everything_over() {
    let mut script = active_of_single_pool();
    script.on(directives(1, false, Some(4000)), &["directed to 1000 slots", "cancel a block"]);
    script.on(Input::BlockEnded(BlockId(2)), &["cancel 7", "cancel 8"]);
    script.on(stopped(7), &["report HandedOverFor 7", "requeue 7"]);
    script.on(stopped(8), &["report HandedOverFor 8", "requeue 8", "open 1000"]);
}

#[test]
fn a_service_of_a_single_pool_hands_over_no_single_observer() {
    let mut script = active_of_single_pool();
    script.on(hand_over(&[7], None), &[]).on(hand_over(&[], Some(1)), &[]);
    script.after(5000).on(Input::Wake, &[]);
    assert_eq!(script.machine.observers(), 2);
}
