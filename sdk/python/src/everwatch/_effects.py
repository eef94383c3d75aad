"""The inputs and effects of a service's decisions about its observers."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from everwatch._wire import RunReport, Work


@dataclass(frozen=True, slots=True)
class Now:
    """The current time, as the caller passes it in."""

    # Seconds since the service started.
    mono: float
    # Milliseconds since 1970, for display.
    wall: int
    # 0..1, for jitter.
    chance: float


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """The settings of a service's decisions. Times are in seconds."""

    kinds: frozenset[str]
    fence_grace: float
    # The number of consumers of this service.
    consumers: int
    # The kinds whose code reports when it is ready.
    await_ready: frozenset[str] = field(default=frozenset())
    # The greatest weight of an observer that it takes.
    weight_max: int = 1
    # The first and the longest pause before a refused message is given back.
    refuse_first: float = 1.0
    refuse_max: float = 60.0


class CancelReason(StrEnum):
    """Why code is told to stop."""

    #: This attempt has run for the ``attempt_timeout`` of the observer.
    TIMED_OUT = "timed_out"
    #: The ``finish_at`` of the observer has come.
    FINISHED = "finished"
    #: The window of the observer has closed. The observer starts again in its next window.
    WINDOW_CLOSED = "window_closed"


@dataclass(frozen=True, slots=True)
class Done:
    """The code returned: it is done; ``result`` is JSON, None for none."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The code gave up: it must not be retried."""

    error: str


@dataclass(frozen=True, slots=True)
class Errored:
    """The code raised: the retry policy decides."""

    error: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """The code was aborted after its grace."""


Outcome = Done | Failed | Errored | Aborted


@dataclass(frozen=True, slots=True)
class Start:
    """Run the code."""

    epoch: int
    attempt: int
    work: Work


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Tell the code to stop. ``reason`` is None for a revocation and a handover."""

    id: UUID
    reason: CancelReason | None = None


@dataclass(frozen=True, slots=True)
class AbortRun:
    """Abort the code."""

    id: UUID


@dataclass(frozen=True, slots=True)
class Report:
    """Report to the managers; nothing waits for the confirm."""

    run: RunReport


@dataclass(frozen=True, slots=True)
class Settle:
    """Report to the managers; confirm it to the slots once the broker confirms."""

    run: RunReport


@dataclass(frozen=True, slots=True)
class Announce:
    """The same for an observer that must not start before its report is confirmed."""

    run: RunReport


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge the message."""

    receipt: int


@dataclass(frozen=True, slots=True)
class Release:
    """Acknowledge the message, and send the report once the queue has accepted that."""

    receipt: int
    run: RunReport


@dataclass(frozen=True, slots=True)
class Requeue:
    """Give the message back."""

    receipt: int


@dataclass(frozen=True, slots=True)
class StepBack:
    """Until then, the queue serves every other service first."""

    until: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The broker redelivered a message that this session holds: the session no longer owns any message."""

    id: UUID
    epoch: int


Effect = Start | CancelRun | AbortRun | Report | Settle | Announce | Ack | Release | Requeue | StepBack | Lost
