"""Texts for messages, with only the characters of XML 1.0 (its section 2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable

NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_CONTROLS = {code: "\ufffd" for code in range(0x20) if chr(code) not in "\t\n\r"}

# The id of a host or VM, where its name does not stand before it already.
_ID = re.compile(r"(?<![\w(-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])")

_MESSAGE_LIMIT = 500  # characters


def writable(text: str) -> str:
    """The text, with U+FFFD for each character that XML cannot write."""
    if text.isascii():
        return text.translate(_CONTROLS)  # the same, in less than half of the time
    return NOT_IN_XML.sub("\ufffd", text)


def count_of(number: int, what: str) -> str:
    """``1 host``, ``12 hosts``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The text with the name of a host or VM before its id: ``puma (972c2880-…)``.

    Args:
        names: by id; one without a name may be there, too.
    """

    def named(identity: re.Match[str]) -> str:
        name = names.get(identity[0], "")
        return identity[0] if name in ("", identity[0]) else f"{name} ({identity[0]})"

    return _ID.sub(named, text) if names else text


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and "…" if it has more than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def one_line(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    """Text for a log and an answer: one line of bounded length, with only characters of XML."""
    return shortened(writable(" ".join(text[: 2 * limit].split())), limit)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A value with a function applied to each text in it; tuples become lists."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {each_text(key, change): each_text(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_text(each, change) for each in value]
    return value
