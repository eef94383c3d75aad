"""Write observers: tasks that run until they are told to stop, on whichever service has room.

.. code-block:: python

    from dataclasses import dataclass
    from datetime import timedelta

    from everwatch import Context, Service, observer

    @dataclass
    class Hello:
        every: timedelta

    @observer("hello")
    async def hello(ctx: Context, spec: Hello) -> None:
        while not await ctx.cancelled_within(spec.every):
            await ctx.emit({"hello": ctx.name})

    if __name__ == "__main__":
        Service(kinds=[hello]).main()
"""

from everwatch._broker_errors import SessionLost
from everwatch._context import Context
from everwatch._effects import CancelReason
from everwatch._kinds import GiveUp, Kind, observer
from everwatch._permit_requests import PermitsRefused
from everwatch._runtime import RunError
from everwatch._schema import SpecError
from everwatch._service import Service
from everwatch._settings import Settings, SettingsError, load

__all__ = [
    "CancelReason",
    "Context",
    "GiveUp",
    "Kind",
    "PermitsRefused",
    "RunError",
    "Service",
    "SessionLost",
    "Settings",
    "SettingsError",
    "SpecError",
    "load",
    "observer",
]
