"""The messages on a driver's call: what ``frames`` has for policy units.

::

    request process  <-- RESULT: how the call ended, and what came of it --  call
    daemon           <-- OPENED, RESULT per unit, DRIVER, DONE ------------  request process

Bytes and dates, which JSON has not, are objects of one member, ``base64`` or ``dateTime``; a
struct is one too, ``struct``.
"""

from __future__ import annotations

import base64
import math
from dataclasses import asdict
from datetime import datetime
from typing import Any, Callable, Dict, Mapping, Tuple

from ovirt_scheduler import frames
from ovirt_scheduler.drivers import DriverAnswer, Returns
from ovirt_scheduler.frames import FrameError, Head
from ovirt_scheduler.model import CallResult


def pack_driver(result: CallResult, answer: DriverAnswer) -> bytes:
    """How a driver's call ended, and its answer where it gave one."""
    fields = {**asdict(result), "outcome": result.outcome.value}
    return frames.pack("driver", **fields, answer=_packed(answer) if result.ok else None)


def unpack_driver(fields: Head, returns: Returns) -> Tuple[CallResult, DriverAnswer]:
    """
    Raises:
        FrameError: it has not the shape of a driver's result.
    """
    try:
        result = frames.read_result(fields)
        return result, _READERS[returns](fields["answer"]) if result.ok else None
    except frames.MISSHAPEN as error:
        raise FrameError(f"not a result of a driver: {error!r:.200}") from None


def _packed(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"dateTime": value.isoformat()}
    if isinstance(value, dict):
        return {"struct": {key: _packed(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_packed(item) for item in value]
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.60} is not a truth")
    return value


def _migrations(value: Any) -> Dict[str, Tuple[str, ...]]:
    return {frames.text(vm): frames.texts(hosts) for vm, hosts in value["struct"].items()}


def _value(value: object) -> object:
    if isinstance(value, (bool, int, float)):
        if not -(2**31) <= value < 2**31 and (isinstance(value, int) or not math.isfinite(value)):
            raise ValueError(f"{value} cannot be written")
        return value
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, dict):
        return frames.text(value)
    ((form, inside),) = value.items()
    return _OBJECTS[form](inside)


_OBJECTS: Mapping[str, Callable[[Any], object]] = {
    "base64": lambda inside: base64.b64decode(inside, validate=True),
    "dateTime": datetime.fromisoformat,
    "struct": lambda inside: {frames.text(key): _value(item) for key, item in inside.items()},
}

_READERS: Mapping[Returns, Callable[[object], DriverAnswer]] = {
    Returns.SELECTION: frames.texts,
    Returns.TRUTH: _truth,
    Returns.MIGRATIONS: _migrations,
    Returns.VALUE: _value,
}
