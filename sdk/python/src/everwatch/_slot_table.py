"""The slots of a session and the steps that their inputs share: admission, starts, deadlines, settlements."""

import heapq
from dataclasses import dataclass, field
from uuid import UUID

from everwatch import _wire as wire
from everwatch._clock import timestamp
from everwatch._database_clock import DatabaseClock
from everwatch._effects import (
    Announce,
    Effect,
    Now,
    Report,
    Requeue,
    Settle,
    SlotPolicy,
    Start,
    StepBack,
)
from everwatch._phases import (
    Announced,
    Arrival,
    Over,
    Phase,
    Refusing,
    Running,
    Settling,
    Slot,
    Waiting,
)
from everwatch._turns import REDELIVERED_APART, START_RATE, SUSPECTED, Pace, Refusals, Suspects
from everwatch._wire import Event, RunReport, Work, WorkHeader, acquisitions_of

# For this long after a redelivered message was given back, the queue serves all other services first.
_STEPS_BACK = 2.0
# Entries of timers that may be stale before they are removed.
_STALE_MAX = 1000
# A start that waits longer is reported; after a redelivery, every start that waits.
_TOLD_AFTER = 1.0


@dataclass(slots=True)
class SlotTable:
    """The slots of one session, without its inputs."""

    policy: SlotPolicy
    pace: Pace = field(default_factory=Pace)
    clock: DatabaseClock = field(default_factory=DatabaseClock)
    _slots: dict[UUID, Slot] = field(default_factory=dict)
    # Older copies whose end is reported but not confirmed yet.
    _leftovers: dict[tuple[UUID, int], tuple[int, bool]] = field(default_factory=dict)
    # Deadlines of phases. An entry whose phase has ended is ignored.
    _timers: list[tuple[float, UUID]] = field(default_factory=list)
    # When observers finish, by the database's clock. An entry whose message is no longer held is ignored.
    _finishes: list[tuple[int, UUID]] = field(default_factory=list)
    _revocations: dict[UUID, int] = field(default_factory=dict)
    _suspects: Suspects = field(default_factory=Suspects)
    _refusals: Refusals = field(init=False)
    _draining: bool = False

    def __post_init__(self) -> None:
        self._refusals = Refusals(self.policy.consumers, self.policy.refuse_first, self.policy.refuse_max)

    @property
    def held(self) -> int:
        """The number of held messages."""
        successors = sum(slot.successor is not None for slot in self._slots.values())
        return len(self._slots) + successors + len(self._leftovers)

    @property
    def is_empty(self) -> bool:
        """Whether no message is held."""
        return not self._slots and not self._leftovers

    def next_deadline(self, now: Now) -> float | None:
        """When ``on_wake`` is due."""
        while self._timers and not self._is_due_at(*self._timers[0]):
            heapq.heappop(self._timers)
        while self._finishes and not self._finishes_at(*self._finishes[0]):
            heapq.heappop(self._finishes)
        timers = [at for at, _ in self._timers[:1]]
        finishes = [self.clock.mono_of(at, now) for at, _ in self._finishes[:1]]
        return min(timers + finishes, default=None)

    def _is_due_at(self, at: float, observer: UUID) -> bool:
        slot = self._slots.get(observer)
        return slot is not None and slot.phase.deadline == at

    def _finishes_at(self, at: int, observer: UUID) -> bool:
        slot = self._slots.get(observer)
        return slot is not None and slot.ends_at == at

    # Admission of a message without conflict with another copy of its observer.

    def _admit(self, arrival: Arrival, now: Now, effects: list[Effect]) -> None:
        receipt, read, epoch = arrival.receipt, arrival.read, arrival.epoch
        redelivered = acquisitions_of(epoch) > 0
        apart = redelivered and isinstance(read, Work) and read.forbids_overlap
        apart_until = now.mono + self.policy.fence_grace * 2 if apart else now.mono
        ends_at = read.ends_at if isinstance(read, Work) else None
        if epoch < self._revocations.get(read.id, 0):
            self._end_unstarted(arrival, "stopped", apart_until, now, effects)
            return
        if self._draining:
            effects.append(Requeue(receipt))
            return
        if ends_at is not None and self.clock.has_reached(ends_at, now):
            self._end_unstarted(arrival, wire.finished(ends_at), apart_until, now, effects)
            return
        offers = not isinstance(read, WorkHeader) and read.kind in self.policy.kinds
        if isinstance(read, WorkHeader) or not offers or read.weight > self.policy.weight_max:
            self._refuse(arrival, apart_until, now, effects)
            return
        if self._suspects.contains(read.id, now.mono):
            effects.append(Announce(RunReport(read.id, epoch, wire.held(SUSPECTED))))
            self._put(read.id, Slot(receipt, epoch, read, Announced(), apart_until, ends_at=ends_at))
            return
        until = self.pace.turn(read.kind, apart_until, now.chance)
        why = START_RATE if until > apart_until else REDELIVERED_APART
        self._put(read.id, Slot(receipt, epoch, read, Waiting(until, 1, why), apart_until, ends_at=ends_at))
        if until <= now.mono:
            self._start(read.id, 1, now, effects)
        elif redelivered or until > now.mono + _TOLD_AFTER:
            effects.append(Report(RunReport(read.id, epoch, wire.held(why))))

    def _end_unstarted(
        self, arrival: Arrival, event: Event, apart_until: float, now: Now, effects: list[Effect]
    ) -> None:
        """Ends a message before its start: at once, or when an older run elsewhere has certainly ended."""
        read = arrival.read
        work = read if isinstance(read, Work) else None
        if apart_until > now.mono:
            slot = Slot(arrival.receipt, arrival.epoch, work, Over(apart_until, event), apart_until)
            self._put(read.id, slot)
        else:
            self._settle_unstarted(arrival, event, effects)

    def _why_refused(self, read: Work | WorkHeader) -> str:
        if isinstance(read, WorkHeader):
            return read.why
        if read.weight > self.policy.weight_max:
            return f"weight {read.weight} is above this service's weight_max, {self.policy.weight_max}"
        return f"kind `{read.kind}` is not offered by this service"

    def _refuse(self, arrival: Arrival, apart_until: float, now: Now, effects: list[Effect]) -> None:
        read = arrival.read
        why = self._why_refused(read)
        pause = self._refusals.pause(read.id, now.mono)
        until = now.mono + pause
        effects.append(StepBack(until + _STEPS_BACK))
        effects.append(Report(RunReport(read.id, arrival.epoch, wire.held(why, refuses=True))))
        work = read if isinstance(read, Work) else None
        slot = Slot(arrival.receipt, arrival.epoch, work, Refusing(until, why), apart_until)
        slot.ends_at = read.ends_at if isinstance(read, Work) else None
        self._put(read.id, slot)

    def _start_again(self, observer: UUID, attempt: int, now: Now, effects: list[Effect]) -> None:
        work = self._slots[observer].work
        if work is None:
            return
        until = self.pace.turn(work.kind, now.mono, now.chance)
        if until <= now.mono:
            self._start(observer, attempt, now, effects)
        else:
            self._set_phase(observer, Waiting(until, attempt, START_RATE))

    def _start_in_turn(self, observer: UUID, now: Now) -> None:
        slot = self._slots[observer]
        if slot.work is not None:
            until = self.pace.turn(slot.work.kind, max(slot.apart_until, now.mono), now.chance)
            self._set_phase(observer, Waiting(until, 1, START_RATE))

    def _take_turn(self, observer: UUID, now: Now, effects: list[Effect]) -> None:
        """A turn has come: the oldest waiting observer of the kind takes it. Ids are ordered by creation time."""
        mine, work = self._slots[observer].phase, self._slots[observer].work
        if work is None or not isinstance(mine, Waiting):
            return
        for other in sorted(self._slots):
            slot = self._slots[other]
            phase = slot.phase
            if not isinstance(phase, Waiting) or phase.why != START_RATE or slot.work is None:
                continue
            if other == observer or (slot.work.kind == work.kind and not slot.work.forbids_overlap):
                if other != observer:
                    self._set_phase(observer, Waiting(phase.until, mine.attempt, START_RATE))
                self._start(other, phase.attempt, now, effects)
                return

    def _start_a_suspect(self, observer: UUID, now: Now, effects: list[Effect]) -> None:
        """Starts a random one of the waiting suspects: in a fixed order, the same one would always start first."""
        waiting = []
        for other in sorted(self._slots):
            slot = self._slots[other]
            phase = slot.phase
            if isinstance(phase, Waiting) and phase.why == SUSPECTED and slot.apart_until <= now.mono:
                waiting.append((other, phase.until))
        if not waiting:
            self._start(observer, 1, now, effects)
            return
        drawn, until = waiting[min(int(min(max(now.chance, 0.0), 1.0) * len(waiting)), len(waiting) - 1)]
        if drawn != observer:
            self._set_phase(observer, Waiting(until, 1, SUSPECTED))
        self._start(drawn, 1, now, effects)

    # Steps that several inputs share.

    def _put(self, observer: UUID, slot: Slot) -> None:
        self._slots[observer] = slot
        self._remember_deadline(observer, slot.phase)
        if slot.ends_at is None:
            return
        heapq.heappush(self._finishes, (slot.ends_at, observer))
        # Entries of messages that left before would otherwise add up.
        if len(self._finishes) > 2 * len(self._slots) + _STALE_MAX:
            self._finishes = [it for it in set(self._finishes) if self._finishes_at(*it)]
            heapq.heapify(self._finishes)

    def _set_phase(self, observer: UUID, phase: Phase) -> None:
        self._slots[observer].phase = phase
        self._remember_deadline(observer, phase)

    def _remember_deadline(self, observer: UUID, phase: Phase) -> None:
        if phase.deadline is None:
            return
        heapq.heappush(self._timers, (phase.deadline, observer))
        # Entries of phases that ended before their deadline would otherwise add up.
        if len(self._timers) > 2 * len(self._slots) + _STALE_MAX:
            self._timers = [it for it in self._timers if self._is_due_at(*it)]
            heapq.heapify(self._timers)

    def _start(self, observer: UUID, attempt: int, now: Now, effects: list[Effect]) -> None:
        slot = self._slots[observer]
        if slot.work is None:
            return
        awaits_ready = slot.work.kind in self.policy.await_ready
        started_at = timestamp(now.wall)
        effects.append(Start(slot.epoch, attempt, slot.work))
        event = wire.started(attempt, started_at, awaits_ready=awaits_ready)
        effects.append(Report(RunReport(observer, slot.epoch, event)))
        timeout = slot.work.attempt_timeout
        deadline = None if timeout is None else now.mono + timeout
        self._set_phase(observer, Running(attempt, now.mono, started_at, awaits_ready, deadline))

    def _settle_unstarted(self, arrival: Arrival, event: Event, effects: list[Effect]) -> None:
        """Settles a message whose code was never started here and must not start."""
        observer, read = arrival.read.id, arrival.read
        # A message that cannot be read here may count towards limits.
        counts = read.counts if isinstance(read, Work) else True
        self._leftovers[observer, arrival.epoch] = (arrival.receipt, counts)
        effects.append(Settle(RunReport(observer, arrival.epoch, event)))

    def _settle(self, observer: UUID, event: Event, effects: list[Effect]) -> None:
        self._set_phase(observer, Settling())
        effects.append(Settle(RunReport(observer, self._slots[observer].epoch, event)))
