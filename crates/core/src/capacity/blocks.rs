//! How a capacity is divided into blocks (one consumer each, on channels that outlive them), and which blocks are open.
//! This module knows how many messages a block holds, not which ones.

mod allocator;
mod block;
mod turn;

pub use allocator::Blocks;
pub use block::{BlockEffect, BlockId, ChannelId};

/// The most messages in one block: the broker's time per acknowledgement grows with the number of messages held on the
/// channel (measured: with 40,000 on one channel, it handles 200 acknowledgements a second).
pub const BLOCK_MAX: u32 = 1000;
/// The highest capacity of a service, in its settings and in orders of operators: with full blocks, a tenth of the channels that RabbitMQ allows on a connection.
pub const CAPACITY_MAX: u32 = 200_000;
/// The preferred number of blocks of a capacity, so that services that start together share a full queue and the first
/// one does not take everything.
const SHARES: u32 = 8;

/// The size of a full block.
fn share(capacity: u32) -> u32 {
    capacity.div_ceil(SHARES).clamp(1, BLOCK_MAX)
}

/// The prefetch of each block; their sum is the capacity, in messages.
#[must_use]
pub fn block_sizes(capacity: u32) -> Vec<u16> {
    let size = share(capacity);
    let mut left = capacity;
    std::iter::from_fn(|| {
        let block = left.min(size);
        left -= block;
        (block > 0).then(|| u16::try_from(block).unwrap_or(u16::MAX))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_add_up_to_the_capacity_and_none_is_too_large() {
        for capacity in [0, 1, 7, 8, 10, 999, 8000, 8001, 40_000, CAPACITY_MAX] {
            let sizes = block_sizes(capacity);
            assert_eq!(sizes.iter().map(|size| u32::from(*size)).sum::<u32>(), capacity);
            assert!(sizes.iter().all(|size| (1..=1000).contains(size)));
        }
        assert_eq!(block_sizes(10), [2, 2, 2, 2, 2]);
    }
}
