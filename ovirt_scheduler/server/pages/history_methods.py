"""The XML-RPC methods that give the records of decisions."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.requests import AnswerForm, Caller, Pages
from ovirt_scheduler.server import parameter_values
from ovirt_scheduler.server.codec import encode_record, encode_records
from ovirt_scheduler.server.dispatch import Method, Parameters, Reply
from ovirt_scheduler.server.pages.access import may_read

_DECISION = "Gives the record of what was decided, a struct; an empty one where none is kept."
_DECISIONS = """Gives the records that fit, the newest first; with brief what a list shows of each.
A query has vm and host (id or name), unit, cluster, method, outcome (ok, raised, timed out, killed,
bad answer, refused, not asked), since and until (such as 2026-01-31T12:00:00Z), limit (100 unless
given, 1000 at most), before (the id of the last record of an answer: those that follow it), brief
(boolean)."""


def history_methods(reader: RecordReader, pages: Pages, is_kept: bool) -> Iterator[Method]:
    """``decision`` and ``decisions``, in the design form (contract 8.4).

    Args:
        pages: only clients that may read all pages may call them.
        is_kept: whether decisions are kept now; there may be former ones.
    """

    def one(caller: Caller, parameters: Parameters) -> Reply:
        _check_reader(caller, pages)
        decision = parameter_values.string("id", parameters[0])
        with reader.turns.next_turn() as turn:
            record = reader.decision(decision, turn)
            if record is None and not is_kept:  # so that nobody waits for it
                raise HistoryUnreadable("scheduler.conf says history = false: no decision is kept")
            return Reply(document=encode_record(record or {}, turn.check))

    def many(caller: Caller, parameters: Parameters) -> Reply:
        _check_reader(caller, pages)
        conditions = query.read(
            parameter_values.struct("query", "a struct of what has to fit", parameters[0])
        )
        with reader.turns.next_turn() as turn:
            records = reader.decisions(conditions, turn)
            return Reply(document=encode_records(records, turn.check))

    forms = (AnswerForm.DESIGN,)
    yield Method("decision", ("id",), ("struct",), _DECISION, one, forms)
    yield Method("decisions", ("query",), ("array",), _DECISIONS, many, forms)


def _check_reader(caller: Caller, pages: Pages) -> None:
    if not may_read(pages, caller.address):
        raise HistoryUnreadable(
            "scheduler.conf lets you read no decisions: pages = loopback allows it on the "
            "daemon's machine, pages = callers to all who may call"
        )
