"""The XML-RPC methods for recorded decisions; they answer in the design form only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import query as queries
from ovirt_scheduler.history.reader import Reader
from ovirt_scheduler.model.requests import AnswerForm, Caller, Pages
from ovirt_scheduler.server import values
from ovirt_scheduler.server.dispatch import Method, Parameters
from ovirt_scheduler.server.pages.access import may_read

_DECISION = "Gives the record of what was decided, a struct; an empty one where none is kept."
_DECISIONS = """Gives the records that fit, the newest first; with brief what a list shows of each.
A query has vm and host (id or name), unit, cluster, method, outcome (ok, raised, timed out, killed,
bad answer, refused, not asked), since and until (such as 2026-01-31T12:00:00Z), limit (100 unless
given, 1000 at most), brief (boolean)."""


def methods(reader: Reader, pages: Pages) -> Iterator[Method]:
    """``decision`` and ``decisions`` (contract 8.4).

    Args:
        pages: only clients that may read all pages may call them.
    """
    forms = (AnswerForm.DESIGN,)
    one, many = partial(_decision, reader, pages), partial(_decisions, reader, pages)
    yield Method("decision", ("id",), ("struct",), _DECISION, one, forms=forms)
    yield Method("decisions", ("query",), ("array",), _DECISIONS, many, 1, forms)


def _decision(reader: Reader, pages: Pages, caller: Caller, parameters: Parameters) -> object:
    _check_reader(caller, pages)
    found = reader.decision(values.string("id", parameters[0]))
    return {} if found is None else _plain(found)


def _decisions(reader: Reader, pages: Pages, caller: Caller, parameters: Parameters) -> object:
    _check_reader(caller, pages)
    (wanted,) = parameters or ({},)
    if not isinstance(wanted, dict):
        raise values.expected("query", "a struct of what has to fit", wanted)
    return [_plain(record) for record in reader.decisions(queries.read(wanted))]


def _check_reader(caller: Caller, pages: Pages) -> None:
    address = caller.peer.rpartition(" ")[2].rpartition(":")[0].strip("[]")
    if not may_read(pages, address):
        raise HistoryUnreadable(
            "scheduler.conf lets you read no decisions: pages = loopback lets whoever is on "
            "the daemon's machine, pages = callers whoever may call"
        )


def _plain(value: Any) -> object:
    """The value as XML-RPC can carry it: a whole number beyond 32 bits becomes a double."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if type(value) is int and not -(2**31) <= value < 2**31:
        return float(value)
    return value
