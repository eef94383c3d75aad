"""A queue that never runs dry and a broker that follows the requested limits, against the blocks."""

import random
from dataclasses import dataclass

import pytest

from everwatch._blocks import BLOCK_MAX, Blocks, CancelBlock, CloseChannel, Open, block_sizes


@dataclass
class Consumer:
    """The broker's view of one block."""

    channel: int
    size: int
    priority: int
    held: int = 0
    over: bool = False


class World:
    """A service and its broker."""

    def __init__(self, capacity: int) -> None:
        self.blocks = Blocks(capacity)
        self.now = 0.0
        self.consumers: dict[int, Consumer] = {}
        self.cancelling: list[int] = []
        self.others_are_full = False

    @property
    def held(self) -> int:
        return sum(it.held for it in self.consumers.values())

    def fits(self) -> bool:
        """Whether the open blocks fit beside the held messages."""
        free = sum(
            max(it.size - it.held, 0)
            for block, it in self.consumers.items()
            if not it.over and block not in self.cancelling
        )
        return free == 0 or self.held + free <= self.blocks.capacity

    def act(self) -> None:
        for effect in self.blocks.decide(self.now):
            match effect:
                case Open(block, channel, prefetch, priority):
                    assert all(it.over for it in self.consumers.values() if it.channel == channel)
                    assert 1 <= prefetch <= BLOCK_MAX
                    self.consumers[block] = Consumer(channel, prefetch, priority)
                case CancelBlock(channel):
                    found = [b for b, it in self.consumers.items() if it.channel == channel and not it.over]
                    self.cancelling += found
                case CloseChannel(channel):
                    assert all(it.over and not it.held for it in self.consumers.values() if it.channel == channel)
        self.consumers = {block: it for block, it in self.consumers.items() if it.held or not it.over}

    def deliver(self) -> None:
        for block, it in self.consumers.items():
            if it.priority == -2 and not self.others_are_full:
                continue
            while not it.over and it.held < it.size:
                it.held += 1
                self.blocks.took(block, 1)

    def confirm_cancels(self) -> None:
        for block in self.cancelling:
            self.consumers[block].over = True
            self.blocks.ended(block)
        self.cancelling = []

    def settle(self, which: int) -> None:
        holders = sorted(block for block, it in self.consumers.items() if it.held)
        if holders:
            block = holders[which % len(holders)]
            self.consumers[block].held -= 1
            self.blocks.freed(block, 1)

    def settle_down(self) -> None:
        for _ in range(200):
            self.act()
            self.deliver()
            self.confirm_cancels()
            self.now += 0.05


@pytest.mark.parametrize("capacity", [0, 1, 7, 8, 10, 999, 8000, 8001, 40_000, 200_000])
def test_blocks_add_up_to_the_capacity_and_none_is_too_large(capacity: int) -> None:
    sizes = block_sizes(capacity)
    assert sum(sizes) == capacity
    assert all(1 <= size <= BLOCK_MAX for size in sizes)


def test_a_capacity_ramps_up() -> None:
    world, taken = World(10), []
    for _ in range(6):
        world.act()
        world.deliver()
        taken.append(world.held)
        world.now += 0.051
    assert taken == [2, 4, 6, 8, 10, 10]


def test_the_level_falls_with_the_part_in_use() -> None:
    world, levels = World(10), []
    for _ in range(5):
        world.act()
        world.now += 0.051
    levels = [it.priority for it in world.consumers.values()]
    assert levels == [8, 7, 5, 4, 2]


def test_after_its_oldest_messages_have_ended_a_service_is_served_by_what_is_left() -> None:
    world = World(10)
    world.settle_down()
    for _ in range(4):
        world.settle(0)
    world.settle(0)
    for _ in range(200):
        world.act()
        world.confirm_cancels()
        world.now += 0.05
    free = sorted(it.priority for it in world.consumers.values() if not it.over and it.held < it.size)
    assert (world.held, free) == (5, [2, 4, 5])


def test_a_cordon_keeps_held_messages_and_takes_no_more() -> None:
    world = World(10)
    world.settle_down()
    world.blocks.cordon(cordoned=True)
    world.settle_down()
    assert world.held == 10
    world.settle(0)
    world.settle(3)
    world.settle_down()
    assert world.held == 8
    world.blocks.cordon(cordoned=False)
    world.settle_down()
    assert world.held == 10
    assert world.blocks.allowed_when_over_capacity(world.now) is None


def test_a_reduced_capacity_yields_a_surplus_once_deliveries_end() -> None:
    world = World(10)
    world.settle_down()
    world.blocks.resize(4)
    world.act()
    assert world.blocks.allowed_when_over_capacity(world.now) is None
    world.confirm_cancels()
    assert world.blocks.allowed_when_over_capacity(world.now) == 4
    for _ in range(6):
        world.settle(0)
    world.settle_down()
    assert (world.held, world.blocks.allowed_when_over_capacity(world.now)) == (4, None)
    world.blocks.resize(7)
    world.settle_down()
    assert world.held == 7


def test_a_limit_takes_more_only_as_a_last_resort_and_holds_until_it_expires() -> None:
    world = World(10)
    world.settle_down()
    world.blocks.limit(6, world.now, world.now + 60)
    world.act()
    world.confirm_cancels()
    assert world.blocks.allowed_when_over_capacity(world.now) is None
    world.now = world.blocks.next_deadline(world.now) or 0.0
    assert world.blocks.allowed_when_over_capacity(world.now) == 6
    for _ in range(7):
        world.settle(0)
    world.settle_down()
    assert world.held == 6
    world.others_are_full = True
    world.settle_down()
    assert world.held == 10


@pytest.mark.parametrize("seed", range(60))
def test_no_sequence_of_events_exceeds_the_capacity_and_quiet_fills_it(seed: int) -> None:
    dice = random.Random(seed)
    world = World(dice.choice([1, 3, 10, 50, 3000]))
    allowed = world.blocks.capacity
    for _ in range(300):
        match dice.randrange(9):
            case 0:
                allowed = dice.randrange(0, 60)
                world.blocks.resize(allowed)
            case 1:
                world.blocks.cordon(cordoned=dice.random() < 0.5)
            case 2:
                world.blocks.limit(dice.randrange(0, 60), world.now, world.now + dice.random() * 5)
            case 3:
                world.blocks.rest(world.now, world.now + dice.random() * 3)
            case 4:
                world.settle(dice.randrange(100))
            case 5:
                world.confirm_cancels()
            case _:
                world.deliver()
        world.act()
        assert world.fits()
        world.now += dice.choice([0.0, 0.01, 0.3])
    world.blocks.cordon(cordoned=False)
    world.now += 60
    while world.held:
        world.settle(0)
    world.settle_down()
    assert world.held == allowed
    world.settle_down()
    assert world.blocks.decide(world.now) == []


def test_a_single_pool_has_one_block_of_the_whole_capacity() -> None:
    large = Blocks(1001, single=True)
    assert (large.capacity, large.decide(7.0)) == (1000, [Open(2, 1, 1000, 0)])
    large.resize(1001)
    assert (large.capacity, large.decide(7.0)) == (1000, [])
    none = Blocks(0, single=True)
    assert (none.decide(7.0), none.settled(7.0)) == ([], True)


def test_a_cordon_in_a_single_pool_hands_everything_over_once_no_more_messages_arrive() -> None:
    blocks = Blocks(10, single=True)
    assert blocks.decide(7.0) == [Open(2, 1, 10, 0)]
    blocks.took(2, 1)
    blocks.cordon(cordoned=True)
    assert blocks.decide(7.0) == [CancelBlock(1)]
    blocks.took(2, 1)
    assert blocks.allowed_when_over_capacity(7.0) is None, "messages may still arrive"
    blocks.ended(2)
    assert (blocks.decide(7.0), blocks.allowed_when_over_capacity(7.0)) == ([], 0)
    blocks.cordon(cordoned=False)
    for _ in range(2):
        assert blocks.decide(7.0) == [], "it consumes again when it holds nothing"
        blocks.freed(2, 1)
    assert blocks.decide(7.0) == [Open(3, 1, 10, 0)]
    assert blocks.allowed_when_over_capacity(7.0) is None


def test_shares_priorities_and_rests_mean_nothing_in_a_single_pool() -> None:
    blocks = Blocks(10, single=True)
    assert blocks.decide(7.0) == [Open(2, 1, 10, 0)]
    blocks.took(2, 1)
    blocks.limit(1, 7.0, 67.0)
    blocks.defer(67.0)
    blocks.rest(7.0, 67.0)
    for now in (7.0, 7.3, 7.5, 8.0, 68.0):
        assert (blocks.decide(now), blocks.allowed_when_over_capacity(now)) == ([], None)


class Weighed:
    """A service that takes weights, a broker, and a queue with messages of these weights, repeated."""

    def __init__(self, capacity: int, weight_max: int, queue: list[int]) -> None:
        self.blocks = Blocks(capacity, weight_max=weight_max)
        self.now = 0.0
        self.queue = queue
        self.next = 0
        # Channel, prefetch, weights, and whether deliveries are over.
        self.consumers: dict[int, tuple[int, int, list[int]]] = {}
        self.over: set[int] = set()
        self.cancelling: list[int] = []

    @property
    def used(self) -> int:
        return sum(sum(weights) for _, _, weights in self.consumers.values())

    def act(self) -> None:
        for effect in self.blocks.decide(self.now):
            if isinstance(effect, Open):
                self.consumers[effect.block] = (effect.channel, effect.prefetch, [])
            elif isinstance(effect, CancelBlock):
                live = (it for it, (on, _, _) in self.consumers.items() if on == effect.channel and it not in self.over)
                self.cancelling.append(next(live))

    def deliver(self, most: int) -> None:
        for block, (_, prefetch, weights) in self.consumers.items():
            while most > 0 and block not in self.over and len(weights) < prefetch:
                weight = self.queue[self.next % len(self.queue)]
                self.next += 1
                most -= 1
                weights.append(weight)
                self.blocks.took(block, weight)

    def confirm_cancels(self) -> None:
        for block in self.cancelling:
            self.over.add(block)
            self.blocks.ended(block)
        self.cancelling = []

    def settle(self, which: int) -> None:
        held = [(block, weights) for block, (_, _, weights) in self.consumers.items() if weights]
        if held:
            block, weights = held[which % len(held)]
            self.blocks.freed(block, weights.pop())

    def settle_down(self) -> None:
        for _ in range(400):
            self.act()
            self.deliver(1000)
            self.confirm_cancels()
            self.now += 0.1


def test_light_messages_make_room_for_more_once_their_block_is_cancelled() -> None:
    world = Weighed(12, 4, [1])
    for _ in range(3):
        world.act()
        world.now += 0.05
    world.deliver(1000)
    world.act()
    assert (world.used, len(world.cancelling), len(world.consumers)) == (3, 3, 3)
    world.settle_down()
    assert world.used == 9
    assert Weighed(3, 4, [1]).blocks.decide(0.0) == []


def test_weights_never_exceed_the_capacity_and_slots_are_used() -> None:
    dice = random.Random(5)
    for _ in range(150):
        capacity, weight_max = dice.randrange(60), dice.randrange(1, 9)
        queue = [dice.randrange(1, weight_max + 1) for _ in range(dice.randrange(1, 20))]
        world = Weighed(capacity, weight_max, queue)
        for _ in range(200):
            match dice.randrange(6):
                case 0 | 1:
                    world.act()
                case 2:
                    world.deliver(3)
                case 3:
                    world.confirm_cancels()
                case 4:
                    world.settle(dice.randrange(50))
                case _:
                    world.now += dice.random()
            assert world.used == world.blocks.held <= capacity
        world.now += 20.0
        world.settle_down()
        assert max(capacity - weight_max + 1, 0) <= world.used <= capacity
