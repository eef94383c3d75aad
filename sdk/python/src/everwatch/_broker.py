"""RabbitMQ: two connections that live and die together; one consumes and acknowledges, the other publishes.

Nothing here reconnects: once a session is lost, the broker gives its messages to other consumers, and a client that
recovered by itself would acknowledge messages that belong to someone else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import aio_pika
import aiormq
import aiormq.abc
from aio_pika.abc import AbstractConnection, ExchangeType
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from everwatch._broker_errors import (
    ConnectError,
    Forbidden,
    NotSent,
    Refused,
    SessionLost,
    Unroutable,
    explain_refusal,
    explained,
    read_url,
)
from everwatch._topology import Arguments, QueueKind, Topology
from everwatch._wire import acquisitions

_T = TypeVar("_T")
_Channel = aiormq.abc.AbstractChannel
_CONNECT_WITHIN = 10.0
_CLOSE_WITHIN = 2.0
# A quorum queue without a leader never answers.
_OPEN_WITHIN = 5.0
# Why a session is lost when the broker cancels a consumer.
ENDED_CONSUMER = "the broker has ended a consumer"

logger = logging.getLogger("everwatch")


class _Missing(Refused):
    """No such queue or exchange."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that the session holds until it is settled or the session is lost."""

    receipt: int
    body: bytes
    acquisitions: int
    headers: Mapping[str, Any]
    # The exchange and the routing key through which it came.
    way: tuple[str, str]


@dataclass(slots=True)
class _Block:
    """A channel with deliveries."""

    channel: _Channel
    # From which its deliveries come.
    queue: str = ""
    # The numbers of acknowledgements sent and accepted, of those for which
    # a caller waits until the queue has accepted them.
    sent: int = 0
    accepted: int = 0
    proving: asyncio.Lock = field(default_factory=asyncio.Lock)
    # The broker ended its consumer: its messages belong to others, though an acknowledgement would raise no error.
    given_away: bool = False

    async def prove_accepted(self, number: int) -> None:
        """Waits until the queue has accepted all acknowledgements of this channel up to this number.

        A round trip does not prove it: the process of the channel passes acknowledgements on without waiting for an
        answer, and keeps some of them for later. ``basic.get`` is a command in the log of the queue behind those that
        were passed on; the second one follows those that were kept meanwhile.
        """
        async with self.proving:
            if self.accepted >= number:
                return
            sent = self.sent
            for _ in range(2):
                message = await self.channel.basic_get(self.queue)
                if message.delivery_tag:
                    await self.channel.basic_nack(message.delivery_tag, wait=False)
            self.accepted = sent


class Consumer:
    """One consumer at a time on its own channel, each with a tag that was never used before."""

    def __init__(self, session: "Session", block: _Block) -> None:
        self._session = session
        self._block = block
        self._tag = ""
        self._closes = False
        block.channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
        # The broker closes a channel when its acknowledgement time-out fires, and gives the messages away.
        block.channel.closing.add_done_callback(self._on_closed)

    async def _begin(self, queue: str, prefetch: int, priority: int, deliver: Callable[[Delivery], None]) -> None:
        async def on_message(message: aiormq.abc.DeliveredMessage) -> None:
            deliver(self._session.keep(message, self._block))

        # RabbitMQ 3.10 closes the whole connection if a tag is used twice.
        self._tag = str(uuid4())
        self._block.queue = queue
        await self._block.channel.basic_qos(prefetch_count=prefetch)
        await self._block.channel.basic_consume(
            queue,
            on_message,
            consumer_tag=self._tag,
            arguments={"x-priority": priority} if priority else None,
        )

    async def begin(self, queue: str, prefetch: int, priority: int, deliver: Callable[[Delivery], None]) -> None:
        """Consumes, within 5 s; also again after ``cancel``: messages that are held from before stay held.

        Raises:
            SessionLost: the queue does not exist or does not answer, or the session is gone.
        """
        session = self._session
        try:
            async with asyncio.timeout(_OPEN_WITHIN):
                await session.guard(self._begin(queue, prefetch, priority, deliver))
        except TimeoutError as error:
            session.lose(f"queue {queue} has not answered within {_OPEN_WITHIN:.0f} s: has it a leader?")
            raise SessionLost(session.lost.result()) from error
        except (ChannelNotFoundEntity, ChannelAccessRefused, ChannelPreconditionFailed) as error:
            session.lose(f"queue {queue} cannot be consumed: {error}")
            raise SessionLost(session.lost.result()) from error

    async def cancel(self) -> None:
        """Stops deliveries. All deliveries that were under way have been handed out when this returns."""
        tag, self._tag = self._tag, ""
        if tag:
            await self._session.guard(self._block.channel.basic_cancel(tag))

    async def close(self) -> None:
        """Closes the channel: it must hold no message."""
        self._closes = True
        await self._session.guard(self._block.channel.close())

    def _on_closed(self, closing: "asyncio.Future[Any]") -> None:
        reason = "closed" if closing.cancelled() else closing.exception() or "closed"
        if not self._closes:
            self._block.given_away = True
            self._session.lose(f"the broker closed a channel that holds messages: {reason}")

    def _on_cancelled(self, _frame: object) -> None:
        self._block.given_away = True
        self._session.lose(ENDED_CONSUMER)


class Session:
    """Two connections. ``lost`` is done with the reason once either is gone."""

    def __init__(self, consume: AbstractConnection, publish: AbstractConnection, topology: Topology) -> None:
        self._consume = consume
        self._publish = publish
        self._topology = topology
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._last_receipt = 0
        self._held: dict[int, tuple[int, _Block]] = {}
        # One channel for each durable queue that the session declared, so that many messages can be in progress.
        self._lanes: dict[str, _Channel] = {}
        self._exchanges: _Channel
        self._others: _Channel
        self._others_lock = asyncio.Lock()
        self._known_exchanges: set[str] = set()
        # The user may not declare the queues and exchanges that all share.
        self._is_restricted = False
        self._probe: _Channel
        self._probe_queue = f"{topology.prefix}probe.{uuid4()}"
        consume.close_callbacks.add(self._on_closed)
        publish.close_callbacks.add(self._on_closed)

    @classmethod
    async def open(cls, urls: list[str], topology: Topology, name: str, heartbeat: int) -> "Session":
        """Connects to the first node that answers. ``heartbeat`` is in seconds.

        Raises:
            ConnectError: names the node without its password, and the remedy.
        """
        silent = []
        for url in urls:
            try:
                return await cls._open_on(url, topology, name, heartbeat)
            except ConnectError as error:
                if error.is_final:
                    raise
                silent.append(str(error))
        raise ConnectError("; ".join(silent))

    @classmethod
    async def _open_on(cls, url: str, topology: Topology, name: str, heartbeat: int) -> "Session":
        node = read_url(url)
        place = f"{node.host}:{node.port or (5671 if node.scheme == 'amqps' else 5672)}"
        opened: list[AbstractConnection] = []
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                for purpose in ("consume", "publish"):
                    target = node.update_query(heartbeat=str(heartbeat), name=f"{name} {purpose}")
                    opened.append(await aio_pika.connect(target))
                session = cls(opened[0], opened[1], topology)
                await session._start()
                return session
        except TimeoutError as error:
            await _close_all(opened)
            raise ConnectError(f"RabbitMQ at {place} did not answer within {_CONNECT_WITHIN:.0f} s") from error
        except (AMQPError, OSError, SessionLost) as error:
            await _close_all(opened)
            raise explained(error, node, place) from error
        except BaseException:
            await _close_all(opened)
            raise

    async def _start(self) -> None:
        self._exchanges = await self._channel(self._publish, confirms=True)
        self._others = await self._channel(self._publish, confirms=True)
        self._probe = await self._channel(self._consume)
        await self._probe.queue_declare(self._probe_queue, exclusive=True, arguments={"x-queue-type": "classic"})

    @staticmethod
    async def _channel(connection: AbstractConnection, *, confirms: bool = False) -> _Channel:
        channel = connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
        await channel.initialize()
        # The underlying channel settles and consumes without objects for each message.
        return await channel.get_underlay_channel()

    def lose(self, reason: str) -> None:
        """Ends the session; only the first reason is kept."""
        if not self.lost.done():
            self.lost.set_result(reason)

    def _on_closed(self, _connection: object, error: BaseException | None = None) -> None:
        self.lose(f"a connection ended: {error or 'closed'}")

    async def guard(self, work: Coroutine[Any, Any, _T] | Awaitable[_T]) -> _T:
        """Awaits an operation, and stops waiting when the session is lost.

        Raises:
            SessionLost: also if the operation fails with its channel or connection.
        """
        task: asyncio.Future[_T] = asyncio.ensure_future(work)
        # An operation that fails after the session was lost has nobody who asks how.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        waiting: list[asyncio.Future[Any]] = [task, self.lost]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
        except (ChannelNotFoundEntity, ChannelPreconditionFailed, ChannelAccessRefused, DeliveryError):
            raise
        except (AMQPError, OSError, RuntimeError) as error:
            self.lose(str(error) or repr(error))
        finally:
            task.cancel()
        self.lose("a channel ended")
        raise SessionLost(self.lost.result())

    async def ensure(self, queue: str, kind: QueueKind) -> bool:
        """Makes sure that a shared queue exists; returns whether this call created it.

        If it exists and the user may not declare it, its arguments are not compared.

        Raises:
            Forbidden: it, or its exchange, does not exist, and the user may not declare it.
            Refused: it exists with other arguments.
            SessionLost: the session is gone.
        """
        exists = await self.exists(queue)
        if not (exists and self._is_restricted):
            try:
                await self._declare(queue, kind)
            except Forbidden:
                if not exists:
                    raise
                self._is_restricted = True
        for exchange in self._topology.exchanges_with(queue):
            await self.declare_exchange(exchange, ExchangeType.DIRECT)
        if queue not in self._lanes:
            self._lanes[queue] = await self.guard(self._channel(self._publish, confirms=True))
        return not exists

    async def declare_own(self, queue: str) -> None:
        """Declares the exclusive queue of this session; raises as ``ensure``."""
        await self._declare(queue, QueueKind.EXCLUSIVE)

    async def _declare(self, queue: str, kind: QueueKind) -> None:
        """Declares the queue and its exchanges, and binds it.

        Also if it exists: a passive declaration does not compare the arguments, and it may be older than its exchange.
        """
        arguments: Arguments = self._topology.arguments(queue, kind)
        durable = kind is not QueueKind.EXCLUSIVE

        async def declare(channel: _Channel) -> None:
            await channel.queue_declare(queue, durable=durable, exclusive=not durable, arguments=dict(arguments))

        await self._on_channel(queue, declare)
        for exchange in self._topology.exchanges_with(queue):
            await self.declare_exchange(exchange, ExchangeType.DIRECT)
        await self.bind(queue, self._topology.exchange_of(queue), queue)

    async def declare_exchange(self, name: str, kind: ExchangeType) -> None:
        """Makes sure that the durable exchange exists; if the user may not declare it, it must exist.

        RabbitMQ logs each refusal as an error, so a session tries once to declare what all share.
        """
        if name in self._known_exchanges:
            return

        async def declare(channel: _Channel) -> None:
            await channel.exchange_declare(name, exchange_type=kind.value, durable=True)

        if not (self._is_restricted and await self._has_exchange(name)):
            try:
                await self._on_channel(name, declare)
            except Forbidden:
                if self._is_restricted or not await self._has_exchange(name):
                    raise
                self._is_restricted = True
        self._known_exchanges.add(name)

    async def _has_exchange(self, name: str) -> bool:
        async def look(channel: _Channel) -> None:
            await channel.exchange_declare(name, passive=True)

        return await self._finds(name, look)

    async def bind(self, queue: str, exchange: str, key: str = "") -> None:
        """Binds a queue to an exchange; raises as ``ensure``."""

        async def bind(channel: _Channel) -> None:
            await channel.queue_bind(queue, exchange, routing_key=key)

        await self._on_channel(f"{queue} at {exchange}", bind)

    async def exists(self, queue: str) -> bool:
        """Whether the queue exists."""

        async def look(channel: _Channel) -> None:
            await channel.queue_declare(queue, passive=True)

        return await self._finds(queue, look)

    async def _finds(self, name: str, look: Callable[[_Channel], Awaitable[None]]) -> bool:
        try:
            await self._on_channel(name, look)
        except _Missing:
            return False
        except Forbidden:
            # RabbitMQ 4.2.6 and later hide what the user has no permission for. Managers declare such queues
            # together with an exchange that the user may see.
            self._is_restricted = True
        return True

    async def _on_channel(self, name: str, work: Callable[[_Channel], Awaitable[None]]) -> None:
        """Works on a temporary channel, which the broker closes if it refuses."""

        async def run() -> None:
            channel = await self._channel(self._consume)
            await work(channel)
            await channel.close()

        try:
            await self.guard(run())
        except ChannelNotFoundEntity as error:
            raise _Missing(f"{name}: {error}") from error
        except ChannelAccessRefused as error:
            raise Forbidden(f"{name}: {error}") from error
        except ChannelPreconditionFailed as error:
            raise Refused(explain_refusal(f"{name}: {error}")) from error

    async def consumer(self) -> Consumer:
        """A consumer on a channel of its own, which does not consume yet."""
        return Consumer(self, _Block(await self.guard(self._channel(self._consume))))

    def keep(self, message: aiormq.abc.DeliveredMessage, block: _Block) -> Delivery:
        """Holds a delivery."""
        self._last_receipt += 1
        self._held[self._last_receipt] = (message.delivery_tag or 0, block)
        headers = message.header.properties.headers or {}
        way = (message.exchange or "", message.routing_key or "")
        return Delivery(self._last_receipt, message.body, acquisitions(headers), headers, way)

    async def ack(self, receipt: int) -> bool:
        """Acknowledges; False if the message no longer belongs to this session."""
        return await self._settle(receipt, requeue=False)

    async def ack_accepted(self, receipt: int) -> bool:
        """Acknowledges, and waits until the queue has accepted that; False if the message is not this session's."""
        _, block = self._held.get(receipt, (0, None))
        if block is None or not await self.ack(receipt):
            return False
        block.sent += 1
        try:
            await self.guard(block.prove_accepted(block.sent))
        except (SessionLost, AMQPError):
            return False
        return not block.given_away

    async def requeue(self, receipt: int) -> bool:
        """Gives the message back; False if it no longer belongs to this session."""
        return await self._settle(receipt, requeue=True)

    async def _settle(self, receipt: int, *, requeue: bool) -> bool:
        tag, block = self._held.pop(receipt, (0, None))
        if block is None or block.given_away or self.lost.done():
            return False
        channel = block.channel
        sent = channel.basic_nack(tag, wait=False) if requeue else channel.basic_ack(tag, wait=False)
        try:
            await self.guard(sent)
        except (SessionLost, AMQPError):
            return False
        return True

    async def publish(self, key: str, body: bytes, *, exchange: str = "", headers: Arguments | None = None) -> None:
        """Publishes a persistent message to a queue, or to an exchange; returns when the broker has it.

        Raises:
            Unroutable: no such queue.
            NotSent: the broker did not keep it, as a full queue.
            SessionLost: the message may be in the queue or not.
        """
        if exchange:
            await self._send(self._exchanges, (exchange, key, False), body, headers)
            return
        to = (self._topology.exchange_of(key), key, True)
        if key in self._lanes:
            await self._send(self._lanes[key], to, body, headers)
        else:
            async with self._others_lock:
                await self._send(self._others, to, body, headers)

    async def _send(self, channel: _Channel, to: tuple[str, str, bool], body: bytes, headers: Arguments | None) -> None:
        exchange, key, mandatory = to
        place = key if mandatory else exchange
        properties = aiormq.spec.Basic.Properties(
            delivery_mode=2, content_type="application/json", headers=dict(headers or {})
        )
        sending = channel.basic_publish(
            body, exchange=exchange, routing_key=key, properties=properties, mandatory=mandatory
        )
        try:
            await self.guard(sending)
        except PublishError as error:
            raise Unroutable(f"no queue takes messages for {place}") from error
        except DeliveryError as error:
            raise NotSent(f"the broker did not accept the message for {place}") from error
        except AMQPError as error:
            self.lose(f"publishing failed: {error}")
            raise SessionLost(self.lost.result()) from error

    async def probe(self) -> None:
        """A round trip on the connection that holds the messages; raises SessionLost."""
        try:
            await self.guard(self._probe.queue_declare(self._probe_queue, passive=True))
        except AMQPError as error:
            self.lose(f"the probe failed: {error}")
            raise SessionLost(self.lost.result()) from error

    async def is_blocked(self) -> bool:
        """Whether the broker currently blocks publishers (memory or disk alarm)."""
        transport = self._publish.transport
        if transport is None:
            return False
        try:
            async with asyncio.timeout(0):
                await transport.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """Closes both connections, within 2 s. The broker gives held messages to other consumers."""
        self.lose("closed by this side")
        await _close_all([self._consume, self._publish])


async def _close_all(connections: list[AbstractConnection]) -> None:
    closing = [asyncio.ensure_future(connection.close()) for connection in connections]
    if closing:
        _, late = await asyncio.wait(closing, timeout=_CLOSE_WITHIN)
        for task in late:
            task.cancel()
