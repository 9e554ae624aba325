"""What the manual says of the log, and texts that could forge a line of it."""

from __future__ import annotations

import itertools

from tests.support.paths import PROJECT

MANUAL = (PROJECT / "docs" / "operations.md").read_text("utf-8")


def rows(head: str) -> list:
    """The cells of the manual's table with that head."""
    _, _, rest = MANUAL.partition(f"{head}\n")
    assert rest, f"docs/operations.md has no table {head}"
    table = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in table]


HOSTILE = {
    "a line of the log": "x\n2026-01-01 00:00:00.000+00:00 ERROR   forged",
    "a carriage return": "x\r2026-01-01 00:00:00.000+00:00 ERROR   forged",
    "a terminal escape": "x\x1b[2J\x1b]0;title\x07\x9b31m",
    "a line separator": "x\u2028y\x85z",
    "text that runs backwards": "x\u202etxet",
    "a lone surrogate": "x\udc80y",
    "a zero": "x\0y",
    "an end of JSON": 'x"}\n{"level":"error"',
    "an entry of the journal": "x\nMESSAGE=forged\n\nPRIORITY=0\n",
    "a format": "%(pid)d %s {} ${jndi}",
}
