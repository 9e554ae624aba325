"""Writes dataclasses as JSON, and reads them back with every value checked.

::

    dataclass                an object; a field that is missing gets its default
    dict[str, X]             an object
    list[X], tuple[X, ...]   an array
    Optional[X]              null, or what X is
    Enum                     its value
    bytes                    a string, in base64
    float                    a finite number
    str, bool, int           themselves
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import math
import typing
from typing import Any, TypeVar, Union

T = TypeVar("T")


def dump(value: object) -> bytes:
    """Write a value as JSON, in ASCII and on one line."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode("ascii")


def load(data: bytes, kind: type[T]) -> T:
    """Read a value of a type.

    Args:
        data: what ``dump`` wrote, maybe changed by somebody.
        kind: a dataclass, or another type that the module's docstring lists.

    Raises:
        ValueError: it is no JSON, or not of that type; with the place in it.
    """
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return typing.cast(T, checked(value, kind))


def checked(value: Any, kind: Any, place: str = "") -> Any:
    """Make a typed value of what ``json`` gives.

    Args:
        value: of ``json.loads``.
        kind: as for ``load``.
        place: of the value, for the message: ``hosts.1``.

    Raises:
        ValueError: it is not of that type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union:  # Optional, which has None last
        return None if value is None else checked(value, arguments[0], place)
    if origin in (list, tuple):
        items = enumerate(_expect(list, value, place))
        return origin(checked(each, arguments[0], f"{place}.{at}") for at, each in items)
    if origin is dict:
        pairs = _expect(dict, value, place).items()
        return {key: checked(each, arguments[1], f"{place}.{key}") for key, each in pairs}
    if dataclasses.is_dataclass(kind):
        return _dataclass(_expect(dict, value, place), kind, place)
    return _simple(value, kind, place)


def _dataclass(fields: dict[str, object], kind: Any, place: str) -> Any:
    types = _types(kind)
    for name in fields:
        if name not in types:
            raise _misshapen(place, f"there is no {name:.60}")
    values = {name: checked(each, types[name], f"{place}.{name}") for name, each in fields.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = ", ".join(name for name in types if name not in fields)
        raise _misshapen(place, f"some of these are missing: {missing}") from None


def _simple(value: Any, kind: Any, place: str) -> Any:
    try:
        if kind is bytes:
            return base64.b64decode(value, validate=True)
        if issubclass(kind, enum.Enum):
            return kind(value)
        if kind is float and type(value) is int:
            value = float(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise _misshapen(place, str(error)) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise _misshapen(place, f"{value} is not finite")
    return _expect(kind, value, place)


def _expect(kind: type, value: Any, place: str) -> Any:
    if type(value) is not kind:  # a bool is no int
        raise _misshapen(place, f"{value!r:.60} is not of type {kind.__name__}")
    return value


def _misshapen(place: str, problem: str) -> ValueError:
    return ValueError(f"{place[1:]}: {problem}" if place else problem)


_types = functools.cache(typing.get_type_hints)


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} has no form in JSON")
