"""A worker written with aio-pika: it leaves a message unacknowledged while its task runs.

It does by hand what a careful author would do: it cancels its tasks when their channel is lost.
"""

import asyncio
import sys

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from peers.records import Writer
from workers.common import FAST, NAME, SLOTS, URL, run_async, tasks


async def connect() -> aio_pika.abc.AbstractRobustConnection:
    """Connects; the library reconnects by itself."""
    if FAST:
        return await aio_pika.connect_robust(URL, heartbeat=5)
    return await aio_pika.connect_robust(URL)


async def work() -> None:
    """Runs tasks until the process ends."""
    writer = Writer()
    running: set[asyncio.Task[None]] = set()

    async def receive(message: AbstractIncomingMessage) -> None:
        task = asyncio.create_task(run_async(writer, message.body.decode()))
        running.add(task)
        task.add_done_callback(running.discard)

    def lost(*_: object) -> None:
        for task in running:
            task.cancel()

    connection = await connect()
    connection.close_callbacks.add(lost)
    channel = await connection.channel()
    channel.close_callbacks.add(lost)
    await channel.set_qos(prefetch_count=SLOTS)
    queue = await channel.declare_queue(NAME, durable=True)
    await queue.consume(receive)
    writer.ready()
    await asyncio.Event().wait()


async def publish() -> None:
    """Publishes the tasks."""
    async with await connect() as connection:
        channel = await connection.channel()
        await channel.declare_queue(NAME, durable=True)
        for name in tasks():
            message = aio_pika.Message(name.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, NAME)


if __name__ == "__main__":
    asyncio.run(publish() if sys.argv[1] == "publish" else work())
