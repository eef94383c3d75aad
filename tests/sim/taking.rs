//! What a service takes and gives away, as its managers tell it; mirrors `session::channels` and
//! `session::commands` of the SDK. What may be held is decided by `core::blocks`.

use crate::broker::{Consume, Delivery, QueueId};
use crate::net::Lane;
use crate::service::Stage;
use crate::world::{World, duration};
use everwatch_core::blocks::{BlockEffect, BlockId, Blocks, ChannelId};
use everwatch_core::id::ObserverId;
use everwatch_core::message::{Cause, HandOver, Intent, Terms};
use everwatch_core::slots::Input;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the queue serves a service first that comes back after a goodbye.
const COMES_FIRST: Duration = Duration::from_secs(60);
pub(crate) const REST_MIN: Duration = Duration::from_secs(1);
pub(crate) const REST_MAX: Duration = Duration::from_secs(60);
/// What is to be told is looked at so often.
const PROGRESS: u64 = 1000;

pub(crate) struct Taking {
    pub(crate) blocks: Blocks,
    pub(crate) terms: Terms,
    pub(crate) told_held: u32,
    /// The block of each message that is held.
    kept: BTreeMap<u64, BlockId>,
    /// The newest block of each channel.
    channels: BTreeMap<ChannelId, BlockId>,
    to_hand_over: Vec<ObserverId>,
    asked_for: Cause,
    shed_to: Option<u32>,
}

impl Taking {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            blocks: Blocks::new(capacity),
            terms: Terms::default(),
            told_held: 0,
            kept: BTreeMap::new(),
            channels: BTreeMap::new(),
            to_hand_over: Vec::new(),
            asked_for: Cause::Drain,
            shed_to: None,
        }
    }
    /// A message was settled or given back.
    pub(crate) fn freed(&mut self, receipt: u64) {
        if let Some(block) = self.kept.remove(&receipt) {
            self.blocks.freed(block);
        }
    }
    fn took(&mut self, receipt: u64, block: BlockId) {
        self.kept.insert(receipt, block);
        self.blocks.took(block);
    }
    /// As the service tells it.
    pub(crate) fn intent(&self) -> Intent {
        match self.terms {
            Terms { draining: true, .. } => Intent::Draining,
            Terms { cordoned: true, .. } => Intent::Cordoned,
            Terms { .. } => Intent::Active,
        }
    }
}

impl World {
    fn is_taking(&self, s: usize) -> bool {
        self.services[s].stage == Stage::Living && self.services[s].welcomed
    }

    pub(crate) fn follow_blocks(&mut self, s: usize) {
        if !self.is_taking(s) {
            return;
        }
        let now = self.age(s);
        for effect in self.services[s].taking.blocks.decide(now) {
            match effect {
                BlockEffect::Open { block, channel, prefetch, priority } => {
                    self.services[s].taking.channels.insert(channel, block);
                    self.open_block(s, block, (prefetch, priority));
                }
                BlockEffect::Cancel { channel } => self.cancel_block(s, channel),
                BlockEffect::Close { channel } => drop(self.services[s].taking.channels.remove(&channel)),
            }
        }
        self.hand_over_what_is_asked(s);
        self.onlook(s);
    }

    fn hand_over_what_is_asked(&mut self, s: usize) {
        let now = self.age(s);
        let taking = &mut self.services[s].taking;
        let closed = taking.blocks.closed() || !self.rules.waits_for_the_end_of_blocks();
        if closed && !taking.to_hand_over.is_empty() {
            let ids = std::mem::take(&mut taking.to_hand_over);
            self.step_slots(s, Input::HandOver(ids, Cause::Move));
        }
        let taking = &mut self.services[s].taking;
        let surplus = taking.blocks.surplus_over(now);
        if let Some(most) = surplus.filter(|_| surplus != taking.shed_to && self.rules.sheds()) {
            let cause = if most < taking.blocks.capacity() { taking.asked_for } else { Cause::Resize };
            self.give_away_down_to(s, most, cause);
        }
        self.services[s].taking.shed_to = surplus;
    }

    fn give_away_down_to(&mut self, s: usize, most: u32, cause: Cause) {
        let before = self.services[s].slots.held();
        let goes = self.step_slots(s, Input::HandOverDownTo(most, cause));
        self.on_given_away(s, before, goes);
    }

    fn open_block(&mut self, s: usize, block: BlockId, (prefetch, priority): (u16, i32)) {
        let it = &self.services[s];
        let (conn, incarnation) = (it.conn(Lane::Consume), it.incarnation);
        let prefetch = self.rules.prefetch(prefetch);
        let consume = Consume { conn, queue: QueueId::Work, prefetch, priority, block: block.0 };
        self.up(conn, move |world| {
            world.consume(consume, move |world, delivery| {
                if world.services[s].incarnation == incarnation {
                    world.services[s].taking.took(delivery.receipt, block);
                    world.on_work(s, &delivery);
                }
            });
        });
    }

    /// The channel's own task cancels there; what the broker had sent by then comes in before its answer.
    fn cancel_block(&mut self, s: usize, channel: ChannelId) {
        let Some(block) = self.services[s].taking.channels.get(&channel).copied() else { return };
        let (conn, incarnation) = (self.services[s].conn(Lane::Consume), self.services[s].incarnation);
        self.on_cancelling(s);
        let turn = self.roll(0, 3);
        self.soon(s, turn, move |world| {
            let cancel = move |world: &mut Self| world.cancel_consumer(conn, QueueId::Work, block.0);
            world.ask(conn, cancel, move |world, answer| {
                if answer.is_some() && world.services[s].incarnation == incarnation {
                    world.on_block_ended(s, block);
                }
            });
        });
    }

    fn on_block_ended(&mut self, s: usize, block: BlockId) {
        let taking = &mut self.services[s].taking;
        taking.blocks.ended(block);
        if self.rules.forgets_cancelled_blocks() {
            let held = taking.kept.values().filter(|it| **it == block).count();
            (0..held).for_each(|_| taking.blocks.freed(block));
        }
        self.on_cancelled(s);
        self.turn(s);
    }

    /// One turn of the service's loop, after something happened.
    pub(crate) fn turn(&mut self, s: usize) {
        self.follow_blocks(s);
        self.set_wake(s);
    }

    pub(crate) fn progress(&mut self, s: usize) {
        if self.services[s].stage == Stage::Living {
            let taking = &self.services[s].taking;
            if taking.blocks.held() != taking.told_held {
                self.beat(s, taking.intent());
            }
            self.turn(s);
            self.soon(s, PROGRESS, move |world| world.progress(s));
        }
    }

    /// What may be taken from now on.
    pub(crate) fn follow(&mut self, s: usize, terms: Terms) {
        self.on_terms(s, terms);
        let it = &mut self.services[s];
        if !self.rules.terms_stand(it.taking.terms, terms) {
            return;
        }
        let capacity = terms.capacity.unwrap_or(it.setup.capacity);
        let taking = &mut it.taking;
        taking.terms = terms;
        if capacity != taking.blocks.capacity() {
            taking.blocks.resize(capacity);
        }
        let cordoned = self.rules.cordons(terms);
        taking.blocks.cordon(cordoned);
        if !cordoned {
            taking.to_hand_over.clear();
        }
        let intent = taking.intent();
        self.tell(|world| format!("{} is told {terms:?}", world.name(s)));
        self.beat(s, intent);
    }

    pub(crate) fn on_hand_over(&mut self, s: usize, asked: HandOver) {
        let now = self.age(s);
        let until = now + self.rules.rest(asked.rest.clamp(REST_MIN, REST_MAX));
        self.on_asked(s, &asked);
        self.tell(|world| format!("{} is asked {:?} {:?}", world.name(s), asked.down_to, asked.cause));
        let taking = &mut self.services[s].taking;
        if let Some(most) = asked.down_to {
            let most = self.rules.down_to(most, (taking.told_held, taking.blocks.held()));
            taking.blocks.limit(most, now, until);
            taking.asked_for = asked.cause;
        }
        if !asked.ids.is_empty() {
            taking.blocks.rest(until);
            taking.to_hand_over.extend(asked.ids);
        }
    }

    pub(crate) fn comes_first(&mut self, s: usize) {
        let until = self.age(s) + COMES_FIRST;
        self.services[s].taking.blocks.come_first(until);
    }

    /// How long this incarnation has lived.
    pub(crate) fn age(&self, s: usize) -> Duration {
        duration(self.now - self.services[s].began)
    }

    pub(crate) fn on_work(&mut self, s: usize, delivery: &Delivery) {
        let Ok(read) = everwatch_core::message::Work::read(&delivery.body) else { return };
        let receipt = delivery.receipt;
        let (read, acquisitions) = self.rules.delivered(read, delivery.acquisitions);
        self.step(s, Input::Delivered { receipt, read, acquisitions });
    }
}
