"""The fence: a thread that stops every run when this service can no longer be sure that it owns its messages.

It depends on no event loop, so that blocked code cannot delay it, and on no log that may block: `_log` drops lines.
"""

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable

from everwatch._clock import boottime
from everwatch._rules import Proofs
from everwatch._tasks import Units

# The interval between two checks, in seconds.
_LOOK = 0.1
# The time that the log has to take the last line before the process ends, in seconds.
_LAST_WORDS = 0.02
# The exit code of a process whose code could not be stopped.
CODE_NOT_STOPPED = 70

logger = logging.getLogger("everwatch")


class Fence:
    """Watches one session. Times are in seconds of ``boottime``."""

    def __init__(
        self,
        fence_after: float,
        fence_grace: float,
        units: Units,
        on_tripped: Callable[[], None],
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        """Starts watching; both proofs of life count as given now.

        ``on_tripped`` is called from the thread of the fence when all code has ended after the fence tripped.
        """
        self.fence_after = fence_after
        self._fence_grace = fence_grace
        self._units = units
        self._on_tripped = on_tripped
        self._end_process = end_process
        now = boottime()
        self._proofs = Proofs(now, now)
        self._reason: str | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        # While the broker blocks publishers, it gives no message away: a missing confirm is no silence then.
        self.is_blocked = False
        self._thread = threading.Thread(target=self._run, name="everwatch-fence", daemon=True)
        self._thread.start()

    @property
    def reason(self) -> str | None:
        """Why it has tripped."""
        return self._reason

    @property
    def stands(self) -> bool:
        """Whether this service may still start and settle: no loss that it knows or should know."""
        return self._reason is None and self._proofs.are_fresh(boottime(), self.fence_after)

    @property
    def has_proofs(self) -> bool:
        """Whether no proof of life is overdue, and the fence has not tripped.

        After a freeze, an answer may be fresh before the fence looks at the confirms.
        """
        return self.stands and self._proofs.silence(boottime(), self.fence_after) is None

    def answered(self, sent: float) -> None:
        """The broker answered a round trip that was sent at ``sent``."""
        self._proofs.answered = max(self._proofs.answered, sent)

    def confirmed(self, sent: float) -> None:
        """The broker confirmed a publish that was sent at ``sent``."""
        self._proofs.confirmed = max(self._proofs.confirmed, sent)

    def trip(self, reason: str) -> None:
        """Trips the fence now; only the first reason is kept."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
        self._wake.set()

    def close(self) -> None:
        """The session has ended in order: the fence stops watching."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            guard.rest()

    def _watch(self) -> None:
        while not self._closed:
            if self.is_blocked:
                self.confirmed(boottime())
            silence = self._proofs.silence(boottime(), self.fence_after)
            if silence is not None:
                self.trip(silence)
            if self._reason is not None:
                self._enforce()
                return
            guard.feed(self.fence_after + self._fence_grace)
            self._wake.wait(_LOOK)
            self._wake.clear()

    def _enforce(self) -> None:
        observers = self._units.alive
        self._units.cancel_all()
        if not self._wait_for_code():
            self._units.abort_all()
            if not self._wait_for_code():
                logger.error("code did not stop at the fence: ending the process; observers=%d", self._units.alive)
                # The log is written by another thread, which gets a moment for this line.
                threading.Event().wait(_LAST_WORDS)
                self._end_process(CODE_NOT_STOPPED)
        if observers:
            logger.warning("fenced: all runs of this service were stopped; observers=%d: %s", observers, self._reason)
        self._on_tripped()

    def _wait_for_code(self) -> bool:
        deadline = boottime() + self._fence_grace
        while self._units.alive:
            if boottime() >= deadline:
                return False
            threading.Event().wait(0.005)
        return True


class ProcessGuard:
    """Ends the process if code keeps the interpreter from running the fence.

    A C extension that computes without releasing the interpreter lock stops all threads of Python, the fence too. So
    the fence winds a timer of the kernel again and again, which counts the computing time of the process and not the
    time that it is suspended; when the timer runs out, the process writes what each thread does and ends.
    """

    def __init__(self) -> None:
        self._installed = False

    def install(self) -> None:
        """Watches from the next ``feed`` on. For programs that are a service; a library must not do this."""
        faulthandler.register(signal.SIGVTALRM, all_threads=True, chain=True)
        self._installed = True

    def feed(self, seconds: float) -> None:
        """Ends the process after this much computing time without another call."""
        if self._installed:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    def rest(self) -> None:
        """Stops watching until the next ``feed``."""
        self.feed(0.0)


guard = ProcessGuard()
