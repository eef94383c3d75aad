"""The context of running code: its identity, when to stop, and its outlets."""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from everwatch._effects import CancelReason
from everwatch._wire import Work, dumps

Json = Any
# The longest routing key, in bytes: a limit of AMQP.
KEY_MAX = 255
# The largest checkpoint, as JSON text in bytes.
CHECKPOINT_MAX = 64 * 1024
# The most rates of one acquire.
_RATES_MAX = 10


class Outlet(Protocol):
    """Where the values, the status and the checkpoints of observers go. Thread-safe; awaited on the caller's loop."""

    def emit(
        self, work: Work, epoch: int, value: Json, key: str | None, headers: Mapping[str, str]
    ) -> Coroutine[Any, Any, None]:
        """Publishes a value; returns when the broker has it. Without a key, the key is ``<kind>.<name>``."""

    def progress(self, work: Work, epoch: int, text: str) -> None:
        """Shows a text."""

    def ready(self, work: Work, epoch: int) -> None:
        """The code does its work now."""

    def checkpoint(self, work: Work, epoch: int, value: Json) -> Coroutine[Any, Any, None]:
        """Stores a checkpoint; returns when a manager has stored it."""

    def restored(self, work: Work, epoch: int) -> Coroutine[Any, Any, Json]:
        """The newest checkpoint, or None."""

    def acquire(self, permits: Mapping[str, int]) -> Coroutine[Any, Any, None]:
        """Waits until a manager has granted these permits."""

    def log(self, work: Work, epoch: int, stream: str, text: str) -> None:
        """Adds lines to the log of the observer."""


class Context:
    """What a running observer knows about itself, and what it can do. Use it on the loop that runs the observer."""

    def __init__(self, work: Work, epoch: int, attempt: int, outlet: Outlet) -> None:
        self._work = work
        self._epoch = epoch
        self._attempt = attempt
        self._outlet = outlet
        self._stop = asyncio.Event()
        self._reason: CancelReason | None = None

    def use(self, outlet: Outlet) -> None:
        """Sends everything to this outlet; called by the service before the code starts."""
        self._outlet = outlet

    @property
    def id(self) -> UUID:
        """The id of the observer."""
        return self._work.id

    @property
    def name(self) -> str:
        """The name of the observer."""
        return self._work.name

    @property
    def namespace(self) -> str:
        """The namespace of the observer. Observers of other namespaces may have the same name."""
        return self._work.namespace

    @property
    def kind(self) -> str:
        """The kind of the observer."""
        return self._work.kind

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the observer."""
        return self._work.labels

    @property
    def epoch(self) -> int:
        """The fencing token of this run.

        Each later run of the observer has a higher one: a store that keeps the highest epoch that it has seen can
        refuse the writes of replaced runs.
        """
        return self._epoch

    @property
    def attempt(self) -> int:
        """The number of this start within the run; 1 is the first."""
        return self._attempt

    @property
    def scheduled_for(self) -> datetime | None:
        """The time of its schedule for which this execution was started, in UTC.

        None if the observer has no schedule, or if a request started the execution.
        """
        at = self._work.scheduled_for
        return None if at is None else datetime.fromtimestamp(at / 1000, UTC)

    @property
    def is_cancelled(self) -> bool:
        """Whether the code must stop."""
        return self._stop.is_set()

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why the code must stop.

        ``CancelReason.TIMED_OUT``, ``CancelReason.FINISHED`` or ``CancelReason.WINDOW_CLOSED``; None if the code need
        not stop, and for every other reason: ask ``is_cancelled`` whether it must.
        """
        return self._reason

    def stop(self, reason: CancelReason | None = None) -> None:
        """Tells the code to stop; the first call sets the reason. The service calls this; a test may."""
        if not self._stop.is_set():
            self._reason = reason
        self._stop.set()

    async def cancelled(self) -> None:
        """Waits until the code must stop. It then has the ``grace`` of its observer before it is aborted."""
        await self._stop.wait()

    async def cancelled_within(self, pause: timedelta | float) -> bool:
        """Waits for a time (a timedelta, or seconds); returns True at once when the code must stop, False after it."""
        seconds = pause.total_seconds() if isinstance(pause, timedelta) else pause
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return self._stop.is_set()
        return True

    async def emit(self, value: Json, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        """Publishes a JSON value to the output exchange; returns when the broker has it.

        .. code-block:: python

            await ctx.emit([1, 2, 3], key="prices.eur", headers={"unit": "cent"})

        Args:
            value: any JSON.
            key: the routing key, at most 255 bytes; ``<kind>.<name>`` if it is not given.
            headers: more headers; names that begin with ``everwatch-`` are reserved.

        Raises:
            TypeError, ValueError: the value is not JSON, the key is too long, or the name of a header is reserved.
            ConnectionError: the session with the broker is lost.
        """
        dumps(value)
        if key is not None and len(key.encode()) > KEY_MAX:
            raise ValueError(f"the key `{key}` has {len(key.encode())} bytes; at most {KEY_MAX}")
        for name in headers or {}:
            if name.startswith("everwatch-"):
                raise ValueError(f"the header `{name}` is reserved: choose a name without everwatch-")
        await self._outlet.emit(self._work, self._epoch, value, key, headers or {})

    def status(self, text: str) -> None:
        """Shows a text beside the observer, at most once a second; at most 200 characters are kept."""
        self._outlet.progress(self._work, self._epoch, text)

    def progress(self, done: int, of: int) -> None:
        """Shows the progress, as "37 of 120"."""
        self.status(f"{done} of {of}")

    def log(self, text: str) -> None:
        """Adds lines to the log that ``everwatch observer logs`` shows; each is cut at 4 KiB."""
        self._outlet.log(self._work, self._epoch, "log", text)

    def ready(self) -> None:
        """Reports that the observer does its work now; of use only if its kind was declared with ``awaits_ready``."""
        self._outlet.ready(self._work, self._epoch)

    async def checkpoint(self, value: Json) -> None:
        """Stores a JSON value that a later run can continue from; returns when a manager has stored it.

        A newer call replaces one that still waits: the older call returns when the newer value is stored. Without a
        manager the call waits; limit it with ``asyncio.timeout`` if the observer must not wait.

        Raises:
            TypeError, ValueError: the value is not JSON, or has more than 64 KiB.
            ConnectionError: the session with the broker is lost.
        """
        size = len(dumps(value).encode(errors="replace"))
        if size > CHECKPOINT_MAX:
            raise ValueError(f"the checkpoint has {size} bytes of JSON, at most {CHECKPOINT_MAX}: store less of it")
        await self._outlet.checkpoint(self._work, self._epoch, value)

    async def restored(self) -> Json:
        """The newest checkpoint of an earlier run of this observer, None if there is none.

        Without a manager the call waits until one answers.

        Raises:
            ConnectionError: the session with the broker is lost.
        """
        return await self._outlet.restored(self._work, self._epoch)

    async def acquire(
        self, rate: str | Mapping[str, int], permits: int = 1, *, within: timedelta | float | None = None
    ) -> None:
        """Waits until this many permits of a rate are granted, and takes them.

        All services together use no more permits than the rate allows (``everwatch rate set``), if the code uses them
        at once: a grant is valid for 2 s after the service has asked for it, and no permit is returned. A service asks
        managers once a second at most, for everything that waits in it, so code that acquires one permit after the
        other gets at most one a second. While no manager responds, the call waits.

        .. code-block:: python

            await ctx.acquire("openai")
            await ctx.acquire({"openai": 1, "tokens": 800}, within=60)

        Args:
            rate: the key of the rate, or the permits of up to 10 rates, granted together or not at all.
            permits: how many, if ``rate`` is a key.
            within: the longest wait, a timedelta or seconds.

        Raises:
            PermitsRefused: the rate does not exist, or its bucket (the burst less 2 s of the rate) is smaller.
            TimeoutError: they are not granted in time.
            ValueError: no permit, or too many rates.
            ConnectionError: the session with the broker is lost.
        """
        wanted = {rate: permits} if isinstance(rate, str) else dict(rate)
        for key, count in wanted.items():
            if count < 1:
                raise ValueError(f"{count} permits of rate `{key}`: acquire at least 1")
        if not 1 <= len(wanted) <= _RATES_MAX:
            raise ValueError(f"permits of {len(wanted)} rates: at least 1, at most {_RATES_MAX} at once")
        seconds = within.total_seconds() if isinstance(within, timedelta) else within
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._outlet.acquire(wanted)
        except TimeoutError:
            if not limit.expired():
                raise
            asked = ", ".join(f"{count} of `{key}`" for key, count in wanted.items())
            raise TimeoutError(f"permits not granted within {seconds:g} s: {asked}") from None
