"""Passes permits of rates between the code of observers and the managers: ``_permits`` decides, this asks. Lives on the
control loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from uuid import UUID

from everwatch._broker_errors import NotSent, SessionLost
from everwatch._clock import boottime
from everwatch._commands import Permits
from everwatch._permits import PermitQueue
from everwatch._wire import encode

# Seconds for the confirm of a request. Managers grant no older one.
_SENT_WITHIN = 2.0

logger = logging.getLogger("everwatch")


class PermitsRefused(Exception):  # noqa: N818 - what happened
    """The permits can never be granted: the rate does not exist, or its bucket is smaller."""


class PermitRequests:
    """The acquires of one session that wait."""

    def __init__(self, service: UUID, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._queue = PermitQueue(service)
        self._send = send
        self._waiting: dict[int, asyncio.Future[float]] = {}
        # More waits than before.
        self._more = asyncio.Event()

    async def acquire(self, permits: Mapping[str, int]) -> float:
        """Waits until a manager has granted these permits; returns until when they may be used, by ``boottime``.

        Raises:
            PermitsRefused: they can never be granted.
            SessionLost: the session is over.
        """
        acquire = self._queue.acquire(permits)
        decided: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[acquire] = decided
        self._more.set()
        try:
            return await decided
        finally:
            if self._waiting.pop(acquire, None) is not None:
                self._queue.give_up(acquire)

    def on_command(self, answers: Permits) -> None:
        """A manager has answered a request."""
        for it in self._queue.on_answers(answers, boottime()):
            decided = self._waiting.pop(it.acquire, None)
            if decided is None or decided.done():
                continue
            if it.refused is None:
                decided.set_result(it.until)
            else:
                decided.set_exception(PermitsRefused(it.refused))
        self._more.set()

    async def run(self) -> None:
        """Sends requests for what waits, until it is cancelled."""
        while True:
            self._more.clear()
            request = self._queue.request(boottime())
            if request is not None:
                # A request that does not go out is asked again when it could no longer be answered.
                try:
                    async with asyncio.timeout(_SENT_WITHIN):
                        await self._send(encode(request))
                except (NotSent, SessionLost, TimeoutError) as error:
                    logger.debug("a request for permits was not accepted: %s", error)
            due = self._queue.due()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - boottime())):
                    await self._more.wait()

    def close_all(self) -> None:
        """The session is over."""
        for acquire, decided in list(self._waiting.items()):
            self._queue.give_up(acquire)
            if not decided.done():
                decided.set_exception(SessionLost("the session is over"))
                # Otherwise asyncio warns about an exception that no code has awaited.
                decided.exception()
        self._waiting.clear()
