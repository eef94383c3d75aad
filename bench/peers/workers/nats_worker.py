"""A worker on a pull consumer of NATS JetStream: it extends the acknowledgement of a message while its task runs."""

import asyncio
import sys

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from peers.records import Writer
from workers.common import FAST, NAME, SLOTS, URL, run_async, tasks

# The default is 30 s.
ACK_WAIT = 10.0 if FAST else 30.0
SUBJECT = f"{NAME}.tasks"
# Messages that one request takes, so that workers share the tasks.
BATCH = 10


async def run(writer: Writer, message: Msg) -> None:
    """Runs a task, and tells the server three times within the wait that it goes on."""
    task = asyncio.create_task(run_async(writer, message.data.decode()))
    while not task.done():
        await message.in_progress()
        await asyncio.sleep(ACK_WAIT / 3)


async def work() -> None:
    """Runs tasks until the process ends."""
    writer = Writer()
    connection = await nats.connect(URL, max_reconnect_attempts=-1)
    stream = connection.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT, max_deliver=-1)
    consumer = await stream.pull_subscribe(SUBJECT, durable="workers", config=config)
    writer.ready()
    running: set[asyncio.Task[None]] = set()
    while True:
        room = SLOTS - len(running)
        if room == 0:
            await asyncio.sleep(1)
            continue
        try:
            messages = await consumer.fetch(min(BATCH, room), timeout=5)
        except TimeoutError:  # no message came
            continue
        for message in messages:
            task = asyncio.create_task(run(writer, message))
            running.add(task)
            task.add_done_callback(running.discard)


async def prepare() -> None:
    """Creates the stream."""
    connection = await nats.connect(URL)
    await connection.jetstream().add_stream(name=NAME, subjects=[SUBJECT], retention=RetentionPolicy.WORK_QUEUE)
    await connection.close()


async def publish() -> None:
    """Publishes the tasks."""
    connection = await nats.connect(URL)
    stream = connection.jetstream()
    for name in tasks():
        await stream.publish(SUBJECT, name.encode())
    await connection.close()


if __name__ == "__main__":
    asyncio.run({"prepare": prepare, "publish": publish, "work": work}[sys.argv[1]]())
