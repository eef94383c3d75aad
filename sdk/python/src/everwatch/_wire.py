"""Messages as values: how bodies are written and read, work messages, retry policies and reports of runs."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from everwatch._clock import parse_duration, parse_timestamp, timestamp

VERSION = 1
# The highest version of work messages that this program reads.
WORK_VERSION = 2
# The greatest weight of an observer.
WEIGHT_MAX = 1000
# The most entries in one batch of reports or inventory entries.
BATCH_MAX = 500
# The longest error text that is reported, in characters.
ERROR_MAX = 4_000
_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1

Json = Any
_T = TypeVar("_T")
# An event of a run as the wire has it: a word, or an object with one member.
Event = str | dict[str, dict[str, Json]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_POOL = re.compile(r"[a-z0-9-]{1,64}")
_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Unreadable(Exception):  # noqa: N818 - it is an outcome of reading, as in the messages' own terms
    """A body that is not such a message; the text says why."""


def check_name(text: str) -> str:
    """Returns the name of an observer or a service; raises ValueError with the rule that it breaks."""
    if not _NAME.fullmatch(text) or _is_uuid(text):
        raise ValueError(
            f"name `{text[:140]}` is not valid: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit, "
            "and not in the form of a UUID"
        )
    return text


def check_pool(text: str) -> str:
    """Returns the name of a pool; raises ValueError with the rule that it breaks."""
    if not _POOL.fullmatch(text):
        raise ValueError(f"pool `{text[:140]}` is not valid: 1 to 64 of a-z 0-9 -")
    return text


def check_kind(text: str) -> str:
    """Returns the name of a kind; raises ValueError with the rule that it breaks."""
    if not _KIND.fullmatch(text):
        raise ValueError(f"kind `{text[:140]}` is not valid: 1 to 64 of a-z 0-9 . _ -, starting with a letter or digit")
    return text


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def dumps(value: Json) -> str:
    """JSON as the wire has it; raises ValueError for NaN and infinities, and TypeError for what JSON has not."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(body: Json) -> bytes:
    """The bytes of a report, a heartbeat or a reply."""
    # A lone surrogate, which Python allows in a text, has no UTF-8.
    return dumps({"v": VERSION, "body": body}).encode(errors="replace")


def decode(data: bytes) -> tuple[str, Json]:
    """The type and the content of a message; content is None for a type without members.

    Raises:
        Unreadable: not JSON, another version, or not exactly one type.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not a message of Everwatch: {error}") from error
    version = message.get("v") if isinstance(message, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise Unreadable("not a message of Everwatch: it has no version")
    if version != VERSION:
        raise Unreadable(f"message version {version} is unknown here")
    body = message.get("body")
    if isinstance(body, str):
        return body, None
    if not isinstance(body, dict) or len(body) != 1:
        raise Unreadable("not a message of this queue: its body must have one member")
    return next(iter(body.items()))


def epoch_of(generation: int, acquisitions: int) -> int:
    """The fencing token of a run: strictly greater for each later run of the same observer."""
    return generation << 32 | acquisitions


def generation_of(epoch: int) -> int:
    """How often managers had published the observer."""
    return epoch >> 32


def acquisitions_of(epoch: int) -> int:
    """How often the broker had delivered this generation's message before."""
    return epoch & _U32


def show_epoch(epoch: int) -> str:
    """An epoch for people: ``3.2``."""
    return f"{generation_of(epoch)}.{acquisitions_of(epoch)}"


def acquisitions(headers: Mapping[str, object]) -> int:
    """How often the broker has delivered a message before: no header before the first redelivery.

    RabbitMQ up to 4.2 counts in ``x-delivery-count``; 4.3 counts there only deliveries that failed, and all of them
    in ``x-acquired-count``. The greater of both never decreases, even when a broker is upgraded.
    """

    def count(name: str) -> int:
        value = headers.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and 0 <= value <= _U32 else 0  # type: ignore[return-value, operator]

    return max(count("x-acquired-count"), count("x-delivery-count"))


@dataclass(frozen=True, slots=True)
class Retry:
    """When an observer restarts after its code failed. Times are in seconds; ``attempts`` None: forever."""

    kind: str = "exponential"
    first: float = 1.0
    max: float = 60.0
    attempts: int | None = None
    reset_after: float | None = 300.0
    delays: tuple[float, ...] = ()

    @classmethod
    def read(cls, value: Json) -> "Retry":
        """Raises ValueError if the policy is not one that this version knows."""
        if not isinstance(value, dict):
            raise ValueError("`retry` must be an object")  # noqa: TRY004 - the sender's mistake, not the caller's
        members = dict(value)
        kind = members.pop("kind", None)
        attempts = members.pop("attempts", None) if kind in ("exponential", "fixed") else None
        if attempts is not None:
            attempts = _whole(attempts, "retry.attempts", _U32)
        if kind == "exponential":
            policy = cls(
                first=_duration(members.pop("first", "1s")),
                max=_duration(members.pop("max", "1m")),
                attempts=attempts,
                reset_after=_duration(members.pop("reset_after", "5m")),
            )
        elif kind == "fixed":
            policy = cls("fixed", first=_duration(members.pop("every", None)), attempts=attempts, reset_after=None)
        elif kind == "intervals":
            delays = members.pop("delays", None)
            if not isinstance(delays, list):
                raise ValueError("`retry.delays` must be a list of durations")
            policy = cls("intervals", reset_after=None, delays=tuple(_duration(delay) for delay in delays))
        else:
            raise ValueError(f"retry kind `{kind}` is unknown here")
        if members:
            raise ValueError(f"retry member `{next(iter(members))}` is unknown here")
        return policy

    def after(self, attempt: int, chance: float) -> float | None:
        """The pause after the failure of this start (1 is the first), or None to give up."""
        if self.kind == "intervals":
            return self.delays[attempt - 1] if 0 < attempt <= len(self.delays) else None
        if self.attempts is not None and attempt >= self.attempts:
            return None
        if self.kind == "fixed":
            return self.first
        full = min(self.first * float(1 << min(max(attempt - 1, 0), 32)), self.max)
        return full * (0.5 + min(max(chance, 0.0), 1.0) / 2)


@dataclass(frozen=True, slots=True)
class Work:
    """An observer on its way to a service."""

    id: UUID
    generation: int
    kind: str
    name: str
    spec: Json
    # Observers of other namespaces may have the same name.
    namespace: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    forbids_overlap: bool = False
    # Seconds between telling the code to stop and aborting it.
    grace: float = 10.0
    # The longest time that one attempt may run, in seconds.
    attempt_timeout: float | None = None
    # When the observer ends by the database's clock, in milliseconds since 1970.
    finish_at: int | None = None
    # The number of slots that it takes.
    weight: int = 1
    # Whether it counts towards limits: its service then reports when the queue no longer has the message.
    counts: bool = False
    # When its window ends, by the same clock.
    closes_at: int | None = None
    # The time of its schedule for which the run starts, by the same clock.
    scheduled_for: int | None = None
    # The message as it was received: numbers that Python would round stay exact.
    text: str = ""

    @property
    def ends_at(self) -> int | None:
        """When a run of this message ends: at its ``finish_at`` or at the end of its window."""
        return min((at for at in (self.finish_at, self.closes_at) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class WorkHeader:
    """The part of a work message that every version can read, and why the rest is not readable here."""

    id: UUID
    generation: int
    kind: str
    why: str


def read_work(data: bytes) -> Work | WorkHeader:
    """Reads a work message, or at least its fixed part: such a message is given back to the queue.

    Raises:
        Unreadable: not even the fixed part is readable. Such a message is parked.
    """
    try:
        text = data.decode()
        message = json.loads(text)
        if not isinstance(message, dict):
            raise ValueError("not an object")  # noqa: TRY004, TRY301
        version = _whole(message.get("v"), "v", 0xFFFF)
        observer = _uuid(message.get("id"))
        generation = _whole(message.get("generation"), "generation", _U32)
        kind = message.get("kind")
        if not isinstance(kind, str):
            raise ValueError("`kind` must be text")  # noqa: TRY004, TRY301
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not a work message: {error}") from error
    if not VERSION <= version <= WORK_VERSION:
        return WorkHeader(observer, generation, kind, f"message version {version} is unknown here")
    try:
        return _work(message, observer, generation, text)
    except ValueError as error:
        return WorkHeader(observer, generation, kind, f"cannot be read here: {error}")


def _work(message: dict[str, Json], observer: UUID, generation: int, text: str) -> Work:
    overlap = message.get("overlap", "allow")
    if overlap not in ("allow", "forbid"):
        raise ValueError(f"overlap `{overlap}` is unknown here")
    labels = message.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("`labels` must be an object of texts")
    if "spec" not in message:
        raise ValueError("`spec` is missing")
    return Work(
        id=observer,
        generation=generation,
        kind=check_kind(message["kind"]),
        name=check_name(_text(message.get("name"), "name")),
        namespace=_text(message.get("namespace", "default"), "namespace"),
        spec=message["spec"],
        labels=labels,
        retry=Retry.read(message["retry"]) if "retry" in message else Retry(),
        forbids_overlap=overlap == "forbid",
        grace=_duration(message.get("grace")),
        attempt_timeout=_optional(message, "attempt_timeout", _duration),
        finish_at=_optional(message, "finish_at", read_time),
        weight=_whole(message.get("weight", 1), "weight", 0xFFFF),
        counts=bool(message.get("limits")),
        closes_at=_optional(message, "closes_at", read_time),
        scheduled_for=_optional(message, "scheduled_for", read_time),
        text=text,
    )


def _optional(message: dict[str, Json], member: str, read: Callable[[Json], _T]) -> _T | None:
    value = message.get(member)
    return None if value is None else read(value)


def _text(value: Json, member: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{member}` must be text")  # noqa: TRY004
    return value


def _whole(value: Json, member: str, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ValueError(f"`{member}` must be a whole number from 0 to {limit}")
    return value


def _uuid(value: Json) -> UUID:
    return UUID(_text(value, "id"))


def _duration(value: Json) -> float:
    return parse_duration(_text(value, "duration"))


def read_id(value: Json) -> UUID:
    """Raises ValueError if the value is not an id."""
    return _uuid(value)


def read_epoch(value: Json) -> int:
    """Raises ValueError if the value is not an epoch."""
    return _whole(value, "epoch", _U64)


def read_time(value: Json) -> int:
    """Raises ValueError if the value is not a time; returns milliseconds since 1970."""
    return parse_timestamp(_text(value, "time"))


@dataclass(frozen=True, slots=True)
class RunReport:
    """One event of one run."""

    id: UUID
    epoch: int
    event: Event

    @property
    def type(self) -> str:
        """The name of the event."""
        return self.event if isinstance(self.event, str) else next(iter(self.event))

    @property
    def settles(self) -> bool:
        """Whether the run is over and its message will be acknowledged."""
        return self.type in ("stopped", "completed", "completed_with", "failed", "finished")

    @property
    def holds(self) -> bool:
        """Whether the service still holds the message after this event."""
        return self.type in ("held", "started", "errored", "progress")

    def json(self) -> Json:
        """As the wire has it."""
        return {"id": str(self.id), "epoch": self.epoch, "event": self.event}


def held(reason: str, *, refuses: bool = False) -> Event:
    """Held but not started yet. ``refuses``: this service cannot run it."""
    return {"held": {"reason": reason, "refuses": True} if refuses else {"reason": reason}}


def started(attempt: int, started_at: str, *, awaits_ready: bool = False) -> Event:
    """The code was started; ``awaits_ready``: it will report with another event when it is ready."""
    content: dict[str, Json] = {"attempt": attempt, "started_at": started_at}
    return {"starting" if awaits_ready else "started": content}


def completed_with(result: Json) -> Event:
    """The code returned a result."""
    return {"completed_with": {"result": json.dumps(result)}}


def finished(at: int) -> Event:
    """The run ended because its time has passed; ``at`` is in milliseconds since 1970."""
    return {"finished": {"at": timestamp(at)}}


def shortened(error: str) -> str:
    """An error as it is reported: at most 4,000 characters, all of which UTF-8 has."""
    return error[:ERROR_MAX].encode(errors="replace").decode()


def handed_over(cause: str | None) -> Event:
    """The code was stopped here so that the observer can continue elsewhere; no cause: the service ends."""
    return "handed_over" if cause is None else {"handed_over_for": {"cause": cause}}
