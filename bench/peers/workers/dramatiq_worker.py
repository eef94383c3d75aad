"""A Dramatiq actor that never ends. `dramatiq workers.dramatiq_worker` runs it."""

import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from peers.records import Writer
from workers.common import FAST, NAME, URL, run_blocking, tasks


class Ready(dramatiq.Middleware):
    """Tells that the worker accepts tasks."""

    def after_worker_boot(self, _broker: dramatiq.Broker, _worker: dramatiq.Worker) -> None:
        """Writes the record."""
        Writer().ready()


broker = RabbitmqBroker(url=f"{URL}?heartbeat=5" if FAST else URL)
broker.add_middleware(Ready())
dramatiq.set_broker(broker)


# The time limit is 10 minutes by default; tasks are to be retried for ever.
@dramatiq.actor(queue_name=NAME, time_limit=float("inf"), max_retries=None)
def forever(task: str) -> None:
    """Runs until its process ends."""
    run_blocking(Writer(), task)


if __name__ == "__main__" and sys.argv[1:] == ["publish"]:
    for name in tasks():
        forever.send(name)
