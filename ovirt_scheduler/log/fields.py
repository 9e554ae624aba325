"""What a line of the log may tell, field by field.

A line is logged with its fields as the one argument: ``log.info("%(units)s ...", fields)``. The
sentence is made from the same mapping that the JSON and journal formats show (``log_format``,
``journal``), so that text and fields cannot disagree. What others chose, names and output, comes
in the types below, which say how it looks in a sentence.
"""

from __future__ import annotations

import itertools
import re
from typing import Collection, Dict, Mapping

# Each field with what it tells; docs/operations.md has the same table. None is named time, level,
# message or logger, which every line has.
FIELDS: Dict[str, str] = {
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
    "hosts_in": "number of hosts that were given",
    "hosts_out": "number of hosts in the answer",
    "milliseconds": "time that the request or the plugin call took",
    "unit": "policy unit, scheduler or driver",
    "kind": "`filter`, `cost function`, `balance`, `scheduler` or `driver`; of a file all that is "
    "in it",
    "removed": "hosts that a filter removed, the first 32 (debug)",
    "costs": "cost by host, not multiplied, of the first 32 (debug)",
    "vm": "VM that a balance would migrate (debug), or that is migrated",
    "cluster": "cluster that the daemon looks after",
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
    "count": "number of policy units, of lines that were missed, or of a VM's migrations",
    "faults": "number of files that cannot be loaded",
    "address": "address that the daemon listens on",
    "seconds": "time that was waited",
    "pid": "process id",
    "status": "exit status of a process, or minus the signal that ended it",
    "signal": "signal that the daemon was sent",
    "state": "what systemd was to be told",
    "version": "of ovirt-scheduler",
}

_PLAIN = re.compile(r"[\w.:@-]+")
_LONGEST_NAME = 60  # characters
_IN_A_SENTENCE = 8  # names
_IN_A_FIELD = 32


class Name(str):
    """A name that somebody else chose, cut; in a sentence in quotes unless it is a plain word."""

    __slots__ = ()

    def __new__(cls, name: str) -> Name:
        return super().__new__(cls, name[:_LONGEST_NAME])

    def __str__(self) -> str:
        plain = super().__str__()
        return plain if _PLAIN.fullmatch(plain) else repr(plain)


class Names:
    """Some of many names."""

    def __init__(self, names: Collection[str]) -> None:
        self.first = tuple(Name(name) for name in itertools.islice(names, _IN_A_FIELD))
        self._all = len(names)

    def __str__(self) -> str:
        told = self.first[:_IN_A_SENTENCE]
        more = self._all - len(told)
        return (", ".join(map(str, told)) or "(none)") + (f" and {more} more" if more else "")


class Costs(Dict[str, int]):
    """Some of many costs, by host."""

    def __init__(self, costs: Mapping[str, int]) -> None:
        first = itertools.islice(costs.items(), _IN_A_FIELD)
        super().__init__((Name(host), cost) for host, cost in first)
        self._all = len(costs)

    def __str__(self) -> str:
        told = list(itertools.islice(self.items(), _IN_A_SENTENCE))
        more = self._all - len(told)
        shown = ", ".join(f"{host} {cost}" for host, cost in told) or "(none)"
        return shown + (f" and {more} more" if more else "")


class Block(str):
    """Text of several lines, told beneath the sentence and not in it: a traceback, output."""

    __slots__ = ()
