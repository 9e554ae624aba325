"""Turns entities of the SDK into plain values, and back when an entity is first read.

A *state* is what JSON can say of an entity, and nothing that is ``None``:

======================== ======================================================
entity                   ``{"": "Cpu", "_speed": 2100.0, "_topology": {...}}``
its text, number, truth  the same
member of an enumeration ``("enum", "HostStatus", "up")``
date                     ``("date", "2026-07-21T10:11:12", 120, "+02:00")``, or None, None
``ovirtsdk4.List``       ``["list", href or None, state, ...]``
list of plain values     ``["values", value, ...]``
======================== ======================================================

Importing this adds to the SDK's classes:

- each attribute as ``None``, so that an entity need not set what it lacks;
- for a host or VM made by ``unpack``, what makes an attribute of its state;
- ``copy``, ``deepcopy`` and ``pickle``, which make all attributes first;
- ``__latest_statistics__`` (for ``plugin.cluster_use``), which reads the state alone.

A date with a zone can then be copied and pickled, too.
"""

from __future__ import annotations

import copyreg
import datetime
import enum
from collections.abc import Sequence
from typing import Any, Optional

from ovirtsdk4 import List as SdkList
from ovirtsdk4 import Struct, types
from ovirtsdk4.reader import TZ

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.documents import amounts, packing
from ovirt_scheduler.processes.documents.packing import EntityState, PackedSource

_PLAIN = frozenset({str, int, float, bool, type(None)})
_MINUTES_A_DAY = 24 * 60
_UNREAD = "_unread"  # in an entity's __dict__: its state

_new = object.__new__


_STRUCTS: dict[str, Any] = {
    kind.__name__: kind
    for kind in vars(types).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
}
_ATTRIBUTES: dict[str, frozenset[str]] = {
    name: frozenset({"", *vars(kind())}) for name, kind in _STRUCTS.items()
}
_MEMBERS: dict[tuple[str, str], enum.Enum] = {
    (kind.__name__, member.value): member
    for kind in vars(types).values()
    if isinstance(kind, type) and issubclass(kind, enum.Enum)
    for member in kind
}


# -- from states --------------------------------------------------------------------------


def unpack(kind: str, sources: Sequence[PackedSource], ids: Sequence[Optional[str]]) -> list[Any]:
    """Make hosts or VMs whose attributes are made of their states when they are first read.

    Args:
        kind: ``Host`` or ``Vm``.
        sources: of their records (packing.py).
        ids: ids of n entities; None for a VM that is yet to be made.

    Returns:
        n entities in that order. One that no source has is an id and nothing else.

    Raises:
        UnreadableState: a source is no packed form of that kind, or too large. Reading an
            attribute of an entity raises it too.
        OSError: a descriptor cannot be read.
    """
    entity_class, entities = _STRUCTS[kind], []
    for identifier, record in zip(ids, packing.records(kind, sources, ids)):
        entity = _new(entity_class)
        # Its __dict__ is made when somebody asks for it.
        entity._id = identifier  # noqa: SLF001
        if record is not None:
            entity._unread = record  # noqa: SLF001
        entities.append(entity)
    return entities


# Raised where something is no state: a wrong name, type, or number of values, or too many levels.
WRONG = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def _entity(state: EntityState) -> Any:
    name = state[""]
    entity = _new(_STRUCTS[name])
    if not state.keys() <= _ATTRIBUTES[name]:
        raise ValueError(f"{name} has no {min(state.keys() - _ATTRIBUTES[name])}")
    attributes = entity.__dict__
    for key, value in state.items():
        attributes[key] = value if value.__class__ in _PLAIN else _value(value)
    del attributes[""]
    return entity


def _value(value: Any) -> Any:
    if value.__class__ in _PLAIN:
        return value
    if value.__class__ is dict:
        return _entity(value)
    form = value[0]
    if form == "enum":
        _, kind, image = value
        return _MEMBERS[kind, image]
    if form == "list":
        entities = SdkList(value[1])
        entities.extend(map(_value, value[2:]))
        return entities
    if form == "values":
        return [*map(_value, value[1:])]
    if form == "date":
        return _date(*value[1:])
    raise ValueError(f"no form {form!r:.20}")


def _date(text: str, minutes: Any, name: Any) -> datetime.datetime:
    date = datetime.datetime.fromisoformat(text)
    if minutes is None:
        return date
    if minutes.__class__ is not int or abs(minutes) >= _MINUTES_A_DAY:
        raise ValueError("no time zone")
    return date.replace(tzinfo=TZ(minutes, name))


# -- to states ----------------------------------------------------------------------------


def state_of(entity: Any) -> EntityState:
    """Convert an entity that the SDK's reader made to its state.

    Raises:
        TypeError: it has a value that the SDK's readers do not make.
    """
    kind = entity.__class__
    name = kind.__name__
    if _STRUCTS.get(name) is not kind:
        raise TypeError(f"{kind} is no entity of the SDK")
    state: EntityState = {"": name}
    for key, value in complete(entity).items():
        if value is not None:
            state[key] = _state(value)
    return state


def _state(value: Any) -> Any:
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if kind is SdkList:
        return ["list", value.href, *map(_state, value)]
    if kind is list:
        return ["values", *map(_state, value)]
    if isinstance(value, enum.Enum):
        return ("enum", kind.__name__, value.value)
    if kind is datetime.datetime:
        return _date_state(value)
    return state_of(value)


def _date_state(date: datetime.datetime) -> tuple[Any, ...]:
    """The state of a date as the SDK reads it: without a zone, or with a ``TZ``."""
    zone = date.tzinfo
    if zone is None:
        return ("date", date.isoformat(), None, None)
    if zone.__class__ is not TZ:
        raise TypeError(f"{zone!r:.100} is no time zone of the SDK")
    return ("date", date.replace(tzinfo=None).isoformat(), *_zone(zone))


def _zone(zone: Any) -> tuple[int, str]:
    return int(zone.utcoffset(None).total_seconds() // 60), zone.tzname(None)


# -- what is added to the SDK's classes -------------------------------------------------------


class _Lazy:
    """An attribute of the classes of hosts and VMs, which makes the value from an entity's state.

    It has no ``__set__``: a value that is set, or was made, is in the entity's ``__dict__``, where
    Python looks first.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str):
        self._name = name

    def __get__(self, entity: Any, _: Any = None) -> Any:
        if entity is None:
            return None
        attributes = entity.__dict__
        record = attributes.get(_UNREAD)
        if record is None:
            return None
        name = self._name
        try:
            value = record.find(name)
            # Two threads that read it at once get the same value.
            return None if value is None else attributes.setdefault(name, _value(value))
        except WRONG as mistake:
            raise _unreadable(entity, mistake) from None


def _unreadable(entity: Any, mistake: Exception) -> UnreadableState:
    where = f"{entity.__class__.__name__} {entity.__dict__.get('_id')!r:.60}"
    return UnreadableState(f"{where}: not the state of an entity: {mistake!r:.100}")


def complete(entity: Any) -> dict[str, Any]:
    """Make all attributes of an entity from its state.

    Returns:
        The entity's ``__dict__``.

    Raises:
        UnreadableState: one of them cannot be made.
    """
    attributes: dict[str, Any] = entity.__dict__
    record = attributes.get(_UNREAD)
    if record is not None:
        try:
            names = record.names
            if not names <= _ATTRIBUTES[entity.__class__.__name__]:
                raise ValueError("another's attributes")
            for name in names:
                getattr(entity, name)
        except WRONG as mistake:
            raise _unreadable(entity, mistake) from None
        attributes.pop(_UNREAD, None)
    return attributes


def _latest_statistics(entity: Any) -> Optional[dict[str, float]]:
    """The latest datum of each statistic of a host or VM, by name, without making entities of them.

    Returns:
        None if the entity has no state, or its statistics were made or set already.

    Raises:
        UnreadableState: the state is not that of statistics.
    """
    attributes = entity.__dict__
    record = attributes.get(_UNREAD)
    if record is None or "_statistics" in attributes:
        return None
    try:
        return amounts.latest(record.find("_statistics"))
    except WRONG as mistake:
        raise _unreadable(entity, mistake) from None


def _extend_the_sdk() -> None:
    for name, kind in _STRUCTS.items():
        is_lazy = name in ("Host", "Vm")
        for attribute in _ATTRIBUTES[name] - {""}:
            setattr(kind, attribute, _Lazy(attribute) if is_lazy else None)
        if is_lazy:
            kind.__getstate__ = complete
            kind.__latest_statistics__ = _latest_statistics
    copyreg.pickle(TZ, lambda zone: (TZ, _zone(zone)))


_extend_the_sdk()
