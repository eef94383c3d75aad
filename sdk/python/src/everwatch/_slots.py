"""All decisions of a service about the observers that it holds: inputs in, effects out.

One slot holds one unsettled message. Its phases: waiting → running ⇄ backoff → ending → settling → (acknowledged), or
ending → (given back), or ending → backoff after a time-out. This module knows no broker, no clock and no task.
"""

import heapq
from uuid import UUID

from everwatch import _wire as wire
from everwatch._effects import (
    Aborted,
    AbortRun,
    Ack,
    Done,
    Effect,
    Errored,
    Failed,
    Lost,
    Now,
    Outcome,
    Release,
    Report,
)
from everwatch._phases import (
    Announced,
    Arrival,
    Backoff,
    Ending,
    Over,
    Phase,
    Refusing,
    Running,
    Settling,
    Waiting,
    Why,
)
from everwatch._slot_ends import SlotEnds
from everwatch._turns import GATHER, START_RATE, SUSPECTED
from everwatch._wire import Event, RunReport, Work, WorkHeader, epoch_of, generation_of

# The number of remembered revocations; the answer to a registration repeats those of the last ten minutes.
_REVOCATIONS_MAX = 100_000


class Slots(SlotEnds):
    """The slots of one session. Each method that returns effects is one input."""

    def inventory(self, now: Now) -> list[RunReport]:
        """The inventory: each held observer as the report of its current phase, in the order of ids."""
        entries = []
        for observer in sorted(self._slots):
            slot = self._slots[observer]
            event = slot.phase.inventory(now)
            if event is not None:
                entries.append(RunReport(observer, slot.epoch, event))
        return entries

    def describe(self, ids: list[UUID], now: Now) -> list[tuple[RunReport, Work]]:
        """Those of ``ids`` that are held and readable here, each with its message."""
        asked = set(ids)
        found = []
        for run in self.inventory(now):
            work = self._slots[run.id].work
            if run.id in asked and work is not None:
                found.append((run, work))
        return found

    def on_delivered(self, receipt: int, read: Work | WorkHeader, acquisitions: int, now: Now) -> list[Effect]:
        """A message was delivered; ``acquisitions``: how often it had been delivered before."""
        effects: list[Effect] = []
        arrival = Arrival(receipt, read, epoch_of(read.generation, acquisitions))
        slot = self._slots.get(read.id)
        if slot is None:
            self._admit(arrival, now, effects)
            return effects
        held = {slot.epoch, slot.epoch if slot.successor is None else slot.successor.epoch}
        if any(generation_of(epoch) == read.generation for epoch in held):
            # The broker redelivers a message only after it took it from this session: the session has lost it.
            effects.append(Lost(read.id, slot.epoch))
        elif arrival.epoch <= slot.epoch:
            self._settle_unstarted(arrival, "stopped", effects)
        else:
            # The later copy waits until the earlier one is settled, and is never acknowledged in its place.
            older, slot.successor = slot.successor, arrival
            if older is not None:
                self._settle_unstarted(older, "stopped", effects)
            self._end_run(read.id, arrival.epoch, now, effects)
        return effects

    def on_revocations(self, revocations: list[tuple[UUID, int]], now: Now) -> list[Effect]:
        """No run of these observers below these epochs may start or continue."""
        effects: list[Effect] = []
        for observer, below in revocations:
            known = self._revocations.get(observer, -1)
            self._revocations[observer] = max(known, below)
            if len(self._revocations) > _REVOCATIONS_MAX:
                del self._revocations[next(iter(self._revocations))]
            self._end_run(observer, below, now, effects)
        return effects

    def on_ended(self, observer: UUID, epoch: int, outcome: Outcome, now: Now) -> list[Effect]:
        """The code of an observer has ended."""
        effects: list[Effect] = []
        slot = self._slots.get(observer)
        if slot is None or slot.epoch != epoch:
            return effects
        match slot.phase:
            case Ending() as ending:
                self._on_code_stopped(observer, ending, outcome, now, effects)
            case Running() as running:
                self._on_outcome(observer, running, outcome, now, effects)
            case _:
                pass
        return effects

    def _on_outcome(self, observer: UUID, running: Running, outcome: Outcome, now: Now, effects: list[Effect]) -> None:
        match outcome:
            case Done(result=None):
                self._settle(observer, "completed", effects)
            case Done(result=result):
                self._settle(observer, wire.completed_with(result), effects)
            case Failed(error):
                event: Event = {"failed": {"error": wire.shortened(error), "attempts": running.attempt}}
                self._settle(observer, event, effects)
            case Errored(error):
                self._on_error(observer, running, error, now, effects)
            case Aborted():
                self._on_error(observer, running, "aborted", now, effects)

    def on_confirmed(self, observer: UUID, epoch: int, now: Now) -> list[Effect]:
        """The broker has confirmed the settlement report of this run."""
        leftover = self._leftovers.pop((observer, epoch), None)
        if leftover is not None:
            return [_acknowledge(*leftover, RunReport(observer, epoch, "released"))]
        slot = self._slots.get(observer)
        if slot is None or slot.epoch != epoch or not isinstance(slot.phase, Settling):
            return []
        del self._slots[observer]
        self._refusals.forget(observer)
        counts = slot.work is None or slot.work.counts
        effects: list[Effect] = [_acknowledge(slot.receipt, counts, RunReport(observer, epoch, "released"))]
        if slot.successor is not None:
            self._admit(slot.successor, now, effects)
        return effects

    def on_crash_looping(self, ids: list[UUID], now: Now) -> None:
        """The managers' list of suspects. One that is no longer on it does not wait for its turn."""
        self._suspects.learn(ids, now.mono)
        for observer in sorted(self._slots):
            match self._slots[observer].phase:
                case Waiting(why=why) if why == SUSPECTED and not self._suspects.contains(observer, now.mono):
                    self._start_in_turn(observer, now)
                case _:
                    pass

    def on_announced(self, observer: UUID, epoch: int, now: Now) -> None:
        """The broker has confirmed the announcement of a suspect's start."""
        slot = self._slots.get(observer)
        if slot is None or slot.epoch != epoch or not isinstance(slot.phase, Announced):
            return
        if not self._suspects.contains(observer, now.mono):
            self._start_in_turn(observer, now)
            return
        apart = slot.work is not None and slot.work.forbids_overlap
        pause = self.policy.fence_grace * 2 if apart else 0.0
        until = self._suspects.turn(now.mono + max(pause, GATHER))
        self._set_phase(observer, Waiting(until, 1, SUSPECTED))

    def on_ready(self, observer: UUID, epoch: int) -> list[Effect]:
        """The code reports that it is ready: ``started`` after ``starting`` says so, once."""
        slot = self._slots.get(observer)
        if slot is None or slot.epoch != epoch:
            return []
        match slot.phase:
            case Running(awaits_ready=True) as running:
                running.awaits_ready = False
                event = wire.started(running.attempt, running.started_at)
                return [Report(RunReport(observer, epoch, event))]
        return []

    def on_wake(self, now: Now) -> list[Effect]:
        """A deadline has passed."""
        effects: list[Effect] = []
        # First: what is over must not start.
        while self._finishes and self.clock.has_reached(self._finishes[0][0], now):
            ends_at, observer = heapq.heappop(self._finishes)
            if self._finishes_at(ends_at, observer):
                self._finish(observer, ends_at, now, effects)
        while self._timers and self._timers[0][0] <= now.mono:
            at, observer = heapq.heappop(self._timers)
            if self._is_due_at(at, observer):
                self._on_due(observer, self._slots[observer].phase, now, effects)
        return effects

    def _on_due(self, observer: UUID, phase: Phase, now: Now, effects: list[Effect]) -> None:
        match phase:
            case Waiting(why=why) if why == START_RATE:
                self._take_turn(observer, now, effects)
            case Waiting(why=why) if why == SUSPECTED:
                self._start_a_suspect(observer, now, effects)
            case Waiting(attempt=attempt):
                self._start(observer, attempt, now, effects)
            case Backoff(attempt=attempt):
                self._start_again(observer, attempt + 1, now, effects)
            case Refusing(why=why):
                self._give_back(observer, {"refused": {"why": why}}, now, effects)
            case Running() as running:
                self._end_code(observer, running, Why.TIME_OUT, now, effects)
            case Ending():
                phase.abort_at = None
                effects.append(AbortRun(observer))
            case Over(event=event):
                self._settle(observer, event, effects)
            case _:
                pass

    def on_hand_over(self, ids: list[UUID], cause: str | None, now: Now) -> list[Effect]:
        """Hands these over, if they are held."""
        effects: list[Effect] = []
        for observer in ids:
            slot = self._slots.get(observer)
            match None if slot is None else slot.phase:
                case Running() as running:
                    self._end_code(observer, running, Why.HAND_OVER, now, effects, cause=cause)
                case Ending(why=Why.TIME_OUT) as ending:
                    ending.why, ending.cause = Why.HAND_OVER, cause
                case Announced() | Waiting() | Backoff() | Refusing() | Over():
                    self._give_back(observer, wire.handed_over(cause), now, effects)
                case _:
                    pass
        return effects

    def on_hand_over_down_to(self, most: int, cause: str, now: Now) -> list[Effect]:
        """Hands over observers until this many slots are in use, those with the shortest run first."""
        staying: list[tuple[bool, float, UUID]] = []
        for observer, slot in self._slots.items():
            match slot.phase:
                case Running(since=since) | Ending(why=Why.TIME_OUT, since=since):
                    staying.append((True, -since, observer))
                case Announced() | Waiting() | Backoff() | Refusing():
                    staying.append((False, 0.0, observer))
                case _:
                    pass
        used = sum(self._weight(observer) for _, _, observer in staying)
        surplus: list[UUID] = []
        for _, _, observer in sorted(staying):
            if used <= most:
                break
            used -= self._weight(observer)
            surplus.append(observer)
        return self.on_hand_over(surplus, cause, now)

    def _weight(self, observer: UUID) -> int:
        work = self._slots[observer].work
        return 1 if work is None else min(work.weight, self.policy.weight_max)

    def on_drain(self, now: Now) -> list[Effect]:
        """Hands everything over and takes nothing more."""
        self._draining = True
        return self.on_hand_over(sorted(self._slots), None, now)

    def on_abort_all(self) -> list[Effect]:
        """Stops waiting for code that is ending."""
        effects: list[Effect] = []
        for observer in sorted(self._slots):
            phase = self._slots[observer].phase
            if isinstance(phase, Ending):
                phase.abort_at = None
                effects.append(AbortRun(observer))
        return effects


def _acknowledge(receipt: int, counts: bool, released: RunReport) -> Effect:
    """The last effect of a message: managers must know when one that counts towards limits is gone."""
    return Release(receipt, released) if counts else Ack(receipt)
