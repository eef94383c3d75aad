"""When a service fences and how it returns. No clock and no broker: times are arguments, in seconds."""

from dataclasses import dataclass

# After a session of at least this length, the next loss counts as the first.
_WORTH = 10.0
# After a shorter session, the queue serves the service last for this long.
STEADY = 60.0
_FIRST, _LONGEST = 2.0, 8.0


@dataclass(slots=True)
class Proofs:
    """The *send* times of the newest answered proofs of life.

    The time of an answer proves nothing: the answer may have waited on a link that has been cut since.
    """

    answered: float
    confirmed: float

    def silence(self, now: float, fence_after: float) -> str | None:
        """The proof that is overdue, so that every run must end now."""
        if now - self.answered > fence_after:
            return f"the broker has not answered for {round(fence_after * 1000)} ms"
        if now - self.confirmed > fence_after:
            return f"the broker has not confirmed for {round(fence_after * 1000)} ms"
        return None

    def are_fresh(self, now: float, fence_after: float) -> bool:
        """Whether the service certainly holds its messages: only then may a run start or be settled."""
        return now - self.answered < fence_after


def limits(fence_after: float, fence_grace: float, heartbeat: float) -> tuple[float, float]:
    """The silence that fences, and the time that code then has to end.

    A shorter heartbeat on the connection (0: none) shortens both: the broker gives the messages of a silent peer
    away after two heartbeats.
    """
    if 0 < heartbeat < fence_after:
        return heartbeat, min(fence_grace, heartbeat / 2)
    return fence_after, fence_grace


@dataclass(slots=True)
class ReconnectBackoff:
    """The pause before the next incarnation, in seconds."""

    pause: float = _FIRST

    def on_lost(self, lived: float, chance: float) -> tuple[float, bool]:
        """Records the end of a session that lived this long; ``chance`` in 0..1 spreads simultaneous returns.

        Returns the pause, and whether the queue shall serve the service last for ``STEADY`` seconds.
        """
        if lived >= _WORTH:
            self.pause = _FIRST
        pause = self.pause * (0.25 + 0.75 * min(max(chance, 0.0), 1.0))
        self.pause = min(self.pause * 2, _LONGEST)
        return pause, lived < STEADY
