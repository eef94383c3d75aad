"""A worker that polls a table of PostgreSQL: it leases rows, renews the leases, and stops tasks whose lease it lost."""

import asyncio
import os
import sys

import psycopg

from peers.records import Writer
from workers.common import NAME, SLOTS, URL, run_async, tasks

LEASE = "10 seconds"
RENEW_SECONDS = 3.0
POLL_SECONDS = 1.0
# Rows that one poll takes, so that workers share the tasks.
BATCH = 10

CREATE = f"CREATE TABLE IF NOT EXISTS {NAME} (task text PRIMARY KEY, owner text, until timestamptz)"
TAKE = f"""UPDATE {NAME} SET owner = %s, until = now() + interval '{LEASE}' WHERE task IN
  (SELECT task FROM {NAME} WHERE until IS NULL OR until < now() ORDER BY task LIMIT %s FOR UPDATE SKIP LOCKED)
  RETURNING task"""
RENEW = f"UPDATE {NAME} SET until = now() + interval '{LEASE}' WHERE owner = %s AND task = ANY(%s) RETURNING task"


async def work() -> None:
    """Runs tasks until the process ends."""
    writer = Writer()
    # Another process of this worker is another owner.
    owner = f"{os.environ['PEERS_WORKER']}-{os.getpid()}"
    running: dict[str, asyncio.Task[None]] = {}
    connection = await psycopg.AsyncConnection.connect(URL, autocommit=True)
    writer.ready()
    renewed = polled = asyncio.get_running_loop().time()
    while True:
        now = asyncio.get_running_loop().time()
        if running and now - renewed >= RENEW_SECONDS:
            renewed = now
            kept = {row[0] for row in await (await connection.execute(RENEW, (owner, list(running)))).fetchall()}
            for task in running.keys() - kept:
                running.pop(task).cancel()
        if len(running) < SLOTS and now - polled >= POLL_SECONDS:
            polled = now
            taken = await (await connection.execute(TAKE, (owner, min(BATCH, SLOTS - len(running))))).fetchall()
            for (task,) in taken:
                stale = running.pop(task, None)
                if stale is not None:
                    stale.cancel()
                running[task] = asyncio.create_task(run_async(writer, task))
            # More may wait: the next poll need not.
            polled = 0.0 if len(taken) == BATCH else polled
        await asyncio.sleep(0.05)


async def prepare() -> None:
    """Creates the table."""
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
        await connection.execute(CREATE)


async def publish() -> None:
    """Inserts the tasks."""
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
        await connection.cursor().executemany(f"INSERT INTO {NAME} (task) VALUES (%s)", [(name,) for name in tasks()])


if __name__ == "__main__":
    asyncio.run({"prepare": prepare, "publish": publish, "work": work}[sys.argv[1]]())
