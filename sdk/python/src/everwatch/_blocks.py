"""The blocks of one session: how a capacity is divided, and which blocks to open or cancel.

A block is one consumer, on a channel that outlives it. The broker may fill each place of an open block with a message
of the greatest weight: what open blocks may come to hold, plus what cancelled blocks still hold, never exceeds the
capacity. This module knows how many messages a block holds and what they weigh, not which ones they are. All quantities
are slots, except where a name or comment says messages.
"""

import math
from dataclasses import dataclass, field
from enum import Enum, auto

# The most messages on one channel: the broker's time for an acknowledgement grows with their number.
BLOCK_MAX = 1000
CAPACITY_MAX = 200_000
# The preferred number of blocks, so that services that start together share a full queue.
_SHARES = 8
# The pause between the opening of two blocks while the capacity ramps up.
_RAMP = 0.05
# Freed slots of cancelled blocks are collected for this long before they are opened again.
_GATHER = 1.0
# A limited service hands over its surplus only after this long: the other services get their limits at the same time,
# and one without its limit yet would take what it has to hand over itself.
_GIVES_AFTER = 0.3
# For this long after a handover, the service takes nothing as a last resort: the receivers may still open their slots.
_LETS_OTHERS_TAKE = 0.5
# The priority of a service that may be unhealthy, of slots beyond the share of a rebalance, and of a service that steps
# back. Usual blocks have the levels 1 to 8.
_DEFERRED, _SPARE, _LAST = -1, -2, -3


def share(capacity: int) -> int:
    """The size of a full block."""
    return min(max(-(-capacity // _SHARES), 1), BLOCK_MAX)


def block_sizes(capacity: int) -> list[int]:
    """The prefetch of each block; their sum is the capacity, in messages."""
    size = share(capacity)
    return [min(size, capacity - start) for start in range(0, capacity, size)]


def level(used: int, capacity: int) -> int:
    """The level of the next free slot: 8 while less than an eighth of the capacity is in use, 1 from seven eighths on.

    New messages therefore go to the service that uses the smallest part of its capacity, to within one block.
    """
    return _SHARES - min(used * _SHARES // max(capacity, 1), _SHARES - 1)


@dataclass(frozen=True, slots=True)
class Open:
    """Consume on this channel; open the channel if it was not named before."""

    block: int
    channel: int
    prefetch: int
    priority: int


@dataclass(frozen=True, slots=True)
class CancelBlock:
    """Cancel this consumer, and call ``Blocks.ended`` once no more deliveries arrive."""

    channel: int


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """Close this channel: it holds no message, and no more deliveries will arrive."""

    channel: int


BlockEffect = Open | CancelBlock | CloseChannel


class _State(Enum):
    OPEN = auto()
    # Cancelled; deliveries may still arrive.
    ENDING = auto()
    ENDED = auto()


@dataclass(slots=True)
class _Block:
    channel: int
    # Its prefetch, in messages.
    size: int
    # The slots that its messages use at most: each has the greatest weight.
    most_weight: int
    priority: int
    spare: bool
    # Messages.
    held: int = 0
    # The sum of their weights.
    held_weight: int = 0
    state: _State = _State.OPEN

    @property
    def claims(self) -> int:
        """The most slots that it may come to use without another step."""
        return self.held_weight if self.state is _State.ENDED else max(self.most_weight, self.held_weight)

    @property
    def free(self) -> int:
        """The claimed slots that its messages do not use."""
        return max(self.most_weight - self.held_weight, 0)

    @property
    def wastes(self) -> int:
        """The claimed slots that no message will use while the block stays open and keeps its messages."""
        return self.free if self.state is _State.OPEN and self.held >= self.size else 0

    @property
    def claims_its_size(self) -> bool:
        """Whether all decisions count it with its size, however many of its slots are in use."""
        return self.state is _State.OPEN and not self.spare and self.held <= self.size

    @property
    def is_usual(self) -> bool:
        """Whether the broker serves it by the part of the capacity that is in use."""
        return self.state is _State.OPEN and self.priority > 0 and not self.spare


@dataclass(slots=True)
class Blocks:
    """All blocks of one session. Times are in seconds of the service's clock."""

    capacity: int
    # The work queue serves one service at a time: a single block, without shares and priorities. Once the block is
    # cancelled, another service is active, so this one hands over everything and consumes again when it holds nothing.
    single: bool = False
    # The greatest weight of a message.
    weight_max: int = 1
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _channels: set[int] = field(default_factory=set)
    _last: int = 0
    _cordoned: bool = False
    # Observers wait to be handed over: takes nothing.
    _hands_over: bool = False
    # Takes nothing before that time.
    _rests_until: float = 0.0
    # The share of a rebalance, until that time.
    _limit: tuple[int, float] = (0, 0.0)
    # The surplus beyond the share has been handed over, or its observers were told to stop.
    _within_share: bool = True
    _gives_from: float = 0.0
    _spare_from: float = 0.0
    _deferred_until: float = 0.0
    _steps_back_until: float = 0.0
    # Slots became free in open blocks, whose levels may be too high since.
    _levels_may_differ: bool = False
    # When the levels were compared last.
    _levelled_at: float = 0.0
    # Whether the whole capacity was claimed since its last change.
    _full: bool = False
    _opened_at: float | None = None
    # Until then, without another change, there is nothing to decide.
    _idle_until: float | None = None

    def __post_init__(self) -> None:
        self.capacity = self._possible(self.capacity)

    @property
    def held(self) -> int:
        """The number of slots in use."""
        return sum(block.held_weight for block in self._blocks.values())

    @property
    def closed(self) -> bool:
        """Whether no message can be delivered currently, so that messages given back go elsewhere."""
        return all(block.state is _State.ENDED for block in self._blocks.values())

    def resize(self, capacity: int) -> None:
        """Sets the number of slots. This ends the share of a rebalance: its plan used the previous number."""
        self.capacity, self._full, self._limit = self._possible(capacity), False, (0, 0.0)
        self._idle_until = None

    def _possible(self, capacity: int) -> int:
        return min(capacity, BLOCK_MAX) if self.single else capacity

    def cordon(self, cordoned: bool) -> None:
        """Takes nothing while cordoned."""
        self._cordoned, self._full, self._idle_until = cordoned, False, None

    def hands_over(self, waiting: bool) -> None:
        """Takes nothing while observers wait to be handed over: the broker may confirm the cancels late."""
        if self._hands_over != waiting:
            self._hands_over, self._idle_until = waiting, None

    def rest(self, now: float, until: float) -> None:
        """Takes nothing for a moment, and until ``until`` only what no other service has room for."""
        self._rests_until = max(self._rests_until, min(until, now + _LETS_OTHERS_TAKE))
        self._full = False
        self.step_back(until)

    def limit(self, most: int, now: float, until: float) -> None:
        """Hands over the surplus beyond ``most``, and takes more before ``until`` only as a last resort."""
        self._limit, self._full, self._within_share = (most, until), False, False
        self._idle_until = None
        if now >= self._gives_from:
            self._gives_from = now + _GIVES_AFTER

    def surplus_requested(self, now: float) -> None:
        """The observers beyond the share were told to stop."""
        self._within_share, self._spare_from, self._idle_until = True, now + _LETS_OTHERS_TAKE, None

    def defer(self, until: float) -> None:
        """Until ``until``, this service takes only what no other service has room for."""
        self._deferred_until, self._idle_until = until, None

    def step_back(self, until: float) -> None:
        """Until ``until``, the queue serves every other service first."""
        self._steps_back_until = max(self._steps_back_until, until)
        self._idle_until = None

    def took(self, number: int, weight: int) -> None:
        """A message was delivered. One that is heavier than the greatest weight is refused, and counts with that."""
        block = self._blocks.get(number)
        if block is not None:
            block.held += 1
            block.held_weight += min(weight, self.weight_max)
            if not (self._within_share and block.claims_its_size) or block.wastes > 0:
                self._idle_until = None

    def freed(self, number: int, weight: int) -> None:
        """A message of this weight was settled or given back."""
        block = self._blocks.get(number)
        if block is not None:
            may_differ = block.is_usual and not self._levels_may_differ
            if may_differ or not (self._within_share and block.claims_its_size):
                self._idle_until = None
            self._levels_may_differ |= may_differ
            block.held = max(block.held - 1, 0)
            block.held_weight = max(block.held_weight - min(weight, self.weight_max), 0)

    def ended(self, number: int) -> None:
        """No more deliveries arrive for this cancelled block."""
        block = self._blocks.get(number)
        if block is not None:
            block.state = _State.ENDED
            self._idle_until = None

    def settled(self, now: float) -> bool:
        """Whether the ramp is over: every allowed message can be delivered."""
        return self._full or self._goal(now) == 0

    def allowed_when_over_capacity(self, now: float) -> int | None:
        """How many slots may stay in use, if more are in use and no more deliveries arrive."""
        if self.single:
            return 0 if self.closed and self.held else None
        most = self.capacity if self._within_share else self._most(now)
        over = now >= self._gives_from and self.closed and self.held > most
        return most if over else None

    def next_deadline(self, now: float) -> float | None:
        """When ``decide`` must run again without a new input."""
        if self._idle_until is not None and now < self._idle_until:
            return None if math.isinf(self._idle_until) else self._idle_until
        return self._soonest(now)

    def decide(self, now: float) -> list[BlockEffect]:
        """The blocks to open, cancel and close now, in order."""
        # Most inputs are deliveries into an open block, which change nothing here.
        if self._idle_until is not None and now < self._idle_until:
            return []
        effects = self._decide_all(now)
        soonest = self._soonest(now)
        if effects:
            self._idle_until = None
        else:
            self._idle_until = math.inf if soonest is None else soonest
        return effects

    def _decide_all(self, now: float) -> list[BlockEffect]:
        effects: list[BlockEffect] = []
        gone = [number for number, it in self._blocks.items() if it.state is _State.ENDED and it.held == 0]
        for number in gone:
            del self._blocks[number]
        if self.single:
            self._decide_single(now, effects)
            return effects
        if not self._within_share and self.held <= self._most(now):
            self._within_share, self._spare_from = True, now + _LETS_OTHERS_TAKE
        self._cancel_what_is_too_much(now, effects)
        self._cancel_what_wastes_room(now, effects)
        room = self._room(now)
        with_spare = room + self._spare_room(now)
        if with_spare < self.weight_max:
            self._close_unused(effects)
        elif now >= self._may_open_at(now):
            spare = room < self.weight_max
            self._open_one(with_spare if spare else room, now, effects, spare=spare)
        if self._room(now) < self.weight_max:
            self._full = self._full or self._goal(now) == self.capacity
        self._cancel_what_is_served_too_early(now, effects)
        return effects

    def _decide_single(self, now: float, effects: list[BlockEffect]) -> None:
        goal = 0 if self._cordoned else self.capacity
        for block in self._open():
            if block.size != goal:
                self._cancel(block, effects)
        if not self._blocks and goal:
            self._open_one(goal, now, effects, spare=False)
        elif not self._blocks:
            self._close_unused(effects)
        self._full = goal > 0 and bool(self._blocks)

    def _soonest(self, now: float) -> float | None:
        unusual = any(block.priority <= 0 for block in self._open())
        times = [self._rests_until, self._limit[1], self._gives_from, self._spare_from]
        if unusual:
            times += [self._deferred_until, self._steps_back_until]
        if self._levels_may_differ:
            times.append(self._levelled_at + _GATHER)
        if self._room(now) + self._spare_room(now) >= self.weight_max:
            times.append(self._may_open_at(now))
        return min((at for at in times if at > now), default=None)

    def _goal(self, now: float) -> int:
        return 0 if self._takes_nothing(now) else self._most(now)

    def _takes_nothing(self, now: float) -> bool:
        return self._cordoned or self._hands_over or now < self._rests_until

    def _most(self, now: float) -> int:
        limit, until = self._limit
        return min(self.capacity, limit) if now < until else self.capacity

    def _claimed(self) -> int:
        return sum(block.claims for block in self._blocks.values())

    def _open(self) -> list[_Block]:
        return [block for block in self._blocks.values() if block.state is _State.OPEN]

    def _room(self, now: float) -> int:
        """The number of slots that may be opened within the goal."""
        return self._room_beside(self._claimed(), self._spare_free(), now)

    def _spare_free(self) -> int:
        return sum(block.free for block in self._open() if block.spare)

    def _room_beside(self, claimed: int, spare_free: int, now: float) -> int:
        """The same for these claims, of which last-resort blocks have this much left to take."""
        within = max(self._goal(now) - (claimed - spare_free), 0)
        return min(within, max(self.capacity - claimed, 0))

    def _messages(self) -> int:
        """The capacity in messages: as many of the greatest weight as fit."""
        return self.capacity // self.weight_max

    def _takes_spare(self, now: float) -> bool:
        """Whether it takes more than its share as a last resort: only after it began to hand over its surplus."""
        limited = self._most(now) < self.capacity and self._within_share
        return not self._takes_nothing(now) and limited and now >= max(self._gives_from, self._spare_from)

    def _spare_room(self, now: float) -> int:
        if not self._takes_spare(now):
            return 0
        return max(max(self.capacity - self._claimed(), 0) - self._room(now), 0)

    def _unusual_priority(self, now: float, *, spare: bool) -> int | None:
        """The priority of blocks that are served after all usual ones, if these are."""
        if now < self._steps_back_until:
            return _LAST
        if spare:
            return _SPARE
        return _DEFERRED if now < self._deferred_until else None

    def _priority(self, now: float, *, spare: bool) -> int:
        if self.single:
            # RabbitMQ 4.0 serves nobody while a consumer of a higher priority waits for the active one to hold nothing.
            return 0
        unusual = self._unusual_priority(now, spare=spare)
        return self._next_level() if unusual is None else unusual

    def _next_level(self) -> int:
        """The level that the next block gets: the first one above the slots in use that no open block covers."""
        used = self.held
        for block in sorted((it for it in self._open() if it.is_usual), key=lambda it: -it.priority):
            if level(used, self.capacity) > block.priority:
                break
            used += block.free
        return level(used, self.capacity)

    def _may_open_at(self, now: float) -> float:
        few = self._full and self._room(now) // self.weight_max < share(self._messages())
        return 0.0 if self._opened_at is None else self._opened_at + (_GATHER if few else _RAMP)

    def _fits(self, block: _Block, now: float) -> bool:
        unusual = self._unusual_priority(now, spare=block.spare)
        return block.is_usual if unusual is None else block.priority == unusual

    def _cancel_what_is_too_much(self, now: float, effects: list[BlockEffect]) -> None:
        goal = self._goal(now)
        claims = sum(it.claims if it.state is _State.OPEN else it.held_weight for it in self._blocks.values())
        keeps_spare = self._takes_spare(now) and claims <= self.capacity
        numbers = {number: it for number, it in self._blocks.items() if it.state is _State.OPEN}
        spare = [it for it in numbers.values() if it.spare and not (keeps_spare and self._fits(it, now))]
        shared = [(number, it) for number, it in numbers.items() if not it.spare]
        # Blocks whose turn has changed first, then those that free the most slots.
        shared.sort(key=lambda entry: (self._fits(entry[1], now), -entry[1].free, entry[0]))
        for block in spare:
            self._cancel(block, effects)
        # A cancelled block counts with what it holds: counting its size would cancel one block after another.
        claimed = sum(
            it.claims if it.state is _State.OPEN and not it.spare else it.held_weight for it in self._blocks.values()
        )
        for _, block in shared:
            fits = self._fits(block, now)
            if fits and claimed <= goal and goal > 0:
                continue
            claimed = max(claimed - block.free, 0)
            self._full = self._full and fits
            self._cancel(block, effects)

    def _cancel_what_wastes_room(self, now: float, effects: list[BlockEffect]) -> None:
        """Cancels full blocks of light messages, if what they claim beyond their messages is room for one more."""
        wasteful = [block for block in self._open() if block.wastes > 0]
        claimed = self._claimed() - sum(block.wastes for block in wasteful)
        if self._takes_spare(now):
            room = max(self.capacity - claimed, 0)
        else:
            spare_waste = sum(block.wastes for block in wasteful if block.spare)
            room = self._room_beside(claimed, self._spare_free() - spare_waste, now)
        if room >= self.weight_max:
            for block in wasteful:
                self._cancel(block, effects)

    def _cancel_what_is_served_too_early(self, now: float, effects: list[BlockEffect]) -> None:
        """Cancels a block that has free slots if its level is more than one above the level of the slots in use.

        The service opens these slots again, with a lower level. It cancels at most one block a second, and none while
        such blocks have fewer free slots than half of a full block.
        """
        if not self._levels_may_differ or not self._full or now < self._levelled_at + _GATHER:
            return
        self._levelled_at = now
        latest = level(self.held, self.capacity) + 1
        early = [it for it in self._open() if it.is_usual and it.held < it.size and it.priority > latest]
        enough = share(self._messages()) * self.weight_max
        self._levels_may_differ = bool(early) and 2 * sum(it.free for it in early) >= enough
        if self._levels_may_differ:
            self._full = False
            self._cancel(max(early, key=lambda it: it.priority), effects)

    def _cancel(self, block: _Block, effects: list[BlockEffect]) -> None:
        block.state = _State.ENDING
        effects.append(CancelBlock(block.channel))

    def _open_one(self, room: int, now: float, effects: list[BlockEffect], *, spare: bool) -> None:
        full_block = BLOCK_MAX if self.single else share(self._messages())
        most = 2 * -(-self._messages() // full_block)
        if len(self._open()) >= most:
            # If each freed slot became its own block, their number would grow without bound: small blocks are
            # cancelled and opened again as one.
            for block in self._open():
                if block.size < full_block:
                    self._cancel(block, effects)
            return
        size = min(room // self.weight_max, full_block)
        channel = self._channel_for(size)
        self._last += 1
        priority = self._priority(now, spare=spare)
        self._blocks[self._last] = _Block(channel, size, size * self.weight_max, priority, spare)
        self._channels.add(channel)
        self._opened_at = now
        effects.append(Open(self._last, channel, size, priority))

    def _held_on(self, channel: int) -> int:
        return sum(block.held for block in self._blocks.values() if block.channel == channel)

    def _channel_for(self, size: int) -> int:
        """A channel without an open block and with enough room, otherwise a new one."""
        busy = {it.channel for it in self._blocks.values() if it.state is not _State.ENDED}
        fits = [it for it in sorted(self._channels - busy) if self._held_on(it) + size <= BLOCK_MAX]
        if fits:
            return max(fits, key=self._held_on)
        self._last += 1
        return self._last

    def _close_unused(self, effects: list[BlockEffect]) -> None:
        used = {block.channel for block in self._blocks.values()}
        for channel in sorted(self._channels - used):
            self._channels.discard(channel)
            effects.append(CloseChannel(channel))
