"""What a command shows: columns for a person, JSON or bare names for a program.

Columns of plain text take a dozen lines, and EL9 has no library that draws them.
"""

from __future__ import annotations

import codecs
import itertools
import json
import shutil
import sys
import textwrap
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Optional, Union

from ovirt_scheduler.log.format import printable

_GAP = "  "
_LONGEST_WORD = 36  # characters, the length of an id; a longer word may be broken


class Shown(NamedTuple):
    """What a command shows, for each value of ``--output``.

    Attributes:
        text: for a person.
        fields: for JSON; None: the text is all that there is.
        well: whether all is well; if not, the exit status is 1.
        names: of all that is listed, such as units or hosts.
        stopped: whether Ctrl-C came before the end, which the exit status says.
        problems: shown with the names; ``text`` and ``fields`` have them already.
    """

    text: str = ""
    fields: Any = None
    well: bool = True
    names: Sequence[str] = ()
    problems: Sequence[str] = ()
    stopped: bool = False


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], width: Optional[int] = None
) -> str:
    """Make columns as wide as they need to be, headings first; every line ends with a newline.

    Only the first line of a cell is shown. Without rows there are no headings either.

    Args:
        width: characters that a line may have: the widest columns are folded until it fits.
            None: those of the terminal, and no limit where there is none.
    """
    if not rows:
        return ""
    lines = [list(headings), *([_cell(value) for value in row] for row in rows)]
    columns = list(zip(*lines))
    widths = [max(map(len, column)) for column in columns]
    least = [min(max(map(_least, column)), _LONGEST_WORD) for column in columns]
    _narrow(widths, least, _terminal_width() if width is None else width)
    return "".join(f"{_line(each, widths)}\n" for line in lines for each in _folded(line, widths))


def document(value: object) -> str:
    """Write a value as indented JSON, which is the same for the same value.

    Characters that cannot be seen, or that steer a terminal, are escaped; so are all but ASCII
    where standard output is not UTF-8, as JSON has to be. What XML-RPC has and JSON has not, bytes
    and dates, is text.
    """
    utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    lines = json.dumps(value, indent=2, ensure_ascii=not utf8, default=_as_text).split("\n")
    return "".join(f"{_visible(line)}\n" for line in lines)


def _as_text(value: Union[bytes, datetime]) -> str:
    return value.isoformat() if isinstance(value, datetime) else b64encode(value).decode("ascii")


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def _cell(value: object) -> str:
    return printable(("" if value is None else str(value)).partition("\n")[0])


def _terminal_width() -> Optional[int]:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _least(cell: str) -> int:
    """How wide a cell has to be: for its longest word, or whole if it has two, such as a time."""
    words = cell.split(" ")
    return len(cell) if len(words) <= 2 else max(map(len, words))


def _narrow(widths: list[int], least: Sequence[int], limit: Optional[int]) -> None:
    """Make the widest column narrower by one, until a line fits or each column has its least."""
    if limit is None:
        return
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - limit):
        wide = [at for at, width in enumerate(widths) if width > least[at]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _folded(cells: list[str], widths: list[int]) -> Iterable[tuple[str, ...]]:
    """The lines of a row: each cell broken at white space, or anywhere if there is none."""
    columns = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(cells, widths)
    ]
    return itertools.zip_longest(*columns, fillvalue="")


def _line(cells: Iterable[str], widths: list[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
