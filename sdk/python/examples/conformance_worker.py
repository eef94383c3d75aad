"""The service that ``everwatch conformance`` checks: observers of the kind ``conformance`` do what their spec says."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from everwatch import Context, GiveUp, Service, observer


@dataclass
class Conformance:
    """What the observer does."""

    do: Literal["wait", "fail", "give_up", "complete", "ignore_cancel", "emit", "log"] = "wait"
    text: str = "conformance"


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
    await ctx.cancelled()


if __name__ == "__main__":
    Service(kinds=[conformance]).main()
