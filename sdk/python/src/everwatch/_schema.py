"""JSON schemas of dataclasses, and JSON read into them. Errors name the place as a JSON pointer and the rule."""

import dataclasses
import enum
import types
import typing
from datetime import timedelta
from typing import Any

from everwatch._clock import parse_duration

Json = Any


class SpecError(ValueError):
    """A spec that does not fit its kind: where, and the rule."""

    def __init__(self, pointer: str, rule: str) -> None:
        super().__init__(f"{pointer or '/'}: {rule}")


def schema_of(kind: Any) -> Json:  # noqa: ANN401 - a type expression
    """The JSON schema of a type.

    Raises:
        TypeError: names the type that has no schema, and the supported ones.
    """
    simple: dict[Any, Json] = {
        str: {"type": "string"},
        int: {"type": "integer"},
        float: {"type": "number"},
        bool: {"type": "boolean"},
        type(None): {"type": "null"},
        timedelta: {"type": "string", "description": 'a duration, such as "500ms", "30s" or "1h 30m"'},
    }
    if kind is Any:
        return {}
    if kind in simple:
        return dict(simple[kind])
    if dataclasses.is_dataclass(kind):
        return _object_schema(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (dict, list):
        return {"type": "object" if kind is dict else "array"}
    if origin is typing.Annotated:
        return schema_of(arguments[0])
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(argument) for argument in arguments]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    raise TypeError(
        f"{kind!r} has no JSON schema: use a dataclass, str, int, float, bool, None, timedelta, list[...], "
        "dict[str, ...], Literal, an Enum, a union of these, or Any"
    )


def _object_schema(kind: Any) -> Json:  # noqa: ANN401
    hints = typing.get_type_hints(kind, include_extras=True)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        properties[field.name] = schema_of(hints[field.name])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
        elif isinstance(field.default, (str, int, float, bool)):
            properties[field.name]["default"] = field.default
    found: Json = {"title": kind.__name__, "type": "object", "properties": properties}
    if required:
        found["required"] = required
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        found["description"] = kind.__doc__.strip()
    return found


def read_into(kind: Any, value: Json, pointer: str = "") -> Any:  # noqa: ANN401
    """The value as an instance of the type. Members of an object that the type does not have are ignored.

    Raises:
        SpecError: where the value does not fit.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _read_object(kind, value, pointer)
    if origin is typing.Annotated:
        return read_into(arguments[0], value, pointer)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, pointer)
    if origin is typing.Literal:
        return _one_of(arguments, value, pointer)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(_one_of([member.value for member in kind], value, pointer))
    if kind is list or origin is list:
        if not isinstance(value, list):
            raise SpecError(pointer, "must be a list")
        item = arguments[0] if arguments else Any
        return [read_into(item, it, f"{pointer}/{index}") for index, it in enumerate(value)]
    if kind is dict or origin is dict:
        if not isinstance(value, dict):
            raise SpecError(pointer, "must be an object")
        item = arguments[1] if arguments else Any
        return {key: read_into(item, it, f"{pointer}/{key}") for key, it in value.items()}
    return _read_simple(kind, value, pointer)


def _read_simple(kind: Any, value: Json, pointer: str) -> Any:  # noqa: ANN401
    is_bool = isinstance(value, bool)
    if kind is timedelta:
        if not isinstance(value, str):
            raise SpecError(pointer, 'must be a duration, such as "30s"')
        try:
            return timedelta(seconds=parse_duration(value))
        except (ValueError, OverflowError) as error:
            raise SpecError(pointer, str(error)) from error
    if kind is float and isinstance(value, (int, float)) and not is_bool:
        return float(value)
    if kind is int and isinstance(value, int) and not is_bool:
        return value
    if kind in (str, bool, type(None)) and isinstance(value, kind):
        return value
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
    raise SpecError(pointer, f"must be {names.get(kind, kind)}")


def _read_object(kind: Any, value: Json, pointer: str) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        raise SpecError(pointer, "must be an object")
    hints = typing.get_type_hints(kind, include_extras=True)
    members = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            members[field.name] = read_into(hints[field.name], value[field.name], f"{pointer}/{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SpecError(f"{pointer}/{field.name}", "is required")
    try:
        return kind(**members)
    except (TypeError, ValueError) as error:
        # A check of the dataclass itself, as in `__post_init__`.
        raise SpecError(pointer, str(error)) from error


def _read_union(kinds: tuple[Any, ...], value: Json, pointer: str) -> Any:  # noqa: ANN401
    rules = []
    for kind in kinds:
        try:
            return read_into(kind, value, pointer)
        except SpecError as error:
            rules.append(str(error))
    raise SpecError(pointer, "fits none of: " + "; ".join(rules))


def _one_of(allowed: Any, value: Json, pointer: str) -> Json:  # noqa: ANN401
    for it in allowed:
        # True is 1 in Python, but not in JSON.
        if it == value and isinstance(it, bool) == isinstance(value, bool):
            return it
    raise SpecError(pointer, "must be one of " + ", ".join(str(it) for it in allowed))
