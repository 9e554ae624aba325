"""``ovirt-scheduler replay``, ``snapshot`` and ``simulate``: what other plugins would decide."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from ovirt_scheduler.command import arguments, decisions, tables
from ovirt_scheduler.command.arguments import progress_line
from ovirt_scheduler.command.calls import input_files
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadUsage, NotOverwritten, NotRecorded
from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.settings.table import ClusterSettings, Settings
from ovirt_scheduler.workbench import expectations, replay, reports, scenario, snapshot
from ovirt_scheduler.workbench.comparison import Comparison, Difference
from ovirt_scheduler.workbench.expectations import Finding
from ovirt_scheduler.workbench.replay import Changes, Policy
from ovirt_scheduler.workbench.scenario import Scenario
from ovirt_scheduler.workbench.sections import changed_section, used_policy
from ovirt_scheduler.workbench.simulation import Simulation, SimulationResult
from ovirt_scheduler.workbench.snapshot import Snapshot

_MOST = 10_000_000  # decisions
_MOST_SHOWN = 20  # decisions that differ, in a table
_LINES = 6  # of the explanation of a difference
_QUERY_SECONDS = 60.0  # nobody waits for the next query

_EXPECT = {
    "--expect FIGURE<=VALUE": "a test of a figure of -o json: 'migrations <= 6', 'differ <= 2 %%' "
    "or with = or >=; may be given several times",
    "--junit FILE": "write what became of the expectations as a file of JUnit",
}


def add(to: arguments.Add) -> None:
    """Add the commands to the command line."""
    command = arguments.add_command(to, "replay", _replay)
    arguments.add_options(command, {
        "--plugins PATH": "folders of plugins of the changed run, ':' between them; a NAME.conf "
        "beside NAME.py counts before one in plugins_conf_path",
        "--set UNIT=FACTOR": "another factor of a cost function; may be given several times, as "
        "--with and --without",
        "--with UNIT[=FACTOR]": "ask this unit, too, where units of its kind were asked; with a "
        "factor only as a cost function",
    })  # fmt: skip
    command.add_argument(
        "--without", metavar="UNIT", action="append", default=[], help="do not ask this unit"
    )
    decisions.add_query(command, "vm", "unit", "since", "until")
    arguments.add_options(command, {
        "--limit NUMBER": "the newest ones, so many at most (default: all)",
        **_EXPECT,
        "--html FILE": "write a page with plots, in one file",
    })  # fmt: skip
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
        "--recorded": "the cluster of the newest load balancing that was recorded (record = true), "
        "instead of a snapshot",
        "--scenario FILE": "what happens: VMs that come, hosts that fail, load in the course of a "
        "day",
        "--section CLUSTER": "one of [clusters] (default: the snapshot's cluster)",
        "--set KEY=VALUE": "a key of the section, such as policy=power_saving; without a value it "
        "has its default, such as filters= for none; may be given several times",
        "--against KEY=VALUE": "the same for a second policy, which begins as the first",
        "--seed NUMBER": "of the random choices: the same number, the same result (default: 0)",
        "--balancings NUMBER": "rounds of balancing after the scenario, at most (default: 100)",
        **_EXPECT,
        "--html FILE": "write a page with plots, in one file",
    })  # fmt: skip
    command.set_defaults(seed=0, balancings=100)


def _replay(options: argparse.Namespace) -> Shown:
    """Make recorded decisions again, with other plugins or factors.

    Make the decisions again that were recorded (record = true in the settings). First without
    changes, on today's plugins and settings: shows which share comes out the same. Then with the
    changes: shows each decision that differs, and why. The engine is not asked.

    examples:
      replay --since 1d
      replay --set EvenVms=3 --without Memory
      replay --with RackSpread=2 --plugins new
      replay --since 1w --html report.html
      replay --since 1w --plugins new --expect 'differ <= 2 %'
    """
    _expect_page(options.html)
    expected = expectations.of_options(
        options.expect, expectations.of_replay(Comparison(changed=True))
    )
    arguments.expect_writable(options.junit)
    changes = _changes(options)
    chosen = decisions.query(options, time.time(), _MOST)
    other = arguments.settings(options)
    options.plugins = None
    settings = arguments.settings(options)
    file = arguments.history()
    reader = RecordReader(file, _QUERY_SECONDS)
    numbers = reader.recorded(chosen, options.limit)
    if not numbers:
        if reader.recorded(Query(), 1):
            raise NotRecorded(
                "no recorded decision fits; leave out --since, --until, --vm or --unit"
                f"{decisions.near_names(reader, options)}"
            )
        how = (
            "" if settings.record else "set record = true in scheduler.conf and reload the daemon; "
        )
        raise NotRecorded(
            f"nothing is recorded in {file}: {how}each decision from now on can be replayed"
        )
    with runtime.started(settings) as running:
        policies = [Policy(running.executor, settings, Changes())]
        if other != settings or changes != Changes():
            policies.append(Policy(running.executor, other, changes))
        comparison = Comparison(len(policies) > 1)
        stopped = _replay_decisions(reader, numbers, policies, settings, comparison)
    faults = [str(fault) for fault in policies[-1].catalogue.faults]
    for failure, number in comparison.failures.most_common(_MOST_SHOWN):
        faults.append(f"{failure} (decisions: {number})")
    lines = [f"stopped: {comparison.count} of {len(numbers)} decisions were replayed"] * stopped
    lines += reports.replay_lines(comparison, faults)
    shown = (*lines, *_difference_lines(comparison.differ))
    text = "".join(f"{printable(each)}\n" for each in shown)
    fields = {**comparison.fields(), "stopped": stopped, "problems": faults}
    result = Shown(text + _sums(comparison), fields, not (stopped or faults), stopped=stopped)
    findings = [each.finding(expectations.of_replay(comparison)) for each in expected]
    problems = ["stopped by Ctrl-C"] * stopped + faults
    result = _with_findings(result, options.junit, "replay", findings, problems)
    return _with_page(result, options, partial(reports.write_replay, comparison, lines))


def _expect_page(file: Optional[Path]) -> None:
    """Check, before long work begins, that its page can be made.

    Raises:
        BadUsage: Jinja2 is not installed.
        NotOverwritten: the file cannot be written.
    """
    arguments.expect_writable(file)
    if file is not None and importlib.util.find_spec("jinja2") is None:
        raise BadUsage("--html needs Jinja2, which is not installed")


def _with_findings(
    result: Shown,
    junit: Optional[Path],
    command: str,
    findings: Sequence[Finding],
    problems: Sequence[str],
) -> Shown:
    """The result with what became of the expectations, which go into a file of JUnit, too.

    Args:
        problems: of the command itself.

    Raises:
        NotOverwritten: the file cannot be written.
    """
    if junit is not None:
        expectations.write_junit(junit, command, findings, problems)
    if not findings:
        return result
    return result._replace(
        text=result.text + "".join(f"{finding.line()}\n" for finding in findings),
        fields={**result.fields, "expected": [finding._asdict() for finding in findings]},
        well=result.well and all(finding.holds for finding in findings),
    )


def _with_page(result: Shown, options: argparse.Namespace, write: Callable[[Path], None]) -> Shown:
    """Write the page of a result, and return the result.

    Raises:
        NotOverwritten: the page cannot be written; the result is shown before.
    """
    if options.html is not None:
        try:
            write(options.html)
        except NotOverwritten:
            arguments.show(result, options.output)
            raise
    return result


def _changes(options: argparse.Namespace) -> Changes:
    """The changes that the options stand for.

    Raises:
        BadUsage: a factor is no integer, or is missing.
    """
    factors: dict[str, int] = {}
    added = getattr(options, "with")
    for name, factor in input_files.factors("--set", options.set):
        if factor is None:
            raise BadUsage(f"--set {name}: write the factor, too: --set {name}=2")
        factors[name] = factor
    return Changes(factors, tuple(options.without), dict(input_files.factors("--with", added)))


def _replay_decisions(
    reader: RecordReader,
    numbers: Sequence[int],
    policies: Sequence[Policy],
    settings: Settings,
    comparison: Comparison,
) -> bool:
    """Make the decisions again, and return whether Ctrl-C came before the end."""
    with progress_line() as tell:
        try:
            replays = replay.run(reader, numbers, policies, settings.max_parallel_calls)
            for recorded, replayed in replays:
                comparison.add(recorded, replayed)
                tell(f"{comparison.count} of {len(numbers)} decisions")
        except KeyboardInterrupt:
            return True
    return False


def _difference_lines(differ: Sequence[Difference]) -> Iterator[str]:
    for difference in differ[:_MOST_SHOWN]:
        when, by = explanation.when(difference.time), ", ".join(difference.units) or "the request"
        yield f"  {when}  {difference.id}  {reports.subject(difference)}: by {by}"
        *hosts, before, now = ("", *difference.why) if len(difference.why) < 2 else difference.why
        yield from (f"    {line}" for line in (before, now, *hosts[:_LINES]) if line)
        if len(hosts) > _LINES:
            yield f"    and {count_of(len(hosts) - _LINES, 'host')} more"
    if len(differ) > _MOST_SHOWN:
        yield f"{len(differ) - _MOST_SHOWN} more differ; -o json and --html have them all"


def _sums(comparison: Comparison) -> str:
    """Tables of how often each unit was decisive and each host won, and the median times."""
    before, after, parts = comparison.before, comparison.after, []
    for heading, rows in (
        ("DECISIVE", reports.rows(before.decisive, after.decisive)),
        ("WINNER", reports.rows(comparison.wins(before), comparison.wins(after))),
    ):
        if rows:
            parts.append("\n" + tables.table((heading, "BEFORE", "AFTER"), rows))
    if after.times:
        parts.append(
            f"\nmedian time of a decision's units: {before.median} ms before, "
            f"{after.median} ms after\n"
        )
    return "".join(parts)


def _snapshot(options: argparse.Namespace) -> Shown:
    """Save a cluster of the engine in a file.

    Ask the engine of [engine] for a cluster: its affinity groups, its hosts and VMs, with their
    statistics, tags and affinity labels. The initialization and payloads of VMs are left out,
    because they may hold passwords. The file is XML, packed if its name ends in .gz.

    examples:
      snapshot Default -f cluster.xml
      snapshot Default -f cluster.xml.gz
    """
    arguments.expect_writable(options.file)
    settings = arguments.settings(options)
    engine = settings.engine
    if engine is None:
        raise arguments.no_engine(settings, "it says which engine to ask")
    with progress_line() as tell:
        cluster = snapshot.take(engine, options.cluster, tell)
    cluster.write(options.file)
    return Shown(
        f"{options.file}: {count_of(len(cluster.hosts), 'host')} and "
        f"{count_of(len(cluster.vms), 'VM')} of {cluster.cluster}, {cluster.time}\n"
    )


def _simulate(options: argparse.Namespace) -> Shown:
    """Play a cluster forward under a policy, or two.

    Play the cluster of a snapshot forward, with your plugins and the daemon's own code: VMs are
    placed one after another, then balanced until nothing moves. The policy is that of the cluster's
    section in [clusters], or the default one if there is none, changed by --set. --against makes a
    second policy: the first one, changed further. No engine is asked.

    examples:
      simulate cluster.xml --set policy=power_saving
      simulate cluster.xml --scenario week.conf --html week.html
      simulate cluster.xml --against filters=MaxVms
      simulate cluster.xml --expect 'unplaced = 0' --junit junit.xml
    """
    _expect_page(options.html)
    figures = expectations.of_nothing()
    expected = expectations.of_options(options.expect, figures)
    arguments.expect_writable(options.junit)
    settings = arguments.settings(options)
    initial = _initial_snapshot(options)
    happens = Scenario() if options.scenario is None else scenario.read(options.scenario, figures)
    expected += expectations.of_section(happens.expect, figures)
    policies = _policies(options, settings, initial.cluster)
    if options.balancings < 1:
        raise BadUsage("--balancings: at least 1")
    simulated: dict[str, SimulationResult] = {}
    with runtime.started(settings) as running, progress_line() as tell:
        running.registry.refresh()
        simulations = {  # both are checked before one is played
            name: Simulation(
                running, initial, section, happens, options.seed, options.balancings, tell
            )
            for name, section in policies.items()
        }
        for name, simulation in simulations.items():
            simulated[name] = simulation.run()
            if simulated[name].stopped:
                break
    about = {
        "cluster": initial.cluster, "taken": initial.time, "hosts": len(initial.hosts),
        "vms": len(initial.vms), "scenario": options.scenario and options.scenario.name,
        "hours": happens.hours, "seed": options.seed,
    }  # fmt: skip
    stopped = any(bool(each.stopped) for each in simulated.values())
    problems = [text for each in simulated.values() for text in each.problems]
    problems += ["stopped by Ctrl-C"] * stopped
    fields = reports.simulation_fields(simulated, about)
    result = Shown(_text(simulated), fields, not problems, stopped=stopped)
    *_, outcome = simulated.values()  # with --against the second policy
    of_policy = expectations.of_simulation(outcome, len(initial.vms) + len(happens.arrivals))
    findings = [each.finding(of_policy) for each in expected]
    result = _with_findings(result, options.junit, "simulate", findings, problems)
    return _with_page(result, options, partial(reports.write_simulation, simulated, about))


def _initial_snapshot(options: argparse.Namespace) -> Snapshot:
    """The cluster to begin with."""
    sources = (options.snapshot is not None, options.hosts is not None, options.recorded)
    if sum(sources) != 1:
        raise BadUsage("name a snapshot's file, or give one of --hosts and --recorded")
    if options.recorded:
        return snapshot.recorded(RecordReader(arguments.history()))
    if options.snapshot is None:
        return Snapshot.of_documents(options.hosts, options.vms)
    if options.vms is not None:
        raise BadUsage("--vms goes with --hosts; a snapshot has its VMs")
    return Snapshot.read(options.snapshot)


def section_of(named: Optional[str], settings: Settings, cluster: str) -> ClusterSettings:
    """The section that the option ``--section`` names, or else the cluster's, or its defaults.

    Raises:
        BadUsage: there is no such section.
    """
    name = named or cluster
    sections = {section.name.lower(): section for section in settings.clusters}  # as in engines
    if named and name.lower() not in sections:
        hint = spelling.hint(name, [section.name for section in settings.clusters])
        raise BadUsage(f"--section {name}: there is no such section in [clusters]{hint}")
    return sections.get(name.lower(), ClusterSettings(name))


def _policies(
    options: argparse.Namespace, settings: Settings, cluster: str
) -> Mapping[str, ClusterSettings]:
    """Each policy by its name: its changes to the section.

    Raises:
        BadUsage: there is no such section, or none may have such a key.
    """
    section = section_of(options.section, settings, cluster)
    name = section.name
    unchanged = "as in [clusters]" if section.file else f"defaults, as [clusters] has no {name}"
    policies: dict[str, ClusterSettings] = {}
    changes: dict[str, str] = {}
    for option, items in (("--set", options.set), ("--against", options.against)):
        if option == "--set" or items:
            more = input_files.pairs(items, option)
            changes.update(more)
            section = changed_section(section, more, option)
            texts = (f"{key} = {value}".rstrip() for key, value in changes.items())
            words = ", ".join(texts) or unchanged
            used = used_policy(section)
            unsaid = [f"{key} {value}" for key, value in used.items() if not changes.get(key)]
            words += f"; {', '.join(unsaid)}" if unsaid else ""
            words += ", which balances nothing" if unsaid == ["policy none"] else ""
            policies[words] = section
    return policies


def _text(simulated: Mapping[str, SimulationResult]) -> str:
    marks = ["A: ", "B: "] if len(simulated) > 1 else [""]
    lines = [f"{mark or 'section: '}{policy}\n" for mark, policy in zip(marks, simulated)]
    lines.append(tables.table(*reports.measures([*simulated.values()])))
    for mark, outcome in zip(marks, simulated.values()):
        lines += [f"{mark}{what}: {text}\n" for what, text in reports.notes(outcome)]
    return "".join(lines)
