"""What simulations came to, for a person, a program, and a page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable

from ovirt_scheduler.workbench import pages
from ovirt_scheduler.workbench.simulation import Outcome, View

_MOST_NOTES = 20  # of a kind


def fields(simulated: Mapping[str, Outcome], about: Mapping[str, object]) -> dict[str, object]:
    """All of it, for JSON.

    Args:
        simulated: each with its policy, in words.
        about: what the simulations have in common.
    """
    policies = []
    for policy, outcome in simulated.items():
        stages = {stage: _view(view) for stage, view in outcome.stages}
        found = {"policy": policy, **stages, **vars(outcome), "migrations": len(outcome.migrations)}
        del found["views"], found["course"]
        policies.append({**found, "moves": [move._asdict() for move in outcome.moves]})
    return {**about, "policies": policies}


def _view(view: View) -> dict[str, object]:
    return {
        "hour": round(view.hour, 4),
        "imbalance": {what: round(percent, 2) for what, percent in view.imbalance.items()},
        "hosts": [
            {**host._asdict(), "cpu": round(host.cpu, 4), "memory": round(host.memory, 4)}
            for host in view.hosts
        ],
    }


def measures(several: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
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


def _spread(numbers: Sequence[float], mean: str = ".0f") -> str:
    """The least, the mean and the most of the hosts that are up."""
    some = numbers or [0]
    return f"{min(some):.0f} {sum(some) / len(some):{mean}} {max(some):.0f}"


_MEASURES: Mapping[str, Callable[[View], str]] = {
    "imbalance, %": lambda view: f"{view.imbalance['used']:.1f}",
    "of CPU": lambda view: f"{view.imbalance['cpu']:.1f}",
    "of memory": lambda view: f"{view.imbalance['memory']:.1f}",
    "CPU, %: least mean most": lambda view: _spread([100 * host.cpu for host in view.up]),
    "memory, %: least mean most": lambda view: _spread([100 * host.memory for host in view.up]),
    "VMs of a host: least mean most": lambda view: _spread([host.vms for host in view.up], ".1f"),
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


def notes(outcome: Outcome) -> Iterator[tuple[str, str]]:
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
        ("left out", outcome.left_out), ("no host", outcome.unplaced),
        ("nobody may use", outcome.closed),
        ("not migrated", {**outcome.waiting, **refused}), ("problem", problems),
    ):  # fmt: skip
        for name, why in [*whys.items()][:_MOST_NOTES]:
            yield what, ": ".join(filter(None, (name, why)))
        if len(whys) > _MOST_NOTES:
            yield what, f"and {len(whys) - _MOST_NOTES} more; -o json has them all"


def write_page(file: Path, simulated: Mapping[str, Outcome], about: Mapping[str, object]) -> None:
    """Write a page of HTML with plots, which loads nothing.

    Raises:
        BadUsage, NotOverwritten: as ``pages.write``.
    """
    headings, rows = measures([*simulated.values()])
    pages.write(
        file,
        "simulation.html",
        about=about,
        headings=headings,
        rows=rows,
        simulated=simulated,
        notes={policy: [*notes(outcome)] for policy, outcome in simulated.items()},
        longest=max((hour for each in simulated.values() for hour, _ in each.course), default=0),
    )
