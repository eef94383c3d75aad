//! Whom the broker serves first: the priority of the consumer of each block.

use super::SHARES;

/// A usual block has one of this many levels, so that a new message goes to the service that uses the smallest part of its
/// capacity, to within one block.
///
/// The obvious way gives all blocks one priority. But the broker then serves them in turn, and the blocks of a service
/// that has just started come last: while all observers run elsewhere, it receives none of the next ones.
const LEVELS: u32 = SHARES;

/// When the broker serves a block, compared with the other blocks of the work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// By the part of the capacity that is in use.
    Usual,
    /// After all usual blocks: the service may be unhealthy.
    Deferred,
    /// While a rebalance limits a service to its share, the queue gives it more only where no other service has room.
    ///
    /// The obvious limit takes nothing beyond the share. But if a service dies or is drained in those seconds, its
    /// observers find every other service at its share, and they wait while slots are free.
    LastResort,
    /// After every other block, including those of the last resort: the service steps back.
    SteppedBack,
}

impl Turn {
    /// The `x-priority` of the consumer; the level applies to usual blocks only.
    pub(super) fn priority(self, level: i32) -> i32 {
        match self {
            Self::Usual => level,
            Self::Deferred => -1,
            Self::LastResort => -2,
            Self::SteppedBack => -3,
        }
    }
}

/// The level of the next free slot: 8 while less than an eighth of the capacity is in use, 1 from seven eighths on.
pub(super) fn level(used: u32, capacity: u32) -> i32 {
    let eighths = u64::from(used) * u64::from(LEVELS) / u64::from(capacity.max(1));
    let above = u32::try_from(eighths).unwrap_or(LEVELS).min(LEVELS - 1);
    (LEVELS - above).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_falls_with_the_part_in_use() {
        assert_eq!([0, 2, 4, 6, 8, 10, 99].map(|used| level(used, 10)), [8, 7, 5, 4, 2, 1, 1]);
        assert_eq!([0, 24_999, 25_000, 200_000].map(|used| level(used, 200_000)), [8, 8, 7, 1]);
        assert_eq!(level(0, 0), 8);
    }

    #[test]
    fn every_usual_block_comes_before_all_others() {
        let others = [Turn::Deferred, Turn::LastResort, Turn::SteppedBack].map(|turn| turn.priority(8));
        assert!(
            others.is_sorted_by(|a, b| a > b) && others.iter().all(|it| *it < level(u32::MAX, 1)),
            "{others:?}"
        );
    }
}
