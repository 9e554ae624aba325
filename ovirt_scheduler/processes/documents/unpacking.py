"""Makes lazy hosts and VMs from what ``packing`` packed.

Nothing in the bytes is trusted: JSON cannot name what is not there, costs some 30 times its
length in memory at the most, and its length is bounded. What is no packed form is an
``UnreadableState``, at once or when the attribute is read that cannot be made.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Any, Optional, Union

from ovirt_scheduler.errors import UnreadableState
from ovirt_scheduler.processes.documents import packing, serialization
from ovirt_scheduler.processes.documents.packing import HEAD, MARK, Data

MOST_BYTES = 256 << 20  # some 150,000 hosts

_MAPPED = 64 << 10  # bytes; what is larger is mapped, so that only what is looked at is read

Source = Union[int, bytes]


def unpack(kind: str, sources: Sequence[Source], wanted: Sequence[Optional[str]]) -> list[Any]:
    """Make hosts or VMs whose attributes are decoded when they are first read.

    Args:
        kind: ``Host`` or ``Vm``.
        sources: what ``pack`` gave, or descriptors of files that hold it. Their offsets are
            neither used nor moved, and the entities do not need the descriptors.
        wanted: ids of n entities; None for a VM that is yet to be made.

    Returns:
        n entities in that order, each of the first source that has its id. Where none has, it
        holds nothing but its id.

    Raises:
        UnreadableState: a source is no packed form of that kind, or too large. Reading an
            attribute of an entity raises it too.
        OSError: a descriptor cannot be read.
    """
    places: dict[Optional[str], tuple[Data, int, int]] = {}
    for source in reversed(sources):
        data = _data_of(source)
        ids, lengths, begin = _index(data, kind)
        bounds = [*itertools.accumulate(lengths, initial=begin)]
        places.update(zip(ids, zip(itertools.repeat(data), bounds, bounds[1:])))
    return [
        serialization.of_id(kind, each, packing.Record(*place) if place else None)
        for each, place in zip(wanted, map(places.get, wanted))
    ]


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


def _index(data: Data, kind: str) -> tuple[list[Optional[str]], list[int], int]:
    """Read the ids, the length of each record, and where the first one begins."""
    try:
        mark, length = HEAD.unpack(data[: HEAD.size])
        begin = HEAD.size + length
        found, ids, lengths = json.loads(data[HEAD.size : begin])
        is_index = (
            mark == MARK
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
