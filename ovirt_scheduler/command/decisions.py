"""``ovirt-scheduler decisions`` and ``why``: lists decisions, and explains them."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Optional

from ovirt_scheduler.command import arguments, control_client, tables, whereabouts
from ovirt_scheduler.command.calls import daemon_client
from ovirt_scheduler.command.calls.daemon_client import RecordSource
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage, CallRefused, HistoryUnreadable, NotRecorded
from ovirt_scheduler.history import explanation, outcomes, placement_explanation
from ovirt_scheduler.history.explanation import Line, Tone
from ovirt_scheduler.history.query import MOST_ROWS, OUTCOMES, Query, moment
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.values import spelling

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(r"(\d{1,9})([smhdw])")
_MANY, _FEW = 100, 10  # decisions to show; with --follow, before the new ones
_CHECKSUM = re.compile(r"\b(sha256:[0-9a-f]{12})[0-9a-f]+\b")
_PAUSE = 0.5  # seconds between two queries for new ones
_FIRST_LIMIT = 50  # decisions of such a query; the next one has more, if all of them are new

# The options that choose decisions: what the value is, and help.
_CHOOSING = {
    "vm": ("VM", "decisions on this VM, by its name or id"),
    "host": ("HOST", "decisions about this host, by its name or id"),
    "unit": ("NAME", "decisions that asked for this unit or scheduler"),
    "cluster": ("CLUSTER", "decisions that the daemon made for this cluster by itself"),
    "method": ("METHOD", "decisions of this method, such as runFilters"),
    "since": ("TIME", "decisions since then: 2026-01-31T12:00:00, or how long ago: 90s, 10m, 2h"),
    "until": ("TIME", "decisions before this time"),
}

_LATEST = 100  # decisions on a VM, among which the calls of its last placement are
_WHOLE = 20  # decisions in which names that are near are looked for
_COLOURS = {Tone.HEADING: "1", Tone.GOOD: "32", Tone.BAD: "31", Tone.TROUBLE: "33"}

_HEADINGS = ("TIME", "DECISION", "METHOD", "VM", "OUTCOME")


def add(to: arguments.Add) -> None:
    """Add both commands to the command line."""
    command = arguments.add_command(to, "why", _why)
    command.add_argument("vm", metavar="VM", nargs="?", help="its name or id")
    arguments.add_options(command, {
        "--decision ID": "one decision, by its id",
        "--host HOST": "only of this host, by its name or id",
        **arguments.URL,
    })  # fmt: skip
    command = arguments.add_command(
        to, "decisions", _run, output=("table", "json", "jsonl", "names")
    )
    add_query(command, *_CHOOSING)
    command.add_argument(
        "--outcome",
        choices=OUTCOMES,
        metavar="OUTCOME",
        help="decisions in which the call of a unit (with --unit: of that one) ended like this: "
        f"{', '.join(OUTCOMES)}",
    )
    arguments.add_options(command, {
        "--limit NUMBER": "the newest ones, so many at most (default: 100)",
        "--follow": "show the last ten, then each new one, until Ctrl-C",
        "--events": "show what happened to the daemon and its plugins, instead of decisions; goes "
        "with --since, --until and --limit",
        **arguments.URL,
    })  # fmt: skip


def add_query(command: argparse.ArgumentParser, *names: str) -> None:
    """Add some of the options that choose decisions; the others are None, as if not given."""
    command.set_defaults(**dict.fromkeys(_CHOOSING), outcome=None, follow=False)
    for name in names:
        metavar, text = _CHOOSING[name]
        arguments.add_options(command, {f"--{name} {metavar}": text})


def _run(options: argparse.Namespace) -> Shown:
    """List what was decided.

    List the decisions that fit all options, the newest first. -o names gives their ids. Reads the
    history in the state folder if this user may read it; else asks the daemon.

    examples:
      decisions --vm web
      decisions --unit MaxVms --outcome raised --since 2h
      decisions --follow
      decisions --events --since 1d
      decisions --since 2026-01-31T12:00:00 -o jsonl
    """
    selection = query(options, time.time())
    if options.events:
        return _events(RecordReader(arguments.history()), options, selection)
    selection = replace(selection, brief=options.output in ("table", "names"))
    with daemon_client.history(options) as recorded:
        if options.follow:
            follow(recorded, selection, options.output)
        records = recorded.decisions(selection)
        if not selection.brief:
            return Shown(fields=records)
        text = tables.table(_HEADINGS, [_row(each) for each in records])
        if not records and not recorded.decisions(Query(limit=1, brief=True)):
            text = "no decisions are recorded yet\n"
        elif not records:
            text = f"no such decisions{near_names(recorded, options)}\n"
        gap = [*control_client.gap(_status(options))]
        text += "".join(f"\n{line}\n" for line in gap)
        return Shown(text, names=[each["id"] for each in records], problems=gap)


def _status(options: argparse.Namespace) -> Mapping[str, Any]:
    """The status of the daemon whose history is read; nothing if it cannot be asked."""
    return {} if options.url else control_client.status_if_any(arguments.state())


def query(options: argparse.Namespace, now: float, most: int = MOST_ROWS) -> Query:
    """The query that the options stand for.

    Args:
        options: vm, host, unit, cluster, method, outcome, since, until; limit; follow.
        now: seconds since 1970.
        most: the highest limit that is allowed.

    Raises:
        BadUsage: an option's value, and what it is to be.
    """
    since, until = (_time(name, getattr(options, name), now) for name in ("since", "until"))
    if since is not None and until is not None and since >= until:
        raise BadUsage("--since is not before --until")
    limit = options.limit if options.limit is not None else _FEW if options.follow else _MANY
    if not 1 <= limit <= most:
        raise BadUsage(f"--limit {limit}: write a number from 1 to {most}")
    for name in ("vm", "host", "unit", "cluster", "method"):
        if getattr(options, name) == "":
            raise BadUsage(f"--{name}: is empty; leave it out to have every one")
    return Query(
        options.vm, options.host, options.unit, options.cluster, options.method,
        (options.outcome,) if options.outcome else (), since, until, limit,
    )  # fmt: skip


def _events(recorded: RecordReader, options: argparse.Namespace, selection: Query) -> Shown:
    """What happened to the daemon and its plugins, the newest first.

    Raises:
        BadUsage: an option that does not go with it.
        HistoryUnreadable: the history cannot be read.
    """
    others = ("vm", "host", "unit", "cluster", "method", "outcome", "follow", "url")
    wrong = next((name for name in others if getattr(options, name)), None)
    if wrong is not None or options.output == "names":
        raise BadUsage(f"--events does not go with {f'--{wrong}' if wrong else '-o names'}")
    events = recorded.events(selection.since, selection.until, selection.limit)
    rows = [_event(explanation.cleaned(each)) for each in events]
    text = tables.table(("TIME", "EVENT", "DETAILS"), rows) or "no such events\n"
    return Shown(text, events)


def _event(event: Mapping[str, Any]) -> tuple[str, str, str]:
    more = (
        f"{name} {_detail(value)}" for name, value in event.items() if name not in ("time", "event")
    )
    return explanation.when(event["time"]), event["event"], ", ".join(more)


def _detail(value: object) -> str:
    """A value of an event; of a checksum the first 12 digits: -o json has all."""
    text = "; ".join(value) if isinstance(value, list) else str(value)
    return _CHECKSUM.sub(r"\1", text)


def follow(recorded: RecordSource, selection: Query, output: str) -> NoReturn:
    """Show the last records that fit, then each new one, until Ctrl-C.

    Raises:
        BadUsage: an endless list cannot be shown in that form.
    """
    if output == "json":
        raise BadUsage("--follow needs -o table, jsonl or names")
    if selection.until is not None:
        raise BadUsage("--follow shows new decisions only: leave out --until")
    newest: Sequence[Record] = recorded.decisions(selection)
    _print(newest, output)
    while True:
        time.sleep(_PAUSE)
        newest = _print(_since(recorded, selection, newest), output) or newest


def _print(records: Sequence[Record], output: str) -> Sequence[Record]:
    """Show records, the oldest first, and return them as they came."""
    following = list(reversed(records))
    text = "".join(map(_line, following)) if output == "table" else ""
    arguments.show(Shown(text, following, names=[each["id"] for each in following]), output)
    return records


def _since(recorded: RecordSource, selection: Query, newest: Sequence[Record]) -> list[Record]:
    """The records that are newer than all of ``newest``."""
    shown_ids = {record["id"] for record in newest}
    limit = _FIRST_LIMIT
    while True:
        records = recorded.decisions(replace(selection, limit=limit))
        new = list(itertools.takewhile(lambda record: record["id"] not in shown_ids, records))
        if len(new) < limit or limit == MOST_ROWS:
            return new
        limit = min(MOST_ROWS, limit * 4)


def _row(summary: Record) -> tuple[str, str, str, str, str]:
    shown = explanation.cleaned(summary)
    vm = explanation.vm_name(shown) if "vm" in shown else ""
    return explanation.when(shown["time"]), shown["id"], shown["method"], vm, shown["summary"]


def _line(summary: Record) -> str:
    at, number, method, vm, outcome = _row(summary)
    return f"{at}  {number}  {method:<20}  {vm:<16}  {outcome}\n"


def _time(name: str, text: Optional[str], now: float) -> Optional[float]:
    """Seconds since 1970 of a time, or of a span before now."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0.0, now - int(ago[1]) * _SECONDS[ago[2]])
    try:
        return moment(text)
    except (ValueError, OverflowError):
        raise BadUsage(
            f"--{name} {text!r:.60} is no time: write it like 2026-01-31T12:00:00, or how long ago "
            "it is, like 90s, 10m, 2h, 3d or 1w"
        ) from None


def _why(options: argparse.Namespace) -> Shown:
    """Show why a VM was placed where it was, or nowhere.

    Show all calls of a VM's last placement: which unit removed which host and why, what each host
    cost, and which units were decisive; and, if the settings name an engine, which host the VM runs
    on now, and whether that was the best. Reads the history in the state folder if this user may
    read it; else asks the daemon. Of a VM that is not migrated for a while it shows why, and since
    when.

    examples:
      why web
      why web --host lynx
      why --decision 1f2e3d4c5b6a7988
      why web -o json
    """
    if bool(options.vm) == bool(options.decision):
        raise BadUsage("name a VM, by its name or id, or a decision with --decision")
    if options.host == "":
        raise BadUsage("--host: is empty; leave it out to have every one")
    report = _status(options)
    refusals = [*control_client.refusals(report, options.vm)] if options.vm else []
    notes = "".join(f"{note}\n" for note in (*refusals, *control_client.gap(report)))
    with daemon_client.history(options) as recorded:
        try:
            decisions = _decisions_to_explain(recorded, options)
        except NotRecorded as error:
            if refusals:
                return Shown(notes, [])
            raise NotRecorded("\n".join([str(error), *control_client.gap(report)])) from None
        text = "".join(_explanation(decisions, options))
    return Shown("\n".join(filter(None, (text, notes))), decisions)


def _decisions_to_explain(recorded: RecordSource, options: argparse.Namespace) -> Sequence[Record]:
    """The decision of ``--decision``, or the calls of the VM's last placement.

    Raises:
        NotRecorded: there is none.
        BadUsage: several VMs have that name.
    """
    if options.decision:
        record = recorded.decision(options.decision)
        if record is not None:
            return [record]
        sought, hint = f"{options.decision!r}", ""
    else:
        decisions = _last_placement(recorded, options.vm)
        if decisions:
            return decisions
        sought, hint = f"on a VM {options.vm!r}", near_names(recorded, options)
    raise NotRecorded(
        f"no decision {sought} is recorded{hint}; ovirt-scheduler decisions lists those that "
        "there are"
    )


def _explanation(decisions: Sequence[Record], options: argparse.Namespace) -> Iterator[str]:
    """The explanation of decisions: for all hosts, or for that of ``--host``."""
    cleaned = explanation.cleaned(decisions)
    hosts = outcomes.host_names(cleaned)
    host = next((each for each, name in hosts.items() if options.host in (each, name)), None)
    if options.host is not None and host is None:
        yield from _coloured(_unknown_host(cleaned[-1], options.host, hosts.values()))
    elif options.decision:
        yield from _coloured(explanation.lines(cleaned[0], host))
    else:
        is_asked = not options.url and options.output != "json"
        now = whereabouts.sentence(options, cleaned) if is_asked else ""
        yield from _coloured(placement_explanation.lines(cleaned, host, now))
    if options.host is not None:
        return
    headings, rows = placement_explanation.grid(cleaned)
    if rows:
        yield f"\n{tables.table(headings, rows)}"
    behind = len(hosts) - explanation.MOST_HOSTS
    if behind > 0:
        yield (
            f"\n{behind:,} more hosts rank behind these, or are out: --host HOST shows one, "
            "-o json shows all\n"
        )


def _last_placement(recorded: RecordSource, vm: str) -> Sequence[Record]:
    """The calls of a VM's last placement, or none.

    Args:
        vm: its name or id.

    Raises:
        BadUsage: several VMs have that name.
    """
    records = recorded.decisions(Query(vm=vm, limit=_LATEST, brief=True))
    # Hooks of other VMs that migrated this one are found, too.
    named = (each["vm"] for each in records if each.get("vm", {}).get("name") == vm)
    ids = list(dict.fromkeys(each["id"] for each in named if "id" in each))
    if len(ids) > 1:
        raise BadUsage(f"several VMs have the name {vm}: say which: {', '.join(ids)}")
    return placement_explanation.of_last(records, recorded.decision)


def near_names(recorded: RecordSource, options: argparse.Namespace) -> str:
    """``; did you mean X?`` for the first option that is near a name in the latest decisions."""
    latest = recorded.decisions(Query(brief=True))
    with contextlib.suppress(HistoryUnreadable, CallRefused):  # they may be too large
        latest += recorded.decisions(Query(limit=_WHOLE))
    cleaned = explanation.cleaned(latest)
    names = {
        "vm": {each["vm"].get("name", "") for each in cleaned if "vm" in each},
        "host": {host.get("name", "") for each in cleaned for host in each.get("hosts", ())},
        "unit": {unit["name"] for each in cleaned for unit in each.get("units", ())},
        "cluster": {each.get("cluster", "") for each in cleaned},
        "method": {each["method"] for each in cleaned},
    }
    for option, there in names.items():
        name = getattr(options, option, None)
        if name and (hint := spelling.hint(name, sorted(there))):
            return hint
    return ""


def _unknown_host(last: Record, host: str, hosts: Iterable[str]) -> Iterator[Line]:
    at = explanation.when(last["time"])
    yield Line(f"{at}  {explanation.heading(last)}", Tone.HEADING)
    yield Line(
        f"  {explanation.cleaned(host)}: not among the hosts that were asked about: whoever asked "
        f"had left it out before, or there is no such host{spelling.hint(host, hosts)}",
        Tone.BAD,
    )


def _coloured(lines: Iterable[Line]) -> Iterator[str]:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        colour = _COLOURS.get(line.tone) if coloured else None
        yield f"{line.text}\n" if colour is None else f"\033[{colour}m{line.text}\033[0m\n"
