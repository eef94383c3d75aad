"""What the code of observers sends: values, progress, logs, checkpoints. Called on the loop of the observers, it hands
everything to the control loop."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar
from uuid import UUID

from everwatch._broker import Session
from everwatch._broker_errors import SessionLost
from everwatch._checkpoints import CheckpointRequests
from everwatch._clock import boottime
from everwatch._logs import Logs
from everwatch._permit_requests import PermitRequests
from everwatch._topology import Topology
from everwatch._wire import Work, dumps

Json = Any
_T = TypeVar("_T")
# The longest status text, in characters.
_STATUS_MAX = 200
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class SessionOutlet:
    """The outlet of one session."""

    def __init__(
        self,
        session: Session,
        topology: Topology,
        logs: Logs,
        requests: tuple[CheckpointRequests, PermitRequests],
        on_ready: Callable[[UUID, int], None],
    ) -> None:
        """Made on the control loop; ``on_ready`` is called there."""
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._exchange = topology.output
        self._logs = logs
        self._checkpoints, self._permits = requests
        self._on_ready = on_ready
        # The newest text of each observer; at most one entry for each that runs here.
        self._progress: dict[UUID, tuple[int, str]] = {}

    async def emit(self, work: Work, epoch: int, value: Json, key: str | None, headers: Mapping[str, str]) -> None:
        """Publishes a value; returns when the broker has it. Without a key, the key is ``<kind>.<name>``."""
        body = dumps(value).encode(errors="replace")
        ours: dict[str, str | int] = {"everwatch-observer": str(work.id), "everwatch-epoch": epoch}
        if work.namespace != "default":
            ours["everwatch-namespace"] = work.namespace
        key = f"{work.kind}.{work.name}" if key is None else key
        await self._there(self._session.publish(key, body, exchange=self._exchange, headers={**headers, **ours}))

    def progress(self, work: Work, epoch: int, text: str) -> None:
        """Keeps the newest text until it is reported."""
        self._progress[work.id] = (epoch, text[:_STATUS_MAX])

    def take_progress(self) -> dict[UUID, tuple[int, str]]:
        """The texts since the last call."""
        taken, self._progress = self._progress, {}
        return taken

    def ready(self, work: Work, epoch: int) -> None:
        """The code does its work now."""
        self._soon(self._on_ready, work.id, epoch)

    async def checkpoint(self, work: Work, epoch: int, value: Json) -> None:
        """Stores a checkpoint; returns when a manager has stored it."""
        await self._there(self._checkpoints.store((work.id, epoch), value))

    async def restored(self, work: Work, epoch: int) -> Json:
        """The newest checkpoint, or None."""
        return await self._there(self._checkpoints.restore((work.id, epoch)))

    async def acquire(self, permits: Mapping[str, int]) -> None:
        """Waits until a manager has granted these permits."""
        # Code that was not run for a while must not use a grant that is over.
        while boottime() >= await self._there(self._permits.acquire(permits)):
            pass

    def log(self, work: Work, epoch: int, stream: str, text: str) -> None:
        """Adds lines to the log of the observer."""
        self._logs.write(work.id, epoch, stream, text)

    def _soon(self, act: Callable[..., None], *arguments: object) -> None:
        # A closed loop: the service has ended, and with it everything that could be told.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    async def _there(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Awaits something on the control loop."""
        if self._loop.is_closed():
            work.close()
            raise SessionLost("the service has ended")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def sampled_trace(headers: "Json") -> Json:
    """The trace of a work message as reports carry it; None if it has none or is not sampled."""
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent) or not int(parent[-2:], 16) & 1:
        return None
    trace = {"traceparent": parent}
    if isinstance(state, str) and 0 < len(state) <= 512:
        trace["tracestate"] = state
    return trace
