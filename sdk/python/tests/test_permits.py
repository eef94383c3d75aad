"""When a service asks for permits, and which grants it uses."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from everwatch import PermitsRefused
from everwatch import _permit_requests as permit_requests
from everwatch._commands import Permits, read_command
from everwatch._context import Context
from everwatch._permit_requests import PermitRequests
from everwatch._permits import Decided, PermitQueue
from everwatch._wire import encode
from transcripts import ME, work

A, B = {"a": 1}, {"b": 1}


def asked(queue: PermitQueue, now: float) -> str:
    """A request as "number: turn x count, …"."""
    request = queue.request(now)
    if request is None:
        return "none"
    content = request["acquire"]
    return f"{content['number']}: " + ", ".join(f"{it['turn']} x {it['count']}" for it in content["asks"])


def answers(request: int, *granted: tuple[int, int], refused: list[tuple[int, str]] | None = None) -> Permits:
    return Permits(ME, request, list(granted), refused or [])


def test_the_first_request_is_sent_at_once_and_the_next_a_second_later() -> None:
    queue = PermitQueue(ME)
    assert (queue.due(), asked(queue, 5.0)) == (None, "none")
    first, second = queue.acquire(A), queue.acquire(A)
    assert asked(queue, 5.0) == "1: 1 x 2"
    assert queue.on_answers(answers(1, (1, 1)), 5.02) == [Decided(first, until=6.99)]
    # One that comes later gets a turn of its own, behind those that have asked before.
    third = queue.acquire(A)
    assert queue.due() == 6.0
    assert [asked(queue, 5.999), asked(queue, 6.0)] == ["none", "2: 1 x 1, 2 x 1"]
    both = queue.on_answers(answers(2, (1, 1), (2, 1)), 6.001)
    assert both == [Decided(second, until=7.99), Decided(third, until=7.99)]
    assert queue.due() is None


def test_an_answer_counts_once_and_in_time() -> None:
    queue = PermitQueue(ME)
    queue.acquire(A)
    second = queue.acquire(A)
    assert asked(queue, 0.0) == "1: 1 x 2"
    assert len(queue.on_answers(answers(1, (1, 1)), 0.01)) == 1
    assert queue.on_answers(answers(1, (1, 1)), 0.02) == [], "it came twice"
    assert asked(queue, 1.0) == "2: 1 x 1"
    assert queue.on_answers(answers(2, (1, 1)), 2.99) == [], "it is too late"
    assert [asked(queue, 2.99), asked(queue, 4.97), asked(queue, 5.0)] == ["3: 1 x 1", "none", "4: 1 x 1"]
    assert queue.on_answers(answers(3, (1, 1)), 5.01) == [], "another request is asked"
    assert queue.on_answers(answers(4, (1, 1)), 5.02) == [Decided(second, until=6.99)]


def test_an_acquire_that_is_given_up_is_not_asked_for() -> None:
    queue = PermitQueue(ME)
    first = queue.acquire(A)
    queue.acquire(A)
    assert asked(queue, 0.0) == "1: 1 x 2"
    queue.give_up(first)
    assert queue.on_answers(answers(1), 0.001) == []
    assert asked(queue, 1.0) == "2: 1 x 1"


def test_a_refusal_reaches_every_acquire_of_its_turn() -> None:
    queue = PermitQueue(ME)
    gone = [queue.acquire(A), queue.acquire(A)]
    queue.acquire(B)
    assert asked(queue, 0.0) == "1: 1 x 2, 2 x 1"
    decided = queue.on_answers(answers(1, refused=[(1, "unknown")]), 0.001)
    assert decided == [Decided(it, refused="unknown") for it in gone]
    assert asked(queue, 1.0) == "2: 2 x 1"


def test_a_request_has_at_most_so_many_asks_and_keeps_the_order() -> None:
    queue = PermitQueue(ME)
    for number in range(25):
        queue.acquire(B if number % 2 else A)
    queue.acquire(A)
    asks = queue.request(0.0)["acquire"]["asks"]
    assert len(asks) == 20
    granted = [(it["turn"], 1) for it in asks]
    assert len(queue.on_answers(answers(1, *granted), 0.001)) == 20
    assert len(queue.request(1.0)["acquire"]["asks"]) == 5, "the last two ask together"


def test_answers_are_read() -> None:
    content = {
        "service": str(ME),
        "request": 7,
        "granted": [{"turn": 3, "count": 2}],
        "refused": [{"turn": 4, "error": "e"}],
    }
    assert read_command(encode({"permits": content})) == Permits(ME, 7, [(3, 2)], [(4, "e")])
    assert read_command(encode({"permits": {"service": str(ME), "request": 7}})) == Permits(ME, 7, [], [])


async def test_acquires_are_sent_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(permit_requests, "boottime", lambda: now)
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    requests = PermitRequests(UUID(int=9), sent.put)
    running = asyncio.ensure_future(requests.run())
    first, second = (asyncio.ensure_future(requests.acquire(A)) for _ in range(2))
    assert b'"count":2' in await sent.get()
    requests.on_command(answers(1, (1, 1)))
    assert await first == pytest.approx(101.99)
    now = 101.0
    requests.on_command(answers(1))
    assert b'"number":2' in await sent.get()
    requests.on_command(answers(2, refused=[(1, "there is no rate `a`")]))
    with pytest.raises(PermitsRefused, match="no rate"):
        await second
    third = asyncio.ensure_future(requests.acquire(A))
    await asyncio.sleep(0)
    requests.close_all()
    with pytest.raises(ConnectionError):
        await third
    running.cancel()


class Grants:
    """An outlet that keeps what is acquired, and grants nothing to `late`."""

    def __init__(self) -> None:
        self.acquired: list[Mapping[str, int]] = []

    async def acquire(self, permits: Mapping[str, int]) -> None:
        if "late" in permits:
            await asyncio.sleep(3600)
        self.acquired.append(permits)


async def test_code_acquires_permits_of_one_or_several_rates() -> None:
    outlet: Any = Grants()
    ctx = Context(work(), 1, 1, outlet)
    await ctx.acquire("openai")
    await ctx.acquire("openai", 5, within=10)
    await ctx.acquire({"openai": 1, "tokens": 800})
    assert outlet.acquired == [{"openai": 1}, {"openai": 5}, {"openai": 1, "tokens": 800}]
    with pytest.raises(TimeoutError, match=r"not granted within 0.001 s: 1 of `late`"):
        await ctx.acquire("late", within=0.001)
    with pytest.raises(ValueError, match="0 permits of rate `openai`: acquire at least 1"):
        await ctx.acquire("openai", 0)
    with pytest.raises(ValueError, match="at most 10"):
        await ctx.acquire({str(number): 1 for number in range(11)})
