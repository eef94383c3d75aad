"""What waits for permits in one service: when it asks managers, and for how long a grant may be used. Does no I/O and
reads no clock.

A service asks for everything that waits, once a second at most, and has one request at a time: while a request is
unanswered, a second one for the same acquires could be granted, too, and its permits would be lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from everwatch._commands import Permits

Json = Any
# Seconds from one request to the next, at least.
_ASK_EVERY = 1.0
# How long after its request was sent a grant is used, in seconds: a little less than the 2 s of the managers, whose
# databases count whole milliseconds, and whose clocks do not run equally fast.
USED_WITHIN = 1.99
# The most asks in one request.
_ASKS_MAX = 20


@dataclass(slots=True)
class _Waiting:
    acquire: int
    permits: Mapping[str, int]
    # From its first request on.
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What a manager has decided about an acquire: until when it may be used, or why it is refused."""

    acquire: int
    until: float = 0.0
    refused: str | None = None


class PermitQueue:
    """The acquires of one service that wait, in order."""

    def __init__(self, service: UUID) -> None:
        self._service = service
        self._waiting: list[_Waiting] = []
        self._acquires = 0
        self._turns = 0
        self._requests = 0
        # The request that is unanswered: its number, and when it was sent.
        self._asked: tuple[int, float] | None = None
        self._asks_from = 0.0

    def acquire(self, permits: Mapping[str, int]) -> int:
        """Code waits for these permits; returns the number of its acquire."""
        self._acquires += 1
        self._waiting.append(_Waiting(self._acquires, permits))
        return self._acquires

    def give_up(self, acquire: int) -> None:
        """The code of this acquire no longer waits."""
        self._waiting = [it for it in self._waiting if it.acquire != acquire]

    def due(self) -> float | None:
        """When the next request is due; None if nothing waits."""
        if not self._waiting:
            return None
        unanswered = 0.0 if self._asked is None else self._asked[1] + USED_WITHIN
        return max(self._asks_from, unanswered)

    def request(self, now: float) -> Json:
        """The request that is due now, which counts as sent; None if none is due."""
        due = self.due()
        if due is None or now < due:
            return None
        asks: list[Json] = []
        asked_before = self._turns
        for it in self._waiting:
            last = asks[-1] if asks else None
            if last is not None and (
                last["turn"] == it.turn
                if it.turn is not None
                else last["turn"] > asked_before and last["permits"] == it.permits
            ):
                last["count"] += 1
                it.turn = last["turn"]
                continue
            if len(asks) == _ASKS_MAX:
                break
            if it.turn is None:
                self._turns += 1
                it.turn = self._turns
            asks.append({"turn": it.turn, "permits": dict(it.permits), "count": 1})
        self._requests += 1
        self._asked = (self._requests, now)
        self._asks_from = now + _ASK_EVERY
        return {"acquire": {"service": str(self._service), "number": self._requests, "asks": asks}}

    def on_answers(self, answers: Permits, now: float) -> list[Decided]:
        """A manager has answered. An answer that comes twice, or too late, counts for nothing."""
        if self._asked is None or self._asked[0] != answers.request:
            return []
        until = self._asked[1] + USED_WITHIN
        self._asked = None
        decided: list[Decided] = []
        for turn, count in answers.granted if now < until else []:
            decided += [Decided(it, until=until) for it in self._take(turn, count)]
        for turn, why in answers.refused:
            decided += [Decided(it, refused=why) for it in self._take(turn, len(self._waiting))]
        return decided

    def _take(self, turn: int, count: int) -> list[int]:
        taken = [it.acquire for it in self._waiting if it.turn == turn][:count]
        self._waiting = [it for it in self._waiting if it.acquire not in taken]
        return taken
