"""The phases of a held message. Times are in seconds of the service's clock."""

from dataclasses import dataclass
from enum import Enum, auto

from everwatch import _wire as wire
from everwatch._effects import CancelReason, Now
from everwatch._turns import ENDING, SUSPECTED
from everwatch._wire import Event, Work, WorkHeader


@dataclass(slots=True)
class Announced:
    """Held, and its start is announced; it starts only after the broker has confirmed the announcement."""

    deadline: float | None = None

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.held(SUSPECTED)


@dataclass(slots=True)
class Waiting:
    """Held; starts at ``until``."""

    until: float
    attempt: int
    why: str

    @property
    def deadline(self) -> float | None:
        """When the phase ends without another input."""
        return self.until

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.held(self.why)


@dataclass(slots=True)
class Running:
    """The code runs. ``awaits_ready``: it has not reported that it is ready yet."""

    attempt: int
    since: float
    started_at: str
    awaits_ready: bool = False
    # When the attempt has run for its longest time; None if it may run forever.
    deadline: float | None = None

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.started(self.attempt, self.started_at, awaits_ready=self.awaits_ready)


@dataclass(slots=True)
class Backoff:
    """The code failed, as ``event`` says; it starts again at ``until``."""

    attempt: int
    until: float
    event: Event

    @property
    def deadline(self) -> float | None:
        """When the phase ends without another input."""
        return self.until

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return self.event


class Why(Enum):
    """Why code must stop."""

    REVOCATION = auto()
    HAND_OVER = auto()
    # The attempt has run for its longest time.
    TIME_OUT = auto()
    # The ``finish_at`` of the observer has come.
    FINISH = auto()
    # Its window has closed.
    WINDOW_CLOSED = auto()

    @property
    def reason(self) -> CancelReason | None:
        """What the code is told."""
        return {
            Why.TIME_OUT: CancelReason.TIMED_OUT,
            Why.FINISH: CancelReason.FINISHED,
            Why.WINDOW_CLOSED: CancelReason.WINDOW_CLOSED,
        }.get(self)


@dataclass(slots=True)
class Ending:
    """The code was told to stop. ``cause``: of a handover; None if the service ends."""

    attempt: int
    # When the attempt started.
    since: float
    # None once it was aborted.
    abort_at: float | None
    why: Why
    cause: str | None = None

    @property
    def deadline(self) -> float | None:
        """When the phase ends without another input."""
        return self.abort_at

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.held(ENDING)


@dataclass(slots=True)
class Refusing:
    """This service cannot run it; it is given back at ``until``."""

    until: float
    why: str

    @property
    def deadline(self) -> float | None:
        """When the phase ends without another input."""
        return self.until

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.held(self.why, refuses=True)


@dataclass(slots=True)
class Over:
    """Over before its start; settled at ``until``, when an older run elsewhere has certainly ended."""

    until: float
    # The settlement.
    event: Event

    @property
    def deadline(self) -> float | None:
        """When the phase ends without another input."""
        return self.until

    def inventory(self, _now: Now) -> Event | None:
        """The entry of the inventory."""
        return wire.held(ENDING)


@dataclass(slots=True)
class Settling:
    """Its last report was sent and is not confirmed yet."""

    deadline: float | None = None

    def inventory(self, _now: Now) -> Event | None:
        """None: its settlement was reported before."""
        return None


Phase = Announced | Waiting | Running | Backoff | Ending | Refusing | Over | Settling


@dataclass(slots=True)
class Arrival:
    """A message that was delivered."""

    receipt: int
    read: Work | WorkHeader
    epoch: int


@dataclass(slots=True)
class Slot:
    """One held message."""

    receipt: int
    epoch: int
    # None if only its header is readable here, or if its code never starts.
    work: Work | None
    phase: Phase
    # Until when an older run may still be stopping on another service, if runs must not overlap.
    apart_until: float
    # A later copy of the same observer; it starts when this one is settled.
    successor: Arrival | None = None
    # When the observer ends, by the database's clock; also of a message that is refused here.
    ends_at: int | None = None
