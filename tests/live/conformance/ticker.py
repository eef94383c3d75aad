"""A service in Python that offers the kind ``ticker``, as services in Rust do."""

from dataclasses import dataclass
from datetime import timedelta

from everwatch import Context, Service, observer


@dataclass
class Ticker:
    """How often to tick."""

    every: timedelta = timedelta(seconds=1)


@observer("ticker")
async def ticker(ctx: Context, spec: Ticker) -> None:
    """Ticks until it is told to stop."""
    ticks = 0
    while not await ctx.cancelled_within(spec.every):
        ticks += 1
        ctx.status(f"tick {ticks}")


if __name__ == "__main__":
    Service(kinds=[ticker]).main()
