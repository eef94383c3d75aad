use super::*;
use proptest::prelude::*;

/// A queue that never runs dry and a broker that follows the requested limits.
struct World {
    blocks: Blocks,
    now: Duration,
    /// The broker's view: size, held messages, and whether the consumer is cancelled.
    consumers: BTreeMap<BlockId, (ChannelId, u32, u32, bool)>,
    cancelling: Vec<BlockId>,
    channels_most: usize,
    /// Consumers that are served only if no other service has room, and whether none has.
    last_resort: BTreeSet<BlockId>,
    others_are_full: bool,
    /// Nothing has happened since the last decision.
    acted: bool,
}

impl World {
    fn new(capacity: u32) -> Self {
        Self {
            blocks: Blocks::new(capacity),
            now: Duration::ZERO,
            consumers: BTreeMap::new(),
            cancelling: Vec::new(),
            channels_most: 0,
            last_resort: BTreeSet::new(),
            others_are_full: false,
            acted: false,
        }
    }
    fn held(&self) -> u32 {
        self.consumers.values().map(|(_, _, held, _)| held).sum()
    }
    /// Whether the open blocks fit beside the held messages.
    fn fits(&self) -> bool {
        let open = |id: &BlockId, over: bool| !over && !self.cancelling.contains(id);
        let free = |(id, (_, size, held, over)): (_, &(_, u32, u32, bool))| {
            if open(id, *over) { size.saturating_sub(*held) } else { 0 }
        };
        let free: u32 = self.consumers.iter().map(free).sum();
        free == 0 || self.held() + free <= self.blocks.capacity()
    }
    fn act(&mut self) {
        for effect in self.blocks.decide(self.now) {
            match effect {
                BlockEffect::Open { block, channel, prefetch, priority } => {
                    if priority == Turn::LastResort.priority(0) {
                        self.last_resort.insert(block);
                    }
                    let taken = self.consumers.values().any(|(on, .., over)| *on == channel && !over);
                    assert!(!taken, "two consumers on {channel:?}");
                    self.consumers.insert(block, (channel, u32::from(prefetch), 0, false));
                }
                BlockEffect::Cancel { channel } => {
                    let open = self.consumers.iter().find(|(_, (on, .., over))| *on == channel && !over);
                    self.cancelling.push(*open.unwrap().0);
                }
                BlockEffect::Close { channel } => {
                    let left = self
                        .consumers
                        .values()
                        .any(|(on, _, held, over)| *on == channel && (*held > 0 || !over));
                    assert!(!left, "{channel:?} is closed with something on it");
                }
            }
        }
        self.consumers.retain(|_, (_, _, held, over)| *held > 0 || !*over);
        let channels: BTreeSet<_> = self.consumers.values().map(|(channel, ..)| *channel).collect();
        self.channels_most = self.channels_most.max(channels.len());
    }
    /// The broker delivers all that it may, including to consumers that are being cancelled.
    fn deliver(&mut self) {
        for (id, (_, size, held, over)) in &mut self.consumers {
            if self.last_resort.contains(id) && !self.others_are_full {
                continue;
            }
            while !*over && *held < *size {
                *held += 1;
                self.blocks.took(*id, 1);
            }
        }
    }
    fn confirm_cancels(&mut self) {
        for id in std::mem::take(&mut self.cancelling) {
            self.consumers.get_mut(&id).unwrap().3 = true;
            self.blocks.ended(id);
        }
    }
    fn settle(&mut self, which: usize) {
        let holders: Vec<_> = self.consumers.iter().filter(|(_, it)| it.2 > 0).map(|(id, _)| *id).collect();
        if let Some(id) = holders.get(which % holders.len().max(1)) {
            self.consumers.get_mut(id).unwrap().2 -= 1;
            self.blocks.freed(*id, 1);
        }
    }
    fn settle_down(&mut self) {
        for _ in 0..200 {
            self.act();
            self.deliver();
            self.confirm_cancels();
            self.now += Duration::from_millis(50);
        }
    }
}

#[test]
fn a_capacity_ramps_up() {
    let mut world = World::new(10);
    let mut taken = Vec::new();
    for _ in 0..6 {
        world.act();
        world.deliver();
        taken.push(world.held());
        world.now += RAMP;
    }
    assert_eq!(taken, [2, 4, 6, 8, 10, 10]);
}

#[test]
fn a_cordon_keeps_held_messages_and_takes_no_more() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.cordon(true);
    world.settle_down();
    assert_eq!(world.held(), 10);
    world.settle(0);
    world.settle(3);
    world.settle_down();
    assert_eq!(world.held(), 8);
    world.blocks.cordon(false);
    world.settle_down();
    assert_eq!(world.held(), 10);
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), None);
}

#[test]
fn a_reduced_capacity_yields_a_surplus_once_deliveries_end() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.resize(4);
    world.act();
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), None, "cancelled, but not ended");
    world.confirm_cancels();
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), Some(4));
    for _ in 0..6 {
        world.settle(0);
    }
    world.settle_down();
    assert_eq!((world.held(), world.blocks.allowed_when_over_capacity(world.now)), (4, None));
    world.blocks.resize(7);
    world.settle_down();
    assert_eq!(world.held(), 7);
}

#[test]
fn an_empty_service_reduced_by_one_slot_gives_up_only_one() {
    let mut world = World::new(10);
    for _ in 0..6 {
        world.act();
        world.now += RAMP;
    }
    world.blocks.resize(9);
    world.act();
    world.act();
    assert_eq!(world.cancelling.len(), 1);
}

#[test]
fn a_pausing_service_takes_back_only_what_no_other_takes() {
    let mut world = World::new(8);
    world.settle_down();
    world.blocks.rest(world.now, world.now + Duration::from_secs(60));
    world.act();
    world.confirm_cancels();
    assert!(world.blocks.closed());
    world.settle(0);
    let now = world.blocks.decide(world.now);
    assert!(matches!(now[..], [BlockEffect::Close { .. }]), "{now:?}");
    let then = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(then, world.now + LETS_OTHERS_TAKE);
    let taking = world.blocks.decide(then);
    assert!(matches!(taking[..], [BlockEffect::Open { prefetch: 1, priority: -3, .. }]), "{taking:?}");
}

#[test]
fn a_limit_holds_until_it_expires() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.limit(6, world.now, world.now + Duration::from_secs(60));
    world.act();
    world.confirm_cancels();
    assert_eq!(
        world.blocks.allowed_when_over_capacity(world.now),
        None,
        "others may not have received their limits"
    );
    world.now = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), Some(6));
    for _ in 0..7 {
        world.settle(0);
    }
    world.settle_down();
    assert_eq!(
        (world.held(), world.blocks.allowed_when_over_capacity(world.now)),
        (6, None),
        "it takes up to its limit"
    );
    world.now = world.blocks.next_deadline(world.now).unwrap();
    world.settle_down();
    assert_eq!(world.held(), 10);
}

#[test]
fn beyond_its_share_a_service_takes_what_no_other_has_room_for() {
    let mut world = World::new(10);
    world.blocks.limit(4, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.settle_down();
    assert_eq!((world.held(), world.blocks.closed()), (4, false), "others have room");
    world.others_are_full = true;
    world.settle_down();
    assert_eq!(
        (world.held(), world.blocks.allowed_when_over_capacity(world.now)),
        (10, None),
        "and then they have none"
    );
}

#[test]
fn a_surplus_is_handed_over_before_a_service_takes_more() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.limit(4, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.others_are_full = true;
    world.act();
    world.confirm_cancels();
    assert_eq!((world.blocks.closed(), world.blocks.allowed_when_over_capacity(world.now)), (true, Some(4)));
    for freed in 0..6 {
        world.act();
        assert!(world.blocks.closed(), "{freed} given away");
        world.settle(0);
    }
    world.settle_down();
    assert_eq!(world.held(), 10, "only then, and only as a last resort");
}

/// A rebalance is planned for the previous number of slots.
#[test]
fn a_resize_ends_a_share() {
    let mut world = World::new(2);
    world.settle_down();
    world.blocks.limit(0, world.now, world.now + Duration::from_secs(10));
    world.now += GIVES_AFTER;
    world.act();
    world.confirm_cancels();
    world.blocks.resize(8);
    for _ in 0..20 {
        world.act();
        world.deliver();
        world.now += Duration::from_millis(50);
    }
    assert_eq!(world.held(), 8, "a surplus still being handed over does not block the new slots");
}

#[test]
fn what_no_other_service_takes_does_not_wait_for_the_slowest_observer_to_stop() {
    let mut world = World::new(3);
    world.settle_down();
    world.blocks.limit(0, world.now, world.now + Duration::from_secs(10));
    world.now += GIVES_AFTER;
    world.act();
    world.confirm_cancels();
    assert_eq!(world.blocks.allowed_when_over_capacity(world.now), Some(0));
    world.blocks.surplus_requested(world.now);
    world.settle(0);
    world.settle(0);
    world.others_are_full = true;
    world.act();
    assert!(world.blocks.closed(), "other services may still be opening their slots");
    world.now += LETS_OTHERS_TAKE;
    world.settle_down();
    assert_eq!(world.held(), 3, "the third has not stopped yet");
}

#[test]
fn a_share_after_a_smaller_capacity_opens_no_more_than_fits() {
    let mut world = World::new(33);
    world.blocks.limit(0, world.now, world.now + Duration::from_secs(1));
    world.now += GIVES_AFTER;
    for _ in 0..2 {
        world.act();
        world.now += RAMP;
    }
    world.blocks.resize(6);
    world.blocks.limit(0, world.now, world.now + Duration::from_secs(1));
    world.now += GIVES_AFTER;
    world.act();
    assert!(world.fits());
}

#[test]
fn a_smaller_capacity_also_limits_last_resort_blocks() {
    let mut world = World::new(8);
    world.blocks.limit(2, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.settle_down();
    world.blocks.resize(3);
    world.act();
    assert!(world.fits(), "before any further delivery");
    world.confirm_cancels();
    world.others_are_full = true;
    world.deliver();
    assert!(world.held() <= 3, "{} of 3", world.held());
}

#[test]
fn a_possibly_unhealthy_service_is_served_last_for_a_while() {
    let mut world = World::new(1);
    world.blocks.defer(Duration::from_secs(60));
    let last = world.blocks.decide(world.now);
    assert!(matches!(last[..], [BlockEffect::Open { priority: -1, .. }]), "{last:?}");
    world.now = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(world.now, Duration::from_secs(60));
    assert_eq!(world.blocks.decide(world.now), [BlockEffect::Cancel { channel: ChannelId(1) }]);
    world.blocks.ended(BlockId(2));
    let then = world.blocks.decide(world.now);
    assert!(matches!(then[..], [BlockEffect::Open { priority: 8, .. }]), "{then:?}");
}

#[test]
fn a_service_that_steps_back_is_served_last_until_the_end() {
    let mut world = World::new(1);
    world.blocks.defer(Duration::from_secs(60));
    world.blocks.step_back(Duration::from_secs(3));
    world.blocks.step_back(Duration::from_secs(2));
    let last = world.blocks.decide(world.now);
    assert!(matches!(last[..], [BlockEffect::Open { priority: -3, .. }]), "{last:?}");
    world.now = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(world.now, Duration::from_secs(3));
    assert_eq!(world.blocks.decide(world.now), [BlockEffect::Cancel { channel: ChannelId(1) }]);
    world.blocks.ended(BlockId(2));
    let then = world.blocks.decide(world.now);
    assert!(
        matches!(then[..], [BlockEffect::Open { priority: -1, .. }]),
        "it came back not long ago: {then:?}"
    );
}

#[test]
fn a_pausing_service_at_its_share_takes_back_what_no_other_takes() {
    let mut world = World::new(8);
    world.blocks.limit(1, world.now, world.now + Duration::from_secs(60));
    world.settle_down();
    world.blocks.rest(world.now, world.now + Duration::from_secs(2));
    world.act();
    world.confirm_cancels();
    world.settle(0);
    let rested = world.now + LETS_OTHERS_TAKE;
    world.now = rested;
    let mut opened = Vec::new();
    while world.now < rested + Duration::from_secs(1) {
        opened.extend(world.blocks.decide(world.now));
        world.now += RAMP;
    }
    let slots = |effect: &BlockEffect| match effect {
        BlockEffect::Open { prefetch, priority: -3, .. } => u32::from(*prefetch),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.held() + opened.iter().map(slots).sum::<u32>(), 8);
}

#[test]
fn freed_slots_of_cancelled_blocks_are_collected() {
    let mut world = World::new(16);
    world.settle_down();
    world.blocks.cordon(true);
    world.settle_down();
    world.blocks.cordon(false);
    world.settle_down();
    world.settle(0);
    let opened = |world: &mut World| {
        let effects = world.blocks.decide(world.now);
        effects.iter().filter(|it| matches!(it, BlockEffect::Open { .. })).count()
    };
    assert_eq!(opened(&mut world), 1, "the first at once");
    world.settle(0);
    world.now += RAMP;
    assert_eq!(opened(&mut world), 0);
    world.now += GATHER;
    assert_eq!(opened(&mut world), 1);
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Act,
    Deliver,
    Confirm,
    Settle(usize),
    Later(u16),
    Cordon(bool),
    Rest(u8),
    Limit(u32, u8),
    Resize(u32),
}

pub(super) fn op(resizes: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Act),
        4 => Just(Op::Deliver),
        2 => Just(Op::Confirm),
        4 => (0_usize..50).prop_map(Op::Settle),
        3 => (0_u16..700).prop_map(Op::Later),
        1 => prop::bool::weighted(0.2).prop_map(Op::Cordon),
        1 => (0_u8..2).prop_map(Op::Rest),
        2 => (0_u32..20, 0_u8..10).prop_map(|(most, secs)| Op::Limit(most, secs)),
        2 * u32::from(resizes) => (0_u32..60).prop_map(Op::Resize),
    ]
}

fn play(world: &mut World, ops: &[Op], mut check: impl FnMut(&World)) {
    for op in ops {
        world.acted = matches!(op, Op::Act);
        match *op {
            Op::Act => world.act(),
            Op::Deliver => world.deliver(),
            Op::Confirm => world.confirm_cancels(),
            Op::Settle(which) => world.settle(which),
            Op::Later(ms) => world.now += Duration::from_millis(ms.into()),
            Op::Cordon(cordoned) => world.blocks.cordon(cordoned),
            Op::Rest(secs) => world.blocks.rest(world.now, world.now + Duration::from_secs(secs.into())),
            Op::Limit(most, secs) => {
                world.blocks.limit(most, world.now, world.now + Duration::from_secs(secs.into()));
            }
            Op::Resize(capacity) => world.blocks.resize(capacity),
        }
        assert_eq!(world.held(), world.blocks.held());
        check(world);
    }
}

proptest! {
    #[test]
    fn it_never_exceeds_the_capacity(capacity in 0_u32..60, ops in prop::collection::vec(op(false), 0..400)) {
        let mut world = World::new(capacity);
        world.others_are_full = ops.len().is_multiple_of(2);
        play(&mut world, &ops, |world| assert!(world.held() <= capacity));
        world.blocks.cordon(false);
        world.now += Duration::from_secs(20);
        world.settle_down();
        prop_assert_eq!(world.held(), capacity, "all of it is used in the end");
        prop_assert!(world.channels_most <= 40, "{} channels", world.channels_most);
    }

    #[test]
    fn fitting_slots_are_used_after_resizing(ops in prop::collection::vec(op(true), 0..400)) {
        let mut world = World::new(20);
        play(&mut world, &ops, |world| assert!(world.fits() || !world.acted, "more is open than fits"));
        world.blocks.cordon(false);
        world.now += Duration::from_secs(20);
        world.settle_down();
        if let Some(at_most) = world.blocks.allowed_when_over_capacity(world.now) {
            while world.held() > at_most {
                world.settle(0);
            }
            world.settle_down();
        }
        prop_assert_eq!(world.held(), world.blocks.capacity());
    }
}
