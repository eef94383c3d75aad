"""Time as values: the fence's clock, timestamps as the wire has them, and durations in friendly notation."""

import re
import time
from datetime import UTC, datetime, timedelta

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
# The units in which durations are written, in nanoseconds.
_SHOWN = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "µs": 1_000, "ns": 1}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def parse_timestamp(text: str) -> int:
    """Reads a time in RFC 3339; returns milliseconds since 1970-01-01 UTC.

    Raises:
        ValueError: names the text and the form that is expected.
    """
    expected = f'`{text}` is not a time: write it like "2026-01-31T12:00:00Z"'
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError(expected)
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(expected) from error
    return (moment - _EPOCH) // timedelta(milliseconds=1)


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


def show_duration(seconds: float) -> str:
    """Writes a duration in its shortest form, such as ``1m 30s``."""
    rest, parts = round(seconds * 1_000_000_000), []
    for unit, size in _SHOWN.items():
        count, rest = divmod(rest, size)
        if count > 0:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def _not_a_duration(text: str) -> str:
    return f'`{text}` is not a duration: write it like "500ms", "30s" or "1h 30m"'
