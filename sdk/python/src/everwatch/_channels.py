"""The channels of one session: each has a task that consumes block after block."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from everwatch._blocks import BlockEffect, CancelBlock, CloseChannel, Open
from everwatch._broker import Consumer, Delivery, Session
from everwatch._broker_errors import SessionLost
from everwatch._fence import Fence

# The most orders that a channel may be behind with.
_ORDERS_MAX = 16


@dataclass(slots=True)
class _Channel:
    orders: "asyncio.Queue[BlockEffect]"
    task: "asyncio.Task[None]"


class Channels:
    """Opens, cancels and closes blocks as the machine says."""

    def __init__(
        self,
        session: Session,
        fence: Fence,
        queue: str,
        deliver: Callable[[int, Delivery], None],
        ended: Callable[[int], None],
    ) -> None:
        """``deliver`` gets each message with its block, ``ended`` each block that delivers no more messages."""
        self._session = session
        self._fence = fence
        self._queue = queue
        self._deliver = deliver
        self._ended = ended
        self._channels: dict[int, _Channel] = {}
        # A queue answers one consumer after it has served the one before: with many messages and many blocks at once,
        # the last ones would not be answered in time.
        self._opening = asyncio.Lock()

    def follow(self, effect: BlockEffect) -> None:
        """Carries out a decision."""
        channel = self._channels.get(effect.channel)
        if channel is None:
            orders: asyncio.Queue[BlockEffect] = asyncio.Queue(_ORDERS_MAX)
            task = asyncio.get_running_loop().create_task(self._serve(orders))
            channel = self._channels[effect.channel] = _Channel(orders, task)
        if isinstance(effect, CloseChannel):
            del self._channels[effect.channel]
        if channel.orders.full():
            self._fence.trip("a channel to the broker does not do as it is told")
        else:
            channel.orders.put_nowait(effect)

    def cancel_all(self) -> None:
        """Takes no more messages."""
        for number in list(self._channels):
            self.follow(CancelBlock(number))

    async def close(self) -> None:
        """Ends all tasks. The session closes the channels."""
        tasks = [channel.task for channel in self._channels.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, orders: "asyncio.Queue[BlockEffect]") -> None:
        consumer: Consumer | None = None
        open_block: int | None = None
        try:
            while True:
                match await orders.get():
                    case Open(block, _, prefetch, priority):
                        if consumer is None:
                            consumer = await self._session.consumer()
                        open_block = block
                        async with self._opening:
                            await consumer.begin(self._queue, prefetch, priority, self._deliver_to(block))
                    case CancelBlock():
                        if consumer is not None and open_block is not None:
                            ended, open_block = open_block, None
                            await consumer.cancel()
                            self._ended(ended)
                    case CloseChannel():
                        if consumer is not None:
                            await consumer.close()
                        return
        except SessionLost as error:
            self._fence.trip(str(error))

    def _deliver_to(self, block: int) -> Callable[[Delivery], None]:
        def deliver(delivery: Delivery) -> None:
            self._deliver(block, delivery)

        return deliver
