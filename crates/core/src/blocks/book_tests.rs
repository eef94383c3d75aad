use super::*;
use proptest::prelude::*;

/// A queue that never runs dry and a broker that keeps to what it was asked.
struct World {
    blocks: Blocks,
    now: Duration,
    /// What the broker knows: size, held, and whether it is cancelled.
    consumers: BTreeMap<BlockId, (ChannelId, u32, u32, bool)>,
    cancelling: Vec<BlockId>,
    channels_most: usize,
    /// Consumers that are served only where no other service has room, and whether that is so.
    last_resort: BTreeSet<BlockId>,
    others_are_full: bool,
    /// Nothing has happened since the blocks were asked what to do.
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
    /// Whether all that is open fits, beside what is held.
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
                    if priority == SPARE {
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
    /// The broker hands out all that it may, cancellations under way included.
    fn deliver(&mut self) {
        for (id, (_, size, held, over)) in &mut self.consumers {
            if self.last_resort.contains(id) && !self.others_are_full {
                continue;
            }
            while !*over && *held < *size {
                *held += 1;
                self.blocks.took(*id);
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
            self.blocks.freed(*id);
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
fn a_capacity_is_taken_up_in_a_ramp() {
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
fn a_cordon_keeps_what_is_held_and_takes_nothing() {
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
    assert_eq!(world.blocks.surplus_over(world.now), None);
}

#[test]
fn a_shrunken_capacity_names_its_surplus_once_nothing_more_comes() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.resize(4);
    world.act();
    assert_eq!(world.blocks.surplus_over(world.now), None, "cancelled, but not ended");
    world.confirm_cancels();
    assert_eq!(world.blocks.surplus_over(world.now), Some(4));
    for _ in 0..6 {
        world.settle(0);
    }
    world.settle_down();
    assert_eq!((world.held(), world.blocks.surplus_over(world.now)), (4, None));
    world.blocks.resize(7);
    world.settle_down();
    assert_eq!(world.held(), 7);
}

#[test]
fn an_empty_one_that_shrinks_by_one_gives_up_no_more() {
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
fn a_rest_ends_by_itself() {
    let mut world = World::new(8);
    world.settle_down();
    world.blocks.rest(world.now + Duration::from_secs(60));
    world.act();
    world.confirm_cancels();
    assert!(world.blocks.closed());
    world.settle(0);
    world.settle_down();
    assert_eq!(world.held(), 7);
    world.now = world.blocks.next_deadline(world.now).unwrap();
    world.settle_down();
    assert_eq!(world.held(), 8);
}

#[test]
fn a_limit_is_kept_for_a_while() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.limit(6, world.now, world.now + Duration::from_secs(60));
    world.act();
    world.confirm_cancels();
    assert_eq!(world.blocks.surplus_over(world.now), None, "others may not have heard of theirs");
    world.now = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(world.blocks.surplus_over(world.now), Some(6));
    for _ in 0..7 {
        world.settle(0);
    }
    world.settle_down();
    assert_eq!((world.held(), world.blocks.surplus_over(world.now)), (6, None), "it takes up to its limit");
    world.now = world.blocks.next_deadline(world.now).unwrap();
    world.settle_down();
    assert_eq!(world.held(), 10);
}

#[test]
fn beyond_its_share_it_takes_what_no_other_service_has_room_for() {
    let mut world = World::new(10);
    world.blocks.limit(4, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.settle_down();
    assert_eq!((world.held(), world.blocks.closed()), (4, false), "others have room");
    world.others_are_full = true;
    world.settle_down();
    assert_eq!((world.held(), world.blocks.surplus_over(world.now)), (10, None), "and now they have not");
}

#[test]
fn what_is_beyond_its_share_is_given_away_before_anything_more_is_taken() {
    let mut world = World::new(10);
    world.settle_down();
    world.blocks.limit(4, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.others_are_full = true;
    world.act();
    world.confirm_cancels();
    assert_eq!((world.blocks.closed(), world.blocks.surplus_over(world.now)), (true, Some(4)));
    for freed in 0..6 {
        world.act();
        assert!(world.blocks.closed(), "{freed} given away");
        world.settle(0);
    }
    world.settle_down();
    assert_eq!(world.held(), 10, "only then, and only as the last resort");
}

/// A rebalance is planned for the slots that there were.
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
    assert_eq!(world.held(), 8, "what it is still giving away does not keep the new slots shut");
}

#[test]
fn a_share_that_follows_a_smaller_capacity_leaves_no_more_open_than_fits() {
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
fn a_smaller_capacity_counts_for_what_is_open_as_a_last_resort() {
    let mut world = World::new(8);
    world.blocks.limit(2, world.now, world.now + Duration::from_secs(60));
    world.now += GIVES_AFTER;
    world.settle_down();
    world.blocks.resize(3);
    world.act();
    assert!(world.fits(), "before anything more is handed out");
    world.confirm_cancels();
    world.others_are_full = true;
    world.deliver();
    assert!(world.held() <= 3, "{} of 3", world.held());
}

#[test]
fn a_returning_service_comes_first_for_a_while() {
    let mut world = World::new(4);
    world.blocks.come_first(Duration::from_secs(60));
    let first = world.blocks.decide(world.now);
    assert!(matches!(first[..], [BlockEffect::Open { priority: 1, .. }]), "{first:?}");
    world.now = Duration::from_secs(60);
    let then = world.blocks.decide(world.now);
    assert!(then.contains(&BlockEffect::Cancel { channel: ChannelId(1) }), "{then:?}");
}

#[test]
fn one_that_may_be_sick_comes_last_for_a_while() {
    let mut world = World::new(1);
    world.blocks.come_last(Duration::from_secs(60));
    let last = world.blocks.decide(world.now);
    assert!(matches!(last[..], [BlockEffect::Open { priority: -1, .. }]), "{last:?}");
    world.now = world.blocks.next_deadline(world.now).unwrap();
    assert_eq!(world.now, Duration::from_secs(60));
    assert_eq!(world.blocks.decide(world.now), [BlockEffect::Cancel { channel: ChannelId(1) }]);
    world.blocks.ended(BlockId(2));
    let then = world.blocks.decide(world.now);
    assert!(matches!(then[..], [BlockEffect::Open { priority: 0, .. }]), "{then:?}");
}

#[test]
fn one_that_steps_back_comes_after_all_others_and_then_is_as_before() {
    let mut world = World::new(1);
    world.blocks.come_last(Duration::from_secs(60));
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
fn freed_slots_of_cancelled_blocks_are_gathered() {
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
enum Op {
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

fn op(resizes: bool) -> impl Strategy<Value = Op> {
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
            Op::Rest(secs) => world.blocks.rest(world.now + Duration::from_secs(secs.into())),
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
    fn never_more_than_the_capacity(capacity in 0_u32..60, ops in prop::collection::vec(op(false), 0..400)) {
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
    fn what_fits_after_resizing_is_used(ops in prop::collection::vec(op(true), 0..400)) {
        let mut world = World::new(20);
        play(&mut world, &ops, |world| assert!(world.fits() || !world.acted, "more is open than fits"));
        world.blocks.cordon(false);
        world.now += Duration::from_secs(20);
        world.settle_down();
        if let Some(at_most) = world.blocks.surplus_over(world.now) {
            while world.held() > at_most {
                world.settle(0);
            }
            world.settle_down();
        }
        prop_assert_eq!(world.held(), world.blocks.capacity());
    }
}
