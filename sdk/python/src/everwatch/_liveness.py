"""Proofs of life: a round trip on the consume connection and a confirmed publish, every second. The fence judges."""

import asyncio
import logging
from uuid import UUID

from everwatch._broker import Session
from everwatch._broker_errors import NotSent, SessionLost
from everwatch._clock import boottime
from everwatch._fence import Fence
from everwatch._topology import Topology
from everwatch._wire import encode

# The longest pause between two proofs, in seconds; three of them fit into the silence that fences.
_PROBE = 1.0

logger = logging.getLogger("everwatch")


async def prove_life(session: Session, fence: Fence, topology: Topology, service: UUID) -> None:
    """Runs until the session is lost, and trips the fence then."""
    pause = min(_PROBE, fence.fence_after / 3)
    body = encode({"probe": {"service": str(service)}})
    helpers = [
        asyncio.ensure_future(_answers(session, fence, pause)),
        asyncio.ensure_future(_confirms(session, fence, pause, topology.heartbeats, body)),
    ]
    try:
        fence.trip(await asyncio.shield(session.lost))
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)


async def _answers(session: Session, fence: Fence, pause: float) -> None:
    while True:
        sent = boottime()
        try:
            await session.probe()
        except SessionLost as error:
            fence.trip(str(error))
            return
        fence.answered(sent)
        fence.is_blocked = await session.is_blocked()
        await asyncio.sleep(pause)


async def _confirms(session: Session, fence: Fence, pause: float, queue: str, body: bytes) -> None:
    """A process that was frozen for longer than the fence permits publishes nothing before the fence trips.

    Managers would take it for a sign of life of code that stood still.
    """
    while True:
        if not fence.has_proofs:
            await asyncio.sleep(pause)
            continue
        sent = boottime()
        try:
            await session.publish(queue, body)
        except SessionLost as error:
            fence.trip(str(error))
            return
        except NotSent as error:
            logger.warning("a probe was not accepted: %s", error)
        else:
            fence.confirmed(sent)
        await asyncio.sleep(pause)
