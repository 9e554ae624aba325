"""Packs hosts or VMs into bytes, from which one can be read without the others.

::

    reader ── pack ──► sealed memfd ──► unpack, in each plugin's process: entities
                                          that read themselves when they are read

    bytes   "oVsP"  length of the index (4, little-endian)
            index   JSON: [kind, [id or null, ...], [length of each record, ...]]
            records, one of each entity: its state (serialization.py) in lines of JSON
                    {attribute: text, number, truth or member of an enumeration}
                    {attribute: its line, counted from 0, or -n for the n-th of the third line}
                    [href of a list with nothing in it, ...]
                    one of each other attribute
"""

from __future__ import annotations

import functools
import json
import mmap
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

State = dict[str, Any]  # of an entity (serialization.py)
Data = Union[bytes, mmap.mmap]

FIRST_LINES = 3
HEAD = struct.Struct("<4sI")
MARK = b"oVsP"


def pack(kind: str, members: Sequence[State]) -> bytes:
    """Pack the states of hosts or VMs.

    Args:
        kind: ``Host`` or ``Vm``.
        members: n states, n >= 0 (states.state_of), in the order to be kept.
    """
    records = [_record(state) for state in members]
    ids = [state.get("_id") for state in members]
    index = _encode((kind, ids, [len(record) for record in records])).encode("ascii")
    return b"".join([HEAD.pack(MARK, len(index)), index, *records])


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
            places[name] = len(lines) + FIRST_LINES
            lines.append(_encode(value))
        elif name:
            plain[name] = value
    return "\n".join([_encode(plain), _encode(places), _encode(hrefs), *lines]).encode("ascii")


class Record:
    """A packed state of which a line is read when it is asked for.

    Nothing in it is trusted: each method may raise a ValueError or a RecursionError.
    """

    __slots__ = ("_begin", "_data", "_end", "_hrefs", "_lines")

    def __init__(self, data: Data, begin: int, end: int):
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
        """Read which attributes there are beside these."""
        return _places(self._split()[1]).keys()

    def find(self, name: str) -> Any:
        """Read the state of one of the others; None if there is no such attribute."""
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
def _places(line: str) -> dict[str, int]:
    """Read which attribute is where; of most hosts it is the same."""
    places: dict[str, int] = _decode(line)
    if any(place.__class__ is not int for place in places.values()):
        raise ValueError("no places")
    return places
