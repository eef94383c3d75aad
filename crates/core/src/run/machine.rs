//! One incarnation of a service as a pure machine: slots, blocks, directives, readiness and handover, composed here.
//! The loop around it reads the broker, feeds inputs and carries out effects.

use super::database_clock::DatabaseClock;
use super::slots::{self, CancelReason, Now, Outcome, Slots};
use crate::capacity::blocks::{BlockEffect, BlockId, Blocks};
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::wire::checkpoint::CheckpointAnswers;
use crate::wire::command::{Cause, Command, HandOver, Revocation, ServiceDirectives, Welcome};
use crate::wire::heartbeat::Intent;
use crate::wire::logs::AskLogs;
use crate::wire::permits::PermitAnswers;
use crate::wire::report::{InventoryRange, RunReport};
use crate::wire::work::{DecodedWork, Work};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// How long a new service waits for the welcome of the managers. The wait is short because no failover may depend on a
/// manager.
const WELCOME_WITHIN: Duration = Duration::from_secs(1);
/// The most observers that wait to be handed over until no more messages arrive.
const HAND_OVERS_MAX: usize = 10_000;
/// The shortest and the longest rest after a handover.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// A receipt with its block and the weight of its message.
#[derive(Debug, Clone, Copy)]
pub struct HeldReceipt<R> {
    receipt: R,
    block: BlockId,
    weight: u16,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input<R> {
    /// The broker has confirmed the registration of the service.
    Registered,
    /// A block delivered a work message.
    Delivered { block: BlockId, receipt: R, read: DecodedWork, acquisitions: u32 },
    /// A block delivered a message that no version can read. It counts as held until [`Input::Freed`].
    Unreadable { block: BlockId },
    /// A message that the slots do not know, and that counts as one slot, was settled.
    Freed(BlockId),
    /// A cancelled block delivers no more messages.
    BlockEnded(BlockId),
    /// A manager sent a command.
    Command(Command),
    /// The code of an observer has ended.
    Ended { id: ObserverId, epoch: Epoch, outcome: Outcome },
    /// The code of an observer, in this attempt, has announced that it is ready.
    Ready { id: ObserverId, epoch: Epoch, attempt: u32 },
    /// The broker has confirmed the report of [`Effect::Settle`] or [`Effect::Announce`].
    Confirmed(RunReport),
    /// A deadline has passed ([`Machine::next_deadline`]).
    Wake,
    /// The service stops: hand everything over and take nothing more. Without a cause, it was told to stop.
    Drain(Option<Cause>),
    /// Stop waiting for code that is ending.
    AbortAll,
}

/// An effect; the caller carries out effects in order.
#[derive(Debug, Clone)]
pub enum Effect<R> {
    /// Run the code.
    Start { epoch: Epoch, attempt: u32, work: Arc<Work> },
    /// Tell the code to stop.
    Cancel { id: ObserverId, reason: CancelReason },
    /// Abort the code.
    Abort { id: ObserverId },
    /// Report to the managers; nothing waits for the confirm.
    Report(RunReport),
    /// Report to the managers; feed [`Input::Confirmed`] once the broker confirms.
    Settle(RunReport),
    /// The same for an observer that must not start before its report is confirmed.
    Announce(RunReport),
    /// Acknowledge the message.
    Ack(R),
    /// Acknowledge the message, and send the report once the queue has accepted that.
    Release(R, RunReport),
    /// Give the message back.
    Requeue(R),
    /// The broker redelivered a message that this session holds, so the session no longer owns any message.
    Lost { id: ObserverId, epoch: Epoch },
    /// Open, cancel or close a block.
    Block(BlockEffect),
    /// The service can now take every message that it may take.
    Ready,
    /// The directives changed: send a heartbeat.
    Directed { directives: ServiceDirectives, capacity: u32 },
    /// A manager asks what these observers are; none: what the service is, and everything that it holds.
    Describe(Vec<ObserverId>),
    /// A manager asks for the entries of these ranges of the inventory.
    List(Vec<InventoryRange>),
    /// A manager asks for lines of an observer.
    AnswerLogs(AskLogs),
    /// Pass these on to the code that waits for them.
    Checkpoints(CheckpointAnswers),
    /// Pass these on to the code that waits for permits.
    Permits(PermitAnswers),
}

/// The start of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Its registration is not confirmed yet.
    Registering,
    /// Takes no work until a manager welcomes it, or until this time.
    AwaitsWelcome(Duration),
    Over,
}

/// One incarnation of a service.
#[derive(Debug)]
pub struct Machine<R> {
    id: ServiceId,
    slots: Slots<HeldReceipt<R>>,
    blocks: Blocks,
    /// Without directives.
    own_capacity: u32,
    directives: ServiceDirectives,
    start: Start,
    ready: bool,
    draining: bool,
    /// To be handed over once no more messages arrive.
    to_hand_over: Vec<ObserverId>,
    /// The cause of the newest request to hold fewer observers.
    hand_over_cause: Cause,
    /// The surplus that was told to stop last.
    surplus: Option<u32>,
}

impl<R: Copy + Debug> Machine<R> {
    #[must_use]
    pub fn new(id: ServiceId, slots: Slots<HeldReceipt<R>>, blocks: Blocks) -> Self {
        Self {
            id,
            slots,
            own_capacity: blocks.capacity(),
            blocks,
            directives: ServiceDirectives::default(),
            start: Start::Registering,
            ready: false,
            draining: false,
            to_hand_over: Vec::new(),
            hand_over_cause: Cause::Drain,
            surplus: None,
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.blocks.capacity()
    }
    /// The number of slots in use: the sum of the weights of its messages.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.blocks.held()
    }
    /// The number of observers that it holds.
    #[must_use]
    pub fn observers(&self) -> usize {
        self.slots.held()
    }
    /// Whether it holds no observer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// The database's clock, as managers have announced it.
    #[must_use]
    pub fn clock(&self) -> &DatabaseClock {
        self.slots.clock()
    }
    /// The state that it reports about itself.
    #[must_use]
    pub fn intent(&self) -> Intent {
        match self.directives {
            _ if self.draining => Intent::Draining,
            ServiceDirectives { draining: true, .. } => Intent::Draining,
            ServiceDirectives { cordoned: true, .. } => Intent::Cordoned,
            ServiceDirectives { .. } => Intent::Active,
        }
    }
    /// The inventory: one report for each held observer.
    #[must_use]
    pub fn list(&self) -> Vec<RunReport> {
        self.slots.list()
    }
    /// Those of these observers that it holds, with their work.
    #[must_use]
    pub fn describe(&self, ids: &[ObserverId]) -> Vec<(RunReport, Arc<Work>)> {
        self.slots.describe(ids)
    }
    /// When [`Machine::step`] must run again without another input.
    #[must_use]
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let welcome = match self.start {
            Start::AwaitsWelcome(until) => Some(until),
            Start::Registering | Start::Over => None,
        };
        [self.slots.next_deadline(now), self.blocks.next_deadline(now.mono), welcome]
            .into_iter()
            .flatten()
            .min()
    }

    /// Applies one input and returns its effects.
    pub fn step(&mut self, input: Input<R>, now: Now) -> Vec<Effect<R>> {
        let mut effects = Vec::new();
        match input {
            Input::Registered => self.start = Start::AwaitsWelcome(now.mono + WELCOME_WITHIN),
            Input::Delivered { block, receipt, read, acquisitions } => {
                let weight = read.weight();
                self.blocks.took(block, weight);
                let receipt = HeldReceipt { receipt, block, weight };
                self.slots_step(slots::Input::Delivered { receipt, read, acquisitions }, now, &mut effects);
            }
            Input::Unreadable { block } => self.blocks.took(block, 1),
            Input::Freed(block) => self.blocks.freed(block, 1),
            Input::BlockEnded(block) => self.blocks.ended(block),
            Input::Command(command) => self.on_command(command, now, &mut effects),
            Input::Ended { id, epoch, outcome } => {
                self.slots_step(slots::Input::Ended { id, epoch, outcome }, now, &mut effects);
            }
            Input::Ready { id, epoch, attempt } => {
                self.slots_step(slots::Input::Ready { id, epoch, attempt }, now, &mut effects);
            }
            Input::Confirmed(RunReport { id, epoch, event }) => {
                let settled = slots::Input::Confirmed { id, epoch };
                let announced = slots::Input::Announced { id, epoch };
                self.slots_step(if event.settles() { settled } else { announced }, now, &mut effects);
            }
            Input::Wake => self.slots_step(slots::Input::Wake, now, &mut effects),
            Input::Drain(cause) => {
                self.draining = true;
                self.slots_step(slots::Input::Drain(cause), now, &mut effects);
            }
            Input::AbortAll => self.slots_step(slots::Input::AbortAll, now, &mut effects),
        }
        if let Start::AwaitsWelcome(until) = self.start
            && now.mono >= until
        {
            self.start = Start::Over;
        }
        if self.start == Start::Over && !self.draining {
            self.follow_blocks(now, &mut effects);
            // What was handed over at once has freed slots.
            if self.hand_over(now, &mut effects) {
                self.follow_blocks(now, &mut effects);
            }
        }
        effects
    }

    fn slots_step(&mut self, input: slots::Input<HeldReceipt<R>>, now: Now, effects: &mut Vec<Effect<R>>) {
        for effect in self.slots.step(input, now) {
            effects.push(match effect {
                slots::Effect::Start { epoch, attempt, work } => Effect::Start { epoch, attempt, work },
                slots::Effect::Cancel { id, reason } => Effect::Cancel { id, reason },
                slots::Effect::Abort { id } => Effect::Abort { id },
                slots::Effect::Report(report) => Effect::Report(report),
                slots::Effect::Settle(report) => Effect::Settle(report),
                slots::Effect::Announce(report) => Effect::Announce(report),
                slots::Effect::Lost { id, epoch } => Effect::Lost { id, epoch },
                slots::Effect::Ack(HeldReceipt { receipt, block, weight }) => {
                    self.blocks.freed(block, weight);
                    Effect::Ack(receipt)
                }
                slots::Effect::Release(HeldReceipt { receipt, block, weight }, report) => {
                    self.blocks.freed(block, weight);
                    Effect::Release(receipt, report)
                }
                slots::Effect::Requeue(HeldReceipt { receipt, block, weight }) => {
                    self.blocks.freed(block, weight);
                    Effect::Requeue(receipt)
                }
                slots::Effect::StepBack { until } => {
                    self.blocks.step_back(until);
                    continue;
                }
            });
        }
    }

    /// Opens, cancels and closes blocks as needed.
    fn follow_blocks(&mut self, now: Now, effects: &mut Vec<Effect<R>>) {
        self.blocks.hands_over(!self.to_hand_over.is_empty());
        effects.extend(self.blocks.decide(now.mono).into_iter().map(Effect::Block));
        // Not at its registration: a rolling deploy continues with the next service when this one is ready, and the
        // observers that the next one hands over must find room here.
        if !self.ready && self.blocks.settled(now.mono) {
            self.ready = true;
            effects.push(Effect::Ready);
        }
    }

    /// Hands over what was requested once no more messages arrive: a message that is given back earlier would return at
    /// once. Returns whether there was anything to hand over.
    fn hand_over(&mut self, now: Now, effects: &mut Vec<Effect<R>>) -> bool {
        let mut any = false;
        if self.blocks.closed() && !self.to_hand_over.is_empty() {
            let ids = std::mem::take(&mut self.to_hand_over);
            self.slots_step(slots::Input::HandOver(ids, Cause::Move), now, effects);
            any = true;
        }
        let surplus = self.blocks.allowed_when_over_capacity(now.mono);
        if let Some(most) = surplus.filter(|_| surplus != self.surplus) {
            // Fewer than its capacity only if a manager asked for it.
            let asked = most < self.blocks.capacity()
                && (!self.blocks.is_single() || self.intent() != Intent::Active);
            let cause = if asked { self.hand_over_cause } else { Cause::Resize };
            self.slots_step(slots::Input::HandOverDownTo(most, cause), now, effects);
            self.blocks.surplus_requested(now.mono);
            any = true;
        }
        self.surplus = surplus;
        any
    }

    fn on_command(&mut self, command: Command, now: Now, effects: &mut Vec<Effect<R>>) {
        match command {
            Command::Revoke(revocations) => self.revoke(revocations, now, effects),
            Command::Time(time) => self.slots_step(slots::Input::Time(time), now, effects),
            Command::Welcome(welcome) => self.on_welcome(*welcome, now, effects),
            Command::CrashLooping(ids) => self.slots_step(slots::Input::CrashLooping(ids), now, effects),
            Command::Describe { service, ids } if service == self.id => effects.push(Effect::Describe(ids)),
            Command::ListHeld { service, ranges } if service == self.id => effects.push(Effect::List(ranges)),
            Command::Logs(asked) => effects.push(Effect::AnswerLogs(asked)),
            Command::Checkpoints(answers) if answers.service == self.id => {
                effects.push(Effect::Checkpoints(answers));
            }
            Command::Permits(answers) if answers.service == self.id => effects.push(Effect::Permits(answers)),
            Command::Directives { service, directives } if service == self.id => {
                self.follow(directives, effects);
            }
            Command::HandOver(asked) if asked.service == self.id => self.on_hand_over(asked, now.mono),
            Command::Describe { .. }
            | Command::ListHeld { .. }
            | Command::Directives { .. }
            | Command::HandOver(_)
            | Command::Checkpoints(_)
            | Command::Permits(_) => {}
            // A command of a newer version.
            Command::Unknown(_) => {}
        }
    }

    fn revoke(&mut self, revocations: Vec<Revocation>, now: Now, effects: &mut Vec<Effect<R>>) {
        self.slots_step(slots::Input::Revocations(revocations), now, effects);
    }

    fn on_welcome(&mut self, welcome: Welcome, now: Now, effects: &mut Vec<Effect<R>>) {
        if let Some(time) = welcome.time {
            self.slots_step(slots::Input::Time(time), now, effects);
        }
        self.slots_step(slots::Input::CrashLooping(welcome.crash_looping), now, effects);
        self.revoke(welcome.revocations, now, effects);
        if welcome.service != self.id {
            return;
        }
        self.start = Start::Over;
        // A late welcome is still the only message that carries the directives of the predecessor to a new incarnation.
        if let Some(directives) = welcome.directives {
            self.follow(directives, effects);
        }
    }

    /// Takes what these directives allow from now on.
    fn follow(&mut self, directives: ServiceDirectives, effects: &mut Vec<Effect<R>>) {
        if directives.revision <= self.directives.revision {
            return;
        }
        let capacity = directives.capacity.unwrap_or(self.own_capacity);
        self.directives = directives;
        if capacity != self.blocks.capacity() {
            self.blocks.resize(capacity);
        }
        let capacity = self.blocks.capacity();
        let cordoned = directives.cordoned || directives.draining;
        self.blocks.cordon(cordoned);
        if !cordoned {
            self.to_hand_over.clear();
            // The drain may have requested observers for which no other service has a slot any more.
            if self.hand_over_cause == Cause::Drain {
                self.blocks.end_limit();
            }
        }
        effects.push(Effect::Directed { directives, capacity });
    }

    fn on_hand_over(&mut self, asked: HandOver, now: Duration) {
        if self.blocks.is_single() {
            // An observer that it gave back would return to it. When it is cordoned, it hands over everything anyway.
            return;
        }
        let until = now + asked.rest.clamp(REST_MIN, REST_MAX);
        if let Some(most) = asked.down_to {
            self.blocks.limit(most, now, until);
            self.hand_over_cause = asked.cause;
        }
        if !asked.ids.is_empty() && self.to_hand_over.len() < HAND_OVERS_MAX {
            self.blocks.rest(now, until);
            self.to_hand_over.extend(asked.ids);
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
