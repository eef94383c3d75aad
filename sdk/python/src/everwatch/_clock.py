"""Time as values: the fence's clock, timestamps as the wire has them, and durations in friendly notation."""

import re
import time
from datetime import UTC, datetime

# The clock of the fence also counts while the machine sleeps, where the system has such a clock.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "mins": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hrs": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
}
_PART = re.compile(r"(\d+(?:[.,]\d+)?)\s*([a-zµ]+)")


def boottime() -> float:
    """Seconds since the machine started, including the time that it slept."""
    return time.clock_gettime(_BOOTTIME)


def wall_ms() -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000_000


def timestamp(ms: int) -> str:
    """RFC 3339 with milliseconds, as every time on the wire is written.

    A time that no calendar has (beyond the year 9999) is written as the last one that it has.
    """
    limit = 253_402_300_799_999
    ms = max(0, min(ms, limit))
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def parse_duration(text: str) -> float:
    """Reads a duration such as ``500ms``, ``30s`` or ``1h 30m``; returns seconds.

    Raises:
        ValueError: names the text and the form that is expected.
    """
    rest = text.strip().lower()
    seconds = 0.0
    if not rest:
        raise ValueError(_not_a_duration(text))
    while rest:
        found = _PART.match(rest)
        if found is None or found[2] not in _UNITS:
            raise ValueError(_not_a_duration(text))
        seconds += float(found[1].replace(",", ".")) * _UNITS[found[2]]
        rest = rest[found.end() :].lstrip(" ,")
    return seconds


def _not_a_duration(text: str) -> str:
    return f'`{text}` is not a duration: write it like "500ms", "30s" or "1h 30m"'
