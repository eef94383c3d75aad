use super::tests::{Op, op};
use super::*;
use proptest::prelude::*;

/// A service that takes weights up to `weight_max`, a broker, and a queue with messages of all weights.
struct Weighed {
    blocks: Blocks,
    weight_max: u16,
    now: Duration,
    /// Prefetch, weights of the held messages, and whether deliveries are over.
    consumers: BTreeMap<BlockId, (ChannelId, u32, Vec<u16>, bool)>,
    cancelling: Vec<BlockId>,
    /// The weights of the messages in the queue, repeated.
    queue: Vec<u16>,
    next: usize,
}

impl Weighed {
    fn new(capacity: u32, weight_max: u16, queue: Vec<u16>) -> Self {
        Self {
            blocks: Blocks::new(capacity).with_weight_max(weight_max),
            weight_max,
            now: Duration::ZERO,
            consumers: BTreeMap::new(),
            cancelling: Vec::new(),
            queue,
            next: 0,
        }
    }
    fn used(&self) -> u32 {
        self.consumers.values().flat_map(|(_, _, held, _)| held).map(|weight| u32::from(*weight)).sum()
    }
    fn act(&mut self) {
        for effect in self.blocks.decide(self.now) {
            match effect {
                BlockEffect::Open { block, channel, prefetch, .. } => {
                    self.consumers.insert(block, (channel, prefetch.into(), Vec::new(), false));
                }
                BlockEffect::Cancel { channel } => {
                    let open = self.consumers.iter().find(|(_, (on, .., over))| *on == channel && !over);
                    self.cancelling.push(*open.unwrap().0);
                }
                BlockEffect::Close { .. } => {}
            }
        }
    }
    fn deliver(&mut self, most: usize) {
        for _ in 0..most {
            let open = self
                .consumers
                .iter_mut()
                .find(|(_, (_, size, held, over))| !*over && held.len() < usize::try_from(*size).unwrap());
            let Some((id, (_, _, held, _))) = open else { return };
            let weight = 1 + (self.queue[self.next % self.queue.len()] - 1) % self.weight_max;
            self.next += 1;
            held.push(weight);
            self.blocks.took(*id, weight);
        }
    }
    fn confirm_cancels(&mut self) {
        for id in std::mem::take(&mut self.cancelling) {
            self.consumers.get_mut(&id).unwrap().3 = true;
            self.blocks.ended(id);
        }
    }
    fn settle(&mut self, which: usize) {
        let mut held: Vec<(BlockId, usize)> = Vec::new();
        for (id, (_, _, weights, _)) in &self.consumers {
            held.extend((0..weights.len()).map(|index| (*id, index)));
        }
        if let Some((id, index)) = held.get(which % held.len().max(1)) {
            let weight = self.consumers.get_mut(id).unwrap().2.remove(*index);
            self.blocks.freed(*id, weight);
        }
    }
    fn settle_down(&mut self) {
        for _ in 0..400 {
            self.act();
            self.deliver(usize::MAX);
            self.confirm_cancels();
            self.now += Duration::from_millis(100);
            assert!(self.used() <= self.blocks.capacity());
        }
    }
}

#[test]
fn light_messages_make_room_for_more_once_their_block_is_cancelled() {
    let mut world = Weighed::new(12, 4, vec![1]);
    for _ in 0..3 {
        world.act();
        world.now += RAMP;
    }
    world.deliver(usize::MAX);
    assert_eq!((world.used(), world.consumers.len()), (3, 3));
    world.act();
    assert_eq!(world.cancelling.len(), 3, "each claims 4 slots and uses one");
    world.act();
    assert_eq!(world.consumers.len(), 3, "nothing is opened before the broker confirms");
    world.settle_down();
    assert_eq!(world.used(), 9, "with 9 of 12 slots in use, a message of weight 4 no longer fits");
    world.settle(0);
    world.settle_down();
    assert_eq!(world.used(), 9);
}

#[test]
fn heavy_messages_fill_their_blocks() {
    let mut world = Weighed::new(12, 4, vec![4]);
    world.settle_down();
    assert_eq!((world.used(), world.consumers.len()), (12, 3));
    world.blocks.resize(11);
    world.act();
    world.confirm_cancels();
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), Some(11));
}

#[test]
fn a_capacity_below_the_greatest_weight_takes_nothing() {
    let mut world = Weighed::new(12, 4, vec![1]);
    world.blocks.resize(3);
    world.settle_down();
    assert_eq!((world.used(), world.blocks.settled(world.now)), (0, true));
}

proptest! {
    #[test]
    fn weights_never_exceed_the_capacity_and_slots_are_used(
        capacity in 0_u32..60, weight_max in 1_u16..9, queue in prop::collection::vec(1_u16..9, 1..20),
        ops in prop::collection::vec(op(false), 0..400),
    ) {
        let mut world = Weighed::new(capacity, weight_max, queue);
        for op in ops {
            match op {
                Op::Act => world.act(),
                Op::Deliver => world.deliver(3),
                Op::Confirm => world.confirm_cancels(),
                Op::Settle(which) => world.settle(which),
                Op::Later(ms) => world.now += Duration::from_millis(ms.into()),
                Op::Cordon(cordoned) => world.blocks.cordon(cordoned),
                Op::Rest(secs) => world.blocks.rest(world.now, world.now + Duration::from_secs(secs.into())),
                Op::Limit(most, secs) => {
                    world.blocks.limit(most, world.now, world.now + Duration::from_secs(secs.into()));
                }
                Op::Resize(_) => {}
            }
            prop_assert!(world.used() <= capacity, "{} of {capacity}", world.used());
            prop_assert_eq!(world.used(), world.blocks.held());
        }
        world.blocks.cordon(false);
        world.now += Duration::from_secs(20);
        world.settle_down();
        let least = (capacity + 1).saturating_sub(weight_max.into());
        prop_assert!(world.used() >= least, "{} of {capacity} with {weight_max}", world.used());
        prop_assert!(world.consumers.values().filter(|it| !it.3).count() <= 40);
    }
}
