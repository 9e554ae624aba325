"""A simulated week under affinity groups, and a checker that knows only groups and migrations.

``python -m bench.week_rules`` plays the week of ``bench.week`` without groups, and then with groups
of each kind, of which some are broken at the beginning: under an account that may read the groups
and ask the engine beforehand, and under one that may do neither. The engine's enforcer mends one
rule a minute. It ends with 1 where a hard rule is broken after the first hour, or where the mean
imbalance is more than 1.2 times that without groups.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench import week
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.workbench.scenario import FAILS, HostEvent
from ovirt_scheduler.workbench.simulation import ENFORCED, Move, Simulation, SimulationResult
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.rest_affinity import HARD, SOFT, Group, groups_document
from tests.support.rest_server import id_of

MOST_TIMES = 1.2  # the mean imbalance
FIRST_HOUR = 1.0

GROUPS = (
    Group("web apart", ["web-0", "web-3", "web-6", "web-9", "web-12"], apart=HARD),
    Group("desk apart", ["desk-2", "desk-5", "desk-8"], apart=HARD),
    Group("web pair", ["web-15", "web-18"], together=HARD),
    Group("batch three", ["batch-1", "batch-4", "batch-7"], together=HARD),
    Group("licence", ["batch-10", "batch-13", "batch-16"], ["host0", "host1", "host2"], on=HARD),
    Group("no licence", ["desk-11", "desk-14"], ["host0", "host1"], off=HARD),
    Group("desk near", ["desk-17", "desk-20"], together=SOFT),
    Group("batch apart", ["batch-19", "batch-22", "batch-25"], apart=SOFT, priority=5),
    Group("fast", ["web-21", "web-24"], ["host3", "host4", "host6"], on=SOFT),
)


class Asking(Simulation):
    """A week of an account that may ask: what the engine would refuse is not planned."""

    def _closed_to(self, now: float, staying: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        closed = dict(super()._closed_to(now, staying))
        for key in self._rules.rules.vms:
            vm = self._cluster.vms.get(key)
            if vm is None or vm.host is None or len(self._rules.unit_of(vm)) > 1:
                continue  # of several that move together the engine is asked as a whole
            refused = {host: "" for host, why in self._rules.refusals((key,)).items() if why}
            closed[key] = {**refused, **closed.get(key, {})}
        return closed


@dataclass
class Checker:
    """Follows where VMs run by the moves alone, by name, and finds the hard groups they break.

    Attributes:
        where: host of each VM that runs.
    """

    groups: Sequence[Group]
    where: dict[str, str]

    def broken(self) -> Iterator[str]:
        """The names of the groups that break a hard rule now."""
        for group in self.groups:
            hosts = [self.where[vm] for vm in group.vms if vm in self.where]
            if (
                (group.together is HARD and len(set(hosts)) > 1)
                or (group.apart is HARD and len(set(hosts)) < len(hosts))
                or (group.on is HARD and not set(hosts) <= {*group.hosts})
                or (group.off is HARD and set(hosts) & {*group.hosts})
            ):
                yield group.name

    def course(
        self, moves: Sequence[Move], events: Sequence[HostEvent]
    ) -> Iterator[tuple[float, list[str]]]:
        """The broken groups before the first hour with moves, and after each."""
        yield 0.0, [*self.broken()]
        failures = [event for event in events if event.what == FAILS]
        for hour in sorted({move.hour for move in moves}):
            for event in [event for event in failures if event.at <= hour]:
                failures.remove(event)
                self.where = {vm: host for vm, host in self.where.items() if host != event.host}
            self.where.update((move.vm, move.target) for move in moves if move.hour == hour)
            yield hour, [*self.broken()]


def with_groups(snapshot: Snapshot, groups: Sequence[Group] = GROUPS) -> Snapshot:
    """The same cluster with affinity groups."""
    key = id_of("cluster Default")
    engine: Any = SimpleNamespace(groups=groups)
    element = f'<cluster id="{key}"><name>Default</name>{groups_document(engine)}</cluster>'
    return replace(snapshot, clusters={key: element.encode()})


def play(
    running: runtime.Runtime, file: Path, happens: str, may_ask: bool
) -> tuple[SimulationResult, list[tuple[float, list[str]]]]:
    """Play it with groups.

    Args:
        happens: the scenario.
        may_ask: whether the account may read the groups, and ask beforehand.

    Returns:
        The outcome; by hour the broken hard groups, as the checker finds them.
    """
    keys = {"policy": "evenly_distribute", "affinity": "true" if may_ask else "false"}
    _, snapshot, settings, scenario = week.arranged(running, file, keys, happens)
    saved = with_groups(snapshot)
    kind = Asking if may_ask else Simulation
    outcome = kind(running, saved, settings, scenario, seed=1).run()
    names = {host.get("id"): host.findtext("name") or "" for host in saved.elements("hosts")}
    where = {
        vm.findtext("name") or "": names[host.get("id")]
        for vm in saved.elements("vms")
        if (host := vm.find("host")) is not None
    }
    return outcome, [*Checker(GROUPS, where).course(outcome.moves, scenario.host_events)]


def main() -> int:
    """Play all, and print what they come to."""
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        conf, file = Path(folder) / "scheduler.conf", Path(folder) / "week.conf"
        conf.touch()
        with runtime.started(scheduler_conf.load(conf, {})) as running:
            plain = week.judged(week.play(running, file, policy="evenly_distribute")).imbalance
            print(f"without groups: mean imbalance {plain:.1f} %")
            for may_ask in (True, False):
                outcome, course = play(running, file, week.WEEK, may_ask)
                judged = week.judged(outcome)
                late = [(hour, names) for hour, names in course if names and hour >= FIRST_HOUR]
                enforced = sum(move.what == ENFORCED for move in outcome.moves)
                times = judged.imbalance / plain
                print(
                    f"{'may' if may_ask else 'may not'} ask: hard rules broken at the beginning "
                    f"{len(course[0][1])}, looks with a broken one after the first hour "
                    f"{len(late)} {late[:3]}, mean imbalance {judged.imbalance:.1f} %, "
                    f"{times:.2f} times that without groups; {judged.migrations} migrations, "
                    f"{enforced} by the enforcer, {sum(outcome.refused.values())} refused"
                )
                status |= bool(late) or times > MOST_TIMES
    return status


if __name__ == "__main__":
    sys.exit(main())
