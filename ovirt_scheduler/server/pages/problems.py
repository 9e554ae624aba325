"""What is wrong: every state in which callers are not served as they asked.

A state that is to be shown is gathered here, and nowhere else: the page, ``ovirt-scheduler status``
and its exit status, and the line of ``systemctl status`` all come from these problems.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional
from urllib.parse import quote, urlencode

from ovirt_scheduler.decisions.missing_names import MissingUnit
from ovirt_scheduler.history.tally import Homeless
from ovirt_scheduler.model.plans import WAITING, ClusterLook, Obstacle, Refusal
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values.text import count_of, one_line, shortened
from ovirt_scheduler.server.pages.daemon_state import DaemonState, UnitState, UnloadedFile
from ovirt_scheduler.server.pages.times import moment, shown

_DAY = 86400.0
_CERTIFICATE_DAYS = 30
_MOST_NAMED = 20  # missing units, and refused VMs, that are named; the others are counted
_MOST_IN_LINE = 3  # names of one kind of problem in the line
_LONGEST_NAME, _LONGEST_REASON = 60, 160  # characters in the line

_PLACE = re.compile(r" \([^()]*:\d+\)$")  # of a mistake, at the end of its text: (Night.py:3)
_POLICY_UNITS = frozenset(kind.label for kind in Kind)

_SEVERAL = {  # how the line begins to tell problems that have names: of one, and of several
    "failing": ("1 failing", "{} failing"),
    "old version": ("1 of an older version", "{} of older versions"),
    "corrected": ("answers of 1 unit are put right", "answers of {} units are put right"),
    "no host": ("no host was left for 1 VM", "no host was left for {} VMs"),
    "missing": ("1 unit is named and not there", "{} units are named and not there"),
    "other kind": (
        "1 unit is of another kind than named",
        "{} units are of another kind than named",
    ),
    "plugin": ("1 file does not load", "{} files do not load"),
    "part": ("1 file is loaded in part", "{} files are loaded in part"),
    "cluster": ("1 cluster is not looked after", "{} clusters are not looked after"),
    "refused": ("1 VM cannot be migrated", "{} VMs cannot be migrated"),
    "waiting": ("1 plan waits for approval", "{} plans wait for approval"),
}


class Problem(NamedTuple):
    """Something that is wrong, with what to do about it."""

    kind: str
    what: str
    mend: str
    detail: str = ""
    since: Optional[str] = None  # as ``moment`` writes it
    label: str = ""  # what the line calls it; empty where ``what`` says all
    stands_for: int = 1  # how many problems
    page: str = ""  # the path of the page that has more

    def record(self) -> dict[str, str]:
        """The problem as the pages and ``status -o json`` have it."""
        fields = ("kind", "what", "mend", "detail", "since", "page")
        return {name: value for name in fields if (value := getattr(self, name))}


def gather(
    state: DaemonState, units: Sequence[dict[str, Any]], homeless: Sequence[Homeless], now: float
) -> list[Problem]:
    """All that is wrong, the worst first.

    Args:
        units: the units and drivers, as the status has them.
        homeless: the VMs that no host was left for.
        now: seconds since 1970.
    """
    return [
        *_of_calls(state, units),
        *_of_answers(units, homeless),
        *_of_files(state, units),
        *_of_settings(state, now),
        *_of_surroundings(state),
    ]


def line(units: Sequence[UnitState], problems: Sequence[Problem]) -> str:
    """The whole in one line: ``8 units; 1 failing: Night, since 02:14``.

    Counted are policy units, as ``discover`` lists them; of drivers there is always one.
    """
    policy_units = [unit.mode for unit in units if unit.kind in _POLICY_UNITS]
    in_shadow = policy_units.count("shadow")
    count = count_of(len(policy_units) - in_shadow, "unit")
    count += f" and {in_shadow} in shadow" if in_shadow else ""
    kinds = dict.fromkeys(problem.kind for problem in problems)
    texts = [_in_line([each for each in problems if each.kind == kind]) for kind in kinds]
    return "; ".join([count, *texts]) if texts else f"{count}, all well"


def path_of(kind: str, name: str) -> str:
    """The path of the page of a unit or a cluster; slashes and ``.json`` in its name are escaped.

    Args:
        kind: the first part of the path: units, clusters.
    """
    return f"/{kind}/{quote(name, safe='').replace('.', '%2E')}"


def _in_line(problems: Sequence[Problem]) -> str:
    """The problems of one kind, for the line."""
    first, count = problems[0], sum(problem.stands_for for problem in problems)
    if first.kind in _SEVERAL:
        text = _SEVERAL[first.kind][count > 1].format(count)
        labelled = [problem for problem in problems if problem.label][:_MOST_IN_LINE]
        labels = dict.fromkeys(shortened(problem.label, _LONGEST_NAME) for problem in labelled)
        text += f": {', '.join(labels)}"
        unnamed = count - sum(problem.stands_for for problem in labelled)
        text += f" and {unnamed} more" if unnamed else ""
    else:
        text = first.what
        text += f": {one_line(first.detail, _LONGEST_REASON)}" if first.detail else ""
    since = min((problem.since for problem in problems if problem.since), default=None)
    return f"{text}, since {shown(since)}" if since else text


def _of_calls(state: DaemonState, units: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    """Calls that are not served as their callers asked."""
    if state.stuck:
        yield Problem(
            "daemon", "calls of plugins do not work", "See the journal: journalctl -u "
            "ovirt-scheduler", state.stuck,
        )  # fmt: skip
    for thread in state.threads:
        if thread.problem:
            yield Problem(
                "mistake", "the daemon made a mistake", "Report it, with the log: journalctl -u "
                "ovirt-scheduler", f"{thread.work}: {thread.problem}",
            )  # fmt: skip
    yield from _failing(state, units)
    files = {_name_of(unloaded) for unloaded in state.unloaded}
    in_vain = [unit for unit in state.missing if unit.kinds or unit.name not in files]
    most_named = sorted(in_vain, key=lambda unit: -unit.times)
    for missing in most_named[:_MOST_NAMED]:
        yield _missing(missing)
    others = most_named[_MOST_NAMED:]
    if others:
        yield Problem(
            "missing", f"{count_of(len(others), 'more unit')} that callers name "
            f"{'is' if len(others) == 1 else 'are'} not there",
            "See which: ovirt-scheduler decisions",
            since=moment(min(unit.since for unit in others)), stands_for=len(others),
        )  # fmt: skip


def _failing(state: DaemonState, units: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    """Units whose last call failed; those with the same mistake, such as no engine, together."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        if unit["state"] == "failing":
            alike.setdefault(_PLACE.sub("", unit.get("because", "")), []).append(unit)
    for mistake, failing in alike.items():
        unit = failing[0]
        name, file = shlex.quote(unit["name"]), shlex.quote(unit["file"])
        trial = (
            "save a cluster: ovirt-scheduler snapshot CLUSTER -f cluster.xml; try it there: "
            f"ovirt-scheduler try {file} --cluster cluster.xml"
        )
        if state.engine is None:  # a snapshot is taken of the engine
            trial = f"add a section [engine] to scheduler.conf; {trial}"
        if state.history is not None and state.history.records:
            decision = unit["last_error_decision"]
            trial = f"try it on the last one: ovirt-scheduler try {file} --decision {decision}"
        yield Problem(
            "failing", f"{_with_kinds(failing)} {'is' if len(failing) == 1 else 'are'} failing",
            f"See its calls: ovirt-scheduler decisions --unit {name}; {trial}",
            mistake if len(failing) > 1 else unit.get("because", ""),
            min(unit["since"] for unit in failing), _names(failing), len(failing),
            path_of("units", unit["name"]),
        )  # fmt: skip


def _with_kinds(units: Sequence[dict[str, Any]]) -> str:
    """``Quiet (filter, cost function), Other (filter)``."""
    kinds: dict[str, list[str]] = {}
    for unit in units:
        kinds.setdefault(unit["name"], []).append(unit["kind"])
    texts = [f"{name} ({', '.join(of_name)})" for name, of_name in kinds.items()]
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


def _names(units: Sequence[dict[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(unit["name"] for unit in units))


def _of_answers(units: Sequence[dict[str, Any]], homeless: Sequence[Homeless]) -> Iterator[Problem]:
    """Answers that callers can do less with than they asked for."""
    for unit in units:
        if unit["state"] == "corrected":
            yield Problem(
                "corrected", f"answers of {unit['name']} ({unit['kind']}) are put right",
                f"Mend its file: {unit['file']}", unit["because"], unit["since"], unit["name"],
                page=path_of("units", unit["name"]),
            )  # fmt: skip
    for vm in homeless[:_MOST_NAMED]:
        yield Problem(
            "no host", f"no host was left for {vm.name}: {count_of(vm.times, 'time')}",
            f"See why: ovirt-scheduler why {shlex.quote(vm.name)}", vm.because, moment(vm.since),
            vm.name,
        )  # fmt: skip
    others = homeless[_MOST_NAMED:]
    if others:
        yield Problem(
            "no host", f"no host was left for {count_of(len(others), 'more VM')}",
            "See why: ovirt-scheduler decisions", since=moment(min(vm.since for vm in others)),
            stands_for=len(others),
        )  # fmt: skip


def _missing(unit: MissingUnit) -> Problem:
    """What callers name in vain: there is nothing of that name, or it is of another kind."""
    times = count_of(unit.times, "time")
    kind, what, mend = "missing", "not there", "Put its file back into the folder of plugins"
    if unit.kinds:
        kind, what = "other kind", f"a {' and a '.join(unit.kinds)}"
        mend = "Have callers name it as what it is"
    elif unit.unloaded:
        mend = "Mend what keeps it out"
    return Problem(
        kind, f"callers name the {unit.kind} {unit.name}, which is {what}: {times}",
        f"{mend}, or have them name it no more: an engine names what its scheduling policy has",
        unit.because, moment(unit.since), f"{unit.name} ({times})",
        page=f"/decisions?{urlencode({'unit': unit.name})}",
    )  # fmt: skip


def _name_of(unloaded: UnloadedFile) -> str:
    return Path(unloaded.file).stem or unloaded.file


def _of_files(state: DaemonState, units: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    """Plugins' files that do not load."""
    outdated: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        if "old_version" in unit:
            outdated.setdefault(unit["file"], []).append(unit)
    for of_file in outdated.values():
        since = [unit["since"] for unit in of_file if unit["state"] == "old version"]
        yield Problem(
            "old version", f"an older version of {_with_kinds(of_file)} answers",
            "Mend the file, or put its former text back: the daemon reads it again by itself",
            of_file[0]["old_version"], min(since, default=None), _names(of_file),
            page=path_of("units", of_file[0]["name"]),
        )  # fmt: skip
    times: dict[str, int] = {}
    for missing in (unit for unit in state.missing if not unit.kinds):
        times[missing.name] = times.get(missing.name, 0) + missing.times
    for unloaded in state.unloaded:
        name = _name_of(unloaded)
        calls = f", and callers name it: {count_of(times[name], 'time')}" if name in times else ""
        yield Problem(
            *(("part", f"{name} is loaded in part{calls}") if unloaded.in_part
              else ("plugin", f"{name} is not loaded{calls}")),
            "Mend the file: the daemon reads it again by itself", unloaded.fault, label=name,
        )  # fmt: skip


def _of_settings(state: DaemonState, now: float) -> Iterator[Problem]:
    """What the administrator put there, and does not work."""
    if state.reload_failure is not None:
        yield Problem(
            "reload", "the last reload failed",
            "Mend it, then: systemctl reload ovirt-scheduler; the former settings stay in use",
            state.reload_failure.reason, moment(state.reload_failure.time),
        )  # fmt: skip
    if state.certificate_ends is not None:
        days = int((state.certificate_ends - now) // _DAY)
        if days < _CERTIFICATE_DAYS:
            what = f"ends in {count_of(days, 'day')}" if days >= 0 else "has ended"
            yield Problem(
                "certificate", f"the certificate {what}",
                "See how to renew it: ovirt-scheduler cert check; then: systemctl reload "
                "ovirt-scheduler",
            )  # fmt: skip


def _of_surroundings(state: DaemonState) -> Iterator[Problem]:
    """What the daemon needs of others: the engine, its clusters, the disk."""
    engine, history = state.engine, state.history
    if engine is not None and engine.problem:
        yield Problem(
            "engine", "the engine cannot be asked",
            f"Is {engine.url} there, and is the [engine] section right? Ask it: ovirt-scheduler "
            "check", engine.problem, moment(engine.since),
        )  # fmt: skip
    for cluster in state.clusters:
        page = path_of("clusters", cluster.name)
        if cluster.problem:
            yield Problem(
                "cluster", f"cluster {cluster.name} is not looked after", "See its page, or the "
                "log", cluster.problem, label=cluster.name, page=page,
            )  # fmt: skip
        if cluster.denial:
            yield Problem(
                "denied", f"the user of [engine] may not migrate VMs of {cluster.name}",
                "Give it a role with the permit Migrate VM", cluster.denial,
                moment(cluster.denied_since), page=page,
            )  # fmt: skip
        if cluster.conflict:
            yield Problem(
                "conflict", f"the engine balances cluster {cluster.name}, too",
                "Set its scheduling policy there to none", cluster.conflict, page=page,
            )  # fmt: skip
        yield from _refused(cluster)
        for plan in cluster.plans:
            if plan.state == WAITING:
                yield Problem(
                    "waiting", f"plan {plan.id} of cluster {cluster.name} waits for approval",
                    f"See it: ovirt-scheduler plan show {plan.id}; then approve or refuse it",
                    f"{count_of(len(plan.steps), 'migration')}, the first {plan.steps[0].text}",
                    moment(plan.time), plan.id, page=page,
                )  # fmt: skip
    mend = "Make room on the disk, or mend the state folder's rights"
    if history is not None and history.problem:
        since = moment(history.problem_since)
        yield Problem("history", "the history is not written", mend, history.problem, since)
    elif history is not None and history.undeleted:
        what = "the history grows, as its oldest decisions cannot be deleted"
        yield Problem("history", what, mend, history.undeleted)


def _refused(cluster: ClusterLook) -> Iterator[Problem]:
    """VMs that the engine did not migrate, or that others took back, each once."""
    of_vm: dict[str, list[Refusal]] = {}
    for refusal in cluster.refusals:
        if refusal.obstacle is not Obstacle.NO_HOST:
            of_vm.setdefault(refusal.vm, []).append(refusal)
    mend = "See its events in the engine; the daemon tries again by itself"
    for refusals in [*of_vm.values()][:_MOST_NAMED]:
        name = refusals[0].vm_name
        yield Problem(
            "refused", f"{name} of cluster {cluster.name} cannot be migrated", mend,
            "; ".join(dict.fromkeys(f"{each.obstacle.value}: {each.reason}" for each in refusals)),
            moment(min(each.since for each in refusals)), name,
            page=path_of("clusters", cluster.name),
        )  # fmt: skip
    others = [*of_vm.values()][_MOST_NAMED:]
    if others:
        yield Problem(
            "refused", f"{count_of(len(others), 'more VM')} of cluster {cluster.name} cannot be "
            "migrated", mend, stands_for=len(others),
            since=moment(min(each.since for refusals in others for each in refusals)),
        )  # fmt: skip
