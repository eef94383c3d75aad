"""Checkpoints in progress: each request is repeated until a manager answers it. Lives on the control loop."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from everwatch._broker_errors import SessionLost
from everwatch._commands import Checkpoints

Json = Any
# Seconds between two repetitions of a request.
REPEAT = 5.0

Run = tuple[UUID, int]
# Hands in a report about an observer.
Send = Callable[[UUID, Json], None]


@dataclass(slots=True)
class _Stores:
    """The checkpoints of one run."""

    number: int = 0
    # The newest value that is not stored yet.
    value: Json = None
    # Each waits for its number or a higher one.
    waiting: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)
    due: float = 0.0


@dataclass(slots=True)
class _Wanted:
    answer: "asyncio.Future[Json]"
    due: float


class CheckpointRequests:
    """The requests of all runs of one session."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._stores: dict[Run, _Stores] = {}
        self._wanted: dict[Run, _Wanted] = {}

    async def store(self, run: Run, value: Json) -> None:
        """Returns when a manager has stored this value or a newer one of the same run."""
        stores = self._stores.setdefault(run, _Stores())
        # Numbers go on over the attempts of a run: managers keep the highest.
        stores.number += 1
        stores.value = value
        done = asyncio.get_running_loop().create_future()
        number = stores.number
        stores.waiting[number] = done
        self._send_value(run, stores)
        try:
            await done
        finally:
            stores.waiting.pop(number, None)

    async def restore(self, run: Run) -> Json:
        """The newest checkpoint of an earlier run, None without one."""
        loop = asyncio.get_running_loop()
        wanted = self._wanted.get(run)
        if wanted is None:
            wanted = self._wanted[run] = _Wanted(loop.create_future(), 0.0)
            self._send_wanted(run, wanted)
        return await asyncio.shield(wanted.answer)

    def on_command(self, checkpoints: Checkpoints) -> None:
        """A manager has stored checkpoints, or answers requests."""
        for observer, epoch, number in checkpoints.stored:
            stores = self._stores.get((observer, epoch))
            if stores is not None:
                for waiting in [it for it in stores.waiting if it <= number]:
                    _resolve(stores.waiting.pop(waiting))
        for observer, epoch, found in checkpoints.restored:
            wanted = self._wanted.pop((observer, epoch), None)
            if wanted is not None:
                _resolve(wanted.answer, None if found is None else json.loads(found[1]))

    def repeat(self) -> None:
        """Repeats the requests that are due; call it about once a second."""
        now = asyncio.get_running_loop().time()
        for run, stores in self._stores.items():
            if stores.waiting and now >= stores.due:
                self._send_value(run, stores)
        for run, wanted in self._wanted.items():
            if now >= wanted.due:
                self._send_wanted(run, wanted)

    def close(self, run: Run) -> None:
        """The run is over: nothing waits for its checkpoints."""
        stores, wanted = self._stores.pop(run, None), self._wanted.pop(run, None)
        waiting = list(stores.waiting.values()) if stores is not None else []
        for it in [*waiting, *([wanted.answer] if wanted is not None else [])]:
            if not it.done():
                it.set_exception(SessionLost("the run is over"))
                # Also if nobody waits any longer.
                it.exception()

    def close_all(self) -> None:
        """The session is over."""
        for run in [*self._stores, *self._wanted]:
            self.close(run)

    def _send_value(self, run: Run, stores: _Stores) -> None:
        stores.due = asyncio.get_running_loop().time() + REPEAT
        content = {"id": str(run[0]), "epoch": run[1], "number": stores.number, "value": json.dumps(stores.value)}
        self._send(run[0], {"checkpoint": content})

    def _send_wanted(self, run: Run, wanted: _Wanted) -> None:
        wanted.due = asyncio.get_running_loop().time() + REPEAT
        self._send(run[0], {"checkpoint_wanted": {"id": str(run[0]), "epoch": run[1]}})


def _resolve(future: "asyncio.Future[Any]", value: Json = None) -> None:
    if not future.done():
        future.set_result(value)
