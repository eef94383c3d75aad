//! Transcripts of the blocks of a service of a single pool: each call with all effects that must follow.

use super::*;

const AT: Duration = Duration::from_secs(7);

fn open(block: u32, prefetch: u16) -> BlockEffect {
    BlockEffect::Open { block: BlockId(block), channel: ChannelId(1), prefetch, priority: 0 }
}
fn cancel() -> BlockEffect {
    BlockEffect::Cancel { channel: ChannelId(1) }
}

/// One open block that holds two messages.
fn serving(capacity: u32) -> Blocks {
    let mut blocks = Blocks::single(capacity);
    let prefetch = u16::try_from(capacity).unwrap();
    assert_eq!(blocks.decide(AT), [open(2, prefetch)]);
    assert!(blocks.settled(AT));
    assert_eq!(blocks.decide(AT), []);
    blocks.took(BlockId(2), 1);
    blocks.took(BlockId(2), 1);
    assert_eq!(blocks.decide(AT), []);
    blocks
}

#[test]
fn a_single_pool_has_one_block_of_the_whole_capacity() {
    assert_eq!(Blocks::single(10).capacity(), 10);
    let mut large = Blocks::single(CAPACITY);
    assert_eq!((large.capacity(), large.decide(AT)), (BLOCK_MAX, vec![open(2, 1000)]));
    large.resize(CAPACITY);
    assert_eq!((large.capacity(), large.decide(AT)), (BLOCK_MAX, vec![]));
    let mut none = Blocks::single(0);
    assert_eq!((none.decide(AT), none.settled(AT)), (vec![], true));
}
const CAPACITY: u32 = 1001;

/// The channel stays: the messages that it holds are given back on it.
#[test]
fn a_cordon_hands_everything_over_once_no_more_messages_arrive() {
    let mut blocks = serving(10);
    blocks.cordon(true);
    assert_eq!(blocks.decide(AT), [cancel()]);
    blocks.took(BlockId(2), 1);
    assert_eq!(blocks.allowed_when_over_capacity(AT), None, "messages may still arrive");
    blocks.ended(BlockId(2));
    assert_eq!((blocks.decide(AT), blocks.allowed_when_over_capacity(AT)), (vec![], Some(0)));
    blocks.cordon(false);
    assert_eq!((blocks.decide(AT), blocks.allowed_when_over_capacity(AT)), (vec![], Some(0)), "it is late");
    for _ in 0..3 {
        assert_eq!(blocks.decide(AT), [], "it consumes again when it holds nothing");
        blocks.freed(BlockId(2), 1);
    }
    assert_eq!(blocks.decide(AT), [open(3, 10)]);
    assert_eq!(blocks.allowed_when_over_capacity(AT), None);
}

#[test]
fn another_capacity_hands_everything_over() {
    let mut blocks = serving(10);
    blocks.resize(20);
    assert_eq!(blocks.decide(AT), [cancel()]);
    blocks.ended(BlockId(2));
    assert_eq!((blocks.decide(AT), blocks.allowed_when_over_capacity(AT)), (vec![], Some(0)));
    blocks.freed(BlockId(2), 1);
    blocks.freed(BlockId(2), 1);
    assert_eq!(blocks.decide(AT), [open(3, 20)]);
}

#[test]
fn a_service_that_stood_by_closes_its_channel_when_it_is_cordoned() {
    let mut blocks = Blocks::single(10);
    assert_eq!(blocks.decide(AT), [open(2, 10)]);
    blocks.cordon(true);
    assert_eq!(blocks.decide(AT), [cancel()]);
    blocks.ended(BlockId(2));
    assert_eq!(blocks.decide(AT), [BlockEffect::Close { channel: ChannelId(1) }]);
    assert_eq!((blocks.allowed_when_over_capacity(AT), blocks.next_deadline(AT)), (None, None));
    blocks.cordon(false);
    let again = BlockEffect::Open { block: BlockId(4), channel: ChannelId(3), prefetch: 10, priority: 0 };
    assert_eq!(blocks.decide(AT), [again]);
}

#[test]
fn shares_priorities_and_rests_mean_nothing_in_a_single_pool() {
    let mut blocks = serving(10);
    let until = AT + Duration::from_secs(60);
    blocks.limit(1, AT, until);
    blocks.defer(until);
    blocks.rest(AT, until);
    blocks.step_back(until);
    for millis in [0, 300, 500, 1000, 61_000] {
        let now = AT + Duration::from_millis(millis);
        assert_eq!((blocks.decide(now), blocks.allowed_when_over_capacity(now)), (vec![], None));
    }
}
