//! One block: its prefetch, what it holds, and the slots that the broker may come to fill through it; and the steps that
//! open and cancel blocks.

use super::turn::Turn;

/// One consumer, within one session. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// One channel, within one session. It carries at most one open block at a time; a new one follows a cancelled one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A step for the caller to carry out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockEffect {
    /// Consume on this channel; open it if it was not named before.
    Open { block: BlockId, channel: ChannelId, prefetch: u16, priority: i32 },
    /// Cancel this consumer; call `Blocks::ended` once no more deliveries arrive.
    Cancel { channel: ChannelId },
    /// Close this channel: it holds no message, and no more deliveries will arrive.
    Close { channel: ChannelId },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// Cancelled; deliveries may still arrive.
    Ending,
    Ended,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Block {
    pub(super) channel: ChannelId,
    /// Its prefetch, in messages.
    pub(super) size: u32,
    /// Messages.
    pub(super) held: u32,
    /// The sum of their weights.
    pub(super) held_weight: u32,
    /// The slots that its messages use at most: each has the greatest weight.
    pub(super) most_weight: u32,
    pub(super) turn: Turn,
    pub(super) priority: i32,
    /// A last-resort block: beyond the share of a rebalance, it takes what no other service has room for.
    pub(super) spare: bool,
    pub(super) state: State,
}

impl Block {
    /// The most slots that it may come to use without another step.
    ///
    /// The obvious claim of an open block is what it holds, and the greatest weight for each message to come. But the
    /// broker replaces an acknowledged light message by a heavy one before the service can object.
    pub(super) fn claims(&self) -> u32 {
        match self.state {
            State::Open | State::Ending => self.most_weight.max(self.held_weight),
            State::Ended => self.held_weight,
        }
    }
    /// The claimed slots that its messages do not use.
    pub(super) fn free(&self) -> u32 {
        self.most_weight.saturating_sub(self.held_weight)
    }
    /// Whether the broker serves it by the part of the capacity that is in use.
    pub(super) fn is_usual(&self) -> bool {
        self.state == State::Open && self.turn == Turn::Usual && !self.spare
    }
    /// The claimed slots that no message will use while the block stays open and keeps its messages.
    pub(super) fn wastes(&self) -> u32 {
        if self.state == State::Open && self.held >= self.size { self.free() } else { 0 }
    }
    /// Whether all decisions count it with its size, however many of its slots are in use.
    pub(super) fn claims_its_size(&self) -> bool {
        self.state == State::Open && !self.spare && self.held <= self.size
    }
}
