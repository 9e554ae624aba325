"""Packs hosts or VMs into bytes, from which one can be read without the others.

::

    reader ── pack ──► sealed memfd ──► records, in each plugin's process: entities are made
                                          of them when they are read (serialization.py)

    bytes   "oVsP"  length of the index (4, little-endian)
            index   JSON: [kind, [id or null, ...], [length of each record, ...]]
            records, one of each entity: its state (serialization.py) in lines of JSON
                    {attribute: text, number, truth or member of an enumeration}
                    {attribute: its line, counted from 0, or -n for the n-th of the third line}
                    [href of a list with nothing in it, ...]
                    the state of each other attribute

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
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.errors import UnreadableState

State = dict[str, Any]  # of an entity (serialization.py)
Source = Union[int, bytes]  # what ``pack`` gave, or the descriptor of a file that holds it

MOST_BYTES = 256 << 20  # some 150,000 hosts

_Data = Union[bytes, mmap.mmap]
_MAPPED = 64 << 10  # bytes; what is larger is mapped, so that only what is looked at is read
_FIRST_LINES = 3
_HEAD = struct.Struct("<4sI")
_MARK = b"oVsP"


def pack(kind: str, members: Sequence[State]) -> bytes:
    """Pack the states of hosts or VMs.

    Args:
        kind: ``Host`` or ``Vm``.
        members: n states (serialization.py), n >= 0, in the order to be kept.
    """
    records = [_record(state) for state in members]
    ids = [state.get("_id") for state in members]
    index = _encode((kind, ids, [len(record) for record in records])).encode("ascii")
    return b"".join([_HEAD.pack(_MARK, len(index)), index, *records])


# ``JSONEncoder.encode`` makes one of these each time, which takes longer than most lines.
_encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)


def _encode(value: Any) -> str:
    return "".join(_encoder(value, 0))


def _record(state: State) -> bytes:
    plain: State = {}
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
            plain[name] = value
    return "\n".join([_encode(plain), _encode(places), _encode(hrefs), *lines]).encode("ascii")


class Record:
    """A packed state; each line is read only when it is asked for.

    Nothing in it is trusted: each method may raise a ValueError or a RecursionError.
    """

    __slots__ = ("_begin", "_data", "_end", "_hrefs", "_lines")

    def __init__(self, data: _Data, begin: int, end: int):
        self._data = data
        self._begin = begin
        self._end = end
        self._lines: Optional[list[str]] = None
        self._hrefs: Optional[list[Any]] = None

    def plain(self) -> dict[str, Any]:
        """Read the attributes that are texts, numbers, truths and members of enumerations."""
        end = self._data.find(b"\n", self._begin, self._end)
        if end < 0:
            raise ValueError("cut")
        plain: dict[str, Any] = _decode(self._data[self._begin : end].decode("ascii"))
        return plain

    def names(self) -> Iterable[str]:
        """Read the names of all other attributes."""
        return _places(self._split()[1]).keys()

    def find(self, name: str) -> Any:
        """Read the state of one of those other attributes; None if there is no such attribute."""
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

    def _split(self) -> list[str]:
        lines = self._data[self._begin : self._end].decode("ascii").split("\n")
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
    places: dict[Optional[str], tuple[_Data, int, int]] = {}
    for source in reversed(sources):
        data = _data_of(source)
        ids, lengths, begin = _index(data, kind)
        bounds = [*itertools.accumulate(lengths, initial=begin)]
        places.update(zip(ids, zip(itertools.repeat(data), bounds, bounds[1:])))
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


def _index(data: _Data, kind: str) -> tuple[list[Optional[str]], list[int], int]:
    """Read the ids, the length of each record, and where the first one begins."""
    try:
        mark, length = _HEAD.unpack(data[: _HEAD.size])
        begin = _HEAD.size + length
        found, ids, lengths = json.loads(data[_HEAD.size : begin])
        is_index = (
            mark == _MARK
            and found == kind
            and ids.__class__ is list
            and lengths.__class__ is list
            and all(each is None or each.__class__ is str for each in ids)
            and all(each.__class__ is int and each > 0 for each in lengths)
            and len(ids) == len(lengths)
            and begin + sum(lengths) == len(data)
        )
    except (ValueError, TypeError, RecursionError, struct.error) as mistake:
        raise UnreadableState(f"no packed entities: {mistake!s:.100}") from None
    if not is_index:
        raise UnreadableState("no packed entities: the index is not that of the states")
    return ids, lengths, begin
