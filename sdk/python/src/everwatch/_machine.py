"""One incarnation of a service as a pure machine: slots, blocks, directives, readiness and handover, composed here.

The loop around it reads the broker, feeds inputs and carries out effects. Nothing here knows a broker, a clock or a
task: every decision of a service is testable as a transcript of inputs and effects.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from everwatch import _commands as commands
from everwatch._blocks import BlockEffect, Blocks
from everwatch._effects import Ack, Effect, Now, Outcome, Release, Requeue, StepBack
from everwatch._inventory import Range
from everwatch._slots import Slots
from everwatch._wire import RunReport, Work, WorkHeader

# How long a new service waits for its welcome. The wait is short because no failover may depend on a manager.
_WELCOME_WITHIN = 1.0
# The most observers that wait to be handed over until no more messages arrive.
_HAND_OVERS_MAX = 10_000
# The shortest and the longest rest after a handover.
_REST_MIN, _REST_MAX = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """Open, cancel or close a block."""

    effect: BlockEffect


@dataclass(frozen=True, slots=True)
class Ready:
    """The service can now take every message that it may take."""


@dataclass(frozen=True, slots=True)
class Directed:
    """The directives changed: send a heartbeat."""

    directives: commands.Directives
    capacity: int


@dataclass(frozen=True, slots=True)
class DescribeHeld:
    """A manager asks what these observers are; none: what the service is, and everything that it holds."""

    ids: list[UUID]


@dataclass(frozen=True, slots=True)
class ListRanges:
    """A manager asks for the entries of these ranges of the inventory."""

    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class AnswerLogs:
    """A manager asks for lines of an observer."""

    asked: commands.AskLogs


@dataclass(frozen=True, slots=True)
class HandCheckpoints:
    """Managers have stored checkpoints, or answer runs that asked for theirs."""

    checkpoints: commands.Checkpoints


@dataclass(frozen=True, slots=True)
class HandPermits:
    """A manager has answered a request for permits."""

    permits: commands.Permits


MachineEffect = (
    Effect | Block | Ready | Directed | DescribeHeld | ListRanges | AnswerLogs | HandCheckpoints | HandPermits
)


class _Phase(Enum):
    # The registration is not confirmed yet.
    REGISTERING = auto()
    # Takes no work until a manager welcomes it, or until a time.
    AWAITS_WELCOME = auto()
    OVER = auto()


@dataclass(slots=True)
class Machine:
    """One incarnation of a service. Each ``on_…`` method is one input and returns its effects in order."""

    id: UUID
    slots: Slots
    blocks: Blocks
    directives: commands.Directives = field(default_factory=commands.Directives)
    ready: bool = False
    # Without directives.
    _own_capacity: int = field(init=False)
    _start: _Phase = _Phase.REGISTERING
    _welcome_until: float = 0.0
    _draining: bool = False
    # To be handed over once no more messages arrive.
    _to_hand_over: list[UUID] = field(default_factory=list)
    # The cause of the newest request to hold fewer observers.
    _hand_over_cause: str = "drain"
    # The surplus that was told to stop last.
    _surplus: int | None = None
    # The block of each held message, and its weight.
    _block_of: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own_capacity = self.blocks.capacity

    @property
    def intent(self) -> str:
        """The state that the service reports about itself."""
        if self._draining or self.directives.draining:
            return "draining"
        return "cordoned" if self.directives.cordoned else "active"

    def next_deadline(self, now: Now) -> float | None:
        """When ``on_wake`` must run without another input."""
        welcome = self._welcome_until if self._start is _Phase.AWAITS_WELCOME else None
        times = (self.slots.next_deadline(now), self.blocks.next_deadline(now.mono), welcome)
        return min((at for at in times if at is not None), default=None)

    def on_registered(self, now: Now) -> list[MachineEffect]:
        """The broker has confirmed the registration of the service."""
        self._start, self._welcome_until = _Phase.AWAITS_WELCOME, now.mono + _WELCOME_WITHIN
        return self._follow([], now)

    def on_delivered(
        self, block: int, receipt: int, read: Work | WorkHeader, acquisitions: int, now: Now
    ) -> list[MachineEffect]:
        """A block delivered a work message."""
        weight = read.weight if isinstance(read, Work) else 1
        self.blocks.took(block, weight)
        self._block_of[receipt] = (block, weight)
        return self._follow(self.slots.on_delivered(receipt, read, acquisitions, now), now)

    def on_unreadable(self, block: int, now: Now) -> list[MachineEffect]:
        """A block delivered a message that no version can read. It counts as held until ``on_freed``."""
        self.blocks.took(block, 1)
        return self._follow([], now)

    def on_freed(self, block: int, now: Now) -> list[MachineEffect]:
        """A message that the slots do not know was settled."""
        self.blocks.freed(block, 1)
        return self._follow([], now)

    def on_block_ended(self, block: int, now: Now) -> list[MachineEffect]:
        """A cancelled block delivers no more messages."""
        self.blocks.ended(block)
        return self._follow([], now)

    def on_ended(self, observer: UUID, epoch: int, outcome: Outcome, now: Now) -> list[MachineEffect]:
        """The code of an observer has ended."""
        return self._follow(self.slots.on_ended(observer, epoch, outcome, now), now)

    def on_ready(self, observer: UUID, epoch: int, now: Now) -> list[MachineEffect]:
        """The code of an observer reports that it is ready."""
        return self._follow(self.slots.on_ready(observer, epoch), now)

    def on_confirmed(self, run: RunReport, now: Now) -> list[MachineEffect]:
        """The broker has confirmed a settlement or an announcement."""
        if run.settles:
            return self._follow(self.slots.on_confirmed(run.id, run.epoch, now), now)
        self.slots.on_announced(run.id, run.epoch, now)
        return self._follow([], now)

    def on_wake(self, now: Now) -> list[MachineEffect]:
        """A deadline has passed."""
        return self._follow(self.slots.on_wake(now), now)

    def on_drain(self, now: Now) -> list[MachineEffect]:
        """The service stops: hand everything over and take nothing more."""
        self._draining = True
        return self._follow(self.slots.on_drain(now), now)

    def on_abort_all(self, now: Now) -> list[MachineEffect]:
        """Stop waiting for code that is ending."""
        return self._follow(self.slots.on_abort_all(), now)

    def on_command(self, command: commands.Command, now: Now) -> list[MachineEffect]:
        """A manager sent a command."""
        effects: list[MachineEffect] = []
        match command:
            case commands.Revoke(below):
                return self._follow(self.slots.on_revocations(below, now), now)
            case commands.Welcome() as welcome:
                self._on_welcome(welcome, now, effects)
            case commands.CrashLooping(ids):
                self.slots.on_crash_looping(ids, now)
            case commands.Time(time):
                self.slots.clock.announce(time, now)
            case commands.AskLogs() as asked:
                effects.append(AnswerLogs(asked))
            case commands.Describe(service, ids) if service == self.id:
                effects.append(DescribeHeld(ids))
            case commands.ListHeld(service, ranges) if service == self.id:
                effects.append(ListRanges(ranges))
            case commands.Checkpoints(service=service) as checkpoints if service == self.id:
                effects.append(HandCheckpoints(checkpoints))
            case commands.Permits(service=service) as permits if service == self.id:
                effects.append(HandPermits(permits))
            case commands.Direct(service, directives) if service == self.id:
                self._follow_directives(directives, effects)
            case commands.HandOver(service=service) as asked if service == self.id:
                self._on_hand_over(asked, now.mono)
            case _:
                pass
        return self._follow(effects, now)

    def _on_welcome(self, welcome: commands.Welcome, now: Now, effects: list[MachineEffect]) -> None:
        if welcome.time is not None:
            self.slots.clock.announce(welcome.time, now)
        self.slots.on_crash_looping(welcome.crash_looping, now)
        effects += self._freeing(self.slots.on_revocations(welcome.revocations, now))
        if welcome.service != self.id:
            return
        self._start = _Phase.OVER
        # A late welcome is still the only message that carries the directives of the predecessor.
        if welcome.directives is not None:
            self._follow_directives(welcome.directives, effects)

    def _follow_directives(self, directives: commands.Directives, effects: list[MachineEffect]) -> None:
        if directives.revision <= self.directives.revision:
            return
        capacity = self._own_capacity if directives.capacity is None else directives.capacity
        self.directives = directives
        if capacity != self.blocks.capacity:
            self.blocks.resize(capacity)
        capacity = self.blocks.capacity
        cordoned = directives.cordoned or directives.draining
        self.blocks.cordon(cordoned)
        if not cordoned:
            self._to_hand_over.clear()
        effects.append(Directed(directives, capacity))

    def _on_hand_over(self, asked: commands.HandOver, now: float) -> None:
        if self.blocks.single:
            # An observer that it gave back would return to it. Cordoned, it hands over everything anyway.
            return
        until = now + min(max(asked.rest, _REST_MIN), _REST_MAX)
        if asked.down_to is not None:
            self.blocks.limit(asked.down_to, now, until)
            self._hand_over_cause = asked.cause
        if asked.ids and len(self._to_hand_over) < _HAND_OVERS_MAX:
            self.blocks.rest(now, until)
            self._to_hand_over += asked.ids

    def _follow(self, first: "list[Effect] | list[MachineEffect]", now: Now) -> list[MachineEffect]:
        """Counts the slots that effects free, and decides what follows from the new state."""
        effects = self._freeing(first)
        if self._start is _Phase.AWAITS_WELCOME and now.mono >= self._welcome_until:
            self._start = _Phase.OVER
        if self._start is _Phase.OVER and not self._draining:
            self._follow_blocks(now, effects)
            # What was handed over at once has freed slots.
            if self._hand_over(now, effects):
                self._follow_blocks(now, effects)
        return effects

    def _freeing(self, effects: "list[Effect] | list[MachineEffect]") -> list[MachineEffect]:
        kept: list[MachineEffect] = []
        for effect in effects:
            match effect:
                case Ack(receipt) | Release(receipt, _) | Requeue(receipt):
                    held = self._block_of.pop(receipt, None)
                    if held is not None:
                        self.blocks.freed(*held)
                    kept.append(effect)
                case StepBack(until):
                    self.blocks.step_back(until)
                case _:
                    kept.append(effect)
        return kept

    def _follow_blocks(self, now: Now, effects: list[MachineEffect]) -> None:
        self.blocks.hands_over(bool(self._to_hand_over))
        effects += [Block(effect) for effect in self.blocks.decide(now.mono)]
        # Not at the registration: a rolling deploy continues with the next service when this one is ready, and the
        # observers that the next one hands over must find room here.
        if not self.ready and self.blocks.settled(now.mono):
            self.ready = True
            effects.append(Ready())

    def _hand_over(self, now: Now, effects: list[MachineEffect]) -> bool:
        """Hands over what was requested once no more messages arrive: given back earlier, it would return at once."""
        any_requested = False
        if self.blocks.closed and self._to_hand_over:
            ids, self._to_hand_over = self._to_hand_over, []
            effects += self._freeing(self.slots.on_hand_over(ids, "move", now))
            any_requested = True
        surplus = self.blocks.allowed_when_over_capacity(now.mono)
        if surplus is not None and surplus != self._surplus:
            # Fewer than its capacity only if a manager asked for it.
            by_order = surplus < self.blocks.capacity and (not self.blocks.single or self.intent != "active")
            cause = self._hand_over_cause if by_order else "resize"
            effects += self._freeing(self.slots.on_hand_over_down_to(surplus, cause, now))
            self.blocks.surplus_requested(now.mono)
            any_requested = True
        self._surplus = surplus
        return any_requested
