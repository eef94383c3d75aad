"""Messages that are not from a manager: logged, and reported to the managers, who write them to the audit log."""

import logging
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from everwatch._signature import Refused

Json = Any
# Seconds between two reports for one reason: a flood of forged messages must not fill the audit log.
_REPORT_EVERY = 60.0

logger = logging.getLogger("everwatch")


@dataclass(slots=True)
class _Group:
    """Those of one queue and one reason; the texts are those of the latest one."""

    count: int = 0
    why: str = ""
    observer: UUID | None = None
    reported_at: float | None = None


class Refusals:
    """Refused messages by queue and reason; there are few of both."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}

    def add(self, queue: str, refused: Refused, observer: UUID | None) -> None:
        """Counts a refused message."""
        group = self._groups.get((queue, refused.code))
        if group is None:
            logger.error("a message is refused: it is not from a manager; queue=%s: %s", queue, refused.why)
            group = self._groups[queue, refused.code] = _Group()
        group.count += 1
        group.why, group.observer = refused.why, observer

    def take(self) -> list[Json]:
        """The reports that are due."""
        now = time.monotonic()
        reports = []
        for (queue, reason), group in self._groups.items():
            if group.count == 0 or (group.reported_at is not None and now - group.reported_at < _REPORT_EVERY):
                continue
            body: dict[str, Json] = {"queue": queue, "reason": reason, "count": group.count, "detail": group.why}
            if group.observer is not None:
                body["observer"] = str(group.observer)
            reports.append({"messages_refused": body})
            group.count, group.reported_at = 0, now
        return reports
