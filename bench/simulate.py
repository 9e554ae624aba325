"""How long a simulation takes: many VMs are placed, and balanced until the cluster is at rest.

``python -m bench.simulate`` plays 250 hosts with 3,000 VMs, on which 500 more come, with a filter
and a cost function, and prints what it takes; ``--profile`` adds where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from ovirt_scheduler.command import cli
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support import snapshots

_TOTAL = 19_000  # bytes of an element, as engines of 4.4 write it with its statistics
_STATISTICS = 14  # of each, beside those that are looked at
_SECTION = """\
[clusters]
[[Default]]
filters = MaxVms
cost_functions = EvenVms
properties = maximum_vm_count=60;high_utilization=60;low_utilization=20
"""


def made(hosts: int, vms: int, seed: int = 0) -> Snapshot:
    """A cluster whose first hosts have most of the VMs."""
    chance = random.Random(seed)  # noqa: S311
    on: dict[int, list[tuple[int, float]]] = {number: [] for number in range(hosts)}
    for _ in range(vms):
        place = int(hosts * chance.random() ** 1.3)
        on[place].append((chance.choice((1, 2, 4)), chance.uniform(0.05, 1.2)))
    several = [f"host{number:03}" for number in on]
    elements, machines = [], []
    for name, inside in zip(several, on.values()):
        used = min(120, sum(memory for memory, _ in inside))
        busy = min(31.0, sum(load for _, load in inside))
        host = snapshots.host(
            name, 128, processors=32, used=used, busy=busy, running=len(inside)
        )  # fmt: skip
        elements.append(_filled(host, _TOTAL))
        machines += [
            _filled(snapshots.vm(f"{name}-{number}", name, memory, busy=load), _TOTAL)
            for number, (memory, load) in enumerate(inside)
        ]
    return snapshots.snapshot(elements, machines)


def _filled(element: str, size: int) -> str:
    """The element with what else an engine writes: as many statistics, the rest links."""
    statistics = "".join(
        f'<statistic href="/ovirt-engine/api/statistics/{number:040}" id="{number:040}">'
        f"<name>other.{number}</name><description>Something that is measured</description>"
        "<kind>gauge</kind><type>integer</type><unit>bytes</unit><values><value><datum>7</datum>"
        "</value></values></statistic>"
        for number in range(_STATISTICS)
    )
    element = element.replace("</statistics>", f"{statistics}</statistics>")
    links = "".join(
        f'<link href="/ovirt-engine/api/{number:036}/part{number}" rel="part{number}"/>'
        for number in range((size - len(element)) // 85)
    )
    opening, bracket, rest = element.partition(">")
    return f"{opening}{bracket}{links}{rest}"


def main() -> int:
    """Run it, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--hosts", type=int, default=250)
    parser.add_argument("--vms", type=int, default=3000)
    parser.add_argument("--placements", type=int, default=500)
    parser.add_argument("--policy", default="evenly_distribute")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, conf, happens = (Path(folder) / name for name in ("c.xml", "s.conf", "scenario.conf"))
        begun = time.monotonic()
        taken = made(options.hosts, options.vms)
        taken.write(file)
        conf.write_text(_SECTION)
        happens.write_text(
            f"[vms]\n[[new]]\ncount = {options.placements}\nmemory = 2 GiB\nload = 30\n"
        )
        size = file.stat().st_size / 2**20
        print(f"made: {size:.0f} MiB, {time.monotonic() - begun:.1f} s")
        os.environ["STATE_DIRECTORY"] = folder
        words = ["simulate", str(file), "--config", str(conf), "--scenario", str(happens)]
        words += ["--set", f"policy={options.policy}", "--balancings", "1000"]
        words += ["--plugins", str(Path(__file__).parents[1] / "plugins"), "--seed", "1"]
        profile = cProfile.Profile()
        begun = time.monotonic()
        status = profile.runcall(cli.main, words) if options.profile else cli.main(words)
        seconds = time.monotonic() - begun
    own, below = (
        resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        f"simulated: {seconds:.1f} s; processor time {own.ru_utime + own.ru_stime:.1f} s here, "
        f"{below.ru_utime + below.ru_stime:.1f} s in processes of plugins; "
        f"most memory {own.ru_maxrss >> 10} MiB here, {below.ru_maxrss >> 10} MiB in one of those"
    )
    if options.profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("cumulative").print_stats(30)
    return status


if __name__ == "__main__":
    sys.exit(main())
