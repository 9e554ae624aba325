"""What a replay came to, in words and as a page."""

from __future__ import annotations

import math
from collections import Counter
from typing import Dict, Iterator, List, Mapping, Sequence

from ovirt_scheduler.workbench import pages
from ovirt_scheduler.workbench.comparison import Comparison, Difference

_MOST_LISTED = 1000  # decisions that the page lists
_WIDTH = 600.0  # of the longest bar
_MOST_BARS = 50


def lines(comparison: Comparison, problems: Sequence[str]) -> Iterator[str]:
    """What is to be said of all decisions together.

    Args:
        problems: with the plugins.
    """
    done, differ = comparison.count, comparison.differ
    share = 100 * comparison.same / max(1, done)
    yield f"unchanged: {comparison.same} of {done} decisions come out the same ({share:.1f} %)"
    for unit, number in comparison.unsteady.most_common():
        yield f"  {unit} answers otherwise, {number} of them: it uses time, chance or the engine"
    for unit, number in comparison.edited.most_common():
        yield f"  {unit} is gone, or another code than then, in {number} decisions"
    if comparison.uncertain:
        yield (
            f"  {len(comparison.uncertain)} decisions are left out below: they do not even come "
            "out the same unchanged"
        )
    yield from (f"problem: {problem}" for problem in problems)
    word = "changed" if comparison.changed else "today"
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


def page(comparison: Comparison, lines: Sequence[str]) -> str:
    """A page of HTML with plots, which loads nothing.

    Args:
        lines: what the terminal shows.

    Raises:
        BadUsage: Jinja2 is not installed.
    """
    before, after = comparison.before, comparison.after
    charts = [
        {"name": "How often each host was the best", "rows": _bars(before.wins, after.wins)},
        {
            "name": "How often each unit was decisive",
            "rows": _bars(before.decisive, after.decisive),
        },
        {
            "name": "Decisions by the time of their units",
            "rows": _bars(_by_time(before.times), _by_time(after.times), in_order=True),
        },
    ]
    listed = [{**each._asdict(), "brief": brief(each)} for each in comparison.differ[:_MOST_LISTED]]
    report = comparison.fields()
    return pages.render("replay.html", report=report, lines=lines, charts=charts, differ=listed)


def _bars(
    before: Mapping[str, int], after: Mapping[str, int], in_order: bool = False
) -> List[Dict[str, object]]:
    names = list(dict.fromkeys((*before, *after)))
    if not in_order:
        names.sort(key=lambda name: (-after.get(name, 0), -before.get(name, 0), name))
    names = names[:_MOST_BARS]
    most = max((*before.values(), *after.values()), default=1)
    return [
        {
            "name": name,
            "before": before.get(name, 0),
            "after": after.get(name, 0),
            "before_width": round(_WIDTH * before.get(name, 0) / most, 1),
            "after_width": round(_WIDTH * after.get(name, 0) / most, 1),
        }
        for name in names
    ]


def _by_time(milliseconds: Sequence[float]) -> Mapping[str, int]:
    """How many decisions took how long; each step is twice the one before."""
    counts = Counter(max(0, math.ceil(math.log2(each))) if each > 1 else 0 for each in milliseconds)
    last = max(counts, default=-1)
    return {f"up to {2**step} ms": counts[step] for step in range(last + 1)}
