"""The status: what is well, what is wrong since when, and what to do next."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Optional

from ovirt_scheduler.history.tally import Tally, UnitTally
from ovirt_scheduler.model.losses import WorstLoss
from ovirt_scheduler.model.plans import WAITING, ClusterLook, Obstacle, Refusal
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.server.pages import problems
from ovirt_scheduler.server.pages.daemon_state import DaemonState, UnitState
from ovirt_scheduler.server.pages.times import clock, moment

Status = dict[str, Any]

# Keys of the status, and the attributes that they show.
_PROCESSES = {
    "kept": "of_plugins", "started": "started", "replaced": "replaced",
    "zygotes_started": "zygotes_started",
}  # fmt: skip
_CALLS = {"running": "running", "places": "slots", "waiting": "waiting", "refused": "refused"}

_FIRST = {
    "failing": 0,
    "old version": 1,
    "corrected": 2,
    "not called yet": 3,
}  # the order of units by their states; then the others
_PLANNED = 100  # migrations of a plan that are shown
_MOST_GROUPS = 5  # with broken rules that are named in a line
_DAY = 86400.0


def status(state: DaemonState, tally: Tally) -> Status:
    """The status now, as ``/status.json`` and ``ovirt-scheduler status -o json`` give it."""
    now = time.time()
    units = [_unit(unit, tally.unit(unit.name, unit.kind), now) for unit in state.units]
    units.sort(key=lambda unit: _FIRST.get(unit["state"], len(_FIRST)))
    wrong = problems.gather(state, units, tally.homeless(now), now)
    processes, ends, engine = state.processes, state.certificate_ends, state.engine
    return _without_blanks(
        version=state.version,
        started=moment(state.started),
        uptime_seconds=round(now - state.started),
        well=not wrong,
        line=problems.line(state.units, wrong),
        problems=[problem.record() for problem in wrong],
        units=units,
        processes={key: getattr(processes, name) for key, name in _PROCESSES.items()},
        calls={key: getattr(processes, name) for key, name in _CALLS.items()},
        clusters=[_cluster(cluster) for cluster in state.clusters],
        plugins_path=state.plugins_path,
        certificate=ends and {"ends": moment(ends), "days_left": int((ends - now) // _DAY)},
        engine=engine and _without_blanks(
            url=engine.url, reachable=not engine.problem, since=moment(engine.since),
            problem=engine.problem,
        ),
        engine_followed=state.followed and dict(state.followed),
        history=state.history and _without_blanks(
            **{**state.history._asdict(), "problem_since": moment(state.history.problem_since)}
        ),
    )  # fmt: skip


def _without_blanks(**values: object) -> Status:
    """Those of the values that are neither None nor an empty text."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _cluster(cluster: ClusterLook) -> Status:
    return _without_blanks(
        name=cluster.name,
        drive=cluster.drive,
        imbalance=None if cluster.imbalance is None else round(cluster.imbalance, 1),
        last_look=moment(cluster.last_look),
        next_look=moment(cluster.next_look),
        problem=cluster.problem,
        plans=[{"time": moment(plan.time), **plan.record(_PLANNED)} for plan in cluster.plans],
        driven_by=cluster.driven_by,
        refusals=[_refusal(refusal) for refusal in cluster.refusals] or None,
        denial=cluster.denial,
        denied_since=moment(cluster.denied_since),
        conflict=cluster.conflict,
        upgraded=cluster.upgraded or None,
        broken_rules=[{"group": group, "hard": is_hard} for group, is_hard in cluster.broken]
        or None,
        without_rules=cluster.without_rules,
        policy=dict(cluster.policy),
        worst_loss=None if cluster.worst_loss is None else _loss(cluster.worst_loss),
    )


def cluster(look: ClusterLook) -> Status:
    """A cluster as ``/clusters/NAME.json`` gives it."""
    hosts = [
        {
            "id": host.id, "name": host.name, "status": host.status, "used": dict(host.used),
            "vms": [{"id": vm, "name": name} for vm, name in host.vms],
        }
        for host in look.hosts
    ]  # fmt: skip
    course = [{"time": moment(at), "imbalance": round(part, 1)} for at, part in look.course]
    return {**_cluster(look), "hosts": hosts, "course": course}


def _loss(worst: WorstLoss) -> Status:
    loss = worst.loss
    return _without_blanks(
        host=loss.host,
        vms_without_place=[vm.vm for vm in loss.homeless],
        highly_available=loss.urgent,
        all_tried=loss.is_best,
        counted=moment(worst.time),
        without=", ".join(worst.without),
        reservation=worst.reservation,
    )


def _refusal(refusal: Refusal) -> Status:
    host = {"id": refusal.host, "name": refusal.host_name}
    return _without_blanks(
        vm={"id": refusal.vm, "name": refusal.vm_name},
        host=host if refusal.host else None,
        obstacle=refusal.obstacle.value,
        reason=refusal.reason,
        since=moment(refusal.since),
        last=moment(refusal.latest),
    )


def _unit(unit: UnitState, tally: UnitTally, now: float) -> Status:
    state, since, old = "ok" if unit.mode == "live" else "in shadow", None, ""
    if unit.old_since is not None and unit.old_version is not None:
        state, since = "old version", unit.old_since
        old = (
            f"the version of {clock(unit.old_version, True)} answers; the file has not loaded "
            f"since {clock(since, True)}: {unit.old_because}"
        )
    because = old
    if tally.is_corrected(unit.checksum):
        state, since, because = "corrected", tally.corrected_since, tally.last_note
    if tally.fails(unit.checksum):
        state, since, because = "failing", tally.failing_since, tally.last_error
    elif tally.failing_since is not None and tally.checksum != unit.checksum and not old:
        state, because = "not called yet", "its file was loaded anew after the last call, which "
        because += f"failed: {tally.last_error}"
    return _without_blanks(
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
        last_error_decision=tally.last_error_decision,
    )


def _in_milliseconds(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else round(seconds * 1000, 2)


def cluster_state(cluster: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a cluster in words; and good, doubt, where somebody is waited for, or bad."""
    refused = {
        refusal["vm"]["id"]
        for refusal in cluster.get("refusals", ())
        if refusal["obstacle"] != Obstacle.NO_HOST.value
    }
    waiting = sum(plan["state"] == WAITING for plan in cluster["plans"])
    wait = f"{count_of(waiting, 'plan')} {'waits' if waiting == 1 else 'wait'} for approval"
    others = "; ".join((*_rules_state(cluster), *_loss_state(cluster)))
    states = (
        ("driven_by" in cluster, f"stands by, {cluster.get('driven_by')} drives it", "good"),
        ("problem" in cluster, str(cluster.get("problem")), "bad"),
        ("denial" in cluster, "the engine's user may not migrate VMs", "bad"),
        (bool(refused), f"{count_of(len(refused), 'VM')} cannot be migrated", "bad"),
        ("conflict" in cluster, "the engine balances it, too", "bad"),
        ("upgraded" in cluster, "is being upgraded, and not balanced", "good"),
        (bool(waiting), wait, "doubt"),
        (not others, "well", "good"),
    )
    state, mood = next(((text, mood) for holds, text, mood in states if holds), ("", "doubt"))
    return "; ".join(filter(None, (state, others if "driven_by" not in cluster else ""))), mood


def _rules_state(cluster: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of a cluster's affinity rules."""
    for is_hard, kind in ((True, "hard"), (False, "soft")):
        rules = cluster.get("broken_rules", ())
        names = [rule["group"] for rule in rules if rule["hard"] is is_hard]
        if names:
            more = ", ..." if len(names) > _MOST_GROUPS else ""
            number = count_of(len(names), f"{kind} affinity rule")
            yield f"{number} broken: {', '.join(names[:_MOST_GROUPS])}{more}"
    if "without_rules" in cluster:
        yield "without the engine's rules"


def _loss_state(cluster: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of the loss of a host."""
    worst = cluster.get("worst_loss", {})
    if worst.get("vms_without_place"):
        number = count_of(len(worst["vms_without_place"]), "VM")
        yield f"if {worst['host']} fails, {number} without a place"


def facts(report: Status) -> list[tuple[str, str]]:
    """The other facts about the daemon for a person: a term and a text each."""
    processes, calls = report["processes"], report["calls"]
    replaced = sum(processes["replaced"].values())
    of_plugins = f"{processes['kept']} kept, {processes['started']} started, {replaced} replaced"
    rows = [
        ("Runs for", str(timedelta(seconds=report["uptime_seconds"]))),
        ("Calls under way", f"{calls['running']} of {calls['places']}; {calls['waiting']} wait"),
        ("Refused at the limit", str(calls["refused"])),
        ("Processes of plugins", of_plugins),
        *((f"Replaced: {reason}", str(count)) for reason, count in processes["replaced"].items()),
    ]  # fmt: skip
    if "certificate" in report:
        certificate = report["certificate"]
        days, ends = certificate["days_left"], certificate["ends"][:10]
        when = f"in {count_of(days, 'day')}, {ends}" if days >= 0 else f"ended on {ends}"
        rows.append(("Certificate ends", when))
    if "engine" in report:
        well = "answers" if report["engine"]["reachable"] else "cannot be asked"
        rows.append(("Engine", f"{report['engine']['url']} {well}"))
    if "engine_followed" in report:
        yes, no = (report["engine_followed"][word] for word in ("yes", "no"))
        if yes + no:
            text = f"{count_of(yes + no, 'VM')} started or moved, {yes} of them to the best host"
            rows.append(("Engine follows", text))
    if "history" in report:
        history = report["history"]
        lost = f", {history['dropped']} lost" if history["dropped"] else ""
        number = count_of(history["decisions"], "decision")
        rows.append(("History", f"{number}, {history['bytes'] / (1 << 20):.1f} MiB{lost}"))
    return rows
