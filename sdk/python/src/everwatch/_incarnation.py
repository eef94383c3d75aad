"""The parts of one incarnation of a service, and how the program around it controls it."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from everwatch._database_clock import DatabaseClock
from everwatch._kinds import Registry
from everwatch._logs import Logs
from everwatch._settings import Settings


class Handle:
    """Stops and watches one service. ``stop`` and ``hard_stop`` are for the control loop."""

    def __init__(self) -> None:
        # Hand everything over, unregister, end.
        self.stopping = asyncio.Event()
        # Abort what does not stop.
        self.hard_stopping = asyncio.Event()
        # Set by each incarnation: it takes all that it may, and has its session with the broker.
        self.is_ready = False

    def stop(self) -> None:
        """The first call stops in order, the second one insists."""
        (self.hard_stopping if self.stopping.is_set() else self.stopping).set()

    def on_ready(self) -> None:
        """All slots are open."""
        self.is_ready = True

    def on_ended(self) -> None:
        """No incarnation lives."""
        self.is_ready = False


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One incarnation."""

    id: UUID
    settings: Settings
    registry: Registry
    logs: Logs
    # The loop that runs the code of observers.
    tasks: asyncio.AbstractEventLoop
    handle: Handle
    # When the service started, by the clock of the fence: the machine counts its seconds from then.
    started: float
    database_clock: DatabaseClock
    # The previous incarnation in this process, and how it ended.
    predecessor: tuple[UUID, str] | None = None
    # It may lose its session as quickly as the previous one: the queue serves it last for a while.
    comes_last: bool = False
