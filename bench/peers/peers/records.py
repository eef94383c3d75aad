"""The records that tasks write: who runs which task when. Workers write them, and the judge reads them.

A record is one line of an append-only file: the time in milliseconds, the event, the task, the worker and the run.
"""

import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

# The interval at which a running task writes a record. `workers/task.sh` and `workers/bullmq_worker.mjs` repeat it.
BEAT_SECONDS = 0.25


@dataclass(frozen=True)
class Record:
    """One line. `event` is `start` or `beat` for a run of a task, and `ready` for a worker that accepts tasks."""

    at: int
    event: str
    task: str
    worker: str
    run: str


class Writer:
    """Appends records. Each is one write to the file, so records of several processes do not mix."""

    def __init__(self) -> None:
        """Opens the file that the environment names."""
        self._file = os.open(os.environ["PEERS_RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._worker = os.environ["PEERS_WORKER"]

    def ready(self) -> None:
        """Tells that the worker accepts tasks."""
        self._write("ready", "-", "-")

    def start(self, task: str) -> str:
        """Tells that a run of the task begins, and returns the name of the run."""
        run = uuid.uuid4().hex[:12]
        self._write("start", task, run)
        return run

    def beat(self, task: str, run: str) -> None:
        """Tells that the run goes on."""
        self._write("beat", task, run)

    def _write(self, event: str, task: str, run: str) -> None:
        os.write(self._file, f"{time.time_ns() // 1_000_000} {event} {task} {self._worker} {run}\n".encode())


class Reader:
    """Reads the records that were added since the last call."""

    def __init__(self, path: Path) -> None:
        """Reads from the beginning of the file."""
        self._path = path
        self._offset = 0
        self.records: list[Record] = []

    def update(self) -> list[Record]:
        """Reads what is new, and returns all records. A line that is still being written waits for the next call."""
        if not self._path.exists():
            return self.records
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode().splitlines():
            at, event, task, worker, run = line.split(" ")
            self.records.append(Record(int(at), event, task, worker, run))
        return self.records
