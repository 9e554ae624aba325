"""Packs hosts or VMs into bytes, from which one can be read without the others.

::

    reader ── pack ──► sealed memfd ──► records, in each plugin's process: entities are made
                                          of them when they are read (serialization.py)

    bytes   "oVsP"  length of the index (4, little-endian)
            index   JSON: [kind, [id or null, ...], [length of each record, ...],
                          {attribute: length of its column, ...}]
            columns, each of a plain attribute: of every entity in turn its text, number, truth,
                    member of an enumeration, or null: JSON
            records, each of an entity: what else is in its state (serialization.py), in lines of
                    JSON
                    {attribute: its line, counted from 0, or -n for the n-th of the second line}
                    [href of a list with nothing in it, ...]
                    the state of each other attribute

Most plugins read a few plain attributes of all hosts: so these are read for all of them at once.
Nothing in the bytes is trusted: JSON names nothing outside of it, takes at most some 30 times its
length in memory, and its length is bounded. Bytes of another form are an ``UnreadableState``, at
once or when the wrong attribute is read.
"""

from __future__ import annotations

import functools
import itertools
import json
import mmap
import os
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.errors import UnreadableState

State = dict[str, Any]  # of an entity (serialization.py)
Source = Union[int, bytes]  # what ``pack`` gave, or the descriptor of a file that holds it

MOST_BYTES = 256 << 20  # some 150,000 hosts

_Data = Union[bytes, mmap.mmap]
_MAPPED = 64 << 10  # bytes; what is larger is mapped, so that only what is looked at is read
_FIRST_LINES = 2
_HEAD = struct.Struct("<4sI")
_MARK = b"oVsP"


def pack(kind: str, members: Sequence[State]) -> bytes:
    """Pack the states of hosts or VMs.

    Args:
        kind: ``Host`` or ``Vm``.
        members: n states (serialization.py), n >= 0, in the order to be kept.
    """
    columns: dict[str, list[Any]] = defaultdict(lambda: [None] * len(members))
    records = [_record(state, columns, row) for row, state in enumerate(members)]
    ids = columns.pop("_id", [None] * len(members))
    written = {name: _encode(column).encode("ascii") for name, column in columns.items()}
    lengths = {name: len(column) for name, column in written.items()}
    index = _encode((kind, ids, [*map(len, records)], lengths)).encode("ascii")
    return b"".join([_HEAD.pack(_MARK, len(index)), index, *written.values(), *records])


# ``JSONEncoder.encode`` makes one of these each time, which takes longer than most lines.
_encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)


def _encode(value: Any) -> str:
    return "".join(_encoder(value, 0))


def _record(state: State, columns: Mapping[str, list[Any]], row: int) -> bytes:
    """Put a state's plain values into their columns, and pack the others."""
    hrefs: list[Any] = []
    places: dict[str, int] = {}
    lines: list[str] = []
    for name, value in state.items():
        form = value.__class__
        if form is list and len(value) == 2 and value[0] == "list":
            hrefs.append(value[1])
            places[name] = -len(hrefs)
        elif form is dict or form is list or (form is tuple and value[0] != "enum"):
            places[name] = len(lines) + _FIRST_LINES
            lines.append(_encode(value))
        elif name:
            columns[name][row] = value
    return "\n".join([_encode(places), _encode(hrefs), *lines]).encode("ascii")


class _Packed:
    """Packed states, of which a column is read when it is asked for.

    Attributes:
        bounds: where the records begin, and where the last one ends.
        columns: by the attribute, where each begins and ends; once it was read, its values.

    Raises:
        UnreadableState: it is no packed form of that kind.
    """

    __slots__ = ("bounds", "columns", "data", "ids")

    def __init__(self, data: _Data, kind: str):
        self.data = data
        self.ids, lengths, columns, begin = _index(data, kind)
        bounds = [*itertools.accumulate((*columns.values(), *lengths), initial=begin)]
        self.bounds = bounds[len(columns) :]
        self.columns: dict[str, Any] = dict(zip(columns, zip(bounds, bounds[1:])))

    def read_column(self, name: str, begin: int, end: int) -> list[Any]:
        """Read the values of an attribute, which are there.

        Raises:
            ValueError, RecursionError: it is no column.
        """
        column = _decode(self.data[begin:end].decode("ascii"))
        if column.__class__ is not list or len(column) != len(self.ids):
            raise ValueError("no column")
        self.columns[name] = column
        return column


class Record:
    """A packed state of which a part is read when it is asked for.

    Nothing in it is trusted: each method may raise a ValueError or a RecursionError.
    """

    __slots__ = ("_hrefs", "_lines", "_packed", "_row")

    def __init__(self, packed: _Packed, row: int):
        self._packed = packed
        self._row = row
        self._lines: Optional[list[str]] = None
        self._hrefs: Optional[list[Any]] = None

    def names(self) -> set[str]:
        """Read which attributes there may be."""
        return {*self._packed.columns, *_places(self._split()[0])}

    def find(self, name: str) -> Any:
        """Read the state of an attribute; None if there is no such attribute."""
        column = self._packed.columns.get(name)
        if column is not None:
            if column.__class__ is tuple:  # of threads that are here at once, each may do this
                column = self._packed.read_column(name, *column)
            value = column[self._row]
            if value is not None:
                return value
        # Of threads that are here at once, each may do all of it.
        lines = self._lines or self._split()
        place = _places(lines[0]).get(name)
        if place is None:
            return None
        if place > 0:
            return _decode(lines[place])
        hrefs = self._hrefs
        if hrefs is None:
            hrefs = self._hrefs = _decode(lines[1])
        return ["list", hrefs[-1 - place]]

    def _split(self) -> list[str]:
        begin, end = self._packed.bounds[self._row : self._row + 2]
        lines = self._packed.data[begin:end].decode("ascii").split("\n")
        if len(lines) < _FIRST_LINES:
            raise ValueError("cut")
        self._lines = lines
        return lines


_scan = json.JSONDecoder().raw_decode


def _decode(line: str) -> Any:
    value, end = _scan(line)
    if end != len(line):
        raise ValueError("more than a value")
    return value


@functools.lru_cache(maxsize=64)
def _places(line: str) -> dict[str, int]:
    """Read which attribute is where; of most hosts it is the same."""
    places: dict[str, int] = _decode(line)
    if any(place.__class__ is not int for place in places.values()):
        raise ValueError("no places")
    return places


def records(
    kind: str, sources: Sequence[Source], wanted: Sequence[Optional[str]]
) -> list[Optional[Record]]:
    """Find the records of hosts or VMs by their ids.

    Args:
        kind: ``Host`` or ``Vm``.
        sources: the offsets of descriptors are neither used nor moved, and the records do not need
            the descriptors.
        wanted: n ids; None for a VM that is yet to be made.

    Returns:
        n records in that order, each of the first source that has its id; None if none has.

    Raises:
        UnreadableState: a source is no packed form of that kind, or too large.
        OSError: a descriptor cannot be read.
    """
    places: dict[Optional[str], tuple[_Packed, int]] = {}
    for source in reversed(sources):
        packed = _Packed(_data_of(source), kind)
        places.update(zip(packed.ids, zip(itertools.repeat(packed), itertools.count())))
    return [Record(*place) if place else None for place in map(places.get, wanted)]


def _data_of(source: Source) -> _Data:
    """The bytes of a pack, of its file or as they are.

    Raises:
        UnreadableState: there are more than ``MOST_BYTES``.
    """
    size = os.fstat(source).st_size if isinstance(source, int) else len(source)
    if size > MOST_BYTES:
        raise UnreadableState(f"{size} bytes of entities are more than the {MOST_BYTES} allowed")
    if not isinstance(source, int):
        return source
    if size > _MAPPED:
        return mmap.mmap(source, size, mmap.MAP_PRIVATE, mmap.PROT_READ)
    return os.pread(source, size, 0)


def _index(data: _Data, kind: str) -> tuple[list[Optional[str]], list[int], dict[str, int], int]:
    """Read the ids, the length of each record and column, and where the first of these begins."""
    try:
        mark, length = _HEAD.unpack(data[: _HEAD.size])
        begin = _HEAD.size + length
        found, ids, lengths, columns = _decode(data[_HEAD.size : begin].decode("ascii"))
        is_index = (
            mark == _MARK
            and found == kind
            and ids.__class__ is list
            and lengths.__class__ is list
            and columns.__class__ is dict
            and all(each is None or each.__class__ is str for each in ids)
            and all(each.__class__ is int and each > 0 for each in (*lengths, *columns.values()))
            and len(ids) == len(lengths)
            and begin + sum(lengths) + sum(columns.values()) == len(data)
        )
    except (ValueError, TypeError, RecursionError, struct.error) as mistake:
        raise UnreadableState(f"no packed entities: {mistake!s:.100}") from None
    if not is_index:
        raise UnreadableState("no packed entities: the index is not that of the states")
    return ids, lengths, columns, begin
