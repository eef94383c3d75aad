"""Who may start when: the start rate, observers that start one at a time, and pauses between refusals.

Times are in seconds of the service's clock.
"""

from dataclasses import dataclass, field
from uuid import UUID

from everwatch._wire import BATCH_MAX

# Why a service holds an observer that it does not run: texts on the wire that managers distinguish.
START_RATE = "start rate"
REDELIVERED_APART = "redelivered, may not overlap"
SUSPECTED = "suspected of ending its services, started one at a time"
ENDING = "being ended"

_JITTER = 0.5
# The broker redelivers the suspects of a dead service within this time; the first one starts only after it.
GATHER = 1.0
# A death is blamed on the observers that started this shortly before it: suspects start this far apart.
_BLAME_WITHIN = 60.0
# How long a suspicion lasts without being repeated.
_WINDOW = 600.0
# The number of observers whose refusals are counted; beyond it, all counts start again.
_REFUSALS_MAX = 10_000
# The pause between refusals stays short for this many rounds, then it doubles.
_SHORT_ROUNDS = 8


@dataclass(slots=True)
class _Rhythm:
    every: float
    next: float = 0.0


@dataclass(slots=True)
class Pace:
    """The limits on the starts of one service. Without limits, everything starts at once."""

    all: _Rhythm | None = None
    kinds: dict[str, _Rhythm] = field(default_factory=dict)

    @classmethod
    def of(cls, rate: float, kinds: dict[str, float]) -> "Pace":
        """Starts per second, for all kinds together and for single kinds; 0 is no limit."""
        every = {kind: _Rhythm(1 / value) for kind, value in kinds.items() if value > 0}
        return cls(_Rhythm(1 / rate) if rate > 0 else None, every)

    def turn(self, kind: str, earliest: float, chance: float) -> float:
        """The turn of another start, at ``earliest`` or later; ``chance`` in 0..1 spreads it within its turn."""
        limits = [it for it in (self.all, self.kinds.get(kind)) if it is not None]
        if not limits:
            return earliest
        at = max(earliest, *(limit.next for limit in limits))
        for limit in limits:
            limit.next = at + limit.every
        every = max(limit.every for limit in limits)
        # The first start after a pause does not wait.
        return at + every * _JITTER * min(max(chance, 0.0), 1.0) if at > earliest else at


@dataclass(slots=True)
class Suspects:
    """Observers that may be ending their services."""

    # Each with the time at which the suspicion ends.
    _known: dict[UUID, float] = field(default_factory=dict)
    _next_start: float = 0.0

    def learn(self, ids: list[UUID], now: float) -> None:
        """Replaces the list."""
        self._known = dict.fromkeys(ids[:BATCH_MAX], now + _WINDOW)

    def contains(self, observer: UUID, now: float) -> bool:
        """Whether it is suspected now."""
        until = self._known.get(observer)
        return until is not None and until > now

    def turn(self, earliest: float) -> float:
        """The turn of another suspect, at ``earliest`` or later."""
        at = max(self._next_start, earliest)
        self._next_start = at + _BLAME_WITHIN
        return at


@dataclass(slots=True)
class Refusals:
    """How long to hold a message that this service cannot run before it is given back."""

    consumers: int
    first: float = 1.0
    max: float = 60.0
    # How often each observer was refused, and when last.
    _known: dict[UUID, tuple[int, float]] = field(default_factory=dict)

    def pause(self, observer: UUID, now: float) -> float:
        """The pause of the next refusal.

        The broker delivers a message that one consumer gives back to the next one, which may belong to the same
        service. So a message passes all consumers of the service at once first, and only then it waits.
        """
        if len(self._known) >= _REFUSALS_MAX:
            self._known.clear()
        times, last = self._known.get(observer, (0, now))
        # It has run elsewhere since: the next refusal counts as the first.
        if now - last > self.max * 2:
            times = 0
        self._known[observer] = (times + 1, now)
        turns, turn = divmod(times, max(self.consumers, 1))
        if turns == 0 or turn > 0:
            return 0.0
        return min(self.first * float(1 << min(max(turns - _SHORT_ROUNDS, 0), 16)), self.max)

    def forget(self, observer: UUID) -> None:
        """It was settled."""
        self._known.pop(observer, None)
