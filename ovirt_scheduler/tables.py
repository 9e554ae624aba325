"""What a command shows: columns for a person, JSON for a program.

Columns of plain text are all that is wanted, which is a dozen lines; no library that draws tables
is in EL9 itself.
"""

from __future__ import annotations

import json
from typing import List, NamedTuple, Sequence


class Shown(NamedTuple):
    """What a command shows, in both ways."""

    text: str
    fields: object  # for JSON
    well: bool = True  # no unit failed


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they need to be, headings first; every line ends with a newline.

    Only the first line of a cell is shown. No rows: nothing, not even the headings.
    """
    if not rows:
        return ""
    lines = [list(headings), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join(f"{_line(line, widths)}\n" for line in lines)


def document(value: object) -> str:
    """JSON that is the same for the same value, to be read by programs and by eye."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _cell(value: object) -> str:
    return ("" if value is None else str(value)).partition("\n")[0]


def _line(cells: List[str], widths: List[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
