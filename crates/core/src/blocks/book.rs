//! The blocks of one session: what each may hold and holds, and what is to be opened or cancelled so that
//! the service takes as much as it may and never more.

use super::{BLOCK_MAX, share};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pause between the opening of two blocks while the capacity is being taken up, so that services that
/// start together share a full queue.
const RAMP: Duration = Duration::from_millis(50);
/// Freed slots of cancelled blocks are gathered for so long before they are opened anew.
const GATHER: Duration = Duration::from_secs(1);

/// A limit is for giving away too, but only after so long: others are told theirs in the same moment, and one that
/// has not heard of it yet would take what it is to give away itself.
const GIVES_AFTER: Duration = Duration::from_millis(300);

/// For so long after it has come down to its share, a service takes nothing as a last resort. The services that are
/// meant to take what it gave away may still be opening their slots; until then, the queue would give it back to this
/// one.
const LETS_OTHERS_TAKE: Duration = Duration::from_millis(500);

/// While a rebalance limits a service to its share, the queue gives it more only where no other service has room: its
/// other slots are consumed with a priority below every other one.
///
/// The obvious limit takes nothing beyond the share. But a service that dies or is drained in those seconds leaves
/// observers behind that find every service at its share, and they stand still while slots are free.
const SPARE: i32 = -2;

/// While a service steps back, the queue serves it after every other one, and after what those take as a last resort.
const LAST: i32 = -3;

/// One consumer, within one session. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// One channel, within one session. It carries one open block at most, after another was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockEffect {
    /// Consume on this channel, which is new if it was not named before.
    Open { block: BlockId, channel: ChannelId, prefetch: u16, priority: i32 },
    /// Stop taking there; [`Blocks::ended`] is wanted once nothing more comes.
    Cancel { channel: ChannelId },
    /// Nothing is held there any more and nothing is to come.
    Close { channel: ChannelId },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Cancelled; deliveries may still be on their way.
    Ending,
    Ended,
}

#[derive(Debug)]
struct Block {
    channel: ChannelId,
    size: u32,
    held: u32,
    priority: i32,
    state: State,
}

impl Block {
    /// What it may come to hold without being asked again.
    fn claims(&self) -> u32 {
        match self.state {
            State::Open | State::Ending => self.size.max(self.held),
            State::Ended => self.held,
        }
    }
    fn free(&self) -> u32 {
        self.size.saturating_sub(self.held)
    }
}

/// All blocks of one session.
#[derive(Debug)]
pub struct Blocks {
    capacity: u32,
    blocks: BTreeMap<BlockId, Block>,
    channels: BTreeSet<ChannelId>,
    last: u32,
    cordoned: bool,
    /// Nothing is taken before that.
    rests_until: Duration,
    /// Its share before that: beyond it, it takes what no other service has room for.
    limit: (u32, Duration),
    /// What it held beyond its share is given away.
    within_share: bool,
    /// Nothing is given away before that.
    gives_from: Duration,
    /// Nothing is taken as a last resort before that.
    spare_from: Duration,
    /// Blocks are opened with this priority before that.
    prior: (i32, Duration),
    /// Blocks are opened with the last priority before that.
    steps_back_until: Duration,
    /// Whether all of the capacity was claimed since it was last changed.
    full: bool,
    opened_at: Option<Duration>,
}

impl Blocks {
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            blocks: BTreeMap::new(),
            channels: BTreeSet::new(),
            last: 0,
            cordoned: false,
            rests_until: Duration::ZERO,
            limit: (0, Duration::ZERO),
            within_share: true,
            gives_from: Duration::ZERO,
            spare_from: Duration::ZERO,
            prior: (0, Duration::ZERO),
            steps_back_until: Duration::ZERO,
            full: false,
            opened_at: None,
        }
    }

    /// The slots there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// The slots in use.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.blocks.values().map(|block| block.held).sum()
    }
    /// Sets the number of slots. This ends the share of a rebalance, as the manager planned it for the previous number.
    pub fn resize(&mut self, capacity: u32) {
        (self.capacity, self.full, self.limit) = (capacity, false, (0, Duration::ZERO));
    }
    /// Takes nothing while cordoned.
    pub fn cordon(&mut self, cordoned: bool) {
        (self.cordoned, self.full) = (cordoned, false);
    }
    /// Takes nothing before `until`, and then goes on by itself.
    pub fn rest(&mut self, until: Duration) {
        (self.rests_until, self.full) = (self.rests_until.max(until), false);
    }
    /// Gives away what it holds beyond `most`, and takes more before `until` only as a last resort.
    pub fn limit(&mut self, most: u32, now: Duration, until: Duration) {
        (self.limit, self.full, self.within_share) = ((most, until), false, false);
        if now >= self.gives_from {
            self.gives_from = now + GIVES_AFTER;
        }
    }
    /// Before `until` the queue serves this service before others.
    pub fn come_first(&mut self, until: Duration) {
        self.prior = (1, until);
    }
    /// Before `until` the queue serves this service only with what no other has room for.
    pub fn come_last(&mut self, until: Duration) {
        self.prior = (-1, until);
    }
    /// Before `until` the queue serves every other service first.
    pub fn step_back(&mut self, until: Duration) {
        self.steps_back_until = self.steps_back_until.max(until);
    }
    /// A message came in.
    pub fn took(&mut self, block: BlockId) {
        if let Some(block) = self.blocks.get_mut(&block) {
            block.held += 1;
        }
    }
    /// A message was settled or given back.
    pub fn freed(&mut self, block: BlockId) {
        if let Some(block) = self.blocks.get_mut(&block) {
            block.held = block.held.saturating_sub(1);
        }
    }
    /// Nothing more comes from this cancelled block.
    pub fn ended(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.state = State::Ended;
        }
    }
    /// Whether all that may be taken can come in: the ramp is over.
    #[must_use]
    pub fn settled(&self, now: Duration) -> bool {
        self.full || self.goal(now) == 0
    }
    /// Whether nothing can come in as things stand: what is given back now goes elsewhere.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.blocks.values().all(|block| block.state == State::Ended)
    }
    /// How many may stay held, if that is less than what is and nothing more comes in.
    #[must_use]
    pub fn surplus_over(&self, now: Duration) -> Option<u32> {
        let most = self.most(now);
        (now >= self.gives_from && self.closed() && self.held() > most).then_some(most)
    }
    /// When [`Blocks::decide`] has something new to say without being told anything.
    #[must_use]
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let prior = self.open().any(|(_, block)| block.priority != 0);
        let opens = (self.room(now) + self.spare_room(now) > 0).then(|| self.may_open_at(now));
        let times = [
            Some(self.rests_until),
            Some(self.limit.1),
            Some(self.gives_from),
            Some(self.spare_from),
            prior.then_some(self.prior.1),
            prior.then_some(self.steps_back_until),
            opens,
        ];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    /// What is to be opened, cancelled and closed now.
    pub fn decide(&mut self, now: Duration) -> Vec<BlockEffect> {
        let mut effects = Vec::new();
        self.forget_empty();
        if !self.within_share && self.held() <= self.most(now) {
            (self.within_share, self.spare_from) = (true, now + LETS_OTHERS_TAKE);
        }
        self.cancel_what_is_too_much(now, &mut effects);
        let (room, spare) = (self.room(now), self.spare_room(now));
        if room == 0 {
            self.full = self.full || self.goal(now) == self.capacity;
        }
        if room + spare == 0 {
            self.close_unused(&mut effects);
        } else if now >= self.may_open_at(now) {
            let priority = if room > 0 { self.priority(now) } else { SPARE };
            self.open_one(if room > 0 { room } else { spare }, priority, now, &mut effects);
        }
        effects
    }

    fn goal(&self, now: Duration) -> u32 {
        if self.cordoned || now < self.rests_until { 0 } else { self.most(now) }
    }
    fn most(&self, now: Duration) -> u32 {
        let (limit, until) = self.limit;
        if now < until { self.capacity.min(limit) } else { self.capacity }
    }
    fn claimed(&self) -> u32 {
        self.blocks.values().map(Block::claims).sum()
    }
    /// What open blocks for the last resort may still take.
    fn spare_free(&self) -> u32 {
        self.open().filter(|(_, block)| block.priority == SPARE).map(|(_, block)| block.free()).sum()
    }
    /// What may be opened within the goal.
    fn room(&self, now: Duration) -> u32 {
        let claimed = self.claimed();
        let within = self.goal(now).saturating_sub(claimed - self.spare_free());
        within.min(self.capacity.saturating_sub(claimed))
    }
    /// Whether it takes more than its share as a last resort: not before it has given away what is beyond that.
    fn takes_spare(&self, now: Duration) -> bool {
        let takes = !self.cordoned && now >= self.rests_until.max(self.steps_back_until);
        takes
            && self.most(now) < self.capacity
            && self.within_share
            && now >= self.gives_from.max(self.spare_from)
    }
    /// What may be opened for the last resort.
    fn spare_room(&self, now: Duration) -> u32 {
        let room = self.capacity.saturating_sub(self.claimed()).saturating_sub(self.room(now));
        if self.takes_spare(now) { room } else { 0 }
    }
    fn open(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().filter(|(_, block)| block.state == State::Open).map(|(id, block)| (*id, block))
    }
    fn priority(&self, now: Duration) -> i32 {
        let (priority, until) = self.prior;
        match (now < self.steps_back_until, now < until) {
            (true, _) => LAST,
            (false, true) => priority,
            (false, false) => 0,
        }
    }
    fn may_open_at(&self, now: Duration) -> Duration {
        let pause = if self.full && self.room(now) < share(self.capacity) { GATHER } else { RAMP };
        self.opened_at.map_or(Duration::ZERO, |at| at + pause)
    }

    fn cancel_what_is_too_much(&mut self, now: Duration, effects: &mut Vec<BlockEffect>) {
        let (goal, priority) = (self.goal(now), self.priority(now));
        let spare: Vec<_> =
            self.open().filter(|(_, block)| block.priority == SPARE).map(|(id, _)| id).collect();
        let claims = |block: &Block| if block.state == State::Open { block.claims() } else { block.held };
        let fits = self.blocks.values().map(claims).sum::<u32>() <= self.capacity;
        if !self.takes_spare(now) || !fits {
            for id in &spare {
                self.cancel(*id, effects);
            }
        }
        let mut open: Vec<_> = self
            .open()
            .filter(|(_, block)| block.priority != SPARE)
            .map(|(id, block)| (block.priority == priority, block.free(), id))
            .collect();
        // Those of a wrong priority, then those that free the most.
        open.sort_by_key(|(fits, free, id)| (*fits, std::cmp::Reverse(*free), *id));
        // What was cancelled before will come to what it holds: naively, it is counted as it was, and one
        // after the other goes.
        let to_come = |block: &Block| match block.state {
            State::Open if block.priority != SPARE => block.claims(),
            State::Open | State::Ending | State::Ended => block.held,
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

    fn cancel(&mut self, id: BlockId, effects: &mut Vec<BlockEffect>) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.state = State::Ending;
            effects.push(BlockEffect::Cancel { channel: block.channel });
        }
    }

    fn open_one(&mut self, room: u32, priority: i32, now: Duration, effects: &mut Vec<BlockEffect>) {
        let full_block = share(self.capacity);
        let most = 2 * self.capacity.div_ceil(full_block) as usize;
        if self.open().count() >= most {
            // Naively, each freed slot becomes a block of its own and their number has no end: small ones
            // are cancelled and come back as one.
            let small: Vec<_> =
                self.open().filter(|(_, block)| block.size < full_block).map(|(id, _)| id).collect();
            for id in small {
                self.cancel(id, effects);
            }
            return;
        }
        let size = room.min(full_block);
        let channel = self.channel_for(size);
        self.last += 1;
        let block = BlockId(self.last);
        self.blocks.insert(block, Block { channel, size, held: 0, priority, state: State::Open });
        self.channels.insert(channel);
        self.opened_at = Some(now);
        let prefetch = u16::try_from(size).unwrap_or(u16::MAX);
        effects.push(BlockEffect::Open { block, channel, prefetch, priority });
    }

    fn held_on(&self, channel: ChannelId) -> u32 {
        self.blocks.values().filter(|block| block.channel == channel).map(|block| block.held).sum()
    }

    /// One where nothing is open and enough fits, else a new one.
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
#[path = "book_tests.rs"]
mod tests;
