"""What a command shows: columns for a person, JSON or bare names for a program.

Columns of plain text are all that is wanted, which is a dozen lines; no library that draws tables
is in EL9 itself.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Any, List, NamedTuple, Optional, Sequence

_GAP = "  "
_NARROWEST = 12  # characters that a column is folded to, at the least


class Shown(NamedTuple):
    """What a command shows, in each way."""

    text: str
    fields: Any  # for JSON
    well: bool = True  # no unit failed
    names: Sequence[str] = ()  # of what was found
    problems: Sequence[str] = ()  # that are in text and fields, but in no names


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], width: Optional[int] = None
) -> str:
    """Columns as wide as they need to be, headings first; every line ends with a newline.

    Only the first line of a cell is shown. No rows: nothing, not even the headings.

    Args:
        width: characters that a line may have: the widest columns are folded until it fits.
            None: those of the terminal, and no limit where there is none.
    """
    if not rows:
        return ""
    lines = [list(headings), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    _narrow(widths, _terminal_width() if width is None else width)
    return "".join(f"{_line(each, widths)}\n" for line in lines for each in _folded(line, widths))


def document(value: object) -> str:
    """JSON that is the same for the same value, to be read by programs and by eye."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _cell(value: object) -> str:
    return ("" if value is None else str(value)).partition("\n")[0]


def _terminal_width() -> Optional[int]:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _narrow(widths: List[int], wanted: Optional[int]) -> None:
    """Take from the widest column, again and again, until a line fits."""
    if wanted is None:
        return
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - wanted):
        widest = max(widths)
        if widest <= _NARROWEST:
            return
        widths[widths.index(widest)] -= 1


def _folded(cells: List[str], widths: List[int]) -> List[List[str]]:
    """The lines of a row: each cell broken at white space, or anywhere if there is none."""
    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths)]
    height = max(map(len, columns))
    return [[column[i] if i < len(column) else "" for column in columns] for i in range(height)]


def _line(cells: List[str], widths: List[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
