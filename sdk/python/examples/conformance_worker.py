"""The service that ``everwatch conformance`` checks: observers of the kind ``conformance`` do what their spec says."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from everwatch import Context, GiveUp, Service, observer

# The pause between two lines of a beacon, in seconds.
BEACON_EVERY = 0.05


@dataclass
class Conformance:
    """What the observer does."""

    do: Literal["wait", "fail", "give_up", "complete", "ignore_cancel", "emit", "log"]
    text: str = ""
    # A file to which the code writes a line again and again while it waits.
    beacon: str | None = None


@observer("conformance")
async def conformance(ctx: Context, spec: Conformance) -> None:
    """Does it."""
    match spec.do:
        case "fail":
            raise RuntimeError(spec.text)
        case "give_up":
            raise GiveUp(spec.text)
        case "complete":
            return
        case "ignore_cancel":
            # A misbehaving observer: only an abort ends it.
            await asyncio.Event().wait()
        case "emit":
            await ctx.emit({"text": spec.text, "epoch": ctx.epoch})
        case "log":
            ctx.log(spec.text)
    if spec.beacon is None:
        await ctx.cancelled()
        return
    # Lines of a few bytes: writing them does not block the loop for long.
    with Path(spec.beacon).open("a", buffering=1) as beacon:  # noqa: ASYNC230
        while not await ctx.cancelled_within(BEACON_EVERY):
            beacon.write(f"{ctx.epoch}\n")


if __name__ == "__main__":
    Service(kinds=[conformance]).main()
