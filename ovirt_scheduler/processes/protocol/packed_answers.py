"""How plugins' answers are packed into JSON, on their way to the daemon.

Hosts and VMs of the call travel as their places in the call, so the size of an answer is bounded.
Of other hosts and VMs it has only the number, and the first (contract 3.6). ``PACKINGS`` has a
row for each kind of answer: ``pack`` is for the plugin's process, ``unpack`` for the daemon, which
checks everything.

JSON has no bytes and no dates: they are objects of one member, ``base64`` or ``dateTime``. So a
struct is such an object too, of the member ``struct``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Callable, NamedTuple, Optional

from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import CallInputs, Ids, Returns

# Raised where a value is read that has not the expected shape.
MISSHAPEN = (AttributeError, KeyError, IndexError, ValueError, TypeError, OverflowError,
             RecursionError)  # fmt: skip

MOST_CHARACTERS = 16 << 20  # of texts and bytes in a driver's own answer, all together
MOST_VALUES = 200_000  # in one

_TOO_MUCH = 1 << 63  # of an amount

_SHOWN_STRANGERS = 3
_COMPARED_STRANGERS = 500  # which are compared with the names of hosts
_LONGEST_STRANGER = 200  # characters
_STRANGER_BYTES = 12 * _LONGEST_STRANGER
_PLACE_BYTES = 12  # of a place, the comma included
_COST_BYTES = 32  # of a cost and its place
_ID_BYTES = 1024  # of a VM's id, and what is around it
_MIGRATIONS_BYTES = 16 << 20
_IDS_BYTES = 4 << 20  # of ids that are answered where none were given


class Misnamed(Exception):
    """An answer has names of hosts and no id; the text is a sentence without its subject."""


# An answer that was checked against the call's inputs, and notes on what was dropped.
Unpacked = tuple[Any, tuple[str, ...]]


class Packing(NamedTuple):
    """How one kind of answer travels.

    Attributes:
        pack: makes JSON of the value from ``answers``, and the ids of the call's hosts.
        unpack: reads that JSON, given the call's inputs; raises any of ``MISSHAPEN``, or
            ``Misnamed``.
        most: the bytes that the JSON can take, and the values in it, beside a few.
    """

    pack: Callable[[Any, Sequence[str]], object]
    unpack: Callable[[Any, CallInputs], Unpacked]
    most: Callable[[CallInputs], tuple[int, int]]


def text(value: object) -> str:
    """The value if it is a string that can be written; else raise any of ``MISSHAPEN``."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a string")
    value.encode("utf-8")  # JSON can write half of a surrogate pair, which nothing else can
    return value


def amount(value: object) -> Any:
    """The value if it is a number from 0 to 2⁶³; else raise any of ``MISSHAPEN``."""
    if type(value) not in (int, float) or not 0 <= value < _TOO_MUCH:  # type: ignore[operator]
        raise TypeError(f"{value!r:.60} is no amount")
    return value


def texts(value: object) -> Ids:
    """The values if they are strings in a list; else raise any of ``MISSHAPEN``."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is not a list")
    return tuple(map(text, value))


def _pack_places(
    ids: Collection[str], hosts: Sequence[str], most: int = _COMPARED_STRANGERS
) -> tuple[list[int], int, list[str]]:
    """The places of hosts, how many strangers there are, and the first ``most`` of them."""
    place_of = dict(zip(hosts, range(len(hosts))))
    try:
        return [place_of[each] for each in ids], 0, []
    except KeyError:
        strangers = [*dict.fromkeys(each for each in ids if each not in place_of)]
    places = [place_of[each] for each in ids if each in place_of]
    first = [each[:_LONGEST_STRANGER] for each in strangers[:most]]
    return places, len(strangers), first


def _unpack_places(packed: Any, hosts: Ids) -> tuple[list[int], int, Ids]:
    """The places in the order of the answer, each once; how many strangers; the first of them."""
    places, count, first = packed
    if not isinstance(places, list) or not set(map(type, places)) <= {int}:
        raise TypeError("no list of places")
    unique = list(dict.fromkeys(places))
    if unique and not (min(unique) >= 0 and max(unique) < len(hosts)):
        raise ValueError("a place beyond the hosts given")
    if type(count) is not int or count < 0:
        raise TypeError(f"{count!r:.60} is not a number of strangers")
    return unique, count, texts(first)


def _note(what: str, strangers: int, first: Sequence[str]) -> tuple[str, ...]:
    """The note on hosts or VMs of an answer that the call was not given; empty without them."""
    if not strangers:
        return ()
    shown = _shown(first, strangers)
    return (f"answered with {what} that it was not given ({strangers} dropped: {shown:.200})",)


def _shown(first: Sequence[str], count: int) -> str:
    shown = first[:_SHOWN_STRANGERS]
    return ", ".join(shown) + (", ..." if count > len(shown) else "")


def _unpack_hosts(packed: Any, inputs: CallInputs) -> tuple[list[int], tuple[str, ...], bool]:
    """The places in the order of the answer, the note on strangers, and whether there are some.

    Raises:
        Misnamed: it has no id of a host, but names.
    """
    places, strangers, first = _unpack_places(packed, inputs.hosts)
    if strangers and not places:
        _refuse_names(first, inputs)
    return places, _note("hosts", strangers, first) if strangers else (), bool(strangers)


def _refuse_names(strangers: Sequence[str], inputs: CallInputs) -> None:
    """Refuse an answer without an id of a host if a stranger is the name of one.

    Raises:
        Misnamed: a stranger is.
    """
    names = inputs.names
    of_hosts = {names[host] for host in inputs.hosts if host in names}
    misnamed = [stranger for stranger in strangers if stranger in of_hosts]
    if misnamed:
        shown = _shown(misnamed, len(misnamed))
        raise Misnamed(f"answered with names of hosts ({shown}); return the hosts, or their ids")


def _hosts_from(packed: Any, inputs: CallInputs) -> Unpacked:
    """The hosts of the answer, in the order of the inputs (contract 2.2)."""
    places, notes, _ = _unpack_hosts(packed, inputs)
    hosts = inputs.hosts
    all_of_them = len(places) == len(hosts)
    return hosts if all_of_them else tuple(hosts[at] for at in sorted(places)), notes


def _pack_costs(costs: Mapping[str, int], hosts: Sequence[str]) -> object:
    places, *strangers = _pack_places(costs, hosts)
    return [[costs[hosts[place]] for place in places], places, *strangers]


def _costs_from(packed: Any, inputs: CallInputs) -> Unpacked:
    costs, *rest = packed
    places, notes, _ = _unpack_hosts(rest, inputs)
    if not isinstance(costs, list) or not set(map(type, costs)) <= {int}:
        raise TypeError("no list of costs")
    if len(costs) != len(places):
        raise ValueError("not a cost for each host")
    hosts = inputs.hosts
    pairs = sorted(zip(places, costs))
    return {hosts[place]: cost for place, cost in pairs}, notes


def _pack_migration(migration: Optional[Migration], hosts: Sequence[str]) -> object:
    return migration and [migration.vm, *_pack_places(migration.hosts, hosts)]


def _migration_from(packed: Any, inputs: CallInputs) -> Unpacked:
    if packed is None:
        return None, ()
    vm, *rest = packed
    places, notes, has_strangers = _unpack_hosts(rest, inputs)
    if not places and has_strangers:  # an empty list would stand for any host
        return None, notes
    hosts = tuple(inputs.hosts[place] for place in sorted(places))
    return Migration(text(vm), hosts), notes


def _selection_from(packed: Any, inputs: CallInputs) -> Unpacked:
    places, notes, _ = _unpack_hosts(packed, inputs)
    return tuple(inputs.hosts[place] for place in places), notes


def _pack_migrations(migrations: Mapping[str, Ids], all_hosts: Sequence[str]) -> object:
    return [
        [vm, *_pack_places(hosts, all_hosts, _SHOWN_STRANGERS)] for vm, hosts in migrations.items()
    ]


def _migrations_from(packed: Any, inputs: CallInputs) -> Unpacked:
    vm_ids = {*inputs.vms, *(() if inputs.vm is None else (inputs.vm,))}
    migrations: dict[str, Ids] = {}
    others: dict[str, None] = {}
    shown: dict[str, None] = {}
    count = 0
    for vm, *rest in packed:
        places, strangers, first = _unpack_places(rest, inputs.hosts)
        count += strangers
        shown.update(dict.fromkeys(first))
        if text(vm) not in vm_ids:
            others[vm] = None
        elif places or not strangers:
            migrations[vm] = tuple(inputs.hosts[place] for place in places)
    if not migrations:
        _refuse_names([*shown], inputs)
    of_vms = _note("VMs", len(others), [*others])
    return migrations, (*of_vms, *_note("hosts", count, [*shown]))


def _truth(packed: object, _: CallInputs) -> Unpacked:
    if not isinstance(packed, bool):
        raise TypeError(f"{packed!r:.60} is not a truth")
    return packed, ()


def _pack_value(value: object, _: Sequence[str] = ()) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"dateTime": datetime.isoformat(value)}  # a class of the plugin's may have its own
    if isinstance(value, dict):
        return {"struct": {key: _pack_value(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_pack_value(item) for item in value]
    return value


def _value(value: object) -> object:
    if isinstance(value, (bool, int, float)):
        if not -(2**31) <= value < 2**31 and (isinstance(value, int) or not math.isfinite(value)):
            raise ValueError(f"{value} cannot be written")
        return value
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, dict):
        return text(value)
    ((form, inside),) = value.items()
    return _OBJECTS[form](inside)


_OBJECTS: Mapping[str, Callable[[Any], object]] = {
    "base64": lambda inside: base64.b64decode(inside, validate=True),
    "dateTime": datetime.fromisoformat,
    "struct": lambda inside: {text(key): _value(item) for key, item in inside.items()},
}


def _most_of_hosts(inputs: CallInputs) -> tuple[int, int]:
    hosts, strangers = len(inputs.hosts), _COMPARED_STRANGERS
    return _ID_BYTES + _COST_BYTES * hosts + _STRANGER_BYTES * strangers, hosts + strangers


def _most_of_migrations(inputs: CallInputs) -> tuple[int, int]:
    vms, hosts = len(inputs.vms) + 1, len(inputs.hosts)
    return min(vms * (_ID_BYTES + _PLACE_BYTES * hosts), _MIGRATIONS_BYTES), vms * (hosts + 1)


PACKINGS: Mapping[Returns, Packing] = {
    Returns.HOSTS: Packing(_pack_places, _hosts_from, _most_of_hosts),
    Returns.COSTS: Packing(_pack_costs, _costs_from, _most_of_hosts),
    Returns.MIGRATION: Packing(_pack_migration, _migration_from, _most_of_hosts),
    Returns.SELECTION: Packing(_pack_places, _selection_from, _most_of_hosts),
    Returns.TRUTH: Packing(lambda value, _: value, _truth, _most_of_hosts),
    Returns.MIGRATIONS: Packing(_pack_migrations, _migrations_from, _most_of_migrations),
    Returns.IDS: Packing(
        lambda ids, _: list(ids),
        lambda packed, _: (texts(packed), ()),
        lambda _: (_IDS_BYTES, MOST_VALUES),
    ),
    # A character of 16 bits takes six bytes at most (\\u0000), and bytes a third more as base64.
    Returns.VALUE: Packing(
        _pack_value,
        lambda packed, _: (_value(packed), ()),
        lambda _: (6 * MOST_CHARACTERS, MOST_VALUES),
    ),
}
