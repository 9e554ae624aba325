"""Packs hosts or VMs into bytes, from which one attribute can be read without the others.

::

    reader ── pack ──► sealed memfd ──► records, in each plugin's process: entities are made
                                          of them when they are read (sdk_entities.py)

    bytes   "oVsP"  length of the index (4, little-endian)
            index   JSON: [kind, [id or null, ...], {attribute: length of its column, ...},
                          {attribute: length of its cells, ...}]
            columns, each of an attribute: of every entity in turn its state (sdk_entities.py)
                    where that is short, else null: JSON
            cells, each of an attribute: a line of JSON, the length of each entity's cell; then
                    the cells: where the state is not short, the state as JSON, else nothing

Most plugins read a few short attributes of all hosts: so these are read for all of them at once.
Nothing in the bytes is trusted: JSON names nothing outside of it, takes at most some 30 times its
length in memory, and its length is bounded. Bytes of another form are an ``UnreadableState``, at
once or when the wrong attribute is read.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.protocol import compact_json

EntityState = dict[str, Any]  # of an entity (sdk_entities.py)
PackedSource = Union[int, bytes]  # the result of ``pack``, or the descriptor of a file with it

MOST_BYTES = 256 << 20  # some 150,000 hosts

_Data = Union[bytes, mmap.mmap]
_MAPPED = 64 << 10  # bytes; a larger pack is mapped, so that its unused parts are not read
_SHORT = 2  # members of a list's state: it is empty, or has one plain value
_HEAD = struct.Struct("<4sI")
_MARK = b"oVsP"


def pack(kind: str, members: Sequence[EntityState]) -> bytes:
    """Pack the states of hosts or VMs.

    Args:
        kind: ``Host`` or ``Vm``.
        members: n states (sdk_entities.py), n >= 0, in the order to be kept.
    """
    columns: dict[str, list[Any]] = defaultdict(lambda: [None] * len(members))
    cells: dict[str, list[bytes]] = defaultdict(lambda: [b""] * len(members))
    for row, state in enumerate(members):
        for name, value in state.items():
            form = value.__class__
            if form is dict or (form is list and len(value) > _SHORT):
                cells[name][row] = compact_json.encode(value)
            else:
                columns[name][row] = value
    columns.pop("", None)
    ids = columns.pop("_id", [None] * len(members))
    short = {name: compact_json.encode(column) for name, column in columns.items()}
    long = {
        name: b"\n".join([compact_json.encode([*map(len, rows)]), b"".join(rows)])
        for name, rows in cells.items()
    }
    lengths = [{name: len(part) for name, part in parts.items()} for parts in (short, long)]
    index = compact_json.encode((kind, ids, *lengths))
    return b"".join([_HEAD.pack(_MARK, len(index)), index, *short.values(), *long.values()])


class _Packed:
    """Packed states, each part of which is read when it is first used.

    Attributes:
        columns: attribute to its values; before these are read, to where they begin and end.
        cells: attribute to where each of its cells begins, and where the last one ends; before
            these are read, to where they all begin and end.

    Raises:
        UnreadableState: it is no packed form of that kind.
    """

    __slots__ = ("_data", "cells", "columns", "ids")

    def __init__(self, data: _Data, kind: str):
        self._data = data
        self.ids, columns, cells, begin = _index(data, kind)
        bounds = [*itertools.accumulate((*columns.values(), *cells.values()), initial=begin)]
        places = zip(bounds, bounds[1:])  # of the columns, then of the cells
        self.columns: dict[str, Any] = dict(zip(columns, places))
        self.cells: dict[str, Any] = dict(zip(cells, places))

    # Threads that are here at once may read the same part twice.

    def read_column(self, name: str, begin: int, end: int) -> list[Any]:
        """Read a column, which is there.

        Raises:
            ValueError, RecursionError: it is no column.
        """
        column = self._list(begin, end)
        self.columns[name] = column
        return column

    def cell(self, name: str, row: int) -> Any:
        """Read a cell; None if there is none.

        Raises:
            ValueError, RecursionError: it is no cell.
        """
        bounds = self.cells.get(name)
        if bounds is None:
            return None
        if bounds.__class__ is tuple:
            begin, end = bounds
            line = self._data.find(b"\n", begin, end)
            lengths = self._list(begin, line)
            bounds = [*itertools.accumulate(lengths, initial=line + 1)]
            if not _are_lengths(lengths, 0) or bounds[-1] != end:
                raise ValueError("no cells")
            self.cells[name] = bounds
        begin, end = bounds[row : row + 2]
        return compact_json.decode(self._data[begin:end]) if begin < end else None

    def _list(self, begin: int, end: int) -> list[Any]:
        values: list[Any] = compact_json.decode(self._data[begin:end])
        if values.__class__ is not list or len(values) != len(self.ids):
            raise ValueError("not a value for each")
        return values


class PackedState:
    """The packed state of one entity, each part of which is read when it is first used.

    Nothing in it is trusted: ``find`` may raise a ValueError, a TypeError or a RecursionError.
    """

    __slots__ = ("_packed", "_row")

    def __init__(self, packed: _Packed, row: int):
        self._packed = packed
        self._row = row

    @property
    def names(self) -> set[str]:
        """The attributes of all the entities; this one may lack some."""
        return {*self._packed.columns, *self._packed.cells}

    def find(self, name: str) -> Any:
        """Read the state of an attribute; None if there is no such attribute."""
        column = self._packed.columns.get(name)
        if column is not None:
            if column.__class__ is tuple:
                column = self._packed.read_column(name, *column)
            value = column[self._row]
            if value is not None:
                return value
        return self._packed.cell(name, self._row)


def _are_lengths(values: Collection[Any], least: int) -> bool:
    return all(each.__class__ is int and each >= least for each in values)


def records(
    kind: str, sources: Sequence[PackedSource], ids: Sequence[Optional[str]]
) -> list[Optional[PackedState]]:
    """Find the records of hosts or VMs by their ids.

    Args:
        kind: ``Host`` or ``Vm``.
        sources: the offsets of descriptors are neither used nor moved; the descriptors may be
            closed afterwards.
        ids: n ids; None for a VM that is yet to be made.

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
    return [PackedState(*place) if place else None for place in map(places.get, ids)]


def _data_of(source: PackedSource) -> _Data:
    """The bytes of a source.

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


def _index(
    data: _Data, kind: str
) -> tuple[list[Optional[str]], dict[str, int], dict[str, int], int]:
    """Read the ids, the length of each column, that of each attribute's cells, and where the first
    column begins.
    """
    try:
        mark, length = _HEAD.unpack(data[: _HEAD.size])
        begin = _HEAD.size + length
        packed_kind, ids, columns, cells = compact_json.decode(data[_HEAD.size : begin])
        is_index = (
            mark == _MARK
            and packed_kind == kind
            and ids.__class__ is list
            and all(each is None or each.__class__ is str for each in ids)
            and all(each.__class__ is dict for each in (columns, cells))
            and _are_lengths(lengths := (*columns.values(), *cells.values()), 1)
            and begin + sum(lengths) == len(data)
        )
    except (ValueError, TypeError, RecursionError, struct.error) as mistake:
        raise UnreadableState(f"no packed entities: {mistake!s:.100}") from None
    if not is_index:
        raise UnreadableState("no packed entities: the index is not that of the states")
    return ids, columns, cells, begin
