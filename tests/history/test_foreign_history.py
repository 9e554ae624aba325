"""A history that somebody else made: what it unpacks to is bounded, and nothing waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import input_recording, schema
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from ovirt_scheduler.history.unpacking import Unpacking
from tests.support.waiting import LONG

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A history of 100 decisions with a cost function each."""
    made: Record = {
        "id": "1", "time": written(time.time()), "milliseconds": 1.0, "caller": "", "form": "engine",
        "method": "runCostFunctions", "vm": {"id": "vm"}, "answer": [],
        "units": [{"name": "Even", "kind": "cost function", "factor": 2, "outcome": "ok"}],
        "hosts": [{"id": "a", "costs": [{"unit": "Even", "cost": 3, "factor": 2, "weighted": 6}]}],
    }  # fmt: skip
    database = Database(tmp_path / FILE)
    database.write([(schema.pack(made), None)] * 100)
    database.close()
    return tmp_path / FILE


def change(path: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def body(path: Path) -> dict[str, object]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        (packed,) = db.execute("SELECT body FROM decisions").fetchone()
    found: dict[str, object] = json.loads(zlib.decompress(packed))
    return found


def test_records_are_unpacked_up_to_a_limit_in_sum(path: Path) -> None:
    """A few of the same are read."""
    large = zlib.compress(json.dumps({**body(path), "caller": "x" * MIB}).encode())
    change(path, "UPDATE decisions SET body = ?", large)
    with pytest.raises(HistoryUnreadable, match="takes more than 32 MiB; ask for less"):
        RecordReader(path, LONG).decisions(Query(limit=100))
    assert len(RecordReader(path, LONG).decisions(Query(limit=10))) == 10


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE unit_sets SET units = json_insert(units, '$[0].x', ?)",
        "UPDATE names SET name = ? WHERE id = 'vm'",
    ],
    ids=["units", "name"],
)
def test_a_text_that_stands_once_in_the_file_counts_for_each_record(
    path: Path, statement: str
) -> None:
    change(path, statement, "x" * 10 * MIB)
    with pytest.raises(HistoryUnreadable, match="takes more than 32 MiB"):
        RecordReader(path, LONG).decisions(Query(limit=100))
    assert len(RecordReader(path, LONG).decisions(Query(limit=1))) == 1


def test_documents_are_unpacked_up_to_a_limit(path: Path) -> None:
    """One element may stand in them often."""
    piece = b" " * (50 * MIB)
    change(
        path, "INSERT INTO elements VALUES (1, ?, NULL, ?)",
        input_recording.hash_of(piece), input_recording.packed(piece, b""),
    )  # fmt: skip
    for place in range(3):
        change(path, "INSERT INTO document_elements VALUES (1, ?, 1)", place)
    with pytest.raises(HistoryUnreadable, match="takes more than 128 MiB"):
        RecordReader(path, LONG).document(1)


def test_what_is_too_large_is_not_unpacked_first() -> None:
    bomb = input_recording.packed(b" " * (50 * MIB), b"")
    tracemalloc.start()
    with pytest.raises(HistoryUnreadable, match="takes more than 1 MiB"):
        Unpacking(MIB).unpack(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * MIB


@pytest.mark.parametrize(
    "forged",
    [
        {"units": [{"said": [10**9], "held": {}}]},
        {"units": [{"said": ["x"]}]},
        [],
        "x",
    ],
)
def test_a_forged_record_is_damaged(path: Path, forged: object) -> None:
    """Also where a text would be multiplied by a cost."""
    change(path, 'UPDATE unit_sets SET units = replace(units, \'"factor":2\', \'"factor":"x"\')')
    change(path, "UPDATE decisions SET body = ?", zlib.compress(json.dumps(forged).encode()))
    with pytest.raises(HistoryUnreadable, match="is damaged"):
        RecordReader(path, LONG).decisions(Query())


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"units":'])
def test_what_is_no_json_or_too_deep_is_damaged(path: Path, text: bytes) -> None:
    change(path, "UPDATE decisions SET body = ?", zlib.compress(text))
    with pytest.raises(HistoryUnreadable, match="is damaged"):
        RecordReader(path, LONG).decisions(Query())


def test_a_part_that_ends_early_is_damaged() -> None:
    packed = input_recording.packed(b"x" * 1000, b"")
    assert Unpacking(1000).unpack(packed) == b"x" * 1000
    with pytest.raises(zlib.error, match="ends early"):
        Unpacking(1000).unpack(packed[:-1])


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(HistoryUnreadable, match="it is not a plain file"):
        RecordReader(tmp_path / FILE, LONG).decisions(Query())
