"""Writes and reads JSON in ASCII without blanks, fast for short values.

An encoder of ``json`` prepares itself anew for each value, and takes twice as long for the short
values of hosts and VMs. So its inner part is prepared once, here.
"""

from __future__ import annotations

import json
from typing import Any

_encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)
_decoder = json.JSONDecoder()


def encode(value: object) -> bytes:
    """Write a value that does not contain itself."""
    return "".join(_encoder(value, 0)).encode("ascii")


def decode(data: bytes) -> Any:
    """Read a value.

    Raises:
        ValueError: it is not one value in JSON.
        RecursionError: its parts lie too deep within each other.
    """
    value, end = _decoder.raw_decode(data.decode("ascii"))
    if end != len(data):
        raise ValueError("more than one value")
    return value
