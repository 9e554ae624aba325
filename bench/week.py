"""A simulated week: load rises and falls, hosts fail; what driving the cluster makes of it.

``python -m bench.week`` plays it balanced by ``evenly_distribute`` with the default ``hold`` and
``margin``, then without these, then not balanced at all. It prints the mean imbalance of each, and
how many migrations were undone: the VM was back within an hour.

At last it plays the first one with an engine that refuses one of twenty migrations, one of fifty
fails, and the engine's enforcer takes some back. It ends with 1 where a migration was asked for
again within the pause, or where the imbalance is more than 1.2 times that without all this.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.model.plans import Obstacle, Step
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench import scenario
from ovirt_scheduler.workbench.scenario import Scenario
from ovirt_scheduler.workbench.sections import changed_section
from ovirt_scheduler.workbench.simulation import MIGRATED, Simulation, SimulationResult
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support import snapshots

_HOSTS, _VMS = 10, 70
_KINDS = ("web", "batch", "desk")
WEEK = """\
hours = 168
[vms]
[[late]]
count = 6
memory = 8 GiB
processors = 2
load = 60
at = 30
lasts = 60
[hosts]
[[host2]]
fails = 26.5
returns = 29
[[host5]]
fails = 75
returns = 80
[[host7]]
maintenance = 100
returns = 104
[[host8]]
fails = 130.2
returns = 131
[load]
[[web-*]]
lowest = 20
highest = 170
peak = 14
jitter = 15
[[batch-*]]
lowest = 30
highest = 180
peak = 3
jitter = 15
[[desk-*]]
lowest = 10
highest = 190
peak = 10
jitter = 15
[[*]]
jitter = 15
"""


_PLAYED = (
    {"policy": "evenly_distribute"},
    {"policy": "evenly_distribute", "hold": "0", "margin": "0"},
    {"policy": "none"},
)


# Of the migrations; and at each look of the VMs that were moved just before.
_REFUSED, _FAILED, _TAKEN_BACK = 0.05, 0.02, 0.05
MOST_TIMES = 1.2  # the mean imbalance


class Hindered(Simulation):
    """A week in which migrations are refused, fail, or are undone by others.

    Attributes:
        requests: the migrations that were asked for.
        refused, failed, taken_back: how many, and how many VMs.
        again: migrations that were asked for within the pause after they were refused, or failed,
            and those of VMs that others took back, within an hour.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chance = random.Random(self.seed)  # noqa: S311
        self._closed_until: dict[tuple[str, str], float] = {}  # by VM and host; no host: any
        self._brought: dict[str, tuple[str, float]] = {}  # VM to its former host, and when
        self.requests = self.refused = self.failed = self.taken_back = self.again = 0

    def _look(self) -> None:
        super()._look()
        now = self._hour * 3600
        for key, (former, moment) in [*self._brought.items()]:
            vm, host = self._cluster.vms[key], self._cluster.hosts[former]
            is_recent = now - moment < self.settings.refused_pause
            if not is_recent or vm.host is None:
                del self._brought[key]
            elif self._chance.random() < _TAKEN_BACK and not host.refusal(vm):
                self._cluster.place(vm, host)
                self._closed_until[key, ""] = now + 3600
                self.taken_back += 1
                del self._brought[key]

    def _migrate(self, step: Step, now: float) -> bool:
        self.requests += 1
        until = [self._closed_until.get((step.vm, host), 0.0) for host in ("", step.target)]
        self.again += now < max(until)
        if self._chance.random() < _FAILED:
            self.failed += 1
            self._closed_until[step.vm, step.target] = now + self.settings.refused_pause
            self._refusals.add(step, Obstacle.FAILED, "a network failed", now)
            return False
        is_begun = super()._migrate(step, now)
        if is_begun:
            self._brought[step.vm] = step.source, now
        return is_begun

    def _refusal(self, step: Step) -> str:
        refusal = super()._refusal(step)
        if not refusal and self._chance.random() < _REFUSED:
            self.refused += 1
            refusal = "a rule of the engine forbids it"
            pause = self.settings.refused_pause
            self._closed_until[step.vm, step.target] = self._hour * 3600 + pause
        return refusal


class Played(NamedTuple):
    """What a week came to.

    Attributes:
        imbalance: the mean of all looks, in percent.
        migrations: made by balancing.
        undone: those after which the VM was back where it was within an hour.
    """

    imbalance: float
    migrations: int
    undone: int


def made(seed: int = 1) -> Snapshot:
    """A cluster with VMs of three kinds, each of which runs anywhere."""
    chance = random.Random(seed)  # noqa: S311
    on: dict[str, list[tuple[str, int, int, float]]] = {f"host{n}": [] for n in range(_HOSTS)}
    for number in range(_VMS):
        kind = _KINDS[number % 3]
        processors = chance.choice((2, 4))
        load = processors * chance.uniform(0.2, 0.6)
        on[f"host{chance.randrange(_HOSTS)}"].append(
            (f"{kind}-{number}", chance.choice((2, 4)), processors, load)
        )
    hosts = [
        snapshots.host(
            name, used=sum(memory for _, memory, _, _ in inside),
            busy=min(15.0, sum(load for _, _, _, load in inside)), running=len(inside),
        )
        for name, inside in on.items()
    ]  # fmt: skip
    vms = [
        snapshots.vm(name, host, memory, processors, load, available=True)
        for host, inside in on.items()
        for name, memory, processors, load in inside
    ]
    return snapshots.snapshot(hosts, vms)


def play(running: runtime.Runtime, file: Path, **keys: str) -> SimulationResult:
    """Play it under the default scheduler.

    Args:
        file: for the scenario.
        keys: of the cluster's section.
    """
    return Simulation(*arranged(running, file, keys), seed=1).run()


def hinder(running: runtime.Runtime, file: Path, **keys: str) -> tuple[Hindered, SimulationResult]:
    """Play it as ``play``, with an engine that does not do all that it is asked for."""
    simulation = Hindered(*arranged(running, file, keys), seed=1)
    return simulation, simulation.run()


def arranged(
    running: runtime.Runtime, file: Path, keys: Mapping[str, str], happens: str = WEEK
) -> tuple[runtime.Runtime, Snapshot, ClusterSettings, Scenario]:
    """What a simulation needs.

    Args:
        file: for the scenario.
        keys: of the cluster's section.
        happens: the scenario.
    """
    running.registry.refresh()
    file.write_text(happens)
    keys = {"load_balance_interval": "5", **keys}
    settings = changed_section(ClusterSettings("Default"), keys, "week")
    return running, made(), settings, scenario.read(file)


def judged(outcome: SimulationResult) -> Played:
    """What there is to say of it."""
    moves = [move for move in outcome.moves if move.what == MIGRATED]
    undone = sum(
        any(
            (after.vm, after.source, after.target) == (move.vm, move.target, move.source)
            and move.hour <= after.hour <= move.hour + 1
            for after in outcome.migrations
        )
        for move in moves
    )
    course = [percent for _, percent in outcome.course]
    return Played(sum(course) / len(course), len(moves), undone)


def main() -> int:
    """Play both, and print what they come to."""
    with tempfile.TemporaryDirectory() as folder:
        conf, file = Path(folder) / "scheduler.conf", Path(folder) / "week.conf"
        conf.touch()
        with runtime.started(scheduler_conf.load(conf, {})) as running:
            undisturbed = 0.0
            for keys in _PLAYED:
                begun = time.process_time()
                found = judged(play(running, file, **keys))
                words = ", ".join(f"{key} = {value}" for key, value in keys.items())
                print(
                    f"{words}: mean imbalance {found.imbalance:.1f} %, {found.migrations} "
                    f"migrations, {found.undone} undone within an hour; "
                    f"{time.process_time() - begun:.0f} s of processor time here"
                )
                undisturbed = undisturbed or found.imbalance
            hindered, outcome = hinder(running, file, **_PLAYED[0])
            found = judged(outcome)
    times = found.imbalance / undisturbed
    print(
        f"of {hindered.requests} migrations {hindered.refused} refused, {hindered.failed} failed, "
        f"{hindered.taken_back} taken back: mean imbalance {found.imbalance:.1f} %, {times:.2f} "
        f"times that without, {found.migrations} migrations, {found.undone} undone within an hour; "
        f"{hindered.again} asked for again within the pause"
    )
    return int(hindered.again > 0 or times > MOST_TIMES)


if __name__ == "__main__":
    sys.exit(main())
