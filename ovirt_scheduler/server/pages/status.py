"""The status: what is well, what is wrong since when, and what to do next."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Optional

from ovirt_scheduler.history import query
from ovirt_scheduler.history.tally import Tally, UnitTally
from ovirt_scheduler.model.daemon_state import ClusterLook, DaemonState, UnitState
from ovirt_scheduler.model.values.text import count_of

Status = dict[str, Any]

_PROCESSES = ("kept", "started", "replaced", "zygotes_started")
_CALLS = ("running", "places", "waiting", "refused")

_PLANNED = 100  # migrations of a plan that are shown
_DAY = 86400.0
_CERTIFICATE_DAYS = 30
_MOST_NAMED = 3  # units in the line


def status(state: DaemonState, tally: Tally) -> Status:
    """The status now, as ``/status.json`` and ``ovirt-scheduler status -o json`` give it."""
    now = time.time()
    units = [_unit(unit, tally.unit(unit.name, unit.kind), now) for unit in state.units]
    problems = [*_problems(state, units, now)]
    processes, ends, engine = state.processes, state.certificate_ends, state.engine
    return _known(
        version=state.version,
        started=moment(state.started),
        uptime_seconds=round(now - state.started),
        well=not problems,
        line=_line(units, problems),
        problems=problems,
        units=units,
        processes={name: getattr(processes, name) for name in _PROCESSES},
        calls={name: getattr(processes, name) for name in _CALLS},
        clusters=[_cluster(cluster) for cluster in state.clusters],
        plugins_path=state.plugins_path,
        certificate=ends and {"ends": moment(ends), "days_left": int((ends - now) // _DAY)},
        engine=engine and _known(
            url=engine.url, reachable=not engine.problem, since=moment(engine.since),
            problem=engine.problem,
        ),
        history=state.history and _known(**state.history._asdict()),
    )  # fmt: skip


def moment(seconds: Optional[float]) -> Optional[str]:
    """A time as RFC 3339, in UTC, to the second; None if there is none."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def clock(seconds: float) -> str:
    """A time for people, of this machine's time zone: ``02:14``, or with its day if not today's."""
    local = time.localtime(seconds)
    is_today = local[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", local)


def milliseconds(number: Optional[float]) -> str:
    """A time for people: ``0.8 ms``, ``12 ms``, ``1.5 s``; a dash for None."""
    if number is None:
        return "-"
    if number >= 1000:
        return f"{number / 1000:.1f} s"
    return f"{number:.1f} ms" if number < 10 else f"{number:.0f} ms"


def _known(**values: object) -> Status:
    """Those of the values that are neither None nor an empty text."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _cluster(cluster: ClusterLook) -> Status:
    return _known(
        name=cluster.name,
        drive=cluster.drive,
        imbalance=None if cluster.imbalance is None else round(cluster.imbalance, 1),
        last_look=moment(cluster.last_look),
        next_look=moment(cluster.next_look),
        problem=cluster.problem,
        plans=[{"time": moment(plan.time), **plan.record(_PLANNED)} for plan in cluster.plans],
        driven_by=cluster.driven_by,
    )


def _unit(unit: UnitState, tally: UnitTally, now: float) -> Status:
    state, since, old = "ok" if unit.mode == "live" else "in shadow", None, ""
    if unit.old_since is not None and unit.old_version is not None:
        state, since = "old version", unit.old_since
        old = (
            f"the version of {clock(unit.old_version)} answers; the file has not loaded "
            f"since {clock(since)}: {unit.old_because}"
        )
    because = old
    if tally.failing_since is not None:
        state, since, because = "failing", tally.failing_since, tally.last_error
    return _known(
        name=unit.name,
        kind=unit.kind,
        mode=unit.mode,
        state=state,
        since=moment(since),
        because=because,
        version_of=moment(unit.old_version),
        old_version=old,
        file=unit.file,
        checksum=unit.checksum,
        calls=tally.calls,
        failures=tally.failures,
        last_hour=[list(minute) for minute in tally.last_hour(now)],
        median_ms=_in_milliseconds(tally.quantile(0.5)),
        p99_ms=_in_milliseconds(tally.quantile(0.99)),
        last_error=tally.last_error,
        last_error_at=moment(tally.last_error_at),
    )


def _in_milliseconds(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else round(seconds * 1000, 2)


def _line(units: list[Status], problems: list[Status]) -> str:
    """The whole in one line: ``8 units, 1 failing: Night, since 02:14``."""
    line = count_of(len(units), "unit")
    failing = [unit for unit in units if unit["state"] == "failing"]
    if failing:
        first = min(failing, key=lambda unit: str(unit["since"]))
        names = ", ".join(unit["name"] for unit in failing[:_MOST_NAMED])
        more = f" and {len(failing) - _MOST_NAMED} more" if len(failing) > _MOST_NAMED else ""
        line += f", {len(failing)} failing: {names}{more}, since {shown(first['since'])}"
    others = [problem["what"] for problem in problems if problem["kind"] != "failing"]
    if others:
        line += f"; {'; '.join(others[:_MOST_NAMED])}"
        line += f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    return line if problems else f"{line}, all well"


def shown(text: str) -> str:
    """What ``moment`` wrote, for people; see ``clock``."""
    return clock(query.moment(text))


def cluster_state(cluster: Mapping[str, Any]) -> str:
    """The state of a cluster, in words."""
    if "driven_by" in cluster:
        return f"stands by, {cluster['driven_by']} drives it"
    return str(cluster.get("problem", "well"))


def _problems(state: DaemonState, units: list[Status], now: float) -> Iterator[Status]:
    """What is wrong, the worst first; each says what to do next."""
    if state.stuck:
        yield _problem("daemon", "calls of plugins do not work", state.stuck,
                       "See the journal: journalctl -u ovirt-scheduler")  # fmt: skip
    for unit in units:
        if unit["state"] == "failing":
            yield _problem(
                "failing", f"{unit['name']} ({unit['kind']}) is failing", unit.get("because", ""),
                f"See its calls: ovirt-scheduler decisions --unit {shlex.quote(unit['name'])}; "
                f"try it: ovirt-scheduler try {shlex.quote(unit['file'])}", unit["since"],
            )  # fmt: skip
        if "old_version" in unit:
            since = unit["since"] if unit["state"] == "old version" else None
            yield _problem(
                "old version", f"an older version of {unit['name']} ({unit['kind']}) answers",
                unit["old_version"],
                "Mend the file, or put its former text back: the daemon reads it again by itself",
                since,
            )  # fmt: skip
    for fault in state.faults:
        yield _problem("plugin", "a plugin is not loaded", fault,
                       "Mend the file: the daemon reads it again by itself")  # fmt: skip
    yield from _surroundings(state, now)


def _surroundings(state: DaemonState, now: float) -> Iterator[Status]:
    if state.reload_failed is not None:
        yield _problem("reload", "the last reload failed, see the log", "",
                       "journalctl -u ovirt-scheduler; mend it, then systemctl reload "
                       "ovirt-scheduler", moment(state.reload_failed))  # fmt: skip
    if state.certificate_ends is not None:
        days = int((state.certificate_ends - now) // _DAY)
        if days < _CERTIFICATE_DAYS:
            what = f"ends in {count_of(days, 'day')}" if days >= 0 else "has ended"
            yield _problem("certificate", f"the certificate {what}", "",
                           "ovirt-scheduler cert check says how to renew it; then systemctl reload "
                           "ovirt-scheduler")  # fmt: skip
    if state.engine is not None and state.engine.problem:
        since = moment(state.engine.since)
        yield _problem("engine", "the engine cannot be asked", state.engine.problem,
                       f"Is {state.engine.url} there, and is the [engine] section right? "
                       "ovirt-scheduler check asks it", since)  # fmt: skip
    for cluster in state.clusters:
        if cluster.problem:
            yield _problem("cluster", f"cluster {cluster.name} is not looked after",
                           cluster.problem, "See its page, or the log")  # fmt: skip
    if state.history is not None:
        mend = "Make room on the disk, or mend the state folder's rights"
        if state.history.problem:
            yield _problem("history", "the history is not written", state.history.problem, mend)
        elif state.history.undeleted:
            what = "the history grows, as its oldest decisions cannot be deleted"
            yield _problem("history", what, state.history.undeleted, mend)


def _problem(kind: str, what: str, detail: str, mend: str, since: Optional[str] = None) -> Status:
    return _known(kind=kind, what=what, mend=mend, detail=detail, since=since)


def facts(report: Status) -> list[tuple[str, str]]:
    """The other facts about the daemon for a person: a term and a text each."""
    processes, calls = report["processes"], report["calls"]
    replaced = sum(processes["replaced"].values())
    kept = f"{processes['kept']} kept, {processes['started']} started, {replaced} replaced"
    found = [
        ("Runs for", str(timedelta(seconds=report["uptime_seconds"]))),
        ("Calls under way", f"{calls['running']} of {calls['places']}; {calls['waiting']} wait"),
        ("Refused at the limit", str(calls["refused"])),
        ("Processes of plugins", kept),
        *((f"Replaced: {reason}", str(count)) for reason, count in processes["replaced"].items()),
    ]  # fmt: skip
    if "certificate" in report:
        certificate = report["certificate"]
        days, ends = certificate["days_left"], certificate["ends"][:10]
        left = f"in {count_of(days, 'day')}, {ends}" if days >= 0 else f"ended on {ends}"
        found.append(("Certificate ends", left))
    if "engine" in report:
        well = "answers" if report["engine"]["reachable"] else "cannot be asked"
        found.append(("Engine", f"{report['engine']['url']} {well}"))
    if "history" in report:
        history = report["history"]
        lost = f", {history['dropped']} lost" if history["dropped"] else ""
        held = count_of(history["decisions"], "decision")
        found.append(("History", f"{held}, {history['bytes'] / (1 << 20):.1f} MiB{lost}"))
    return found
