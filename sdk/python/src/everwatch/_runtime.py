"""A service: one incarnation after another until it is told to stop. Runs on the control loop."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

from aio_pika.abc import ExchangeType

from everwatch._broker import Session
from everwatch._broker_errors import ConnectError, Forbidden, Refused, SessionLost
from everwatch._clock import boottime
from everwatch._database_clock import DatabaseClock
from everwatch._incarnation import Handle, Incarnation
from everwatch._kinds import Registry
from everwatch._logs import Logs
from everwatch._rules import ReconnectBackoff
from everwatch._session import ServiceSession
from everwatch._settings import Settings, SettingsError
from everwatch._topology import ALL, QueueKind, Topology

# The first and the longest pause between two attempts to reach the broker, in seconds.
_CONNECT_FIRST, _CONNECT_LONGEST = 0.5, 4.0
# The first and the longest pause between two looks for a queue or an exchange that only managers may declare.
_LOOK_FIRST, _LOOK_LONGEST = 0.5, 4.0
# How long the last report may take.
_GOODBYE_WITHIN = 2.0

_T = TypeVar("_T")

logger = logging.getLogger("everwatch")


class RunError(Exception):
    """The service ended without being asked: an operator must act; the text says how."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """How an incarnation ended that lost its session."""

    reason: str


async def run(settings: Settings, registry: Registry, tasks: asyncio.AbstractEventLoop, handle: Handle) -> None:
    """Runs until ``handle.stop()``. A broker that cannot be reached is tried for ever.

    Raises:
        RunError: the broker refuses the service, and a retry is useless.
    """
    topology = Topology(settings.prefix, settings.state_queues)
    logs = Logs(settings.log_lines)
    # All incarnations count their time from here, so that what one learned about the database's clock stays right.
    started, database_clock = boottime(), DatabaseClock()
    backoff, comes_last = ReconnectBackoff(), False
    predecessor: tuple[UUID, str] | None = None
    # A broker that has taken this service once refuses it for a reason that passes.
    worked = False
    while not handle.stopping.is_set():
        service = uuid4()
        session = await _connect(settings, topology, service, handle, worked=worked)
        if session is None:
            return
        began = boottime()
        me = Incarnation(
            service, settings, registry, logs, tasks, handle, started, database_clock, predecessor, comes_last
        )
        try:
            lost = await _live(me, session, topology)
            worked = True
        except Refused as error:
            if not worked:
                raise RunError(f"the broker refused: {error}") from error
            lost = _Lost(str(error))
        finally:
            handle.on_ended()
            logs.close_all()
            await session.close()
        if lost is None:
            return
        logger.warning("the session is lost; coming back as a new incarnation; service=%s: %s", service, lost.reason)
        predecessor = (service, lost.reason)
        pause, comes_last = backoff.on_lost(boottime() - began, random.random())
        await _pause(pause, handle)


async def _connect(
    settings: Settings, topology: Topology, service: UUID, handle: Handle, *, worked: bool
) -> Session | None:
    pause, urls = _CONNECT_FIRST, settings.urls
    name = f"everwatch service {settings.name} {service}"
    while not handle.stopping.is_set():
        try:
            urls = settings.current_urls()
        except SettingsError as error:
            logger.warning("broker URL file is unusable; its last valid content stays in use: %s", error)
        opening = asyncio.ensure_future(Session.open(list(urls), topology, name, settings.heartbeat))
        stopping = asyncio.ensure_future(handle.stopping.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return opening.result()
        except ConnectError as error:
            if error.is_final and not worked:
                raise RunError(str(error)) from error
            logger.warning("the broker cannot be used, trying again within %.1f s: %s", pause, error)
        finally:
            stopping.cancel()
            opening.cancel()
        await _pause(pause * random.uniform(0.25, 1.0), handle)
        pause = min(pause * 2, _CONNECT_LONGEST)
    return None


async def _pause(seconds: float, handle: Handle) -> None:
    try:
        async with asyncio.timeout(seconds):
            await handle.stopping.wait()
    except TimeoutError:
        pass


async def _live(me: Incarnation, session: Session, topology: Topology) -> _Lost | None:
    """One incarnation; None if it ended as asked."""
    try:
        created = await _declare(me, session, topology)
    except SessionLost as error:
        return _Lost(str(error))
    tripped = asyncio.Event()
    life = ServiceSession(me, session, topology, tripped)
    working = asyncio.ensure_future(_work(life, work_queue_created=created))
    fenced = asyncio.ensure_future(tripped.wait())
    try:
        await asyncio.wait({working, fenced}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and working.exception() is None:
            return None
        if working.done() and not tripped.is_set():
            # What this service can no longer prove must end before the session does.
            life.fence.trip(str(working.exception()))
            await fenced
        failure = working.exception() if working.done() else None
        if failure is not None and not isinstance(failure, SessionLost):
            logger.error("the control loop failed", exc_info=failure)
        stopping = me.handle.stopping.is_set()
        return None if stopping else _Lost(life.fence.reason or "unknown")
    finally:
        working.cancel()
        fenced.cancel()
        await asyncio.gather(working, fenced, return_exceptions=True)
        await life.close()


async def _work(life: ServiceSession, *, work_queue_created: bool) -> None:
    """Returns when the service has stopped as asked; raises SessionLost otherwise."""
    await life.begin(work_queue_created=work_queue_created)
    await life.run()
    if life.fence.reason is not None:
        raise SessionLost(life.fence.reason)
    await _drain(life)


async def _drain(life: ServiceSession) -> None:
    """Hands everything over and unregisters."""
    limit, loop = life.me.settings.drain_timeout, asyncio.get_running_loop()
    logger.info("stopping: handing over all observers; service=%s", life.me.id)
    life.channels.cancel_all()
    await life.step(life.machine.on_drain)
    life.heartbeat()
    deadline, forced = loop.time() + limit * 0.8, False
    while not life.machine.slots.is_empty:
        if life.fence.reason is not None:
            raise SessionLost(life.fence.reason)
        if not forced and (life.me.handle.hard_stopping.is_set() or loop.time() >= deadline):
            forced, deadline = True, loop.time() + limit * 0.1
            logger.warning("aborting the code that has not stopped; service=%s", life.me.id)
            await life.step(life.machine.on_abort_all)
        if forced and loop.time() >= deadline:
            break
        await life.wait_for_input(0.1)
    try:
        async with asyncio.timeout(_GOODBYE_WITHIN):
            await life.reporter.confirmed("service_gone")
    except TimeoutError:
        logger.warning("the broker did not confirm the last report; service=%s", life.me.id)
    logger.info("stopped; service=%s", life.me.id)


async def _declare(me: Incarnation, session: Session, topology: Topology) -> bool:
    """Makes sure that all queues exist; returns whether this service created its work queue."""

    async def ensure(queue: str, kind: QueueKind) -> bool:
        return await _until_permitted(me, queue, lambda: session.ensure(queue, kind))

    pool = me.settings.pool
    await ensure(topology.parked, QueueKind.DURABLE)
    await ensure(topology.state_queue(0), QueueKind.DURABLE)
    await ensure(topology.heartbeats, QueueKind.HEARTBEATS)
    await ensure(topology.rates, QueueKind.RATES)
    for index in range(1, topology.state_queues):
        await _until_managers_read(me, session, topology.state_queue(index))
        await ensure(topology.state_queue(index), QueueKind.DURABLE)
    for name, kind in ((topology.commands, ExchangeType.FANOUT), (topology.output, ExchangeType.TOPIC)):
        await _until_permitted(me, name, partial(session.declare_exchange, name, kind))
    commands = topology.commands_of(pool, me.id)
    await _until_permitted(me, commands, lambda: session.declare_own(commands))
    await session.bind(commands, topology.commands)
    await session.bind(commands, topology.commands_to(pool), ALL)
    return await ensure(topology.work(pool), QueueKind.SINGLE_ACTIVE if me.settings.pool_single else QueueKind.DURABLE)


async def _until_permitted(me: Incarnation, name: str, declare: Callable[[], Awaitable[_T]]) -> _T:
    """Waits as long as something is missing that the user of this service may not declare."""
    pause = _LOOK_FIRST
    while True:
        try:
            return await declare()
        except Forbidden as error:
            refusal = str(error)
        logger.error(
            "the user of this service may not declare %s, which is missing on the broker (%s); start a manager that "
            "knows pool %s (`everwatch pool create %s`, or manager.pools), or give it the permissions that "
            "`everwatch broker permissions --pool %s` prints; waiting",
            name,
            refusal,
            me.settings.pool,
            me.settings.pool,
            me.settings.pool,
        )
        pause = await _rest(me, pause)


async def _until_managers_read(me: Incarnation, session: Session, queue: str) -> None:
    """Waits until managers have declared a state queue beyond the first.

    If a service declared it, no manager might read it: managers would start observers again that have ended.
    """
    pause = _LOOK_FIRST
    while not await session.exists(queue):
        logger.error(
            "no manager has declared the state queue %s; set broker.state_queues of all managers to at least %d and "
            "restart them, or reduce it here; waiting",
            queue,
            me.settings.state_queues,
        )
        pause = await _rest(me, pause)


async def _rest(me: Incarnation, pause: float) -> float:
    """Waits; returns the next pause. Raises SessionLost if the service stops."""
    await _pause(pause, me.handle)
    if me.handle.stopping.is_set():
        raise SessionLost("the service stops")
    return min(pause * 2, _LOOK_LONGEST)
