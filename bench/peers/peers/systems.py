"""The compared systems: how to start a worker of each, publish its tasks and learn that a worker is ready.

The reasons for their settings are in README.md.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from peers import judge
from peers.processes import Tree, run
from peers.records import Reader

HERE = Path(__file__).parent.parent
PYTHON = sys.executable
SLOTS = 100


@dataclass(frozen=True)
class System:
    """A row of the table."""

    name: str
    title: str
    server: str
    """The server that it needs: rabbitmq, redis, postgres or nats."""
    package: str
    program: str
    """The file in `workers`, without its extension."""
    detection: str = "default"

    @property
    def peer(self) -> str:
        """The name on the command line, which several rows may share."""
        return self.name.removesuffix("-fast")


SYSTEMS = [
    System("everwatch", "Everwatch", "rabbitmq", "everwatch", "task"),
    System("celery", "Celery", "rabbitmq", "celery", "celery_worker"),
    System("celery-fast", "Celery, heartbeat 5 s, cancels tasks", "rabbitmq", "celery", "celery_worker", "fast"),
    System("dramatiq", "Dramatiq", "rabbitmq", "dramatiq", "dramatiq_worker"),
    System("dramatiq-fast", "Dramatiq, heartbeat 5 s", "rabbitmq", "dramatiq", "dramatiq_worker", "fast"),
    System("aio-pika", "aio-pika", "rabbitmq", "aio-pika", "aio_pika_worker"),
    System("aio-pika-fast", "aio-pika, heartbeat 5 s", "rabbitmq", "aio-pika", "aio_pika_worker", "fast"),
    System("bullmq", "BullMQ", "redis", "bullmq", "bullmq_worker"),
    System("bullmq-fast", "BullMQ, lock 10 s, cancels tasks", "redis", "bullmq", "bullmq_worker", "fast"),
    System("postgres", "a polled PostgreSQL table, lease 10 s", "postgres", "psycopg", "postgres_worker"),
    System("nats", "NATS JetStream", "nats", "nats-py", "nats_worker"),
    System("nats-fast", "NATS JetStream, acknowledgement wait 10 s", "nats", "nats-py", "nats_worker", "fast"),
]


class Stage:
    """One system in one scenario: its files, its workers and its records."""

    def __init__(self, system: System, folder: Path, name: str, url: str, tasks: int) -> None:
        """Creates the folder; nothing is started yet."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.system = system
        self.tasks = tasks
        self.reader = Reader(folder / "records")
        self.workers: dict[str, Tree] = {}
        self._name = name
        self._url = url

    def env(self, worker: str = "-") -> dict[str, str]:
        """What the programs in `workers` read."""
        return {
            "PEERS_URL": self._url,
            "PEERS_NAME": self._name,
            "PEERS_DETECTION": self.system.detection,
            "PEERS_SLOTS": str(SLOTS),
            "PEERS_TASKS": str(self.tasks),
            "PEERS_WORKER": worker,
            "PEERS_RECORDS": str(self.folder / "records"),
            "PYTHONPATH": str(HERE),
            "PYTHONUNBUFFERED": "1",
            "dramatiq_queue_prefetch": str(SLOTS),
        }

    def prepare(self) -> None:
        """Creates what must exist before the workers."""
        if self.system.server in ("postgres", "nats"):
            self._run([PYTHON, "-m", f"workers.{self.system.program}", "prepare"])

    def start(self, worker: str) -> None:
        """Starts a worker."""
        env = self.env(worker)
        log = self.folder / f"{worker}.log"
        self.workers[worker] = Tree(self._command(worker), {**env, **self._worker_env(worker)}, log, HERE)

    def publish(self) -> None:
        """Publishes the tasks."""
        self._run(self._program("publish"))

    def are_ready(self, workers: set[str], since: int) -> bool:
        """Whether these workers have accepted tasks since this time."""
        return workers <= judge.ready([it for it in self.reader.update() if it.at >= since])

    def joined(self) -> None:
        """Is called once an added worker is ready."""

    def check(self) -> None:
        """Raises an error if a worker has ended."""
        for tree in self.workers.values():
            tree.check()

    def close(self) -> None:
        """Kills everything that was started."""
        for tree in self.workers.values():
            tree.kill()

    def _program(self, verb: str) -> list[str]:
        if self.system.program == "bullmq_worker":
            return ["node", str(HERE / "workers" / "bullmq_worker.mjs"), verb]
        return [PYTHON, "-m", f"workers.{self.system.program}", verb]

    def _command(self, worker: str) -> list[str]:
        if self.system.peer == "celery":
            # Workers of one broker need different node names.
            options = [
                "-P",
                "gevent",
                "-c",
                str(SLOTS),
                "-n",
                f"{worker}@{self._name}",
                "--without-gossip",
                "--without-mingle",
            ]
            return [PYTHON, "-m", "celery", "-A", "workers.celery_worker", "worker", *options]
        if self.system.peer == "dramatiq":
            pids = ["--pid-file", str(self.folder / f"{worker}.pid")]
            options = ["--processes", "1", "--threads", str(SLOTS), *pids]
            return [PYTHON, "-m", "dramatiq", "workers.dramatiq_worker", *options]
        return self._program("work")

    def _worker_env(self, _worker: str) -> Mapping[str, str]:
        return {}

    def _run(self, command: list[str]) -> None:
        run(command, self.env(), self.folder / "publish.log", HERE)


class EverwatchStage(Stage):
    """Everwatch: a manager besides the workers, which are services with the kind `exec`."""

    def prepare(self) -> None:
        """Starts the manager."""
        free_port = HERE.parent.parent / "tests" / "free-port"
        port = subprocess.run([free_port], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        self._api = f"http://127.0.0.1:{port}"
        self._program_file = os.environ["EVERWATCH_BIN"]
        self._common = {
            "EVERWATCH_BROKER__URL": self._url,
            "EVERWATCH_BROKER__PREFIX": f"{self._name}.",
            "EVERWATCH_STORE__URL": f"sqlite://{self.folder}/everwatch.db",
            "EVERWATCH_MANAGER__LISTEN": f"127.0.0.1:{port}",
            "EVERWATCH_SERVER": self._api,
        }
        command = [self._program_file, "run", "manager"]
        self._manager = Tree(command, self._common, self.folder / "manager.log", self.folder)

    def publish(self) -> None:
        """Creates the observers."""
        for task in range(self.tasks):
            spec = {"argv": [str(HERE / "workers" / "task.sh"), str(task)]}
            self._call("/v1/observers", {"name": f"task-{task}", "kind": "exec", "spec": spec})

    def are_ready(self, workers: set[str], since: int) -> bool:
        """Whether the manager has registered these services since this time. Those that died meanwhile do not count."""
        self._manager.check()
        with suppress(urllib.error.URLError, ConnectionError):
            services = self._call("/v1/services")["items"]
            active = [it for it in services if it["state"] == "active" and _milliseconds(it["created_at"]) >= since]
            return workers <= {it["name"] for it in active}
        return False

    def joined(self) -> None:
        """Spreads the observers over all services, as an operator or a deployment script would."""
        run([self._program_file, "rebalance", "apply"], self._common, self.folder / "publish.log", self.folder)

    def close(self) -> None:
        """Kills the manager too."""
        super().close()
        if hasattr(self, "_manager"):
            self._manager.kill()

    def _command(self, worker: str) -> list[str]:
        del worker
        return [self._program_file, "run", "service"]

    def _worker_env(self, worker: str) -> Mapping[str, str]:
        return {
            **self._common,
            "EVERWATCH_SERVICE__NAME": worker,
            "EVERWATCH_SERVICE__CAPACITY": str(SLOTS),
            "EVERWATCH_SERVICE__EXEC__ALLOW": str(HERE / "workers" / "task.sh"),
            "EVERWATCH_SERVICE__EXEC__ENV_PASS": "PATH,PEERS_WORKER,PEERS_RECORDS",
        }

    def _call(self, path: str, body: object = None) -> Any:  # noqa: ANN401
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._api + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def stage(system: System, folder: Path, name: str, url: str, tasks: int) -> Stage:
    """The stage for this system."""
    kind = EverwatchStage if system.name == "everwatch" else Stage
    return kind(system, folder, name, url, tasks)
