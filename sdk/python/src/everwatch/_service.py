"""A service as a program: configuration, log, signals and threads around the runtime."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from everwatch import _runtime
from everwatch._fence import guard
from everwatch._health import Health, serve
from everwatch._incarnation import Handle
from everwatch._kinds import Kind, Registry
from everwatch._log import init_log
from everwatch._runtime import RunError
from everwatch._settings import Settings, SettingsError, load

# How often the control loop shows that it turns, in seconds.
_TURN_EVERY = 1.0


class Service:
    """A service: say which kinds it offers, then :meth:`main`.

    The code of observers runs on the event loop of the caller; the control loop has a thread and a loop of its own,
    and so has the fence. Code that blocks its loop therefore delays other observers, but no heartbeat.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        """``kinds``: functions that :func:`everwatch.observer` decorated.

        Raises:
            TypeError, ValueError: something is not a kind, or a kind is offered twice.
        """
        self._registry = Registry(list(kinds))
        self._stop: Callable[[], None] = lambda: None
        self._health = Health()

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Reads the configuration, runs until SIGTERM or Ctrl-C, hands everything over and ends the process.

        The configuration: ``--config FILE`` or ``EVERWATCH_CONFIG``, then ``EVERWATCH_SECTION__KEY``. Exit codes: 0 as
        asked, 1 refused by the broker, 2 wrong configuration, 70 code that could not be stopped.
        """
        try:
            settings = load(_config_file(sys.argv[1:] if arguments is None else arguments))
        except SettingsError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(2) from error
        log = init_log(settings.log_level)
        self._serve_health(settings.listen)
        guard.install()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            asyncio.run(self.run(settings))
        except RunError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(1) from error
        finally:
            log.flush_within()

    def _serve_health(self, listen: str) -> None:
        if not listen:
            return
        try:
            serve(listen, self._health)
        except (OSError, ValueError, OverflowError) as error:
            sys.stderr.write(f"service.listen: cannot listen on {listen}: {error}; choose another address and port\n")
            raise SystemExit(1) from error

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the running service in order; a second call insists. Thread-safe."""
        self._stop()

    async def run(self, settings: Settings) -> None:
        """Runs the service until :meth:`stop`; the code of observers runs on this loop.

        Raises:
            RunError: the broker refuses the service, and a retry is useless.
        """
        tasks = asyncio.get_running_loop()
        ended: asyncio.Future[None] = tasks.create_future()

        def control() -> None:
            failure: BaseException | None = None
            try:
                asyncio.run(self._control(settings, tasks))
            except BaseException as error:
                failure = error
            tasks.call_soon_threadsafe(_finish, ended, failure)

        thread = threading.Thread(target=control, name="everwatch-control", daemon=True)
        thread.start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.stop()
            await ended
            raise
        finally:
            self._stop = lambda: None

    async def _control(self, settings: Settings, tasks: asyncio.AbstractEventLoop) -> None:
        handle, loop = Handle(), asyncio.get_running_loop()

        def stop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(handle.stop)

        self._stop = stop
        self._health.watch(lambda: handle.is_ready)
        turning = asyncio.ensure_future(self._turn())
        try:
            await _runtime.run(settings, self._registry, tasks, handle)
        finally:
            turning.cancel()

    async def _turn(self) -> None:
        """Shows that the control loop turns."""
        while True:
            self._health.turn()
            await asyncio.sleep(_TURN_EVERY)


def _finish(ended: "asyncio.Future[None]", failure: BaseException | None) -> None:
    if ended.done():
        return
    if failure is None:
        ended.set_result(None)
    else:
        ended.set_exception(failure)


def _config_file(arguments: Sequence[str]) -> str | None:
    match list(arguments):
        case []:
            return None
        case ["--config", file]:
            return file
        case ["--config"]:
            raise SettingsError("--config: name a file")
        case [other, *_]:
            raise SettingsError(f"{other}: the only argument is --config FILE")
    return None
