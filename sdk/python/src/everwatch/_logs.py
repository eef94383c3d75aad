"""The newest lines of every observer that this process holds, and of the last ones that it held.

Lines are never stored: they outlive a session with the broker, but not the process. All methods are thread-safe.
"""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from everwatch._clock import timestamp, wall_ms

# The longest line, in bytes of UTF-8; the rest of a longer one is dropped.
LINE_MAX = 4096
# The memory that a line takes beside its text.
_LINE_COST = 64
LINES_MAX = 10_000
# The number of observers that are no longer held and whose lines are kept.
_FORMER_MAX = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line; ``(epoch, seq)`` is its place among all lines of its observer."""

    epoch: int
    seq: int
    at: str
    stream: str
    text: str

    def json(self) -> dict[str, Any]:
        """As the wire has it."""
        place = {"epoch": self.epoch, "seq": self.seq}
        return {"place": place, "at": self.at, "stream": self.stream, "text": self.text}


@dataclass(slots=True)
class Ring:
    """The newest lines of one observer."""

    _lines: deque[Line] = field(default_factory=deque)
    _bytes: int = 0
    _last: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no line."""
        return not self._lines

    def push(self, epoch: int, stream: str, text: str, most: int) -> None:
        """Adds a line and drops the oldest beyond ``most`` lines or KiB. Lines of replaced runs are ignored."""
        last_epoch, last_seq = self._last or (epoch, 0)
        if most == 0 or epoch < last_epoch:
            return
        seq = last_seq + 1 if epoch == last_epoch else 1
        self._last = (epoch, seq)
        text = _cut(text)
        self._bytes += len(text.encode()) + _LINE_COST
        self._lines.append(Line(epoch, seq, timestamp(wall_ms()), stream, text))
        limit = max(most * 1024, LINE_MAX + _LINE_COST)
        while len(self._lines) > most or self._bytes > limit:
            self._bytes -= len(self._lines.popleft().text.encode()) + _LINE_COST

    def read(self, after: tuple[int, int] | None, most: int) -> dict[str, Any]:
        """The newest lines, or the first ones after a place, at most ``most``, as the wire has them."""
        lines = list(self._lines)
        if after is None:
            return {"lines": [line.json() for line in lines[max(len(lines) - most, 0) :]]}
        later = [line for line in lines if (line.epoch, line.seq) > after]
        found: dict[str, Any] = {"lines": [line.json() for line in later[:most]]}
        if later:
            before = after[1] if later[0].epoch == after[0] else 0
            if later[0].seq - 1 > before:
                found["missed"] = later[0].seq - 1 - before
        if len(later) > most:
            found["more"] = True
        return found


def _cut(text: str) -> str:
    data = text.encode(errors="replace")
    if len(data) <= LINE_MAX:
        return data.decode()
    mark = "…"
    return data[: LINE_MAX - len(mark.encode())].decode(errors="ignore") + mark


class Logs:
    """The logs of one process: ``most`` lines of each observer, from 0 to 10,000."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        # Each with its newest run.
        self._rings: dict[UUID, tuple[int, Ring]] = {}
        # Those that are no longer held, the oldest first.
        self._former: dict[UUID, None] = {}

    def write(self, observer: UUID, epoch: int, stream: str, text: str) -> None:
        """Adds each line of the text."""
        if self._most == 0:
            return
        with self._lock:
            newest, ring = self._rings.get(observer, (epoch, Ring()))
            self._rings[observer] = (max(epoch, newest), ring)
            if epoch >= newest:
                self._former.pop(observer, None)
            for line in text.rstrip("\r\n").split("\n"):
                ring.push(epoch, stream, line.rstrip("\r"), self._most)

    def close(self, observer: UUID, epoch: int) -> None:
        """This run is no longer held."""
        with self._lock:
            self._close(observer, epoch)

    def close_all(self) -> None:
        """No run is held any longer."""
        with self._lock:
            for observer, (epoch, _) in list(self._rings.items()):
                self._close(observer, epoch)

    def _close(self, observer: UUID, epoch: int) -> None:
        newest, ring = self._rings.get(observer, (epoch + 1, None))
        # A leftover of an older run may be settled while a newer one runs.
        if ring is None or newest > epoch:
            return
        if ring.is_empty:
            del self._rings[observer]
            return
        self._former.pop(observer, None)
        self._former[observer] = None
        while len(self._former) > _FORMER_MAX:
            gone = next(iter(self._former))
            del self._former[gone]
            self._rings.pop(gone, None)

    def read(self, observer: UUID, after: tuple[int, int] | None, most: int) -> dict[str, Any]:
        """Lines of an observer, as the wire has them."""
        with self._lock:
            _, ring = self._rings.get(observer, (0, Ring()))
            return ring.read(after, most)
