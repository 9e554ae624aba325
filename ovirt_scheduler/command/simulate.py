"""``ovirt-scheduler snapshot`` and ``simulate``: a cluster in a file, and what becomes of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ovirt_scheduler.command import arguments, inputs, tables
from ovirt_scheduler.command.arguments import tell_progress
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.history.reader import Reader
from ovirt_scheduler.settings import config
from ovirt_scheduler.settings.config import ClusterSettings
from ovirt_scheduler.workbench import reports, scenario, snapshot
from ovirt_scheduler.workbench.scenario import Scenario
from ovirt_scheduler.workbench.simulation import Outcome, Simulation, section
from ovirt_scheduler.workbench.snapshot import Snapshot


def add(to: arguments.Add) -> None:
    """Add ``snapshot`` and ``simulate`` to the command line."""
    command = arguments.add_command(to, "snapshot", _snapshot, output=())
    command.add_argument("cluster", metavar="CLUSTER", help="its name")
    command.add_argument(
        "-f", "--file", metavar="FILE", type=Path, required=True,
        help="where to; a former file is overwritten",
    )  # fmt: skip
    command = arguments.add_command(to, "simulate", _simulate, settings=("config", "plugins"))
    command.add_argument(
        "snapshot", metavar="SNAPSHOT", type=Path, nargs="?", help="the cluster's file"
    )
    arguments.add_options(command, {
        "--hosts FILE": "an XML document of hosts, instead of a snapshot",
        "--vms FILE": "an XML document of the VMs on the hosts of --hosts",
        "--recorded": "what the daemon recorded of its newest load balancing (record = true), "
        "instead of a snapshot",
        "--scenario FILE": "what happens: VMs that come, hosts that fail, load in the course of a "
        "day",
        "--section CLUSTER": "one of [clusters] (default: the snapshot's cluster)",
        "--set KEY=VALUE": "a key of the section, such as policy=power_saving; may be given "
        "several times",
        "--against KEY=VALUE": "the same for a second policy, which begins as the first",
        "--seed NUMBER": "of the scenario's chances: the same number, the same result (default: 0)",
        "--balancings NUMBER": "rounds of balancing after the scenario, at most (default: 100)",
        "--html FILE": "write a page with plots, in one file",
    })  # fmt: skip
    command.set_defaults(seed=0, balancings=100)


def _snapshot(options: argparse.Namespace) -> Shown:
    """Save a cluster of the engine in a file.

    Save a cluster with its affinity groups, hosts and VMs, and with their statistics, tags and
    labels, as the engine of [engine] tells of them now. What a VM's initialization and payloads
    hold is left out, as there may be passwords in it. The file is XML; a name that ends in .gz has
    it packed.

    examples:
      snapshot Default -f cluster.xml
      snapshot Default -f cluster.xml.gz
    """
    arguments.expect_writable(options.file)
    engine = arguments.settings(options).engine
    if engine is None:
        raise BadUsage("there is no section [engine] in the settings: it says which engine to ask")
    taken = snapshot.take(engine, options.cluster, tell_progress)
    tell_progress("")
    taken.write(options.file)
    return Shown(
        f"{options.file}: {len(taken.hosts)} hosts and {len(taken.vms)} VMs of {taken.cluster}, "
        f"{taken.taken}\n"
    )


def _simulate(options: argparse.Namespace) -> Shown:
    """Play a cluster forward under a policy, or two.

    Play the cluster of a snapshot forward, with the plugins and the code that serve: VMs are placed
    one after another, then balanced until nothing moves. The policy is that of the cluster's
    section in [clusters], or the default one where there is none, changed by --set. --against makes
    a second policy: the first one, changed further. Nothing is asked of an engine.

    examples:
      simulate cluster.xml --set policy=power_saving
      simulate cluster.xml --scenario week.conf --set policy=evenly_distribute --html week.html
      simulate cluster.xml --against filters=MaxVms --against properties=maximum_vm_count=20
    """
    arguments.expect_writable(options.html)
    settings = arguments.settings(options)
    taken = _taken(options)
    happens = Scenario() if options.scenario is None else scenario.read(options.scenario)
    policies = _policies(options, taken.cluster)
    if options.balancings < 1:
        raise BadUsage("--balancings: at least 1")
    simulated: dict[str, Outcome] = {}
    with runtime.started(settings) as running:
        running.registry.refresh()
        simulations = {  # both are checked before one is played
            words: Simulation(
                running, taken, of_cluster, happens, options.seed, options.balancings, tell_progress
            )
            for words, of_cluster in policies.items()
        }
        for words, simulation in simulations.items():
            simulated[words] = simulation.run()
            if simulated[words].stopped:
                break
    tell_progress("")
    about = {
        "cluster": taken.cluster, "taken": taken.taken, "hosts": len(taken.hosts),
        "vms": len(taken.vms), "scenario": options.scenario and options.scenario.name,
        "hours": happens.hours, "seed": options.seed,
    }  # fmt: skip
    if options.html is not None:
        reports.write_simulation(options.html, simulated, about)
    well = not any(each.problems or each.stopped for each in simulated.values())
    return Shown(_text(simulated), reports.simulation_fields(simulated, about), well)


def _taken(options: argparse.Namespace) -> Snapshot:
    """The cluster to begin with."""
    sources = (options.snapshot is not None, options.hosts is not None, options.recorded)
    if sum(sources) != 1:
        raise BadUsage("name a snapshot's file, or give one of --hosts and --recorded")
    if options.recorded:
        return snapshot.recorded(Reader(arguments.history()))
    if options.snapshot is None:
        return Snapshot.of_documents(options.hosts, options.vms)
    if options.vms is not None:
        raise BadUsage("--vms goes with --hosts; a snapshot has its VMs")
    return Snapshot.read(options.snapshot)


def _policies(options: argparse.Namespace, cluster: str) -> Mapping[str, ClusterSettings]:
    """The policies, each by its words."""
    default = config.DEFAULT_FILE
    file: Optional[Path] = options.config or (default if default.exists() else None)
    name = options.section or cluster
    changes = inputs.pairs(options.set)
    found: dict[str, ClusterSettings] = {}
    for option, more in (("--set", {}), ("--against", inputs.pairs(options.against))):
        if option == "--set" or more:
            whole = {**changes, **more}
            words = ", ".join(f"{key} = {value}" for key, value in whole.items()) or "as it is"
            found[words] = section(file, name, whole, option)
    return found


def _text(simulated: Mapping[str, Outcome]) -> str:
    marks = [f"{letter}: " for letter in "AB"] if len(simulated) > 1 else [""]
    lines = [f"{mark}{policy}\n" for mark, policy in zip(marks, simulated) if mark]
    lines.append(tables.table(*reports.measures([*simulated.values()])))
    for mark, outcome in zip(marks, simulated.values()):
        lines += [f"{mark}{what}: {text}\n" for what, text in reports.notes(outcome)]
    return "".join(lines)
