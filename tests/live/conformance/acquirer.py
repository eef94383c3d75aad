"""A service in Python whose observers acquire permits of rates."""

from dataclasses import dataclass

from everwatch import Context, PermitsRefused, Service, observer


@dataclass
class Acquirer:
    """The rate, and how many permits to acquire at once."""

    rate: str
    permits: int


@observer("acquirer")
async def acquirer(ctx: Context, spec: Acquirer) -> str:
    """Acquires permits of one rate, then of that rate and another one that does not exist."""
    await ctx.acquire(spec.rate, spec.permits)
    try:
        await ctx.acquire({spec.rate: 1, "nothing": 1}, within=20)
    except PermitsRefused as error:
        return str(error)
    return "granted"


if __name__ == "__main__":
    Service(kinds=[acquirer]).main()
