"""Helpers for transcripts: each input with all effects that must follow, in order."""

from collections.abc import Sequence
from uuid import UUID

from everwatch import _effects as effects
from everwatch import _machine as machine
from everwatch._blocks import Blocks, CancelBlock, Open
from everwatch._effects import Now, SlotPolicy
from everwatch._machine import Machine, MachineEffect
from everwatch._slots import Slots
from everwatch._turns import Pace
from everwatch._wire import Retry, RunReport, Work, show_epoch

ME = UUID(int=9)
POLICY = SlotPolicy(kinds=frozenset({"ticker"}), fence_grace=0.5, consumers=2)
TWICE = Retry("fixed", first=1.0, attempts=2, reset_after=None)


def work(
    observer: int = 1,
    generation: int = 1,
    *,
    forbids_overlap: bool = False,
    kind: str = "ticker",
    retry: Retry = TWICE,
    attempt_timeout: float | None = None,
    finish_at: int | None = None,
    closes_at: int | None = None,
    counts: bool = False,
) -> Work:
    """A readable message."""
    return Work(
        UUID(int=observer),
        generation,
        kind,
        "w",
        {},
        retry=retry,
        forbids_overlap=forbids_overlap,
        attempt_timeout=attempt_timeout,
        finish_at=finish_at,
        closes_at=closes_at,
        counts=counts,
    )


def _report(word: str, run: RunReport) -> str:
    return f"{word} {run.type} {show_epoch(run.epoch)}"


def told(effect: MachineEffect) -> str:
    """An effect in a few words."""
    match effect:
        case effects.Start(epoch, attempt, _):
            return f"start {show_epoch(epoch)} attempt {attempt}"
        case effects.CancelRun(_, reason):
            return "cancel" if reason is None else f"cancel {reason}"
        case effects.AbortRun():
            return "abort"
        case effects.Report(run):
            return _report("report", run)
        case effects.Settle(run):
            return _report("settle", run)
        case effects.Announce(run):
            return _report("announce", run)
        case effects.Ack(receipt):
            return f"ack {receipt}"
        case effects.Release(receipt, run):
            return f"ack {receipt}, then {_report('report', run)}"
        case effects.Requeue(receipt):
            return f"requeue {receipt}"
        case effects.StepBack(until):
            return f"step back until {until:g}"
        case effects.Lost(_, epoch):
            return f"lost {show_epoch(epoch)}"
        case machine.Block(Open(prefetch=prefetch, priority=priority)):
            return f"open {prefetch}" + (f" at priority {priority}" if priority < 0 else "")
        case machine.Block(CancelBlock()):
            return "cancel a block"
        case machine.Block():
            return "close a channel"
        case machine.Ready():
            return "ready"
        case machine.Directed(_, capacity):
            return f"directed to {capacity} slots"
        case machine.DescribeHeld(ids):
            return f"describe {len(ids)}"
        case machine.ListRanges(ranges):
            return f"list {len(ranges)}"
    return type(effect).__name__


class SlotScript:
    """Slots, and the time that the test sets."""

    def __init__(self, policy: SlotPolicy = POLICY, pace: Pace | None = None) -> None:
        self.slots = Slots(policy, pace or Pace())
        self.now = Now(0.0, 0, 0.5)

    def at(self, ms: int) -> "SlotScript":
        """Sets the time, in milliseconds."""
        self.now = Now(ms / 1000, ms, 0.5)
        return self

    def deliver(self, receipt: int, read: object, acquisitions: int, *expected: str) -> "SlotScript":
        """Delivers a message and compares every effect."""
        return self.expect(self.slots.on_delivered(receipt, read, acquisitions, self.now), *expected)  # type: ignore[arg-type]

    def run(self, receipt: int, generation: int, acquisitions: int, *expected: str) -> "SlotScript":
        """Delivers a readable message of observer 1."""
        return self.deliver(receipt, work(1, generation), acquisitions, *expected)

    def revoke(self, below: int, *expected: str) -> "SlotScript":
        """Revokes observer 1."""
        return self.expect(self.slots.on_revocations([(UUID(int=1), below)], self.now), *expected)

    def ended(self, epoch: int, outcome: effects.Outcome, *expected: str) -> "SlotScript":
        """The code of observer 1 has ended."""
        return self.expect(self.slots.on_ended(UUID(int=1), epoch, outcome, self.now), *expected)

    def confirmed(self, epoch: int, *expected: str) -> "SlotScript":
        """The settlement of observer 1 is confirmed."""
        return self.expect(self.slots.on_confirmed(UUID(int=1), epoch, self.now), *expected)

    def hand_over(self, *expected: str) -> "SlotScript":
        """A manager moves observer 1."""
        return self.expect(self.slots.on_hand_over([UUID(int=1)], "move", self.now), *expected)

    def drain(self, *expected: str) -> "SlotScript":
        """The service ends."""
        return self.expect(self.slots.on_drain(self.now), *expected)

    def wake(self, *expected: str) -> "SlotScript":
        """A deadline has passed."""
        return self.expect(self.slots.on_wake(self.now), *expected)

    def expect(self, found: Sequence[MachineEffect], *expected: str) -> "SlotScript":
        """Compares every effect, none missing and none unexpected."""
        assert [told(effect) for effect in found] == list(expected)
        return self


class MachineScript:
    """A machine, and the time that the test sets."""

    def __init__(self, capacity: int, *, single: bool = False) -> None:
        self.machine = Machine(ME, Slots(POLICY), Blocks(capacity, single=single))
        self.now = Now(0.0, 0, 0.5)

    def after(self, ms: int) -> "MachineScript":
        """Advances the time, in milliseconds."""
        # Whole milliseconds, so that deadlines are met exactly.
        self.now = Now(round(self.now.mono * 1000 + ms) / 1000, 0, 0.5)
        return self

    def expect(self, found: Sequence[MachineEffect], *expected: str) -> "MachineScript":
        """Compares every effect, none missing and none unexpected."""
        assert [told(effect) for effect in found] == list(expected)
        return self
