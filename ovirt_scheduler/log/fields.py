"""The fields of a line of the log.

A line is logged with its fields as the one argument: ``log.info("%(units)s ...", fields)``. The
sentence is made of the same mapping that the JSON and journal formats show (``format``,
``journal``), so text and fields cannot disagree. Names and output that come from elsewhere have
the types below, which say how they look in a sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

# Each field with its meaning; docs/operations.md has the same table. No field may be named time,
# level, message or logger, as every line has these.
FIELDS: dict[str, str] = {
    "request": "id of the request; the lines on its plugins have the same",
    "method": "XML-RPC method, as the caller named it",
    "form": "`design` or `engine`: the form of the answer",
    "peer": "who called: the name in the client's certificate, if any, and address:port",
    "outcome": "of a request `ok`, `degraded` (answered without some unit), `fault CODE` or "
    "`HTTP STATUS`; of a plugin call `ok`, `refused`, `raised`, `timed out`, `killed` or "
    "`bad answer`",
    "target": "verb and path of a request that was refused, without its query",
    "units": "units that were asked for, the first 32",
    "problems": "those of them with problems",
    "hosts_in": "number of hosts in the request",
    "hosts_out": "number of hosts in the answer",
    "milliseconds": "time that the request or the plugin call took",
    "unit": "policy unit, scheduler or driver",
    "kind": "`filter`, `cost function`, `balance`, `scheduler` or `driver`; of a file all that is "
    "in it",
    "mode": "`shadow` where the unit is in shadow",
    "removed": "hosts that a filter removed, the first 32 (debug)",
    "costs": "cost by host, not multiplied, of the first 32 (debug)",
    "vm": "VM that a request is about, that a balance would migrate, or that is migrated",
    "decided": "VM, hosts, how many were left and who removed how many, and the host chosen",
    "cluster": "cluster that the daemon looks after",
    "daemon": "another daemon that drives the same cluster: its machine, and digits",
    "source_host": "host that a VM is migrated from",
    "target_host": "host that a VM is migrated to",
    "hosts": "hosts that it may go to, the first 32 (debug)",
    "stream": "`stdout` or `stderr`: where the plugin printed",
    "output": "what the plugin printed, the first 2000 characters",
    "traceback": "where it failed",
    "reason": "why, in words",
    "file": "file that the line is about",
    "line": "line in that file",
    "folders": "folders of plugins",
    "checksum": "of a plugin's file with its conf file",
    "count": "number of policy units, of lines that were missed, of equal failures, or of a VM's "
    "migrations",
    "faults": "number of files that cannot be loaded",
    "address": "address that the daemon listens on",
    "seconds": "time that was waited",
    "since": "when a unit began to fail as it does",
    "pid": "process id",
    "status": "exit status of a process, or minus the signal that ended it",
    "signal": "signal that the daemon was sent",
    "state": "what was to be sent to systemd, or what has become of a plan",
    "version": "of ovirt-scheduler",
    "plan": "id of a plan (`ovirt-scheduler plan`)",
}

_PLAIN = re.compile(r"[\w.:@-]+")
_LONGEST_NAME = 60  # characters
_IN_A_SENTENCE = 8  # names
_IN_A_FIELD = 32


class Name(str):
    """A name from elsewhere, cut to a length; in quotes in a sentence unless it is a plain word."""

    __slots__ = ()

    def __new__(cls, name: str) -> Name:
        """Cut the name to its length; ``str`` takes its text here alone."""
        return super().__new__(cls, name[:_LONGEST_NAME])

    def __str__(self) -> str:
        plain = super().__str__()
        return plain if _PLAIN.fullmatch(plain) else repr(plain)


class InShadow(str):
    """A kind of unit, ``filter in shadow`` in a sentence."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{super().__str__()} in shadow"


class Names:
    """The first of many names, and how many more there are."""

    def __init__(self, names: Collection[str]) -> None:
        self.first = tuple(Name(name) for name in itertools.islice(names, _IN_A_FIELD))
        self._all = len(names)

    def __str__(self) -> str:
        return _listed([str(name) for name in self.first], self._all)


class Costs(dict[str, int]):
    """The first of many costs by host, and how many more there are."""

    def __init__(self, costs: Mapping[str, int]) -> None:
        first = itertools.islice(costs.items(), _IN_A_FIELD)
        super().__init__((Name(host), cost) for host, cost in first)
        self._all = len(costs)

    def __str__(self) -> str:
        return _listed([f"{host} {cost}" for host, cost in self.items()], self._all)


def _listed(first: Sequence[str], all_of_them: int) -> str:
    shown = first[:_IN_A_SENTENCE]
    more = all_of_them - len(shown)
    return (", ".join(shown) or "(none)") + (f" and {more} more" if more else "")


class Block(str):
    """Text of several lines that follows the sentence: a traceback, or output."""

    __slots__ = ()
