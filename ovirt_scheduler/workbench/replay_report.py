"""What a replay came to, in words and as a page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ovirt_scheduler.workbench import pages
from ovirt_scheduler.workbench.comparison import Comparison, Difference

_MOST_LISTED = 1000  # decisions that the page lists
_MOST_ROWS = 50  # of a plot

Row = tuple[str, int, int]  # a name, and its number before and after


def lines(comparison: Comparison, problems: Sequence[str]) -> Iterator[str]:
    """What is to be said of all decisions together.

    Args:
        problems: with the plugins.
    """
    done, differ = comparison.count, comparison.differ
    share = 100 * comparison.same / max(1, done)
    yield f"as it was: {comparison.same} of {done} decisions come out the same ({share:.1f} %)"
    for unit, number in comparison.unsteady.most_common():
        yield f"  {unit} answers otherwise, {number} of them: it uses time, chance or the engine"
    for unit, number in comparison.edited.most_common():
        yield f"  {unit} is gone, or has other code than then: {number} of them"
    if comparison.uncertain:
        yield (
            f"  {len(comparison.uncertain)} decisions are left out below: they do not even come "
            "out the same unchanged"
        )
    yield from (f"problem: {problem}" for problem in problems)
    word = "with the change" if comparison.changed else "today"
    refused = sum(len(each.refused) for each in differ)
    alone = sum(each.no_host for each in differ)
    winners = sum(each.winners is not None for each in differ)
    yield (
        f"{word}: {len(differ)} of {done} decisions differ: hosts newly refused {refused} times, "
        f"no host left for {alone}, another winner in {winners}"
    )


def brief(each: Difference) -> str:
    """A difference in some words."""
    if each.no_host:
        return "no host is left"
    if each.winners:
        return f"{each.winners[1]} wins, and not {each.winners[0]}"
    if each.refused:
        return f"{', '.join(each.refused)} refused"
    return "another answer"


def write_page(file: Path, comparison: Comparison, lines: Sequence[str]) -> None:
    """Write a page of HTML with plots, which loads nothing.

    Args:
        lines: what the terminal shows.

    Raises:
        BadUsage, NotOverwritten: as ``pages.write``.
    """
    before, after = comparison.before, comparison.after
    charts = {
        "How often each host was the best": rows(before.wins, after.wins)[:_MOST_ROWS],
        "How often each unit was decisive": rows(before.decisive, after.decisive)[:_MOST_ROWS],
        "Decisions by the time of their units": _by_time(before.times, after.times),
    }
    listed = [(each, brief(each)) for each in comparison.differ[:_MOST_LISTED]]
    pages.write(
        file, "replay.html", comparison=comparison, lines=lines, charts=charts, listed=listed
    )


def rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[Row]:
    """Both numbers of each name, the largest first."""
    found = [(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return sorted(found, key=lambda row: (-row[2], -row[1], row[0]))


def _by_time(before: Sequence[float], after: Sequence[float]) -> list[Row]:
    """How many decisions took how long, in milliseconds; each step is twice the one before."""
    one, other = (
        Counter(math.ceil(math.log2(max(1.0, each))) for each in times) for times in (before, after)
    )
    steps = range(max((*one, *other), default=-1) + 1)
    return [(f"up to {2**step} ms", one[step], other[step]) for step in steps]
