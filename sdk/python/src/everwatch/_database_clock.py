"""The time of the database, as managers announce it. Nothing here reads a clock: times are arguments."""

from dataclasses import dataclass

from everwatch._effects import Now

# An offset that is too large falls by this many milliseconds for each second between two announcements.
_FALLS_BY = 1.0


@dataclass(slots=True)
class DatabaseClock:
    """The offset between the time of the database and the monotonic clock of the process.

    An announcement that waited in a queue makes the offset too small, never too large. So the greatest offset is the
    best one; it falls only as fast as two clocks can drift apart.
    """

    # In milliseconds. None before the first announcement: the wall clock counts until then.
    _offset: float | None = None
    # When the newest announcement arrived, in seconds of the monotonic clock.
    _announced_at: float = 0.0

    def announce(self, time: int, now: Now) -> None:
        """A manager announced the time of the database, in milliseconds since 1970."""
        offset = time - now.mono * 1000
        if self._offset is not None:
            offset = max(offset, self._offset - (now.mono - self._announced_at) * _FALLS_BY)
        self._offset, self._announced_at = offset, now.mono

    def mono_of(self, time: int, now: Now) -> float:
        """When the database has this time, in seconds of the monotonic clock."""
        if self._offset is None:
            return now.mono + (time - now.wall) / 1000
        return (time - self._offset) / 1000

    def has_reached(self, time: int, now: Now) -> bool:
        """Whether the database has this time, or a later one."""
        return self.mono_of(time, now) <= now.mono
