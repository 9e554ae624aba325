"""Suggests, among the names that exist, the one that somebody may have meant."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Optional

_LONGEST = 100  # characters; a comparison takes the time of both names' product
_MOST = 500  # names that one is compared with, and functions of a file that are looked at
_LONGER = 3  # characters, at most, that one is longer than the other

_FUNCTION = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+(do_\w+)", re.MULTILINE)


def nearest(name: str, there: Iterable[str]) -> Optional[str]:
    """The one that is spelt most like ``name``, or the only one of which it is a part.

    ``_``, ``-``, a dot or a blank joins parts. Case does not count, and ``_``, ``-`` and a blank
    count as equal.

    Returns:
        None if there is none.
    """
    if len(name) > _LONGEST:
        return None
    spelt = _spelling(name)
    by_spelling: dict[str, str] = {}
    for other in there:
        by_spelling.setdefault(_spelling(other), other)
    alike = (key for key in by_spelling if abs(len(key) - len(spelt)) <= _LONGER)
    close = difflib.get_close_matches(spelt, itertools.islice(alike, _MOST), 1)
    if not close:
        close = [key for key in by_spelling if spelt in re.split("[_.]", key)]
    return by_spelling[close[0]] if len(close) == 1 else None


def hint(name: str, there: Iterable[str]) -> str:
    """``; did you mean X?``, to end a sentence with; empty if no other name is near."""
    nearest_name = nearest(name, there)
    return "" if nearest_name in (None, name) else f"; did you mean {nearest_name}?"


def misspelt(source: bytes, functions: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Functions of a plugin's text with almost the name of one that the daemon calls.

    Args:
        source: the text; it is not parsed.
        functions: that the daemon calls in plugins.

    Returns:
        Line, name and the name that may be meant.
    """
    called = tuple(functions)
    for definition in itertools.islice(_FUNCTION.finditer(source), _MOST):
        name = definition.group(1).decode("ascii", "replace")
        meant = None if name in called else nearest(name, called)
        if meant is not None:
            yield source.count(b"\n", 0, definition.start(1)) + 1, name, meant


def _spelling(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")
