"""What the control loop must still handle: confirms first, so that acknowledgements are not delayed."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Input = Callable[[], Awaitable[None]]


class Inbox:
    """Inputs in the order of their urgency. Its size is limited by its sources: what a service may hold, and prefetch.

    Methods are for the control loop; other threads use ``loop.call_soon_threadsafe``.
    """

    def __init__(self) -> None:
        self._urgent: deque[Input] = deque()
        self._normal: deque[Input] = deque()
        self._arrived = asyncio.Event()

    def put(self, it: Input, *, urgent: bool = False) -> None:
        """Adds an input."""
        (self._urgent if urgent else self._normal).append(it)
        self._arrived.set()

    def wake(self) -> None:
        """Ends the wait of the loop."""
        self._arrived.set()

    def waiting(self) -> Input | None:
        """The next input, if one waits."""
        if self._urgent:
            return self._urgent.popleft()
        return self._normal.popleft() if self._normal else None

    async def wait(self, seconds: float) -> None:
        """Waits until an input is there or ``wake`` was called, at most this long."""
        if self._urgent or self._normal:
            return
        self._arrived.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._arrived.wait()
        except TimeoutError:
            pass
