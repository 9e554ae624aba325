"""Makes lazy hosts and VMs from what ``packing`` packed.

Nothing in the bytes is trusted: JSON cannot name what is not there, costs some 30 times its
length in memory at the most, and its length is bounded. What is no packed form is an
``UnreadableState``, at once or when the attribute is read that cannot be made.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.documents import packing, serialization
from ovirt_scheduler.processes.documents.packing import HEAD, KINDS, MARK, Data

MOST_BYTES = 256 << 20  # some 150,000 hosts

_MAPPED = 64 << 10  # bytes; what is larger is mapped, so that only what is looked at is read

Source = Union[int, bytes]
_Index = tuple[str, list[Optional[str]], list[int]]


def ids(source: Source) -> list[Optional[str]]:
    """List the ids of what is packed, in its order.

    Raises:
        UnreadableState: it is no packed form, or too large.
        OSError: the descriptor cannot be read.
    """
    return _index(_data_of(source))[0][1]


def unpack(source: Source, wanted: Optional[Sequence[str]] = None) -> list[Any]:
    """Make hosts or VMs whose attributes are decoded when they are first read.

    Args:
        source: what ``pack`` gave, or the descriptor of a file that holds it. Its offset is
            neither used nor moved, and the entities do not need the descriptor.
        wanted: ids of n entities; None for all.

    Returns:
        n entities in the order of ``wanted``, or all in the order that they were packed in. Of
        an id that was not packed, one that holds nothing but its id.

    Raises:
        UnreadableState: it is no packed form, or too large. Reading an attribute of an
            entity raises it too.
        OSError: the descriptor cannot be read.
    """
    data = _data_of(source)
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
        record = None
        if number is not None:
            record = packing.Record(data, ends[number] - lengths[number], ends[number])
        entities.append(serialization.of_id(kind, identifier, record))
    return entities


def _data_of(source: Source) -> Data:
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


def _index(data: Data) -> tuple[_Index, int]:
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
