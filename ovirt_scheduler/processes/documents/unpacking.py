"""Makes lazy hosts and VMs from what ``packing`` packed.

Nothing in the bytes is trusted: JSON cannot name what is not there, costs some 30 times its
length in memory at the most, and its length is bounded. What is no packed form is an
``UnreadableState``, at once or when the attribute is read that cannot be made.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import struct
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union, cast

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.documents import serialization
from ovirt_scheduler.processes.documents.packing import FIRST_LINES, HEAD, KINDS, MARK

MOST_BYTES = 256 << 20  # some 150,000 hosts

_MAPPED = 64 << 10  # bytes; what is larger is mapped, so that only what is looked at is read

Source = Union[int, bytes]
Data = Union[bytes, mmap.mmap]
_Index = Tuple[str, List[Optional[str]], List[int]]


def ids(source: Source, most_bytes: int = MOST_BYTES) -> List[Optional[str]]:
    """List the ids of what is packed, in its order.

    Raises:
        UnreadableState: it is no packed form, or larger than that.
        OSError: the descriptor cannot be read.
    """
    return _index(_data_of(source, most_bytes))[0][1]


def unpack(
    source: Source, wanted: Optional[Sequence[str]] = None, most_bytes: int = MOST_BYTES
) -> List[Any]:
    """Make hosts or VMs whose attributes are decoded when they are first read.

    Args:
        source: what ``pack`` gave, or the descriptor of a file that holds it. Its offset is
            neither used nor moved, and the entities do not need the descriptor.
        wanted: ids of n entities; None for all.
        most_bytes: what is larger is refused.

    Returns:
        n entities in the order of ``wanted``, or all in the order that they were packed in. Of
        an id that was not packed, one that holds nothing but its id.

    Raises:
        UnreadableState: it is no packed form, or larger than that. Reading an attribute of an
            entity raises it too.
        OSError: the descriptor cannot be read.
    """
    data = _data_of(source, most_bytes)
    (kind, names, lengths), place = _index(data)
    ends = []
    for length in lengths:
        place += length
        ends.append(place)
    numbers: Iterable[Optional[int]] = range(len(names))
    if wanted is not None:
        numbers = map({name: number for number, name in enumerate(names)}.get, wanted)
    entities = []
    for identifier, number in zip(names if wanted is None else wanted, numbers):
        if number is None:
            entities += serialization.of_ids(kind, [cast("str", identifier)])
        else:
            end = ends[number]
            record = _Record(data, end - lengths[number], end)
            entities.append(serialization.lazy(kind, identifier, record))
    return entities


class _Record:
    """A state of which a line is read when it is asked for."""

    __slots__ = ("_begin", "_data", "_end", "_hrefs", "_lines")

    def __init__(self, data: Data, begin: int, end: int):
        self._data = data
        self._begin = begin
        self._end = end
        self._lines: Optional[List[str]] = None
        self._hrefs: Optional[List[Any]] = None

    def plain(self) -> Dict[str, Any]:
        end = self._data.find(b"\n", self._begin, self._end)
        if end < 0:
            raise ValueError("cut")
        plain: Dict[str, Any] = _decode(self._data[self._begin : end].decode("ascii"))
        return plain

    def names(self) -> Iterable[str]:
        return _places(self._split()[1]).keys()

    def find(self, name: str) -> Any:
        # Of threads that are here at once, each may do all of it.
        lines = self._lines or self._split()
        place = _places(lines[1]).get(name)
        if place is None:
            return None
        if place > 0:
            return _decode(lines[place])
        hrefs = self._hrefs
        if hrefs is None:
            hrefs = self._hrefs = _decode(lines[2])
        return ["list", hrefs[-1 - place]]

    def _split(self) -> List[str]:
        lines = self._data[self._begin : self._end].decode("ascii").split("\n")
        if len(lines) < FIRST_LINES:
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
def _places(line: str) -> Dict[str, int]:
    """Read which attribute is where; of most hosts it is the same."""
    places: Dict[str, int] = _decode(line)
    if any(place.__class__ is not int for place in places.values()):
        raise ValueError("no places")
    return places


def _data_of(source: Source, most_bytes: int) -> Data:
    """The bytes of a pack, of its file or as they are.

    Raises:
        UnreadableState: there are more than ``most_bytes``.
    """
    size = os.fstat(source).st_size if isinstance(source, int) else len(source)
    if size > most_bytes:
        raise UnreadableState(f"{size} bytes of entities are more than the {most_bytes} allowed")
    if not isinstance(source, int):
        return source
    if size > _MAPPED:
        return mmap.mmap(source, size, mmap.MAP_PRIVATE, mmap.PROT_READ)
    return os.pread(source, size, 0)


def _index(data: Data) -> Tuple[_Index, int]:
    """Read the index, and say where the states begin."""
    try:
        mark, length = HEAD.unpack(data[: HEAD.size])
        begin = HEAD.size + length
        kind, names, lengths = json.loads(data[HEAD.size : begin])
        is_index = (
            mark == MARK
            and kind in KINDS
            and names.__class__ is list
            and lengths.__class__ is list
            and all(name is None or name.__class__ is str for name in names)
            and all(each.__class__ is int and each > 0 for each in lengths)
            and len(names) == len(lengths)
            and begin + sum(lengths) == len(data)
        )
    except (ValueError, TypeError, RecursionError, struct.error) as mistake:
        raise UnreadableState(f"no packed entities: {mistake!s:.100}") from None
    if not is_index:
        raise UnreadableState("no packed entities: the index is not that of the states")
    return (kind, names, lengths), begin
