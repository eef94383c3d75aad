"""Inventories: digests of everything that a service holds, and the entries of single ranges."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from everwatch._wire import BATCH_MAX, RunReport, read_id

Json = Any
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """A range of ids: exclusive at its start, inclusive at its end, None is unbounded."""

    after: UUID | None = None
    upto: UUID | None = None

    @classmethod
    def read(cls, value: Json) -> "Range":
        """Raises ValueError if the value is not a range."""
        after, upto = value.get("after"), value.get("upto")
        return cls(None if after is None else read_id(after), None if upto is None else read_id(upto))

    def contains(self, observer: UUID) -> bool:
        """Whether the id is in the range."""
        return (self.after is None or observer > self.after) and (self.upto is None or observer <= self.upto)

    def json(self) -> Json:
        """As the wire has it."""
        return {
            "after": None if self.after is None else str(self.after),
            "upto": None if self.upto is None else str(self.upto),
        }


def digest(entry: RunReport) -> int:
    """The digest of one entry, a number of 40 bits; 0 if the event ends the hold.

    Services and databases of every version compare it: it never changes.
    """
    if not isinstance(entry.event, dict):
        return 0
    kind, content = next(iter(entry.event.items()))
    if kind == "held":
        phase = bytes([0, int(content.get("refuses", False))]) + content["reason"].encode()
    elif kind == "started":
        phase = bytes([1]) + int(content["attempt"]).to_bytes(4, "big")
    elif kind == "errored":
        at = datetime.fromisoformat(content["next_at"])
        ms = int(at.timestamp()) * 1000 + at.microsecond // 1000
        phase = bytes([2]) + ms.to_bytes(8, "big", signed=True) + content["error"].encode()
    elif kind == "starting":
        phase = bytes([3]) + int(content["attempt"]).to_bytes(4, "big")
    else:
        return 0
    hashed = _fnv1a(entry.id.bytes + entry.epoch.to_bytes(8, "big") + phase)
    mixed = (hashed ^ (hashed >> 33)) * 0xFF51AFD7ED558CCD & _MASK
    return (mixed ^ (mixed >> 33)) & ((1 << 40) - 1)


def _fnv1a(data: bytes) -> int:
    hashed = 0xCBF29CE484222325
    for byte in data:
        hashed = (hashed ^ byte) * 0x100000001B3 & _MASK
    return hashed


def digests(inventory: int, entries: list[RunReport]) -> Json:
    """The report ``inventory_digest``: its ranges are in order and cover all ids."""

    def total(span: Range, part: list[RunReport]) -> Json:
        return {
            "range": span.json(),
            "total": {"entries": len(part), "sum": sum(digest(entry) for entry in part)},
        }

    ordered = sorted(entries, key=lambda entry: entry.id)
    return {"inventory": inventory, "ranges": [total(*part) for part in _parts(Range(), ordered)]}


def chunks(inventory: int, ranges: list[Range], entries: list[RunReport]) -> list[Json]:
    """The reports ``inventory`` for these ranges: each lists everything that its own range contains."""
    ordered = sorted(entries, key=lambda entry: entry.id)
    parts = [part for span in ranges for part in _parts(span, [entry for entry in ordered if span.contains(entry.id)])]
    return [
        {
            "inventory": inventory,
            "chunk": number,
            "chunks": len(parts),
            "entries": [entry.json() for entry in part],
            "range": span.json(),
        }
        for number, (span, part) in enumerate(parts)
    ]


def _parts(span: Range, entries: list[RunReport]) -> list[tuple[Range, list[RunReport]]]:
    """Divides the sorted entries of a range into parts of a limited size, at least one, that cover the range."""
    pieces = [entries[start : start + BATCH_MAX] for start in range(0, len(entries), BATCH_MAX)] or [[]]
    parts, after = [], span.after
    for number, piece in enumerate(pieces):
        upto = span.upto if number == len(pieces) - 1 else piece[-1].id
        parts.append((Range(after, upto), piece))
        after = upto
    return parts
