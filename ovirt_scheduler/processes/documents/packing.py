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

import json
import struct
from typing import Any, Dict, List, Sequence

State = Dict[str, Any]  # of an entity (serialization.py)

KINDS = ("Host", "Vm")
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
    hrefs: List[Any] = []
    places: Dict[str, int] = {}
    lines: List[str] = []
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
