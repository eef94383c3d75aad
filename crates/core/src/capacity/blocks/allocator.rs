//! The blocks of one session: what each may hold and holds, and which blocks to open or cancel so that the service
//! takes exactly as much as it may.
//!
//! All quantities are slots, except where a name or comment says messages: the prefetch of the broker counts messages,
//! and each message that it delivers may have the greatest weight.

mod levels;

use super::block::{Block, BlockEffect, BlockId, ChannelId, State};
use super::turn::Turn;
use super::{BLOCK_MAX, share};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pause between the opening of two blocks while the capacity ramps up, so that services that start together share
/// a full queue.
const RAMP: Duration = Duration::from_millis(50);
/// Freed slots of cancelled blocks are collected for this long before they are reopened.
const GATHER: Duration = Duration::from_secs(1);

/// A limit also makes a service hand over its surplus, but only after this long: the others get their limits at the
/// same time, and a service without its limit yet would take what it has to hand over itself.
const GIVES_AFTER: Duration = Duration::from_millis(300);

/// For this long after a service was told to hand over observers, or has come down to its share, it takes nothing as a
/// last resort. The intended receivers may still be opening their slots; until then, the queue would return the
/// observers to this service.
const LETS_OTHERS_TAKE: Duration = Duration::from_millis(500);

/// All blocks of one session.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Blocks {
    capacity: u32,
    /// Whether the queue serves one service at a time: see [`Blocks::single`].
    single: bool,
    /// The greatest weight of a message.
    weight_max: u32,
    blocks: BTreeMap<BlockId, Block>,
    channels: BTreeSet<ChannelId>,
    last: u32,
    cordoned: bool,
    /// Observers wait to be handed over: takes nothing.
    hands_over: bool,
    /// Takes nothing before that time.
    rests_until: Duration,
    /// Its share until that time: beyond it, it takes only what no other service has room for.
    limit: (u32, Duration),
    /// The surplus beyond its share has been handed over, or its observers were told to stop.
    within_share: bool,
    /// Hands over nothing before that time.
    gives_from: Duration,
    /// Takes nothing as a last resort before that time.
    spare_from: Duration,
    /// Is served after usual blocks until that time.
    deferred_until: Duration,
    /// Is served after all other services until that time.
    steps_back_until: Duration,
    /// Slots became free in open blocks, whose levels may be too high since.
    levels_may_differ: bool,
    /// When the levels were compared last.
    levelled_at: Duration,
    /// Whether the whole capacity was claimed since its last change.
    full: bool,
    opened_at: Option<Duration>,
    /// Until then, without another change, there is nothing to decide.
    idle_until: Option<Duration>,
}

impl Blocks {
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            single: false,
            weight_max: 1,
            blocks: BTreeMap::new(),
            channels: BTreeSet::new(),
            last: 0,
            cordoned: false,
            hands_over: false,
            rests_until: Duration::ZERO,
            limit: (0, Duration::ZERO),
            within_share: true,
            gives_from: Duration::ZERO,
            spare_from: Duration::ZERO,
            deferred_until: Duration::ZERO,
            steps_back_until: Duration::ZERO,
            levels_may_differ: false,
            levelled_at: Duration::ZERO,
            full: false,
            opened_at: None,
            idle_until: None,
        }
    }

    /// The blocks of a service whose work queue serves one service at a time: a single block, without shares and
    /// priorities. Once the block is cancelled, another service is active, so this one hands over everything, and
    /// consumes again when it holds nothing: all observers of the pool are in one place.
    #[must_use]
    pub fn single(capacity: u32) -> Self {
        Self { single: true, ..Self::new(capacity.min(BLOCK_MAX)) }
    }
    /// Whether it is [`Blocks::single`].
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.single
    }
    /// Takes messages of up to this weight.
    #[must_use]
    pub fn with_weight_max(mut self, weight_max: u16) -> Self {
        self.weight_max = u32::from(weight_max.max(1));
        self
    }

    /// The number of slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// The number of slots in use.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.blocks.values().map(|block| block.held_weight).sum()
    }
    /// Sets the number of slots. This ends the share of a rebalance, because the plan used the previous number.
    pub fn resize(&mut self, capacity: u32) {
        let capacity = if self.single { capacity.min(BLOCK_MAX) } else { capacity };
        (self.capacity, self.full, self.limit) = (capacity, false, (0, Duration::ZERO));
        self.idle_until = None;
    }
    /// Takes nothing while cordoned.
    pub fn cordon(&mut self, cordoned: bool) {
        (self.cordoned, self.full, self.idle_until) = (cordoned, false, None);
    }
    /// Takes nothing while observers wait to be handed over: the broker may confirm the cancels late, and a block that
    /// is opened meanwhile would keep them here.
    pub fn hands_over(&mut self, waiting: bool) {
        if self.hands_over != waiting {
            (self.hands_over, self.idle_until) = (waiting, None);
        }
    }
    /// Takes nothing for a moment, so that other services take the handed-over observers, and until `until` only what
    /// no other service has room for.
    ///
    /// The obvious pause takes nothing until `until`. But if every other service is full or at its share of a
    /// rebalance, an observer that should move waits while its slot here is free.
    pub fn rest(&mut self, now: Duration, until: Duration) {
        self.rests_until = self.rests_until.max(until.min(now + LETS_OTHERS_TAKE));
        self.full = false;
        self.step_back(until);
    }
    /// Hands over the surplus beyond `most`, and takes more before `until` only as a last resort.
    pub fn limit(&mut self, most: u32, now: Duration, until: Duration) {
        (self.limit, self.full, self.within_share) = ((most, until), false, false);
        self.idle_until = None;
        if now >= self.gives_from {
            self.gives_from = now + GIVES_AFTER;
        }
    }
    /// Ends its share: it keeps what it holds, and takes as much as it has slots.
    pub fn end_limit(&mut self) {
        (self.limit, self.within_share, self.idle_until) = ((0, Duration::ZERO), true, None);
    }
    /// The observers beyond its share were told to stop. What it gives back goes to other services first; what none of
    /// them takes, it takes itself as a last resort, even while one of its observers is slow to stop.
    ///
    /// The obvious way waits until all of the surplus is gone. But if the intended receiver is cordoned at that moment,
    /// every observer waits for the slowest one, and slots are free here.
    pub fn surplus_requested(&mut self, now: Duration) {
        (self.within_share, self.spare_from, self.idle_until) = (true, now + LETS_OTHERS_TAKE, None);
    }
    /// Until `until`, this service takes only what no other service has room for.
    pub fn defer(&mut self, until: Duration) {
        (self.deferred_until, self.idle_until) = (until, None);
    }
    /// Until `until`, the queue serves every other service first.
    pub fn step_back(&mut self, until: Duration) {
        self.steps_back_until = self.steps_back_until.max(until);
        self.idle_until = None;
    }
    /// A message of this weight was delivered. One that is heavier than the greatest weight is refused, and until then
    /// counts with the greatest weight.
    pub fn took(&mut self, block: BlockId, weight: u16) {
        let weight = u32::from(weight).min(self.weight_max);
        if let Some(block) = self.blocks.get_mut(&block) {
            block.held += 1;
            block.held_weight += weight;
            if !(self.within_share && block.claims_its_size()) || block.wastes() > 0 {
                self.idle_until = None;
            }
        }
    }
    /// A message of this weight was settled or given back.
    pub fn freed(&mut self, block: BlockId, weight: u16) {
        let weight = u32::from(weight).min(self.weight_max);
        if let Some(block) = self.blocks.get_mut(&block) {
            let may_differ = block.is_usual() && !self.levels_may_differ;
            if !(self.within_share && block.claims_its_size()) || may_differ {
                self.idle_until = None;
            }
            self.levels_may_differ |= may_differ;
            block.held = block.held.saturating_sub(1);
            block.held_weight = block.held_weight.saturating_sub(weight);
        }
    }
    /// No more deliveries arrive for this cancelled block.
    pub fn ended(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.state = State::Ended;
            self.idle_until = None;
        }
    }
    /// Whether the ramp is over: every allowed message can be delivered.
    #[must_use]
    pub fn settled(&self, now: Duration) -> bool {
        self.full || self.goal(now) == 0
    }
    /// Whether no message can be delivered currently, so that messages given back go elsewhere.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.blocks.values().all(|block| block.state == State::Ended)
    }
    /// How many slots may stay in use, if more are in use and no more deliveries arrive.
    #[must_use]
    pub fn allowed_when_over_capacity(&self, now: Duration) -> Option<u32> {
        if self.single {
            return (self.closed() && self.held() > 0).then_some(0);
        }
        let most = if self.within_share { self.capacity } else { self.most(now) };
        (now >= self.gives_from && self.closed() && self.held() > most).then_some(most)
    }
    /// When [`Blocks::decide`] must run again without a new input.
    #[must_use]
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        match self.idle_until.filter(|until| now < *until) {
            Some(until) => (until < Duration::MAX).then_some(until),
            None => self.soonest(now),
        }
    }

    fn soonest(&self, now: Duration) -> Option<Duration> {
        let unusual = self.open().any(|(_, block)| block.turn != Turn::Usual);
        let opens = (self.room(now) + self.spare_room(now) >= self.weight_max).then(|| self.may_open_at(now));
        let times = [
            Some(self.rests_until),
            Some(self.limit.1),
            Some(self.gives_from),
            Some(self.spare_from),
            unusual.then_some(self.deferred_until),
            unusual.then_some(self.steps_back_until),
            self.levels_may_differ.then_some(self.levelled_at + GATHER),
            opens,
        ];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    /// The blocks to open, cancel and close now.
    ///
    /// The obvious way compares all blocks after each input. But most inputs are deliveries into an open block, which
    /// change nothing here: in a failover, these comparisons took as long as the starts themselves.
    pub fn decide(&mut self, now: Duration) -> Vec<BlockEffect> {
        if self.idle_until.is_some_and(|until| now < until) {
            #[cfg(test)]
            assert_eq!(self.clone().decide_all(now), [], "{self:?}");
            return Vec::new();
        }
        let effects = self.decide_all(now);
        let soonest = || self.soonest(now).unwrap_or(Duration::MAX);
        self.idle_until = effects.is_empty().then(soonest);
        effects
    }

    fn decide_all(&mut self, now: Duration) -> Vec<BlockEffect> {
        let mut effects = Vec::new();
        self.forget_empty();
        if self.single {
            self.decide_single(now, &mut effects);
            return effects;
        }
        if !self.within_share && self.held() <= self.most(now) {
            (self.within_share, self.spare_from) = (true, now + LETS_OTHERS_TAKE);
        }
        self.cancel_what_is_too_much(now, &mut effects);
        self.cancel_what_wastes_room(now, &mut effects);
        let (room, with_spare) = (self.room(now), self.room(now) + self.spare_room(now));
        if with_spare < self.weight_max {
            self.close_unused(&mut effects);
        } else if now >= self.may_open_at(now) {
            let spare = room < self.weight_max;
            self.open_one(if spare { with_spare } else { room }, spare, now, &mut effects);
        }
        if self.room(now) < self.weight_max {
            self.full = self.full || self.goal(now) == self.capacity;
        }
        self.cancel_what_is_served_too_early(now, &mut effects);
        effects
    }

    fn decide_single(&mut self, now: Duration, effects: &mut Vec<BlockEffect>) {
        let goal = if self.cordoned { 0 } else { self.capacity };
        let misfits = self.open().filter(|(_, block)| block.size != goal).map(|(id, _)| id);
        for id in misfits.collect::<Vec<_>>() {
            self.cancel(id, effects);
        }
        if self.blocks.is_empty() && goal > 0 {
            self.open_one(goal, false, now, effects);
        } else if self.blocks.is_empty() {
            self.close_unused(effects);
        }
        self.full = goal > 0 && !self.blocks.is_empty();
    }

    fn goal(&self, now: Duration) -> u32 {
        if self.takes_nothing(now) { 0 } else { self.most(now) }
    }
    fn takes_nothing(&self, now: Duration) -> bool {
        self.cordoned || self.hands_over || now < self.rests_until
    }
    fn most(&self, now: Duration) -> u32 {
        let (limit, until) = self.limit;
        if now < until { self.capacity.min(limit) } else { self.capacity }
    }
    fn claimed(&self) -> u32 {
        self.blocks.values().map(Block::claims).sum()
    }
    /// The room in open last-resort blocks.
    fn spare_free(&self) -> u32 {
        self.open().filter(|(_, block)| block.spare).map(|(_, block)| block.free()).sum()
    }
    /// The number of slots that may be opened within the goal.
    fn room(&self, now: Duration) -> u32 {
        self.room_beside(self.claimed(), self.spare_free(), now)
    }
    /// The same for these claims, of which last-resort blocks have this much left to take.
    fn room_beside(&self, claimed: u32, spare_free: u32, now: Duration) -> u32 {
        let within = self.goal(now).saturating_sub(claimed - spare_free);
        within.min(self.capacity.saturating_sub(claimed))
    }
    /// The capacity in messages: as many of the greatest weight as fit.
    fn messages(&self) -> u32 {
        self.capacity / self.weight_max
    }
    /// Whether it takes more than its share as a last resort: only after it has begun to hand over its surplus.
    fn takes_spare(&self, now: Duration) -> bool {
        !self.takes_nothing(now)
            && self.most(now) < self.capacity
            && self.within_share
            && now >= self.gives_from.max(self.spare_from)
    }
    /// The number of slots that may be opened as a last resort.
    fn spare_room(&self, now: Duration) -> u32 {
        let room = self.capacity.saturating_sub(self.claimed()).saturating_sub(self.room(now));
        if self.takes_spare(now) { room } else { 0 }
    }
    fn open(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().filter(|(_, block)| block.state == State::Open).map(|(id, block)| (*id, block))
    }
    fn may_open_at(&self, now: Duration) -> Duration {
        let is_little = self.room(now) / self.weight_max < share(self.messages());
        let pause = if self.full && is_little { GATHER } else { RAMP };
        self.opened_at.map_or(Duration::ZERO, |at| at + pause)
    }

    fn cancel_what_is_too_much(&mut self, now: Duration, effects: &mut Vec<BlockEffect>) {
        let goal = self.goal(now);
        let fits_now = |block: &Block| block.turn == self.turn(block.spare, now);
        let claims =
            |block: &Block| if block.state == State::Open { block.claims() } else { block.held_weight };
        let fits = self.blocks.values().map(claims).sum::<u32>() <= self.capacity;
        let keeps_spare = self.takes_spare(now) && fits;
        let spare = self.open().filter(|(_, block)| block.spare && !(keeps_spare && fits_now(block)));
        let spare: Vec<_> = spare.map(|(id, _)| id).collect();
        let shared = self.open().filter(|(_, block)| !block.spare);
        let mut open: Vec<_> = shared.map(|(id, block)| (fits_now(block), block.free(), id)).collect();
        for id in spare {
            self.cancel(id, effects);
        }
        // Blocks whose turn has changed first, then those that free the most slots.
        open.sort_by_key(|(fits, free, id)| (*fits, std::cmp::Reverse(*free), *id));
        // A block that is being cancelled counts with the messages that it holds: counting its full size would cancel
        // one block after another.
        let to_come = |block: &Block| match block.state {
            State::Open if !block.spare => block.claims(),
            State::Open | State::Ending | State::Ended => block.held_weight,
        };
        let mut claimed: u32 = self.blocks.values().map(to_come).sum();
        for (fits, free, id) in open {
            if fits && claimed <= goal && goal > 0 {
                continue;
            }
            claimed = claimed.saturating_sub(free);
            self.full &= fits;
            self.cancel(id, effects);
        }
    }

    /// Cancels full blocks whose messages are lighter than the greatest weight, if what they claim beyond their messages
    /// is room for one more message. Once the broker has confirmed, they claim only what they hold.
    fn cancel_what_wastes_room(&mut self, now: Duration, effects: &mut Vec<BlockEffect>) {
        let wasteful: Vec<_> = self.open().filter(|(_, block)| block.wastes() > 0).collect();
        let waste: u32 = wasteful.iter().map(|(_, block)| block.wastes()).sum();
        let spare_waste: u32 =
            wasteful.iter().filter(|(_, block)| block.spare).map(|(_, block)| block.wastes()).sum();
        let claimed = self.claimed() - waste;
        let room = if self.takes_spare(now) {
            self.capacity.saturating_sub(claimed)
        } else {
            self.room_beside(claimed, self.spare_free() - spare_waste, now)
        };
        if room < self.weight_max {
            return;
        }
        let ids: Vec<_> = wasteful.into_iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.cancel(id, effects));
    }

    fn cancel(&mut self, id: BlockId, effects: &mut Vec<BlockEffect>) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.state = State::Ending;
            effects.push(BlockEffect::Cancel { channel: block.channel });
        }
    }

    fn open_one(&mut self, room: u32, spare: bool, now: Duration, effects: &mut Vec<BlockEffect>) {
        let full_block = if self.single { BLOCK_MAX } else { share(self.messages()) };
        let most = 2 * self.messages().div_ceil(full_block) as usize;
        if self.open().count() >= most {
            // If each freed slot became its own block, their number would grow without bound: small blocks are
            // cancelled and reopened as one.
            let small: Vec<_> =
                self.open().filter(|(_, block)| block.size < full_block).map(|(id, _)| id).collect();
            for id in small {
                self.cancel(id, effects);
            }
            return;
        }
        let size = (room / self.weight_max).min(full_block);
        let channel = self.channel_for(size);
        self.last += 1;
        let block = BlockId(self.last);
        let turn = self.turn(spare, now);
        // With different priorities, RabbitMQ 4.0 and later would deliver nothing: see `QueueKind::SingleActive`.
        let priority = if self.single { 0 } else { turn.priority(self.next_level()) };
        let (most_weight, state) = (size * self.weight_max, State::Open);
        let opened =
            Block { channel, size, held: 0, held_weight: 0, most_weight, turn, priority, spare, state };
        self.blocks.insert(block, opened);
        self.channels.insert(channel);
        self.opened_at = Some(now);
        let prefetch = u16::try_from(size).unwrap_or(u16::MAX);
        effects.push(BlockEffect::Open { block, channel, prefetch, priority });
    }

    /// Messages on a channel.
    fn held_on(&self, channel: ChannelId) -> u32 {
        self.blocks.values().filter(|block| block.channel == channel).map(|block| block.held).sum()
    }

    /// A channel without an open block and with enough room, otherwise a new one.
    fn channel_for(&mut self, size: u32) -> ChannelId {
        let is_idle = |channel: ChannelId| {
            self.blocks.values().all(|block| block.channel != channel || block.state == State::Ended)
        };
        let idle = self.channels.iter().copied().filter(|channel| is_idle(*channel));
        let fits = idle.filter(|channel| self.held_on(*channel) + size <= BLOCK_MAX);
        fits.max_by_key(|channel| self.held_on(*channel)).unwrap_or_else(|| {
            self.last += 1;
            ChannelId(self.last)
        })
    }

    fn forget_empty(&mut self) {
        self.blocks.retain(|_, block| block.state != State::Ended || block.held > 0);
    }

    fn close_unused(&mut self, effects: &mut Vec<BlockEffect>) {
        let used: Vec<_> = self.blocks.values().map(|block| block.channel).collect();
        let mut unused = Vec::new();
        self.channels.retain(|channel| {
            let keep = used.contains(channel);
            if !keep {
                unused.push(BlockEffect::Close { channel: *channel });
            }
            keep
        });
        effects.extend(unused);
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "single_tests.rs"]
mod single_tests;
#[cfg(test)]
#[path = "weight_tests.rs"]
mod weight_tests;
