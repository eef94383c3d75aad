"""The smallest service: observers of the kind ``hello`` emit their name again and again."""

from dataclasses import dataclass
from datetime import timedelta

from everwatch import Context, Service, observer


@dataclass
class Hello:
    """What to say, and how often."""

    every: timedelta = timedelta(seconds=1)
    greeting: str = "hello"


@observer("hello")
async def hello(ctx: Context, spec: Hello) -> None:
    """Emits a greeting until it is told to stop."""
    ctx.log(f"{spec.greeting} from epoch {ctx.epoch}")
    while not await ctx.cancelled_within(spec.every):
        await ctx.emit({spec.greeting: ctx.name})


if __name__ == "__main__":
    Service(kinds=[hello]).main()
