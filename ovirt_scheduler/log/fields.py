"""The fields of a line of the log.

A line is logged with its fields as the one argument: ``log.info("%(units)s ...", fields)``. The
sentence is made from the same mapping that the JSON and journal formats show (``format``), so
text and fields cannot disagree. Names and output from elsewhere have the types below, which say
how they look in a sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

# docs/operations.md has the meaning of each. Values with other names are in the sentence alone. No
# field is named time, level, message or logger, as every line has these.
FIELDS = frozenset((
    "request", "method", "form", "peer", "outcome", "target", "units", "problems", "hosts_in",
    "hosts_out", "milliseconds", "unit", "kind", "vm", "decided",
    "cluster", "daemon", "source_host", "target_host", "stream", "output", "traceback",
    "reason", "file", "line", "folders", "checksum", "count", "faults", "address", "seconds",
    "since", "pid", "status", "signal", "state", "version", "plan",
))  # fmt: skip

_PLAIN = re.compile(r"[\w.:@-]+")
_LONGEST_NAME = 60  # characters
_IN_A_SENTENCE = 8  # names
_IN_A_FIELD = 32


class Name(str):
    """A name from elsewhere, cut to a length; in quotes in a sentence unless it is a plain word."""

    __slots__ = ()

    def __new__(cls, name: str) -> Name:
        """Cut the name to its length; a ``str`` gets its text here, and not in ``__init__``."""
        return super().__new__(cls, name[:_LONGEST_NAME])

    def __str__(self) -> str:
        plain = super().__str__()
        return plain if _PLAIN.fullmatch(plain) else repr(plain)


class Names:
    """The first of many names, and how many more there are."""

    def __init__(self, names: Collection[str]) -> None:
        self.first = tuple(map(Name, itertools.islice(names, _IN_A_FIELD)))
        self._all = len(names)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.first[:_IN_A_SENTENCE])) or "(none)"
        more = self._all - _IN_A_SENTENCE
        return f"{shown} and {more} more" if more > 0 else shown


class Block(str):
    """Text of several lines that follows the sentence: a traceback, or output."""

    __slots__ = ()
