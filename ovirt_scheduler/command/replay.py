"""``ovirt-scheduler replay``: makes recorded decisions again, unchanged and with changes."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from ovirt_scheduler.command import arguments, decisions, inputs, tables
from ovirt_scheduler.command.arguments import tell_progress
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadUsage, NotRecorded
from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.reader import Reader
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.settings.config import Settings
from ovirt_scheduler.workbench import replay, reports
from ovirt_scheduler.workbench.comparison import Comparison, Difference
from ovirt_scheduler.workbench.replay import Changes, Policy

_MOST = 10_000_000  # decisions
_MOST_SHOWN = 20  # decisions that differ, in a table
_LINES = 6  # of the explanation of each
_QUERY_SECONDS = 60.0  # nobody waits for the next query


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "replay", _run)
    arguments.add_options(command, {
        "--plugins PATH": "folders of plugins of the changed run, ':' between them; conf files "
        "beside the plugins count before those in plugins_conf_path",
        "--set UNIT=FACTOR": "another factor of a cost function; may be given several times, as "
        "the next two",
    })  # fmt: skip
    command.add_argument(
        "--without", metavar="UNIT", action="append", default=[], help="do not ask this unit"
    )
    arguments.add_options(command, {
        "--with UNIT[=FACTOR]": "ask this unit, too, where units of its kind were asked; with a "
        "factor only as a cost function",
    })  # fmt: skip
    decisions.add_query(command, "vm", "unit", "since", "until")
    arguments.add_options(command, {
        "--limit NUMBER": "the newest ones, so many at most (default: all)",
        "--html FILE": "write a page with plots, in one file",
    })  # fmt: skip


def _run(options: argparse.Namespace) -> Shown:
    """Make recorded decisions again, with other plugins or factors.

    Make the decisions again that were recorded (record = true in the settings). First without
    changes, on today's plugins and settings: shows which share comes out the same. Then with the
    changes: shows each decision that differs, and why. The engine is not asked.

    examples:
      replay --since 1d
      replay --set EvenVms=3 --without Memory
      replay --with RackSpread=2 --plugins plugins.new
      replay --since 1w --html report.html
    """
    arguments.expect_writable(options.html)
    changes = _changes(options)
    chosen, plugins = decisions.query(options, time.time(), _MOST), options.plugins
    options.plugins = None
    settings = arguments.settings(options)
    reader = Reader(arguments.history(), _QUERY_SECONDS)
    numbers = reader.recorded(chosen, options.limit)
    if not numbers:
        raise NotRecorded(_nothing(reader))
    with runtime.started(settings) as running:
        policies = [Policy(running.executor, settings, Changes())]
        changed = plugins is not None or changes != Changes()
        if changed:
            options.plugins = plugins
            other = arguments.settings(options)
            policies.append(Policy(running.executor, other, changes, beside=plugins is not None))
        comparison = Comparison(changed)
        stopped = _replay(reader, numbers, policies, settings, comparison)
    faults = [str(fault) for fault in policies[-1].catalogue.faults]
    lines = [f"stopped: {comparison.count} of {len(numbers)} decisions were replayed"] * stopped
    lines += reports.replay_lines(comparison, faults)
    if options.html is not None:
        reports.write_replay(options.html, comparison, lines)
    return _shown(comparison, stopped, lines, faults)


def _nothing(reader: Reader) -> str:
    """What to do if there is nothing to replay."""
    if reader.recorded(Query(), 1):
        return "no recorded decision fits; leave out --since, --until, --vm or --unit"
    return (
        "nothing is recorded: set record = true in scheduler.conf and reload the daemon; each "
        "decision from then on can be replayed"
    )


def _changes(options: argparse.Namespace) -> Changes:
    """What the options would have changed.

    Raises:
        BadUsage: a factor that is none.
    """
    factors: dict[str, int] = {}
    added = getattr(options, "with")
    for name, factor in inputs.factors("--set", options.set):
        if factor is None:
            raise BadUsage(f"--set {name}: write the factor, too: --set {name}=2")
        factors[name] = factor
    return Changes(factors, tuple(options.without), dict(inputs.factors("--with", added)))


def _replay(
    reader: Reader,
    numbers: Sequence[int],
    policies: Sequence[Policy],
    settings: Settings,
    comparison: Comparison,
) -> bool:
    """Make the decisions again.

    The first Ctrl-C waits for the running decision, so that none is counted by half.

    Returns:
        Whether Ctrl-C came before the end.
    """
    stopped = threading.Event()
    former = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, former)

    signal.signal(signal.SIGINT, stop)
    try:
        for then, made in replay.run(reader, numbers, policies, settings.max_parallel_calls):
            comparison.add(then, made)
            tell_progress(f"{comparison.count} of {len(numbers)} decisions")
            if stopped.is_set():
                return True
    finally:
        signal.signal(signal.SIGINT, former)
        tell_progress("")
    return False


def _shown(
    comparison: Comparison, stopped: bool, lines: Sequence[str], faults: Sequence[str]
) -> Shown:
    text = "".join(f"{printable(each)}\n" for each in (*lines, *_of_differences(comparison.differ)))
    fields = {**comparison.fields(), "stopped": stopped, "problems": list(faults)}
    return Shown(text + _sums(comparison), fields, not (stopped or faults))


def _of_differences(differ: Sequence[Difference]) -> Iterator[str]:
    for each in differ[:_MOST_SHOWN]:
        yield from _of_difference(each)
    if len(differ) > _MOST_SHOWN:
        yield f"{len(differ) - _MOST_SHOWN} more differ; -o json and --html have them all"


def _of_difference(each: Difference) -> Iterator[str]:
    subject = f" for VM {each.vm}" if each.vm else ""
    by = ", ".join(each.units) or "the request"
    yield f"  {explanation.when({'time': each.time})}  {each.id}  {each.method}{subject}: by {by}"
    *hosts, before, now = ("", *each.why) if len(each.why) < 2 else each.why
    for line in (before, now, *hosts[:_LINES]):
        if line:
            yield f"    {line}"
    if len(hosts) > _LINES:
        yield f"    {len(hosts) - _LINES} more hosts"


def _sums(comparison: Comparison) -> str:
    """Who decided how often, and who won how often."""
    parts = []
    for heading, before, after in (
        ("DECISIVE", comparison.before.decisive, comparison.after.decisive),
        ("WINNER", comparison.before.wins, comparison.after.wins),
    ):
        rows = reports.rows(before, after)
        if rows:
            parts.append("\n" + tables.table((heading, "BEFORE", "AFTER"), rows))
    one, other = comparison.before.fields(), comparison.after.fields()
    if comparison.after.times:
        parts.append(
            f"\nmedian time of a decision's units: {one['milliseconds']['median']} ms before, "
            f"{other['milliseconds']['median']} ms after\n"
        )
    return "".join(parts)
