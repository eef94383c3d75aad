"""Commands of managers to services. A reader ignores commands and members that it does not know."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from everwatch._clock import parse_duration
from everwatch._inventory import Range
from everwatch._wire import Unreadable, decode, read_epoch, read_id, read_time

Json = Any
CAUSES = ("drain", "rebalance", "move", "resize")


@dataclass(frozen=True, slots=True)
class Revoke:
    """No run of these observers below the given epochs may start or continue."""

    below: list[tuple[UUID, int]]


@dataclass(frozen=True, slots=True)
class Directives:
    """What a service may take; the higher revision wins."""

    revision: int = 0
    cordoned: bool = False
    draining: bool = False
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """Directives for one service."""

    service: UUID
    directives: Directives


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a registration; ``time`` is that of the database, in milliseconds since 1970."""

    service: UUID
    revocations: list[tuple[UUID, int]]
    crash_looping: list[UUID] = field(default_factory=list)
    directives: Directives | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """What one service must hand over; ``rest`` is in seconds."""

    service: UUID
    rest: float
    cause: str
    ids: list[UUID] = field(default_factory=list)
    down_to: int | None = None


@dataclass(frozen=True, slots=True)
class CrashLooping:
    """Observers that may end their services: start them one at a time."""

    ids: list[UUID]


@dataclass(frozen=True, slots=True)
class Time:
    """The time of the database, in milliseconds since 1970."""

    time: int


@dataclass(frozen=True, slots=True)
class ListHeld:
    """Requests the entries of these ranges of the inventory."""

    service: UUID
    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class Describe:
    """Requests the details of these observers; without ids, the registration and the inventory."""

    service: UUID
    ids: list[UUID]


@dataclass(frozen=True, slots=True)
class AskLogs:
    """Requests lines of the log of one observer; ``after`` is (epoch, seq), None requests the newest lines."""

    number: int
    to: str
    id: UUID
    after: tuple[int, int] | None
    most: int


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints that managers have stored, and those that runs asked for.

    ``stored``: (id, epoch, number). ``restored``: (id, epoch of the asking run, None or (epoch, value)).
    """

    service: UUID
    stored: list[tuple[UUID, int, int]]
    restored: list[tuple[UUID, int, tuple[int, Json] | None]]


@dataclass(frozen=True, slots=True)
class Permits:
    """The answer to one request for permits. ``granted``: (turn, acquires). ``refused``: (turn, why)."""

    service: UUID
    request: int
    granted: list[tuple[int, int]]
    refused: list[tuple[int, str]]


Command = (
    Revoke | Direct | Welcome | HandOver | CrashLooping | Time | ListHeld | Describe | AskLogs | Checkpoints | Permits
)


def read_command(data: bytes) -> Command | None:
    """Reads a command; None if a newer version wrote it.

    Raises:
        Unreadable: it is not a command.
    """
    kind, content = decode(data)
    reader = _READERS.get(kind)
    if reader is None:
        return None
    try:
        return reader(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"not a command `{kind}`: {error}") from error


def _whole(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"`{value}` is not a whole number")
    return value


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{value}` is not true or false")  # noqa: TRY004
    return value


def _ids(value: Json) -> list[UUID]:
    return [read_id(it) for it in value]


def _revocations(value: Json) -> list[tuple[UUID, int]]:
    return [(read_id(it["id"]), read_epoch(it["below"])) for it in value]


def _directives(value: Json) -> Directives:
    capacity = value.get("capacity")
    return Directives(
        revision=_whole(value["revision"]),
        cordoned=_flag(value["cordoned"]),
        draining=_flag(value.get("draining", False)),
        capacity=None if capacity is None else _whole(capacity),
    )


def _welcome(value: Json) -> Welcome:
    directives, time = value.get("directives"), value.get("time")
    return Welcome(
        service=read_id(value["service"]),
        revocations=_revocations(value["revocations"]),
        crash_looping=_ids(value.get("crash_looping", [])),
        directives=None if directives is None else _directives(directives),
        time=None if time is None else read_time(time),
    )


def _hand_over(value: Json) -> HandOver:
    down_to = value.get("down_to")
    return HandOver(
        service=read_id(value["service"]),
        rest=parse_duration(value["rest"]),
        # A cause of a newer version.
        cause=value["cause"] if value["cause"] in CAUSES else "other",
        ids=_ids(value.get("ids", [])),
        down_to=None if down_to is None else _whole(down_to),
    )


def _logs(value: Json) -> AskLogs:
    after = value.get("after")
    return AskLogs(
        number=_whole(value["number"]),
        to=str(read_id(value["to"])),
        id=read_id(value["id"]),
        after=None if after is None else (read_epoch(after["epoch"]), _whole(after["seq"])),
        most=_whole(value["most"]),
    )


def _checkpoints(value: Json) -> Checkpoints:
    def restored(it: Json) -> tuple[UUID, int, tuple[int, Json] | None]:
        found = it.get("checkpoint")
        checkpoint = None if found is None else (read_epoch(found["epoch"]), found["value"])
        return read_id(it["id"]), read_epoch(it["epoch"]), checkpoint

    return Checkpoints(
        service=read_id(value["service"]),
        stored=[(read_id(it["id"]), read_epoch(it["epoch"]), _whole(it["number"])) for it in value.get("stored", [])],
        restored=[restored(it) for it in value.get("restored", [])],
    )


def _permits(value: Json) -> Permits:
    return Permits(
        service=read_id(value["service"]),
        request=_whole(value["request"]),
        granted=[(_whole(it["turn"]), _whole(it["count"])) for it in value.get("granted", [])],
        refused=[(_whole(it["turn"]), str(it["error"])) for it in value.get("refused", [])],
    )


_READERS: dict[str, Callable[[Json], Command]] = {
    "revoke": lambda value: Revoke(_revocations(value)),
    "welcome": _welcome,
    "directives": lambda value: Direct(read_id(value["service"]), _directives(value["directives"])),
    "hand_over": _hand_over,
    "crash_looping": lambda value: CrashLooping(_ids(value)),
    "time": lambda value: Time(read_time(value)),
    "list_held": lambda value: ListHeld(read_id(value["service"]), [Range.read(it) for it in value["ranges"]]),
    "describe": lambda value: Describe(read_id(value["service"]), _ids(value["ids"])),
    "logs": _logs,
    "checkpoints": _checkpoints,
    "permits": _permits,
}
