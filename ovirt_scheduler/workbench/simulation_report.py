"""What simulations came to, for a person, a program, and a page that needs nothing beside it."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from ovirt_scheduler.workbench import pages
from ovirt_scheduler.workbench.simulated import HostView
from ovirt_scheduler.workbench.simulation import Outcome, View

_MOST_NOTES = 20  # of a kind
_NOT_IN_JSON = ("views", "course")


def fields(simulated: Mapping[str, Outcome], about: Mapping[str, object]) -> Dict[str, object]:
    """All of it, for JSON.

    Args:
        simulated: each with its policy, in words.
        about: what the simulations have in common.
    """
    policies = [{"policy": policy, **_fields(each)} for policy, each in simulated.items()]
    return {**about, "policies": policies}


def _fields(outcome: Outcome) -> Dict[str, object]:
    fields = {name: value for name, value in vars(outcome).items() if name not in _NOT_IN_JSON}
    return {
        **{stage: _view(view) for stage, view in outcome.stages},
        **fields,
        "migrations": len(outcome.migrations),
        "moves": [move._asdict() for move in outcome.moves],
    }


def _view(view: View) -> Dict[str, object]:
    return {
        "hour": round(view.hour, 4),
        "imbalance": {what: round(percent, 2) for what, percent in view.imbalance.items()},
        "hosts": [
            {**host._asdict(), "cpu": round(host.cpu, 4), "memory": round(host.memory, 4)}
            for host in view.hosts
        ],
    }


def measures(several: Sequence[Outcome]) -> Tuple[List[str], List[List[str]]]:
    """A table: a column for what all begin with, and two for each policy."""
    headings, views = ["", "BEFORE"], [several[0].views[0]]
    for number, each in enumerate(several):
        mark = "" if len(several) == 1 else f" {'AB'[number]}"
        headings += [f"BETWEEN{mark}", f"AFTER{mark}"]
        views += each.views[1:]
    rows = [[name, *map(measure, views)] for name, measure in _MEASURES.items()]
    for name, count in _COUNTS.items():
        numbers = [text for each in several for text in ("", str(count(each)))]
        rows.append([name, "", *numbers])
    return headings, rows


def _percent(part: float) -> str:
    return f"{100 * part:.0f}"


def _spread(view: View, what: str) -> str:
    """The least, the mean and the most of the hosts that are up, in percent."""
    parts = [getattr(host, what) for host in view.up] or [0.0]
    return " ".join(map(_percent, (min(parts), sum(parts) / len(parts), max(parts))))


def _vms(view: View) -> str:
    numbers = [host.vms for host in view.up] or [0]
    return f"{min(numbers)} {sum(numbers) / len(numbers):.1f} {max(numbers)}"


_MEASURES: Mapping[str, Callable[[View], str]] = {
    "imbalance, %": lambda view: f"{view.imbalance['used']:.1f}",
    "of CPU": lambda view: f"{view.imbalance['cpu']:.1f}",
    "of memory": lambda view: f"{view.imbalance['memory']:.1f}",
    "CPU, %: least mean most": lambda view: _spread(view, "cpu"),
    "memory, %: least mean most": lambda view: _spread(view, "memory"),
    "VMs of a host: least mean most": _vms,
    "VMs that run": lambda view: str(sum(host.vms for host in view.hosts)),
    "hosts up": lambda view: str(len(view.up)),
    "hosts up without VMs": lambda view: str(sum(not host.vms for host in view.up)),
}
_COUNTS: Mapping[str, Callable[[Outcome], int]] = {
    "VMs placed": lambda outcome: len(outcome.moves) - len(outcome.migrations),
    "VMs without a host": lambda outcome: len(outcome.unplaced),
    "migrations": lambda outcome: len(outcome.migrations),
    "balancings": lambda outcome: outcome.balancings,
}


def notes(outcome: Outcome) -> Iterator[Tuple[str, str]]:
    """What else there is to say of a policy: what, and of whom or why; of each kind the first."""
    if outcome.stopped:
        yield "stopped", "by Ctrl-C, before it was at rest"
    elif not outcome.rested:
        yield "not at rest", "VMs would still migrate; --balancings allows more"
    refused, problems = (
        {text: f"{number} times" if number > 1 else "" for text, number in counts.items()}
        for counts in (outcome.refused, outcome.problems)
    )
    for what, whys in (
        ("no host", outcome.unplaced), ("nobody may use", outcome.closed),
        ("not migrated", {**outcome.waiting, **refused}), ("problem", problems),
    ):  # fmt: skip
        for name, why in [*whys.items()][:_MOST_NOTES]:
            yield what, ": ".join(filter(None, (name, why)))
        if len(whys) > _MOST_NOTES:
            yield what, f"and {len(whys) - _MOST_NOTES} more; -o json has them all"


def page(simulated: Mapping[str, Outcome], about: Mapping[str, object]) -> str:
    """A page of HTML with plots, which loads nothing.

    Raises:
        BadUsage: Jinja2 is not installed.
    """
    headings, rows = measures([*simulated.values()])
    longest = max(hour for each in simulated.values() for hour, _ in [(0.0, 0.0), *each.course])
    policies = [
        {
            "name": policy,
            "stages": [
                {"name": stage, "view": view, "bars": _bars(view), "names": _names(view)}
                for stage, view in outcome.stages
            ],
            "line": _line(outcome, longest),
            "moves": outcome.moves[:_MOST_MOVES],
            "more": max(0, len(outcome.moves) - _MOST_MOVES),
            "kinds": Counter(move.what for move in outcome.moves),
            "notes": list(notes(outcome)),
        }
        for policy, outcome in simulated.items()
    ]
    return pages.render(
        "simulation.html", about=about, headings=headings, rows=rows, longest=longest,
        policies=policies,
    )  # fmt: skip


_MOST_MOVES = 1000  # that the page lists
_MOST_NAMES = 8  # of hosts that fit below their bars
_WIDTH, _HEIGHT = 960.0, 160.0


def _bars(view: View) -> List[Dict[str, object]]:
    """Two bars for each host: its processors and its memory."""
    step = _WIDTH / max(1, len(view.hosts))
    return [
        {
            "kind": kind if host.status == "up" else "away",
            "x": round(step * (place + offset), 2),
            "width": round(step * 0.4, 2),
            "height": round(max(1.0, _HEIGHT * part), 2),
            "title": _title(host),
        }
        for place, host in enumerate(view.hosts)
        for kind, part, offset in (("cpu", host.cpu, 0.08), ("memory", host.memory, 0.52))
    ]


def _names(view: View) -> List[str]:
    return [host.name for host in view.hosts] if len(view.hosts) <= _MOST_NAMES else []


def _title(host: HostView) -> str:
    away = "" if host.status == "up" else f", {host.status}"
    cpu, memory = _percent(host.cpu), _percent(host.memory)
    return f"{host.name}{away}: {host.vms} VMs, CPU {cpu} %, memory {memory} %"


def _line(outcome: Outcome, longest: float) -> str:
    """The imbalance in time, as the points of a line; of a long time not each look."""
    course = outcome.course
    some = course[:: max(1, len(course) // 1000)]
    return " ".join(
        f"{_WIDTH * hour / (longest or 1):.1f},{_HEIGHT * (1 - percent / 100):.1f}"
        for hour, percent in some
    )
