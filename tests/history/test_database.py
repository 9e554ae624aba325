"""What the writer of the history knows of rows that are there, after they have gone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from ovirt_scheduler.history import database as module
from ovirt_scheduler.history import query, schema, store
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.input_recording import InputDocument, Inputs
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.jobs import Role
from ovirt_scheduler.model.requests import Document
from tests.support.waiting import LONG

LINES = b"<host 1/>\n<host 2/>"


def cut(documents: Sequence[Document]) -> list[Sequence[bytes]]:
    """As a reader does: here each line is an element."""
    return [[b"", *document.data.splitlines(), b""] for document in documents]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / store.FILE, cut)
    yield opened
    opened.close()


def record(number: int, moment: float, hosts: Sequence[str] = ("lynx", "puma")) -> Record:
    return {
        "id": f"{number:016x}", "time": query.written(moment), "milliseconds": 1.0, "caller": "here",
        "method": "runFilters", "form": "design", "vm": {"id": "vm", "name": "web"}, "answer": [],
        "hosts": [{"id": host, "name": f"the {host}"} for host in hosts],
        "units": [{"name": "Memory", "kind": "filter", "outcome": "ok"}],
    }  # fmt: skip


def write(database: Database, written: Record) -> None:
    inputs = Inputs((InputDocument(Role.HOSTS, False, Document(LINES)),), {})
    database.write([(schema.pack(written), inputs)])


def check(path: Path, newest: Record) -> None:
    """Check that the newest decision is found by all that it names, with its documents."""
    reader = RecordReader(path, LONG)
    for wanted in ({"vm": "web"}, {"host": "the lynx"}, {"unit": "Memory"}):
        found = reader.decisions(Query(**wanted))[0]
        assert {key: found[key] for key in newest} == newest
    recorded = reader.recording(reader.recorded(Query())[-1])
    assert reader.document(recorded.documents[0].number) == LINES.replace(b"\n", b"")


def test_what_was_deleted_is_written_again_when_a_decision_names_it(database, tmp_path):
    """With other numbers: those of before may be another's by now."""
    now = time.time()
    write(database, record(1, now - 100, ["wolf", "lynx", "puma"]))
    write(database, record(2, now - 100))
    for number, moment in ((3, now - 50), (4, now)):
        database.forget_before(moment)
        write(database, record(number, moment))
        check(tmp_path / store.FILE, record(number, moment))
    assert len(RecordReader(tmp_path / store.FILE, LONG).decisions(Query())) == 1


@pytest.mark.parametrize("most", ["_MOST_NUMBERS", "_MOST_SETS"])
def test_what_is_forgotten_to_save_memory_is_found_again(database, tmp_path, monkeypatch, most):
    """By its key in the file: it is not written twice."""
    monkeypatch.setattr(module, most, 0)
    now = time.time()
    for number in range(3):
        write(database, record(number, now + number))
        if number:
            database.shrink()
        check(tmp_path / store.FILE, record(number, now + number))
    with closing(sqlite3.connect(tmp_path / store.FILE)) as db:
        counts = [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("names", "host_sets", "unit_sets", "documents", "elements")
        ]
    assert counts == [3, 1, 1, 1, 3]
