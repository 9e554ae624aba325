"""Suggests the name that somebody may have meant, of those that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Optional

_LONGEST = 100  # characters; a comparison takes the time of both names' product
_MOST = 500  # names that one is compared with
_LONGER = 3  # characters, at most, that one is longer than the other

_FUNCTION = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+(do_\w+)", re.MULTILINE)


def nearest(name: str, there: Iterable[str]) -> Optional[str]:
    """The one that is spelt most like ``name``; None where none is.

    Capitals do not count, nor whether words are joined by ``_``, ``-`` or a blank.
    """
    if len(name) > _LONGEST:
        return None
    by_spelling: dict[str, str] = {}
    for each in there:
        if abs(len(each) - len(name)) <= _LONGER and len(by_spelling) < _MOST:
            by_spelling.setdefault(_spelling(each), each)
    close = difflib.get_close_matches(_spelling(name), by_spelling, 1)
    return by_spelling[close[0]] if close else None


def hint(name: str, there: Iterable[str]) -> str:
    """``; did you mean X?``, to end a sentence with; empty where none is near."""
    found = nearest(name, there)
    return "" if found is None else f"; did you mean {found}?"


def misspelt(source: bytes, functions: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Functions of a plugin's text that are named almost as those that are called.

    Args:
        source: the text; it is not parsed.
        functions: that are called in plugins.

    Returns:
        Line, name and the name that may be meant.
    """
    called = tuple(functions)
    for found in _FUNCTION.finditer(source):
        name = found.group(1).decode("ascii", "replace")
        meant = None if name in called else nearest(name, called)
        if meant is not None:
            yield source.count(b"\n", 0, found.start(1)) + 1, name, meant


def _spelling(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")
