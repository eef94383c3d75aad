"""Sends reports: numbers them, batches them, spreads them over the state queues, and waits for confirms, in order."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from everwatch._broker import Session
from everwatch._broker_errors import NotSent, SessionLost, Unroutable
from everwatch._clock import boottime, timestamp, wall_ms
from everwatch._fence import Fence
from everwatch._topology import Topology
from everwatch._wire import BATCH_MAX, RunReport, encode

Json = Any
# Reports that may wait to be sent.
_QUEUE = 50_000
# How long a batch may wait for more, in seconds.
_LINGER = 0.005

logger = logging.getLogger("everwatch")


@dataclass(frozen=True, slots=True)
class Said:
    """A report with the time of its event, and what follows its confirm."""

    report: Json
    at: str
    # The observer that it is about; None if it is about the service or many observers.
    observer: UUID | None = None
    trace: Json = None
    on_confirm: Callable[[], None] | None = None

    @property
    def is_chunk(self) -> bool:
        """A chunk of an inventory fills its message: no other report follows it there."""
        return isinstance(self.report, dict) and "inventory" in self.report


def said(
    report: Json, *, observer: UUID | None = None, trace: Json = None, on_confirm: Callable[[], None] | None = None
) -> Said:
    """A report of an event that happens now: a batch is sent later, when another service may have gone on already."""
    return Said(report, timestamp(wall_ms()), observer, trace, on_confirm)


# Messages that are sent at the same time, each with its state queue.
Round = dict[int, list[Said]]


def rounds(topology: Topology, batch: list[Said]) -> list[Round]:
    """Divides a batch into rounds. All reports about one observer go to one queue, in order.

    A report of the service about itself is sent once every earlier report is confirmed and before every later one:
    managers must not find ``service_gone`` in the first queue while the last reports of runs are in no queue yet.
    """
    found: list[Round] = []
    current: Round = {}
    for it in batch:
        queue = 0 if it.observer is None else topology.state_of(it.observer)
        is_full = len(current.get(queue, ())) >= BATCH_MAX
        waits = it.observer is None and any(other != queue for other in current)
        if is_full or waits:
            found.append(current)
            current = {}
        current.setdefault(queue, []).append(it)
        if it.is_chunk or (it.observer is None and topology.state_queues > 1):
            found.append(current)
            current = {}
    if current:
        found.append(current)
    return found


class Reporter:
    """The reports of one incarnation, numbered from 1."""

    def __init__(self, service: UUID, session: Session, topology: Topology, fence: Fence) -> None:
        self._service = service
        self._session = session
        self._topology = topology
        self._fence = fence
        self._queue: asyncio.Queue[Said] = asyncio.Queue(_QUEUE)
        self._seq = 0

    async def say(self, it: Said) -> None:
        """Hands in a report, and waits for room."""
        await self._queue.put(it)

    def mention(self, it: Said) -> None:
        """Hands in a report if there is room; such reports are repeated or unimportant."""
        if not self._queue.full():
            self._queue.put_nowait(it)

    async def run_report(self, run: RunReport, trace: Json, on_confirm: Callable[[], None] | None = None) -> None:
        """Hands in an event of a run."""
        await self.say(said({"run": run.json()}, observer=run.id, trace=trace, on_confirm=on_confirm))

    async def confirmed(self, report: Json, observer: UUID | None = None) -> None:
        """Hands in a report and waits for its confirm, for ever if the session is lost: the caller ends with it."""
        done = asyncio.Event()
        await self.say(said(report, observer=observer, on_confirm=done.set))
        await done.wait()

    async def run(self) -> None:
        """Sends until the session is lost."""
        # With more queues a batch is larger, so that its messages are not smaller.
        most = BATCH_MAX * self._topology.state_queues
        while True:
            batch = [await self._queue.get()]
            if self._queue.qsize() < most:
                await asyncio.sleep(_LINGER)
            while len(batch) < most and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            for current in rounds(self._topology, batch):
                bodies = {queue: self._body(reports) for queue, reports in current.items()}
                sent = [self._publish(queue, body) for queue, body in bodies.items()]
                if not all(await asyncio.gather(*sent)):
                    return
            for it in batch:
                if it.on_confirm is not None:
                    it.on_confirm()

    def _body(self, reports: list[Said]) -> bytes:
        entries = []
        for it in reports:
            self._seq += 1
            entry = {"seq": self._seq, "at": it.at, "report": it.report}
            if it.trace is not None:
                entry["trace"] = it.trace
            entries.append(entry)
        return encode({"reports": {"service": str(self._service), "entries": entries}})

    async def _publish(self, queue: int, body: bytes) -> bool:
        pause = 0.2
        while True:
            sent = boottime()
            try:
                await self._session.publish(self._topology.state_queue(queue), body)
            except SessionLost as error:
                self._fence.trip(str(error))
                return False
            except NotSent as error:
                if queue and isinstance(error, Unroutable):
                    logger.error(  # noqa: TRY400 - the text says everything
                        "a state queue is missing; set broker.state_queues of all managers to at least %d and restart "
                        "them",
                        self._topology.state_queues,
                    )
                logger.warning("reports are not accepted, trying again: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                self._fence.confirmed(sent)
                return True
