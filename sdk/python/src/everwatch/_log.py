"""The log of a service program, which never waits for the reader of standard error: lines are dropped instead."""

import logging
import logging.handlers
import queue
import sys
import threading
import time

from everwatch._secrets import hidden
from everwatch._tasks import LogCapture

# The most lines that may wait for standard error.
_WAITING_MAX = 10_000
# How long the end of the process waits for them, in seconds.
_FLUSH_WITHIN = 0.5


class DroppingHandler(logging.handlers.QueueHandler):
    """Hands records to a thread that writes them; drops and counts them while that thread is behind."""

    def __init__(self, target: logging.Handler, most: int = _WAITING_MAX) -> None:
        """``target`` writes the records, and may block."""
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(most)
        super().__init__(self._waiting)
        self._target = target
        self.dropped = 0
        threading.Thread(target=self._write, name="everwatch-log", daemon=True).start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Called by the logging module in the thread that logs, while the process still knows what is secret."""
        record = super().prepare(record)
        record.msg = record.message = hidden(record.msg)
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Called by the logging module for each record."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while True:
            self._target.handle(self._waiting.get())
            dropped, self.dropped = self.dropped, 0
            if dropped:
                text = f"{dropped} log lines were dropped: standard error did not take them"
                self._target.handle(logging.LogRecord("everwatch", logging.WARNING, "", 0, text, None, None))
            self._waiting.task_done()

    def flush_within(self, seconds: float = _FLUSH_WITHIN) -> None:
        """Waits until all records are written, at most this long."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.005)


def init_log(level: str) -> DroppingHandler:
    """Writes the log to standard error, and what the code of observers logs to their logs, too."""
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler = DroppingHandler(writer)
    capture = LogCapture()
    capture.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(level)
    # The capture comes first: a queue handler formats the record for the queue.
    root.addHandler(capture)
    root.addHandler(handler)
    # The AMQP client logs as errors what this package expects and handles, such as lost connections.
    for name in ("aio_pika", "aiormq"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return handler
