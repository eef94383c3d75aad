"""What the workers in Python share: settings from the environment, and the task itself."""

import asyncio
import os
import time

from peers.records import BEAT_SECONDS, Writer

URL = os.environ["PEERS_URL"]
NAME = os.environ["PEERS_NAME"]
"""Name of the queue, table or stream of this scenario."""
FAST = os.environ["PEERS_DETECTION"] == "fast"
"""Whether failures are to be detected within seconds, instead of with the system's defaults."""
SLOTS = int(os.environ["PEERS_SLOTS"])
"""How many tasks a worker runs at once."""


def tasks() -> list[str]:
    """The names of the tasks to publish."""
    return [str(number) for number in range(int(os.environ["PEERS_TASKS"]))]


async def run_async(writer: Writer, task: str) -> None:
    """Runs until it is cancelled."""
    run = writer.start(task)
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        writer.beat(task, run)


def run_blocking(writer: Writer, task: str) -> None:
    """Runs until an exception is raised in it."""
    run = writer.start(task)
    while True:
        time.sleep(BEAT_SECONDS)
        writer.beat(task, run)
