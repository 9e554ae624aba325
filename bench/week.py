"""A simulated week: load rises and falls, hosts fail; what driving the cluster makes of it.

``python -m bench.week`` plays it balanced by ``evenly_distribute`` with the default ``hold`` and
``margin``, then without these, then not balanced at all. It prints the mean imbalance of each, and
how many migrations were undone: the VM was back within an hour.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench import scenario
from ovirt_scheduler.workbench.sections import changed_section
from ovirt_scheduler.workbench.simulation import MIGRATED, Outcome, Simulation
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support import snapshots

_HOSTS, _VMS = 10, 70
_KINDS = ("web", "batch", "desk")
_WEEK = """\
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


def play(running: runtime.Runtime, file: Path, **keys: str) -> Outcome:
    """Play it under the default scheduler.

    Args:
        file: for the scenario.
        keys: of the cluster's section.
    """
    running.registry.refresh()
    file.write_text(_WEEK)
    keys = {"load_balance_interval": "5", **keys}
    settings = changed_section(ClusterSettings("Default"), keys, "week")
    return Simulation(running, made(), settings, scenario.read(file), seed=1).run()


def judged(outcome: Outcome) -> Played:
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
        with runtime.started(config.load(conf, {})) as running:
            for keys in _PLAYED:
                begun = time.process_time()
                found = judged(play(running, file, **keys))
                words = ", ".join(f"{key} = {value}" for key, value in keys.items())
                print(
                    f"{words}: mean imbalance {found.imbalance:.1f} %, {found.migrations} "
                    f"migrations, {found.undone} undone within an hour; "
                    f"{time.process_time() - begun:.0f} s of processor time here"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
