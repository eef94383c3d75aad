"""A Celery application whose task never ends. `celery -A workers.celery_worker worker` runs it."""

import sys

from celery import Celery
from celery.signals import worker_ready

from peers.records import Writer
from workers.common import FAST, NAME, URL, run_blocking, tasks

app = Celery("peers", broker=URL)
app.conf.update(
    task_default_queue=NAME,
    # A message is acknowledged after the task, so that the broker redelivers those of a dead worker.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    # A worker takes no more tasks than it runs.
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
if FAST:
    app.conf.update(broker_heartbeat=5, worker_cancel_long_running_tasks_on_connection_loss=True)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _is_ready(**_: object) -> None:
    Writer().ready()


@app.task(name="forever")  # type: ignore[untyped-decorator]
def forever(task: str) -> None:
    """Runs until the pool kills it."""
    run_blocking(Writer(), task)


if __name__ == "__main__" and sys.argv[1:] == ["publish"]:
    for name in tasks():
        forever.delay(name)
