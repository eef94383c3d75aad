"""The code of observers, the fence and checkpoints, on real loops and threads, without a broker."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from everwatch import CancelReason, Context, GiveUp, observer
from everwatch._broker_errors import SessionLost
from everwatch._checkpoints import CheckpointRequests
from everwatch._commands import Checkpoints
from everwatch._effects import Aborted, Done, Errored, Failed, Outcome
from everwatch._fence import CODE_NOT_STOPPED, Fence
from everwatch._kinds import Kind, Registry
from everwatch._secrets import Secrets
from everwatch._tasks import Ended, Units
from everwatch._wire import Work, epoch_of

ID, RUN = UUID(int=1), epoch_of(1, 0)


class Outlet:
    """Keeps what code sends."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.emitted: list[tuple[Any, str | None, Mapping[str, str]]] = []

    async def emit(self, work: Work, epoch: int, value: Any, key: str | None, headers: Mapping[str, str]) -> None:
        self.emitted.append((value, key, headers))

    def progress(self, work: Work, epoch: int, text: str) -> None:
        pass

    def ready(self, work: Work, epoch: int) -> None:
        pass

    async def checkpoint(self, work: Work, epoch: int, value: Any) -> None:
        pass

    async def restored(self, work: Work, epoch: int) -> Any:
        return None

    async def acquire(self, permits: Mapping[str, int]) -> None:
        pass

    def log(self, work: Work, epoch: int, stream: str, text: str) -> None:
        self.lines.append(text)


class Stage:
    """Runs one kind of code."""

    def __init__(self, code: Callable[[Context, Any], Awaitable[Any]] | Kind, secrets: Secrets | None = None) -> None:
        kind = code if isinstance(code, Kind) else observer("code")(code)
        self.outlet = Outlet()
        self.ended: asyncio.Queue[Ended] = asyncio.Queue()
        self.units = Units(
            asyncio.get_running_loop(), Registry([kind]), self.outlet, self.ended.put_nowait, secrets or Secrets()
        )

    def start(self, spec: Any = None, scheduled_for: int | None = None) -> None:
        work = Work(ID, 1, "code", "o", {} if spec is None else spec, scheduled_for=scheduled_for)
        self.units.start(work, RUN, 1)

    async def outcome(self) -> Outcome:
        async with asyncio.timeout(5):
            return (await self.ended.get()).outcome


async def until_cancelled(ctx: Context, spec: dict[str, Any]) -> None:
    await ctx.cancelled()


async def test_code_is_told_to_stop_even_before_it_starts_and_after_all_must_stop() -> None:
    stage = Stage(until_cancelled)
    stage.start()
    stage.units.cancel(ID)
    assert await stage.outcome() == Done()
    stage.units.cancel_all()
    stage.start()
    assert await stage.outcome() == Done()
    assert stage.units.alive == 0


async def test_code_knows_the_time_for_which_it_executes() -> None:
    async def says_when(ctx: Context, spec: dict[str, Any]) -> Any:
        return None if ctx.scheduled_for is None else ctx.scheduled_for.isoformat()

    stage = Stage(says_when)
    for at, said in ((None, None), (9250, "1970-01-01T00:00:09.250000+00:00")):
        stage.start(scheduled_for=at)
        assert await stage.outcome() == Done(said)


async def test_code_sees_the_first_reason_for_which_it_must_stop() -> None:
    async def says_why(ctx: Context, spec: dict[str, Any]) -> Any:
        before = ctx.cancel_reason
        await ctx.cancelled()
        return [before, ctx.cancel_reason]

    stage = Stage(says_why)
    # Told before the code runs, and while it does.
    for pause in (0.0, 0.05):
        stage.start()
        await asyncio.sleep(pause)
        stage.units.cancel(ID, CancelReason.TIMED_OUT)
        stage.units.cancel(ID, CancelReason.FINISHED)
        ended = await stage.outcome()
        assert isinstance(ended, Done)
        assert ended.result[1] == "timed_out"
    assert ended == Done([None, "timed_out"])
    stage.start()
    stage.units.cancel(ID)
    stage.units.cancel(ID, CancelReason.FINISHED)
    ended = await stage.outcome()
    assert isinstance(ended, Done)
    assert ended.result[1] is None


async def test_what_code_raises_decides_what_follows() -> None:
    async def raises(ctx: Context, spec: dict[str, Any]) -> Any:
        match spec.get("do"):
            case "give up":
                raise GiveUp("useless")
            case "exit":
                raise SystemExit(3)
            case "return":
                return {"n": 1}
            case "return a set":
                return {1}
        try:
            raise OSError("disk")
        except OSError as error:
            raise RuntimeError("no way") from error

    stage = Stage(raises)
    stage.start({"do": "give up"})
    assert await stage.outcome() == Failed("useless")
    stage.start({"do": "return"})
    assert await stage.outcome() == Done({"n": 1})
    stage.start({"do": "exit"})
    assert await stage.outcome() == Errored("SystemExit: 3")
    stage.start({"do": "return a set"})
    assert isinstance(await stage.outcome(), Errored)
    stage.start()
    assert await stage.outcome() == Errored("RuntimeError: no way: OSError: disk")
    assert stage.outlet.lines[-1] == "attempt 1 ended with an error: RuntimeError: no way: OSError: disk"


async def test_a_value_is_emitted_under_a_key_and_with_headers_within_their_limits() -> None:
    async def emits(ctx: Context, spec: dict[str, Any]) -> None:
        await ctx.emit(1)
        await ctx.emit(2, key="prices.eur", headers={"unit": "cent"})
        for wrong in ({"key": "k" * 256}, {"headers": {"everwatch-epoch": "7"}}):
            try:
                await ctx.emit(3, **wrong)
            except ValueError as error:
                ctx.log(str(error))

    stage = Stage(emits)
    stage.start()
    assert await stage.outcome() == Done()
    assert stage.outlet.emitted == [(1, None, {}), (2, "prices.eur", {"unit": "cent"})]
    assert "has 256 bytes; at most 255" in stage.outlet.lines[0]
    assert stage.outlet.lines[1] == "the header `everwatch-epoch` is reserved: choose a name without everwatch-"


async def test_a_spec_that_does_not_fit_fails_without_a_retry() -> None:
    async def needs(ctx: Context, spec: list[int]) -> None:
        pass

    stage = Stage(needs)
    stage.start({"a": 1})
    assert await stage.outcome() == Failed("the spec does not fit kind `code`: /: must be a list")


async def test_aborted_code_ends_even_if_it_catches_the_first_cancellation() -> None:
    stubborn = 0

    async def ignores(ctx: Context, spec: dict[str, Any]) -> None:
        nonlocal stubborn
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stubborn += 1
                if stubborn == 2:
                    raise

    stage = Stage(ignores)
    stage.start()
    await asyncio.sleep(0.05)
    stage.units.cancel(ID)
    stage.units.abort(ID)
    assert await stage.outcome() == Aborted()
    assert stubborn == 2


async def test_a_pause_ends_at_a_cancel() -> None:
    answers: list[bool] = []

    async def waits(ctx: Context, spec: dict[str, Any]) -> None:
        answers.append(await ctx.cancelled_within(0.01))
        answers.append(await ctx.cancelled_within(60))

    stage = Stage(waits)
    stage.start()
    await asyncio.sleep(0.1)
    stage.units.cancel(ID)
    assert await stage.outcome() == Done()
    assert answers == [False, True]


class Watched:
    """A fence over a stage, with what it did."""

    def __init__(self, stage: Stage, fence_after: float, fence_grace: float) -> None:
        self.tripped = threading.Event()
        self.ended_with: list[int] = []
        self.fence = Fence(
            fence_after, fence_grace, stage.units, self.tripped.set, lambda code: self.ended_with.append(code)
        )

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.tripped.wait, 5)


async def test_silence_stops_all_code_and_proofs_do_not() -> None:
    stage = Stage(until_cancelled)
    watched = Watched(stage, 0.4, 0.2)
    stage.start()
    for _ in range(6):
        await asyncio.sleep(0.1)
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        watched.fence.answered(now)
        watched.fence.confirmed(now)
    assert watched.fence.stands
    await watched.wait()
    assert watched.fence.reason == "the broker has not answered for 400 ms"
    assert not watched.fence.stands
    assert await stage.outcome() == Done()
    assert watched.ended_with == []


async def test_a_missing_confirm_is_no_silence_while_the_broker_blocks() -> None:
    watched = Watched(Stage(until_cancelled), 0.3, 0.1)
    watched.fence.is_blocked = True
    for _ in range(6):
        await asyncio.sleep(0.1)
        watched.fence.answered(time.clock_gettime(time.CLOCK_BOOTTIME))
    assert watched.fence.reason is None
    watched.fence.is_blocked = False
    for _ in range(6):
        await asyncio.sleep(0.1)
        watched.fence.answered(time.clock_gettime(time.CLOCK_BOOTTIME))
    await watched.wait()
    assert watched.fence.reason == "the broker has not confirmed for 300 ms"


async def test_code_that_ignores_the_fence_ends_the_process() -> None:
    release = threading.Event()

    async def blocks(ctx: Context, spec: dict[str, Any]) -> None:
        release.wait(5)

    stage = Stage(blocks)
    watched = Watched(stage, 60.0, 0.1)
    stage.start()

    def check() -> None:
        # The loop of this test is blocked by the code, as it would be in a service.
        watched.fence.trip("for a test")
        watched.tripped.wait(3)
        release.set()

    checker = threading.Thread(target=check)
    checker.start()
    await asyncio.sleep(0)
    await asyncio.to_thread(checker.join)
    assert watched.ended_with == [CODE_NOT_STOPPED]


async def test_checkpoints_are_repeated_until_they_are_stored() -> None:
    sent: list[Any] = []
    requests = CheckpointRequests(lambda _, report: sent.append(report))
    first = asyncio.ensure_future(requests.store((ID, RUN), "a"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(requests.store((ID, RUN), "b"))
    await asyncio.sleep(0)
    assert [(it["checkpoint"]["number"], it["checkpoint"]["value"]) for it in sent] == [(1, '"a"'), (2, '"b"')]
    requests.repeat()
    assert len(sent) == 2, "it is too early to repeat"
    requests._stores[ID, RUN].due = 0.0
    requests.repeat()
    assert sent[2] == sent[1]
    requests.on_command(Checkpoints(UUID(int=9), [(ID, RUN, 1)], []))
    await asyncio.sleep(0)
    assert (first.done(), second.done()) == (True, False)
    requests.on_command(Checkpoints(UUID(int=9), [(ID, RUN, 2)], []))
    await second


async def test_a_restore_is_answered_once_for_all_who_wait_and_fails_with_the_run() -> None:
    sent: list[Any] = []
    requests = CheckpointRequests(lambda _, report: sent.append(report))
    waiting = [asyncio.ensure_future(requests.restore((ID, RUN))) for _ in range(2)]
    await asyncio.sleep(0)
    assert sent == [{"checkpoint_wanted": {"id": str(ID), "epoch": RUN}}]
    requests.on_command(Checkpoints(UUID(int=9), [], [(ID, RUN, (RUN - 1, '{"n": 1}'))]))
    assert await asyncio.gather(*waiting) == [{"n": 1}, {"n": 1}]
    late = asyncio.ensure_future(requests.restore((ID, RUN)))
    await asyncio.sleep(0)
    requests.close((ID, RUN))
    with pytest.raises(SessionLost):
        await late
