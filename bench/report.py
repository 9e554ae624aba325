"""The figures as tables, in Markdown that reads as well on a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from bench.goals import Goal
from bench.limits import Limits
from bench.measurement import Figures, Row

_MB = 10**6

_COLUMNS = (
    "scenario", "median", "p99", "above no-op", "calls/s", "processor", "peak memory",
    "bare limit", "× limit", "fresh process", "× faster",
)  # fmt: skip


def scenarios(rows: Sequence[Row]) -> str:
    """One line for each scenario."""
    return table(_COLUMNS, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    daemon = row.daemon
    if daemon.problem:
        return [row.name, f"fails: {daemon.problem[:60]}", *[""] * (len(_COLUMNS) - 2)]
    return [
        row.name + (f" ({daemon.failed} failed)" if daemon.failed else ""),
        milliseconds(daemon.median),
        milliseconds(daemon.p99),
        milliseconds(row.above_noop),
        _number(daemon.throughput),
        milliseconds(daemon.processor),
        _memory(daemon.memory),
        _compared(row, row.floor),
        _number(row.ratio),
        _compared(row, row.fresh),
        _number(row.gain),
    ]


def _compared(row: Row, figures: Optional[Figures]) -> str:
    if figures is None:
        return ""
    if figures.problem:
        return "fails"
    if row.group == "memory":
        return _memory(figures.memory)
    if row.clients > 1:
        return f"{_number(figures.throughput)}/s"
    return milliseconds(figures.median)


def before_and_now(rows: Sequence[Row]) -> str:
    """One line for each scenario in which the version before took part."""
    head = ("scenario", "before", "now", "× faster", "processor before", "processor now")
    lines = []
    for row in rows:
        if row.before is None:
            continue
        figures = (row.before, row.daemon)
        lines.append(
            [
                row.name,
                *(_compared(row, each) for each in figures),
                _number(row.gain_over_before),
                *(milliseconds(each.processor) for each in figures),
            ]
        )
    return table(head, lines)


def goals(judged: Sequence[Goal]) -> str:
    lines = [[goal.what, goal.wanted, goal.measured, goal.verdict] for goal in judged]
    return table(("goal", "wanted", "measured", ""), lines)


def bare_limits(bare: Limits) -> str:
    steps = [
        ["a Python process that loads the SDK and ends", milliseconds(bare.start)],
        ["memory of such a process", _memory(bare.memory)],
        ["fork, exit and wait of such a process", milliseconds(bare.fork)],
        ["a byte to a waiting process and one back, over pipes", milliseconds(bare.pipe)],
    ]
    for size in bare.decoding:
        steps += [
            [
                f"{size:,} hosts as XML: the standard library decodes the call",
                milliseconds(bare.decoding[size]),
            ],
            [f"{size:,} hosts as XML: the SDK reads them", milliseconds(bare.reading[size])],
        ]
    return table(("step", "median"), steps)


def stages(names: Sequence[str], columns: Sequence[str], seconds: Sequence[Sequence[float]]) -> str:
    """A line for each stage, a column for each kind of call, and their sums."""
    lines = [
        [name, *(milliseconds(column[number]) for column in seconds)]
        for number, name in enumerate(names)
    ]
    lines.append(["all", *(milliseconds(sum(column)) for column in seconds)])
    return table(("stage", *columns), lines)


def put(page: Path, name: str, text: str, by: str = "make bench") -> None:
    """Replace what stands in a page between the two lines that mark a part.

    Args:
        by: the command that makes it.

    Raises:
        ValueError: the page has not these lines.
    """
    begin, end = f"<!-- {name}: made by {by} -->\n", "<!-- end -->"
    found, count = re.subn(
        f"(?<={re.escape(begin)}).*?(?={re.escape(end)})",
        lambda _: f"\n{text}\n\n",
        page.read_text("utf-8"),
        count=1,
        flags=re.DOTALL,
    )
    if not count:
        raise ValueError(f"{page}: there is no part {name!r}")
    page.write_text(found, "utf-8")


def milliseconds(seconds: Optional[float]) -> str:
    return "" if seconds is None else f"{_number(seconds * 1000)} ms"


def _memory(size: Optional[int]) -> str:
    return "" if size is None else f"{_number(size / _MB)} MB"


def _number(value: Optional[float]) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *lines)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def row(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths)
        text = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(text)} |"

    return "\n".join(row(cells) for cells in (head, rule, *lines))
