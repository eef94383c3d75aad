"""Answers to managers that ask for held messages or for logs, one after the other, beside the control loop."""

import asyncio
import logging
from typing import Any
from uuid import UUID

from everwatch._broker import Session
from everwatch._broker_errors import NotSent, SessionLost, Unroutable
from everwatch._commands import AskLogs
from everwatch._logs import Logs
from everwatch._reporter import Reporter
from everwatch._topology import Topology
from everwatch._wire import RunReport, Work, encode

Json = Any
# Questions that may wait; a manager that gets no answer asks again.
_QUESTIONS = 200
# The most text of messages in one report, in bytes; a single longer message is allowed.
_REPORT_MAX = 128 * 1024
# Lines in one answer.
_ANSWER_LINES = 1000
# An answer that is not confirmed by then is given up, in seconds.
_ANSWER_WITHIN = 5.0

Held = list[tuple[RunReport, Work]]
logger = logging.getLogger("everwatch")


def parts(topology: Topology, held: Held) -> list[tuple[UUID, Json]]:
    """The entries of ``held_messages``, by report: all in one go to the queue of their observers, with limited text."""
    found: list[tuple[UUID, Json]] = []
    last, size = -1, 0
    for run, work in sorted(held, key=lambda it: topology.state_of(it[0].id)):
        queue, length = topology.state_of(run.id), len(work.text.encode())
        if queue != last or size + length > _REPORT_MAX:
            found.append((run.id, []))
            size = 0
        last, size = queue, size + length
        found[-1][1].append({"run": run.json(), "work": work.text})
    return found


class HeldAnswers:
    """Describes held messages."""

    def __init__(self, reporter: Reporter, topology: Topology, pool: str) -> None:
        self._reporter = reporter
        self._topology = topology
        self._pool = pool
        self._questions: asyncio.Queue[Held] = asyncio.Queue(_QUESTIONS)

    def ask(self, held: Held) -> None:
        """Answers later, unless too many questions wait."""
        if not self._questions.full():
            self._questions.put_nowait(held)

    async def run(self) -> None:
        """Answers until it is cancelled."""
        while True:
            for observer, entries in parts(self._topology, await self._questions.get()):
                # It waits for the confirm, so that one batch of reports has at most one of these.
                report = {"held_messages": {"pool": self._pool, "held": entries}}
                await self._reporter.confirmed(report, observer)


class LogAnswers:
    """Answers questions about logs."""

    def __init__(self, session: Session, topology: Topology, logs: Logs) -> None:
        self._session = session
        self._topology = topology
        self._logs = logs
        self._questions: asyncio.Queue[AskLogs] = asyncio.Queue(_QUESTIONS)

    def ask(self, asked: AskLogs) -> None:
        """Answers later, unless too many questions wait."""
        if not self._questions.full():
            self._questions.put_nowait(asked)

    async def run(self) -> None:
        """Answers until it is cancelled or the session is lost."""
        while True:
            asked = await self._questions.get()
            lines = self._logs.read(asked.id, asked.after, min(asked.most, _ANSWER_LINES))
            body = encode({"logs": {"number": asked.number, "lines": lines}})
            try:
                async with asyncio.timeout(_ANSWER_WITHIN):
                    await self._session.publish(self._topology.replies(asked.to), body)
            except Unroutable:
                # The manager that asked is gone.
                pass
            except (NotSent, TimeoutError) as error:
                logger.debug("an answer did not go out, it is asked for again: %s", error)
            except SessionLost:
                return
