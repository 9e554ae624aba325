"""Writes and reads JSON in ASCII without blanks, with as little around it as can be.

``json.dumps`` and ``json.loads`` make an encoder and look at the text each time, which takes longer
than most of what is written here.
"""

from __future__ import annotations

import json
from typing import Any

_encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)
_scan: Any = vars(json.JSONDecoder())["scan_once"]


def encode(value: object) -> bytes:
    """Write a value, which does not hold itself."""
    return "".join(_encoder(value, 0)).encode("ascii")


def decode(data: bytes) -> Any:
    """Read a value.

    Raises:
        ValueError: it is not one value in JSON.
        RecursionError: its parts lie too deep within each other.
    """
    try:
        value, end = _scan(data.decode("ascii"), 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(data):
        raise ValueError("more than one value")
    return value
