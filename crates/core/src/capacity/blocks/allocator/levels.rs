//! When the broker serves each block, so that new messages go to the service that uses the smallest part of its capacity.

use super::super::block::BlockEffect;
use super::super::share;
use super::super::turn::{Turn, level};
use super::{Blocks, GATHER};
use std::time::Duration;

impl Blocks {
    pub(super) fn turn(&self, spare: bool, now: Duration) -> Turn {
        match (now < self.steps_back_until, spare, now < self.deferred_until) {
            (true, ..) => Turn::SteppedBack,
            (false, true, _) => Turn::LastResort,
            (false, false, true) => Turn::Deferred,
            (false, false, false) => Turn::Usual,
        }
    }
    /// The level that the next block gets. The slots in use count first, then the free slots of open blocks, in the order in
    /// which the broker serves these. The next block gets the first level that no open block covers.
    pub(super) fn next_level(&self) -> i32 {
        let usual = self.open().filter(|(_, block)| block.is_usual());
        let mut free: Vec<_> = usual.map(|(_, block)| (block.priority, block.free())).collect();
        free.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let mut used = self.held();
        for (priority, free) in free {
            if level(used, self.capacity) > priority {
                break;
            }
            used += free;
        }
        level(used, self.capacity)
    }

    /// Cancels a block that has free slots if its level is more than one above the level of the slots in use. The service opens
    /// these slots again, with a lower level. It cancels at most one block a second, and none while such blocks have fewer free
    /// slots than half of a full block.
    ///
    /// The obvious way keeps the blocks. But if a user deletes the observers of the first blocks, the broker delivers new
    /// observers to this service until it is full, although other services use less of their capacity.
    pub(super) fn cancel_what_is_served_too_early(&mut self, now: Duration, effects: &mut Vec<BlockEffect>) {
        if !self.levels_may_differ || !self.full || now < self.levelled_at + GATHER {
            return;
        }
        self.levelled_at = now;
        let latest = level(self.held(), self.capacity) + 1;
        let early = self.open().filter(|(_, it)| it.is_usual() && it.held < it.size && it.priority > latest);
        let early: Vec<_> = early.map(|(id, block)| (block.priority, id, block.free())).collect();
        let free: u32 = early.iter().map(|(.., free)| free).sum();
        let first = early.into_iter().max().filter(|_| 2 * free >= share(self.messages()) * self.weight_max);
        self.levels_may_differ = first.is_some();
        if let Some((_, id, _)) = first {
            self.full = false;
            self.cancel(id, effects);
        }
    }
}

#[cfg(test)]
#[path = "levels_tests.rs"]
mod tests;
