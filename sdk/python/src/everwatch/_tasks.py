"""Runs the code of observers: one asyncio task for each attempt, on the loop for the code of observers.

The control loop and the fence call this from their own threads: all methods are thread-safe.
"""

import asyncio
import contextvars
import logging
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from everwatch._context import Context, Outlet
from everwatch._effects import Aborted, CancelReason, Done, Errored, Failed, Outcome
from everwatch._kinds import GiveUp, Registry
from everwatch._schema import SpecError
from everwatch._secrets import Mask, MaskedOutlet, SecretError, Secrets
from everwatch._wire import Work, dumps

# Code that goes on after an abort is cancelled again after this pause, in seconds.
_ABORTS_AGAIN = 1.0

logger = logging.getLogger("everwatch")
# The context of the code that runs now, for the lines that it logs.
_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar("everwatch_context", default=None)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one attempt."""

    id: UUID
    epoch: int
    outcome: Outcome


class _Attempt:
    def __init__(self, work: Work, epoch: int, number: int) -> None:
        self.work = work
        self.epoch = epoch
        self.number = number
        self.told = False
        # Why it was told to stop; the first reason counts.
        self.reason: CancelReason | None = None
        self.aborted = False
        self.ctx: Context | None = None
        # What hides the secrets of its spec.
        self.mask: Mask | None = None
        self.task: asyncio.Task[None] | None = None


class Units:
    """The code that runs in one session."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: Registry,
        outlet: Outlet,
        on_ended: Callable[[Ended], None],
        secrets: Secrets,
    ) -> None:
        """``on_ended`` is called from the loop of the observers, once for each attempt."""
        self._secrets = secrets
        self._loop = loop
        self._registry = registry
        self._outlet = outlet
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._attempts: dict[UUID, _Attempt] = {}
        # Everything must stop, including code that is started from now on.
        self._stopping = False

    @property
    def alive(self) -> int:
        """The number of attempts that have not ended."""
        with self._lock:
            return len(self._attempts)

    def start(self, work: Work, epoch: int, number: int) -> None:
        """Runs the code of an observer."""
        attempt = _Attempt(work, epoch, number)
        with self._lock:
            attempt.told = self._stopping
            self._attempts[work.id] = attempt
        self._call(self._spawn, attempt)

    def cancel(self, observer: UUID, reason: CancelReason | None = None) -> None:
        """Tells the code to stop."""
        self._with(observer, partial(self._tell, reason=reason))

    def abort(self, observer: UUID) -> None:
        """Aborts the code."""
        self._with(observer, self._abort)

    def cancel_all(self) -> None:
        """Tells all code to stop, including code that is started from now on."""
        with self._lock:
            self._stopping = True
            attempts = list(self._attempts.values())
        for attempt in attempts:
            self._tell(attempt)

    def abort_all(self) -> None:
        """Aborts all code."""
        with self._lock:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            self._abort(attempt)

    def _with(self, observer: UUID, act: Callable[[_Attempt], None]) -> None:
        with self._lock:
            attempt = self._attempts.get(observer)
        if attempt is not None:
            act(attempt)

    def _call(self, act: Callable[[_Attempt], None], attempt: _Attempt) -> None:
        try:
            self._loop.call_soon_threadsafe(act, attempt)
        except RuntimeError:
            # The loop is closed: its code does not run any longer.
            self._report(attempt, Aborted())

    def _tell(self, attempt: _Attempt, *, reason: CancelReason | None = None) -> None:
        with self._lock:
            if not attempt.told:
                attempt.told, attempt.reason = True, reason
        self._call(self._tell_now, attempt)

    def _abort(self, attempt: _Attempt) -> None:
        attempt.aborted = True
        self._call(self._abort_now, attempt)

    # On the loop of the observers:

    def _spawn(self, attempt: _Attempt) -> None:
        if attempt.aborted:
            self._report(attempt, Aborted())
            return
        attempt.ctx = Context(attempt.work, attempt.epoch, attempt.number, self._outlet)
        if attempt.told:
            attempt.ctx.stop(attempt.reason)
        attempt.task = self._loop.create_task(self._run(attempt, attempt.ctx), name=f"observer {attempt.work.name}")

    def _tell_now(self, attempt: _Attempt) -> None:
        if attempt.ctx is not None:
            attempt.ctx.stop(attempt.reason)

    def _abort_now(self, attempt: _Attempt) -> None:
        task = attempt.task
        if task is not None and not task.done():
            task.cancel()
            # Code can catch the cancellation and go on.
            self._loop.call_later(_ABORTS_AGAIN, self._abort_now, attempt)

    async def _run(self, attempt: _Attempt, ctx: Context) -> None:
        outcome: Outcome = Aborted()
        try:
            outcome = await self._code(attempt, ctx)
        finally:
            outcome = _masked(attempt.mask, outcome)
            if isinstance(outcome, Errored):
                self._say(attempt, f"attempt {attempt.number} ended with an error: {outcome.error}")
            elif isinstance(outcome, Failed):
                self._say(attempt, f"gave up: {outcome.error}")
            if attempt.mask is not None:
                attempt.mask.close()
            self._report(attempt, outcome)

    async def _code(self, attempt: _Attempt, ctx: Context) -> Outcome:
        _current.set(ctx)
        kind = self._registry.get(attempt.work.kind)
        if kind is None:
            return Failed(f"kind `{attempt.work.kind}` is not offered")
        try:
            resolved, attempt.mask = self._secrets.resolve(attempt.work.spec)
        except SecretError as error:
            return Errored(str(error))
        if attempt.mask is not None:
            ctx.use(MaskedOutlet(self._outlet, attempt.mask))
        try:
            spec = kind.read_spec(resolved)
        except SpecError as error:
            text = f"the spec does not fit kind `{kind.name}`: {error}"
            # With secrets, not for good: the next attempt reads them again.
            return Failed(text) if resolved == attempt.work.spec else Errored(text)
        try:
            result = await kind.code(ctx, spec)
            dumps(result)
        except asyncio.CancelledError:
            return Aborted() if attempt.aborted else Errored("it cancelled itself")
        except GiveUp as error:
            return Failed(str(error) or "gave up")
        # Also SystemExit: code that calls `exit` must not end the other observers of the service.
        except BaseException as error:
            logger.debug("observer %s failed", attempt.work.name, exc_info=error)
            return Errored(chain(error))
        return Done(result)

    def _say(self, attempt: _Attempt, text: str) -> None:
        self._outlet.log(attempt.work, attempt.epoch, "log", text)

    def _report(self, attempt: _Attempt, outcome: Outcome) -> None:
        with self._lock:
            if self._attempts.get(attempt.work.id) is attempt:
                del self._attempts[attempt.work.id]
        self._on_ended(Ended(attempt.work.id, attempt.epoch, outcome))


def _masked(mask: Mask | None, outcome: Outcome) -> Outcome:
    match outcome:
        case Errored(error) if mask is not None:
            return Errored(mask.text(error))
        case Failed(error) if mask is not None:
            return Failed(mask.text(error))
        case Done(result) if mask is not None:
            return Done(mask.json(result))
    return outcome


def chain(error: BaseException) -> str:
    """An error with everything that caused it."""
    texts, seen = [], set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        texts.append("".join(traceback.format_exception_only(cause)).strip())
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return ": ".join(texts)


class LogCapture(logging.Handler):
    """Adds the records that the code of an observer logs to the log of that observer."""

    def emit(self, record: logging.LogRecord) -> None:
        """Adds the lines of a record."""
        ctx = _current.get()
        # What the service itself says about an observer is in the log of the observer already.
        if ctx is not None and record.name != logger.name:
            ctx.log(self.format(record))
