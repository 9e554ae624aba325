"""Hosts or VMs in one run of bytes, of which some can be read without the others.

::

    reader ── pack ──► sealed memfd ──► unpack, in each plugin's process: entities
                                          that read themselves when they are looked at

    bytes   "oVsP"  length of the index (4, little-endian)
            index   JSON: [kind, [id or null, ...], [length of each record, ...]]
            records, one of each entity: its state (states.py) in lines of JSON
                    {attribute: its line, counted from 0, or -n for the n-th of the third line}
                    {attribute: text, number or truth}
                    [href of a list with nothing in it, ...]
                    one of each other attribute

The one who reads trusts nothing: JSON cannot name what is not there, costs some 30 times its
length in memory at the most, and its length is bounded. What is no packed form is an
``UnreadableState``, at once or when the attribute is read that cannot be made.
"""

from __future__ import annotations

import functools
import json
import os
import struct
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union, cast

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.documents import states
from ovirt_scheduler.processes.documents.states import State

MOST_BYTES = 256 << 20  # some 150,000 hosts
KINDS = ("Host", "Vm")

_FIRST_LINES = 3
_HEAD = struct.Struct("<4sI")
_MARK = b"oVsP"

Source = Union[int, bytes]
_Index = Tuple[str, List[Optional[str]], List[int]]


def pack(kind: str, members: Sequence[State]) -> bytes:
    """Pack the states of hosts or VMs.

    Args:
        kind: ``Host`` or ``Vm``.
        members: n states, n >= 0 (states.state_of), in the order to be kept.
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
    hrefs: List[Any] = []
    places: Dict[str, int] = {}
    lines: List[str] = []
    for name, value in state.items():
        form = value.__class__
        if form is list and len(value) == 2 and value[0] == "list":
            hrefs.append(value[1])
            places[name] = -len(hrefs)
        elif form is dict or form is list or form is tuple:
            places[name] = len(lines) + _FIRST_LINES
            lines.append(_encode(value))
        elif name:
            plain[name] = value
    return "\n".join([_encode(places), _encode(plain), _encode(hrefs), *lines]).encode("ascii")


def ids(source: Source, most_bytes: int = MOST_BYTES) -> List[Optional[str]]:
    """The ids of what is packed, in its order.

    Raises:
        UnreadableState: it is no packed form, or larger than that.
        OSError: the descriptor cannot be read.
    """
    size = _size(source, most_bytes)
    return _index(_reader(source), size)[0][1]


def unpack(
    source: Source, wanted: Optional[Sequence[str]] = None, most_bytes: int = MOST_BYTES
) -> List[Any]:
    """Make hosts or VMs whose attributes are read when they are first looked at.

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
    size = _size(source, most_bytes)
    read = _reader(source)
    (kind, names, lengths), place = _index(read, size)
    ends = []
    for length in lengths:
        place += length
        ends.append(place)
    numbers: Iterable[Optional[int]] = range(len(names))
    if wanted is not None:
        numbers = map({name: number for number, name in enumerate(names)}.get, wanted)
    if isinstance(source, int) and (wanted is None or len(wanted) * 8 > len(names)):
        read = _reader(_pread(source, size, 0))  # one large read instead of many small ones
    entities = []
    for identifier, number in zip(names if wanted is None else wanted, numbers):
        if number is None:
            entities += states.of_ids(kind, [cast("str", identifier)])
        else:
            record = read(ends[number] - lengths[number], lengths[number])
            entities.append(states.lazy(kind, identifier, _Record(record)))
    return entities


class _Record:
    """A state of which a line is read when it is asked for."""

    __slots__ = ("_hrefs", "_lines", "_places", "_record")

    def __init__(self, record: bytes):
        self._record: Optional[bytes] = record

    def plain(self) -> Dict[str, Any]:
        # Of threads that are here at once, each may do all of it.
        record = self._record
        if record is not None:
            lines = record.decode("ascii").split("\n")
            if len(lines) < _FIRST_LINES:
                raise ValueError("cut")
            self._hrefs: Optional[List[Any]] = None
            self._places = _places(lines[0])
            self._lines = lines
            self._record = None
        plain: Dict[str, Any] = _decode(self._lines[1])
        return plain

    def names(self) -> Iterable[str]:
        return self._places.keys()

    def find(self, name: str) -> Any:
        place = self._places.get(name)
        if place is None:
            return None
        if place > 0:
            return _decode(self._lines[place])
        hrefs = self._hrefs
        if hrefs is None:
            hrefs = self._hrefs = _decode(self._lines[2])
        return ["list", hrefs[-1 - place]]


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


# -- reading ------------------------------------------------------------------------------

_Read = Callable[[int, int], bytes]


def _size(source: Source, most_bytes: int) -> int:
    size = os.fstat(source).st_size if isinstance(source, int) else len(source)
    if size > most_bytes:
        raise UnreadableState(f"{size} bytes of entities are more than the {most_bytes} allowed")
    return size


def _reader(source: Source) -> _Read:
    """Give what reads so many bytes at a place."""
    if isinstance(source, int):
        return lambda place, length: _pread(source, length, place)
    return lambda place, length: source[place : place + length]


def _pread(descriptor: int, length: int, place: int) -> bytes:
    data = os.pread(descriptor, length, place)
    if len(data) < length:
        parts = [data]
        while data and length > (size := sum(map(len, parts))):
            data = os.pread(descriptor, length - size, place + size)
            parts.append(data)
        return b"".join(parts)
    return data


def _index(read: _Read, size: int) -> Tuple[_Index, int]:
    """Read the index, and say where the states begin."""
    try:
        mark, length = _HEAD.unpack(read(0, _HEAD.size))
        begin = _HEAD.size + length
        kind, names, lengths = json.loads(read(_HEAD.size, length if begin <= size else 0))
        is_index = (
            mark == _MARK
            and kind in KINDS
            and names.__class__ is list
            and lengths.__class__ is list
            and all(name is None or name.__class__ is str for name in names)
            and all(each.__class__ is int and each > 0 for each in lengths)
            and len(names) == len(lengths)
            and begin + sum(lengths) == size
        )
    except (ValueError, TypeError, RecursionError, struct.error) as mistake:
        raise UnreadableState(f"no packed entities: {mistake!s:.100}") from None
    if not is_index:
        raise UnreadableState("no packed entities: the index is not that of the states")
    return (kind, names, lengths), begin
