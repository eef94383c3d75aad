"""Kinds: the code of observers, and the kinds that a service offers."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everwatch._schema import read_into, schema_of
from everwatch._wire import check_kind

if TYPE_CHECKING:
    from everwatch._context import Context

Json = Any
Code = Callable[["Context", Any], Awaitable[Any]]


class GiveUp(Exception):  # noqa: N818 - the word for what the code does
    """Raised by an observer whose retry is useless: it becomes ``Failed`` at once, whatever its retry policy says."""


@dataclass(frozen=True)
class Kind:
    """The code of one kind of observers; made by :func:`observer`."""

    name: str
    code: Code
    spec_type: Any
    schema: Json
    awaits_ready: bool = False

    def read_spec(self, spec: Json) -> Any:  # noqa: ANN401 - an instance of `spec_type`
        """The spec as the code gets it; raises SpecError if it does not fit."""
        return read_into(self.spec_type, spec)

    def __call__(self, ctx: "Context", spec: Any) -> Awaitable[Any]:  # noqa: ANN401
        """Runs the code itself, as a test may do."""
        return self.code(ctx, spec)


def observer(name: str, *, schema: Json = None, awaits_ready: bool = False) -> Callable[[Code], Kind]:
    """Makes a kind of observers of an ``async def`` function with the parameters ``ctx`` and ``spec``.

    The annotation of ``spec`` decides its JSON schema, with which managers check each definition: a dataclass, whose
    fields are str, int, float, bool, None, timedelta (written as ``"30s"``), ``list[...]``, ``dict[str, ...]``,
    Literal, an Enum, another dataclass or a union of these; or ``dict`` for any object.

    The function runs until it is done or ``ctx.cancelled()``; it should return soon after a cancel. What it returns
    is the result of the observer (JSON, None for none), which then becomes ``Completed``. After an exception it
    starts again as the retry policy of the observer says; after :class:`GiveUp` it does not.

    Args:
        name: the kind that definitions name: 1 to 64 of ``a-z 0-9 . _ -``.
        schema: a JSON schema to register instead of the one that the annotation gives.
        awaits_ready: the code calls ``ctx.ready()`` once it does its work; until then managers show it as starting.

    Raises:
        ValueError: the name is not valid.
        TypeError: the function is not async, or the annotation has no schema.
    """
    check_kind(name)

    def decorate(code: Code) -> Kind:
        if not inspect.iscoroutinefunction(code):
            called = getattr(code, "__name__", code)
            raise TypeError(
                f"observer `{name}`: `{called}` must be an `async def`; call blocking functions with asyncio.to_thread"
            )
        parameters = list(inspect.signature(code).parameters)
        if len(parameters) != 2:
            raise TypeError(f"observer `{name}`: `{code.__name__}` must take two parameters, `ctx` and `spec`")
        spec_type = typing.get_type_hints(code, include_extras=True).get(parameters[1], dict)
        return Kind(name, code, spec_type, schema_of(spec_type) if schema is None else schema, awaits_ready)

    return decorate


class Registry:
    """The kinds that a service offers."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._kinds: dict[str, Kind] = {}
        for kind in kinds:
            if not isinstance(kind, Kind):
                raise TypeError(f"{kind!r} is not a kind: decorate an `async def` with @observer(NAME)")
            if kind.name in self._kinds:
                raise ValueError(f"kind `{kind.name}` is offered twice: give one of them another name")
            self._kinds[kind.name] = kind

    @property
    def names(self) -> frozenset[str]:
        """The names of all kinds."""
        return frozenset(self._kinds)

    @property
    def await_ready(self) -> frozenset[str]:
        """The names of the kinds whose code reports when it is ready."""
        return frozenset(name for name, kind in self._kinds.items() if kind.awaits_ready)

    def infos(self) -> list[Json]:
        """The kinds as a registration has them."""
        return [{"name": kind.name, "schema": kind.schema} for kind in self._kinds.values()]

    def get(self, name: str) -> Kind | None:
        """The kind of this name."""
        return self._kinds.get(name)
