"""The results of replays and simulations, for a person, for a program, and as a page with plots.

A page is one file of HTML, which loads nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import NotOverwritten
from ovirt_scheduler.history import explanation
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.security.atomic_file import write_over
from ovirt_scheduler.server.pages import views
from ovirt_scheduler.workbench.comparison import Comparison, Difference
from ovirt_scheduler.workbench.simulation import ClusterMoment, SimulationResult

_FOLDER = Path(__file__).resolve().parent / "report_templates"
_MOST_LISTED = 1000  # decisions that a page lists
_MOST_ROWS = 50  # of a plot
_MOST_NOTES = 20  # of a kind

BeforeAndAfter = tuple[str, int, int]  # a name, and its number before and after


def write_page(file: Path, template: str, **values: object) -> None:
    """Write a page.

    Args:
        template: its file in ``report_templates``.
        values: by their names there.

    Raises:
        NotOverwritten: it cannot be written, or is a link.
    """
    page = views.templates(_FOLDER).get_template(template)
    write_file(file, page.render(version=__version__, **values))


def write_file(file: Path, text: str) -> None:
    """Write the text as a file.

    Raises:
        NotOverwritten: it cannot be written, or is a link.
    """
    try:
        write_over(file, text.encode("utf-8", "replace"))
    except OSError as error:
        raise NotOverwritten(f"{file}: cannot be written: {error.strerror}") from None


def replay_lines(comparison: Comparison, problems: Sequence[str]) -> Iterator[str]:
    """Lines about all decisions together.

    Args:
        problems: with the plugins.
    """
    count, differ = comparison.count, comparison.differ
    share = 100 * comparison.same / max(1, count)
    yield f"as it was: {comparison.same} of {count} decisions come out the same ({share:.1f} %)"
    for unit, number in comparison.unsteady.most_common():
        uses = "it uses time, chance or the engine"
        yield f"  {unit} answers otherwise: {uses} (decisions: {number})"
    for unit, number in comparison.edited.most_common():
        yield f"  {unit} is gone, or was edited since (decisions: {number})"
    for unit, number in comparison.treated_otherwise.most_common():
        yield f"  {unit} failed then, too, and its on_failure is another now (decisions: {number})"
    for name, number in comparison.masked.most_common():
        yield f"  the value of {name} was not recorded: its default held (decisions: {number})"
    if comparison.uncertain:
        yield (
            f"  left out below: {count_of(len(comparison.uncertain), 'decision')} that would not "
            "even come out the same unchanged"
        )
    yield from (f"problem: {problem}" for problem in problems)
    word = "with the change" if comparison.changed else "today"
    refused = sum(len(each.refused) for each in differ)
    alone = sum(each.no_host for each in differ)
    winners = sum(each.winners is not None for each in differ)
    yield (
        f"{word}: {len(differ)} of {count} decisions differ; hosts newly refused: {refused}, "
        f"no host left: {alone}, another winner: {winners}"
    )


def subject(difference: Difference) -> str:
    """What a difference is about: ``runFilters for VM web``."""
    about = f" for VM {explanation.label(difference.vm)}" if difference.vm else ""
    return f"{difference.method}{about}"


def brief(difference: Difference) -> str:
    """A difference in a few words."""
    if difference.no_host:
        return "no host is left"
    if difference.winners:
        old, new = (explanation.label(host) if host else "none" for host in difference.winners)
        return f"{new} wins, and not {old}"
    if difference.refused:
        return f"{', '.join(map(explanation.label, difference.refused))} refused"
    return "another answer"


def write_replay(comparison: Comparison, lines: Sequence[str], file: Path) -> None:
    """Write the page of a replay.

    Args:
        lines: what the terminal shows.

    Raises:
        NotOverwritten: as ``write_page``.
    """
    before, after = comparison.before, comparison.after
    charts = {
        "How often each host was the best": rows(comparison.wins(before), comparison.wins(after))[
            :_MOST_ROWS
        ],
        "How often each unit was decisive": rows(before.decisive, after.decisive)[:_MOST_ROWS],
        "Decisions by the time of their units": _by_time(before.times, after.times),
    }
    listed = [(each, subject(each), brief(each)) for each in comparison.differ[:_MOST_LISTED]]
    write_page(
        file, "replay.html", comparison=comparison, lines=lines, charts=charts, listed=listed
    )


def rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[BeforeAndAfter]:
    """Both numbers of each name, the largest first."""
    numbers = [(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return sorted(numbers, key=lambda row: (-row[2], -row[1], row[0]))


def _by_time(before: Sequence[float], after: Sequence[float]) -> list[BeforeAndAfter]:
    """How many decisions took how long, in milliseconds; each step is twice the one before."""
    one, other = (
        Counter(math.ceil(math.log2(max(1.0, each))) for each in times) for times in (before, after)
    )
    steps = range(max((*one, *other), default=-1) + 1)
    return [(f"up to {2**step} ms", one[step], other[step]) for step in steps]


def simulation_fields(
    simulated: Mapping[str, SimulationResult], about: Mapping[str, object]
) -> dict[str, object]:
    """The results of simulations, for JSON.

    Args:
        simulated: each with its policy, in words.
        about: what the simulations have in common.
    """
    return {**about, "policies": policy_fields(simulated)}


def policy_fields(simulated: Mapping[str, SimulationResult]) -> list[dict[str, object]]:
    """The results of each policy, for JSON.

    Args:
        simulated: each with its policy, in words.
    """
    policies = []
    for policy, outcome in simulated.items():
        stages = {stage: _view(view) for stage, view in outcome.stages}
        number = len(outcome.migrations)
        broken = len(outcome.views[-1].broken)
        fields = {"policy": policy, **stages, **vars(outcome), "migrations": number}
        fields["broken_rules"] = broken
        del fields["views"], fields["course"], fields["has_rules"]
        policies.append({**fields, "moves": [move._asdict() for move in outcome.moves]})
    return policies


def _view(view: ClusterMoment) -> dict[str, object]:
    return {
        "hour": round(view.hour, 4),
        "imbalance": {what: round(percent, 2) for what, percent in view.imbalance.items()},
        "hosts": [
            {**host._asdict(), "cpu": round(host.cpu, 4), "memory": round(host.memory, 4)}
            for host in view.hosts
        ],
        "broken": view.broken,
    }


def measures(several: Sequence[SimulationResult]) -> tuple[list[str], list[list[str]]]:
    """A table: a column for the cluster before, and two for each policy."""
    headings, views = ["", "BEFORE"], [several[0].views[0]]
    for number, outcome in enumerate(several):
        mark = "" if len(several) == 1 else f" {'AB'[number]}"
        headings += [f"BETWEEN{mark}", f"AFTER{mark}"]
        views += outcome.views[1:]
    rows = [[name, *map(measure, views)] for name, measure in _MEASURES.items()]
    for name, count in _COUNTS.items():
        numbers = [text for outcome in several for text in ("", str(count(outcome)))]
        rows.append([name, "", *numbers])
    return headings, rows


def _spread(numbers: Sequence[float], mean: str = ".0f") -> str:
    """The least, the mean and the most of the hosts that are up."""
    some = numbers or [0]
    return f"{min(some):.0f} {sum(some) / len(some):{mean}} {max(some):.0f}"


_MEASURES: Mapping[str, Callable[[ClusterMoment], str]] = {
    "imbalance, %": lambda view: f"{view.imbalance['used']:.1f}",
    "imbalance of CPU, %": lambda view: f"{view.imbalance['cpu']:.1f}",
    "imbalance of memory, %": lambda view: f"{view.imbalance['memory']:.1f}",
    "CPU, %: least mean most": lambda view: _spread([100 * host.cpu for host in view.up]),
    "memory, %: least mean most": lambda view: _spread([100 * host.memory for host in view.up]),
    "VMs of a host: least mean most": lambda view: _spread([host.vms for host in view.up], ".1f"),
    "VMs that run": lambda view: str(sum(host.vms for host in view.hosts)),
    "hosts up": lambda view: str(len(view.up)),
    "hosts up without VMs": lambda view: str(sum(not host.vms for host in view.up)),
}
_COUNTS: Mapping[str, Callable[[SimulationResult], int]] = {
    "VMs placed": lambda outcome: len(outcome.moves) - len(outcome.migrations),
    "VMs that found no host": lambda outcome: len(outcome.unplaced),
    "migrations": lambda outcome: len(outcome.migrations),
    "balancings": lambda outcome: outcome.balancings,
}


def notes(outcome: SimulationResult) -> Iterator[tuple[str, str]]:
    """Notes on a policy: the kind, and the subject or reason; only the first of each kind."""
    yield from (("note", text) for text in outcome.unread)
    if outcome.has_rules:
        yield (
            "rules broken",
            ", ".join(
                f"{len(view.broken)} {stage}{_in_brackets(view.broken)}"
                for stage, view in outcome.stages
                if stage != "between"
            ),
        )
    if outcome.stopped:
        yield "stopped", f"by Ctrl-C at {outcome.stopped}, before it was at rest"
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


def _in_brackets(names: Sequence[str]) -> str:
    some = ", ".join(names[:_MOST_NOTES])
    more = f" and {len(names) - _MOST_NOTES} more" if len(names) > _MOST_NOTES else ""
    return f": {some}{more}" if names else ""


def write_simulation(
    simulated: Mapping[str, SimulationResult], about: Mapping[str, object], file: Path
) -> None:
    """Write the page of simulations.

    Raises:
        NotOverwritten: as ``write_page``.
    """
    headings, rows = measures([*simulated.values()])
    write_page(
        file,
        "simulation.html",
        about=about,
        headings=headings,
        rows=rows,
        simulated=simulated,
        notes={policy: [*notes(outcome)] for policy, outcome in simulated.items()},
        longest=max((hour for each in simulated.values() for hour, _ in each.course), default=0),
    )
