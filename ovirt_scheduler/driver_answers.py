"""From what a driver's method returned to what crosses the pipe.

Entities become their ids; anything that has no form in XML-RPC is refused with a sentence that
says where it is and what was expected. Which hosts and VMs were given is not known here.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Callable, Dict, Mapping, Sequence, Tuple, Union

from ovirt_scheduler.answers import BadAnswer, entity_id, items
from ovirt_scheduler.drivers import DriverAnswer, Returns

_MOST_LEVELS = 16  # arrays and structs within each other
_MOST_VALUES = 200_000
_MOST_CHARACTERS = 16 << 20  # of texts and bytes, all together


def selection(value: object) -> Tuple[str, ...]:
    """One host, or several with the best first; None is none."""
    if value is None:
        return ()
    if isinstance(value, str) or hasattr(value, "id"):
        return (entity_id(value),)
    return _ids(value, "hosts, the best first")


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadAnswer(f"returned {value!r:.80}; expected True or False")
    return value


def migrations(value: object) -> Dict[str, Tuple[str, ...]]:
    """VMs to the hosts that each may go to; None is nothing to do."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadAnswer(f"returned {value!r:.80}; expected a dict of VM to hosts")
    found: Dict[str, Tuple[str, ...]] = {}
    for vm, hosts in value.items():
        vm_id = entity_id(vm)
        if vm_id in found:
            raise BadAnswer(f"returned the VM {vm_id} twice")
        found[vm_id] = _ids(hosts, "the hosts that the VM may go to")
    return found


def _ids(value: object, wanted: str) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(entity_id(each) for each in items(value, wanted)))


def plain(value: object) -> object:
    """What XML-RPC carries: texts, booleans, ints of 32 bits, finite doubles, bytes, dates,
    lists and dicts of these.
    """
    return _Plain().of(value, "", 0)


READERS: Mapping[Returns, Callable[[object], DriverAnswer]] = {
    Returns.SELECTION: selection,
    Returns.TRUTH: truth,
    Returns.MIGRATIONS: migrations,
    Returns.VALUE: plain,
}


class _Plain:
    """Copies a value, and counts what is in it."""

    def __init__(self) -> None:
        self._values = 0
        self._characters = 0

    def of(self, value: object, place: str, level: int) -> object:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise BadAnswer(f"returned more than {_MOST_VALUES} values")
        if isinstance(value, (bool, datetime)):
            return value
        if isinstance(value, (int, float)):
            return _number(value, place)
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, (bytes, bytearray)):
            self._count(len(value))
            return bytes(value)
        if isinstance(value, (list, tuple, Mapping)):
            if level == _MOST_LEVELS:
                raise BadAnswer(f"returned lists and dicts of more than {_MOST_LEVELS} levels")
            return self._several(value, place, level + 1)
        if value is None:
            raise _refused(value, place, 'has no form in XML-RPC; return "" for nothing')
        carried = "str, bool, int, float, bytes, datetime, list and dict have one"
        raise _refused(value, place, f"has no form in XML-RPC; {carried}")

    def _several(
        self, value: Union[Sequence[object], Mapping[object, object]], place: str, level: int
    ) -> object:
        if not isinstance(value, Mapping):
            return [self.of(item, f"{place}[{at}]", level) for at, item in enumerate(value)]
        found: Dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _refused(key, place, "is a key; a struct's keys are strings")
            found[self._text(key, place)] = self.of(item, f"{place}[{key!r:.40}]", level)
        return found

    def _text(self, value: str, place: str) -> str:
        text = str.__str__(value)
        self._count(len(text))
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise _refused(value, place, "holds half a character") from None
        return text

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > _MOST_CHARACTERS:
            raise BadAnswer(f"returned more than {_MOST_CHARACTERS >> 20} MiB of texts and bytes")


def _number(value: Union[int, float], place: str) -> Union[int, float]:
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise _refused(value, place, "is beyond 32 bits; return it as a string")
        return int(value)
    if not math.isfinite(value):
        raise _refused(value, place, "is no finite number")
    return float(value)


def _refused(value: object, place: str, why: str) -> BadAnswer:
    where = f" at {place:.120}" if place else ""
    return BadAnswer(f"returned {value!r:.80}{where}, which {why}")
