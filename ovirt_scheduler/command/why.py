"""``ovirt-scheduler why``: what was decided on a VM, and which units were the reason."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, Optional

from ovirt_scheduler.command import arguments, calls, tables
from ovirt_scheduler.command.recorded import Recorded, vm_hint
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage, NotRecorded
from ovirt_scheduler.history import explanation, placement
from ovirt_scheduler.history.explanation import Line, Tone
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.ranking import Record
from ovirt_scheduler.history.verdict_table import grid
from ovirt_scheduler.model import spelling

_MOST_LOOKED_AT = 20  # decisions on one VM, among which the calls of its last placement are

_COLOURS = {Tone.HEADING: "1", Tone.GOOD: "32", Tone.BAD: "31", Tone.TROUBLE: "33"}


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "why", _run)
    command.add_argument("vm", metavar="VM", nargs="?", help="its name or id")
    command.add_argument("--decision", metavar="ID", help="one decision, by its id")
    command.add_argument("--host", metavar="HOST", help="only of this host, by its name or id")
    arguments.add_url(command)


def _run(options: argparse.Namespace) -> Shown:
    """Tell why a VM was placed where it was, or nowhere.

    Tell the calls of a VM's last placement as one: who removed which host and why, what each host
    cost, and which units were decisive. The history is read in the state folder where that may be
    read, else the daemon is asked.

    examples:
      why web
      why web --host lynx
      why --decision 1f2e3d4c5b6a7988
      why web -o json
    """
    if bool(options.vm) == bool(options.decision):
        raise BadUsage("name a VM, by its name or id, or a decision with --decision")
    kept = calls.history(options)
    if options.decision:
        return of_decision(kept, options.decision, options.host)
    return of_vm(kept, options.vm, options.host)


def of_vm(recorded: Recorded, vm: str, host: Optional[str]) -> Shown:
    """The calls of the VM's last placement, told as one.

    Args:
        vm: its name or id.
        host: name or id of one of the hosts, of which alone it is to be told.

    Raises:
        NotRecorded: there is no decision on the VM.
        BadUsage: several VMs have that name.
    """
    found = recorded.decisions(Query(vm=vm, limit=_MOST_LOOKED_AT, brief=True))
    ids = list(dict.fromkeys(each["vm"]["id"] for each in found if "id" in each.get("vm", {})))
    if len(ids) > 1 and vm not in ids:
        raise BadUsage(f"several VMs have the name {vm}: say which: {', '.join(ids)}")
    calls = placement.of_last(found, recorded.decision)
    if not calls:
        raise NotRecorded(
            f"no decision on a VM {vm!r} is recorded{vm_hint(recorded, vm)}; "
            "ovirt-scheduler decisions lists those that there are"
        )
    return _shown(calls, placement.lines, host)


def of_decision(recorded: Recorded, decision: str, host: Optional[str]) -> Shown:
    """One decision.

    Raises:
        NotRecorded: there is none of that id.
    """
    found = recorded.decision(decision)
    if found is None:
        raise NotRecorded(
            f"no decision {decision!r} is recorded; ovirt-scheduler decisions lists those that "
            "there are"
        )
    return _shown([found], lambda only, host: explanation.lines(only[0], host), host)


def _shown(
    decisions: Sequence[Record],
    tell: Callable[[Sequence[Record], Optional[str]], Iterable[Line]],
    host: Optional[str],
) -> Shown:
    """What is shown of decisions: lines in words, and a table of the hosts.

    Args:
        tell: gives their lines, of the host of an id or of all.
    """
    cleaned = explanation.cleaned(decisions)
    hosts, below = explanation.host_names(cleaned), ""
    if host is None:
        lines = tell(cleaned, None)
        headings, rows = grid(cleaned)
        below = f"\n{tables.table(headings, rows)}" if len(headings) > 1 else ""
        if len(hosts) > explanation.MOST_HOSTS:
            below += (
                f"\n{len(hosts) - explanation.MOST_HOSTS:,} more hosts rank behind these, or are "
                "out: --host HOST tells of one, -o json of all\n"
            )
    else:
        wanted = [found for found, name in hosts.items() if host in (found, name)]
        lines = (
            tell(cleaned, wanted[0])
            if wanted
            else _not_asked_about(cleaned[-1], host, hosts.values())
        )
    return Shown("".join(_painted(lines)) + below, decisions)


def _not_asked_about(last: Record, host: str, hosts: Iterable[str]) -> Iterator[Line]:
    yield Line(f"{explanation.when(last)}  {explanation.heading(last)}", Tone.HEADING)
    yield Line(
        f"  {explanation.cleaned(host)}: not among the hosts that were asked about: whoever asked "
        f"had left it out before{spelling.hint(host, hosts)}",
        Tone.BAD,
    )


def _painted(lines: Iterable[Line]) -> Iterator[str]:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        colour = _COLOURS.get(line.tone) if coloured else None
        yield f"{line.text}\n" if colour is None else f"\033[{colour}m{line.text}\033[0m\n"
