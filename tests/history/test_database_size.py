"""How large the history's file is, and what is deleted for that."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from ovirt_scheduler.history import query, schema, store
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.input_recording import PackedDecision


def rows(count: int, hosts: int = 1, first: int = 0) -> list[PackedDecision]:
    """So many decisions, each a second after the one before."""
    now = time.time()
    return [
        (
            schema.pack({
                "id": f"{number:016x}", "time": query.written(now + number - first),
                "milliseconds": 1.0, "caller": "here", "method": "runFilters", "form": "design",
                "vm": {"id": f"vm {number}"}, "units": [], "answer": [],
                "hosts": [{"id": f"host {number} {each}"} for each in range(hosts)],
            }),
            None,
        )
        for number in range(first, first + count)
    ]  # fmt: skip


def test_a_history_that_is_much_too_large_shrinks_in_few_steps(tmp_path: Path):
    """As after history_size was lowered: each step looks at all that is there."""
    database = Database(tmp_path / store.FILE)
    database.write(rows(2000, hosts=20))
    _, size = database.totals()
    statements: list[str] = []
    database._db.set_trace_callback(statements.append)
    database.keep_within(size // 8)
    count, left = database.totals()
    database.close()
    assert size // 20 < left <= size // 8
    assert count > 100
    assert sum(each.startswith("DELETE FROM decisions") for each in statements) < 15


def test_the_oldest_events_make_room_as_the_oldest_decisions_do(tmp_path: Path):
    """Large events neither push out all decisions nor stay; both are left from the same time on."""
    database = Database(tmp_path / store.FILE)
    now, count = time.time(), 500
    database.write(
        rows(count), [(now + number, {"event": "plan", "x": "y" * 5000}) for number in range(count)]
    )
    statements: list[str] = []
    database._db.set_trace_callback(statements.append)
    database.keep_within(1 << 20)
    assert database._bytes() <= 1 << 20
    assert sum(each.startswith("DELETE FROM decisions") for each in statements) < 15
    statements.clear()
    database.keep_within(1 << 20)
    assert not any(each.startswith("DELETE") for each in statements)
    oldest = [
        database._db.execute(f"SELECT min(time) FROM {table}").fetchone()[0]
        for table in ("decisions", "events")
    ]
    assert 50 < database.totals()[0] < count
    database.close()
    assert abs(oldest[0] - oldest[1]) < 100_000  # milliseconds


def test_a_history_that_somebody_vacuums_is_not_cut(tmp_path: Path):
    database = Database(tmp_path / store.FILE)
    decisions = rows(100, hosts=20)
    database.write(decisions)
    database._delete("decisions", "number", 90)
    with contextlib.closing(sqlite3.connect(tmp_path / store.FILE)) as db:
        db.executescript("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    database.check_size()
    database.write(decisions)
    assert database.totals()[0] == 111
    database.close()


def test_the_file_and_its_log_keep_within_the_bound_together(tmp_path: Path):
    """And give back what was deleted: not a page at each look."""
    database = Database(tmp_path / store.FILE)
    for start in range(0, 3000, 300):
        database.write(rows(300, hosts=20, first=start))
        database.keep_within(1 << 20)
        log = (tmp_path / f"{store.FILE}-wal").stat().st_size
        assert (tmp_path / store.FILE).stat().st_size + log == database.totals()[1] <= 1 << 20
    assert database.totals()[0] > 100
    database.keep_within(300_000)
    assert database.totals()[1] <= 300_000
    assert database._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_while_somebody_reads_the_log_no_decision_is_deleted_for_its_size(tmp_path: Path):
    """It is given back when the reader is done."""
    database = Database(tmp_path / store.FILE)
    decisions = rows(20)
    database.write(decisions)
    with contextlib.closing(sqlite3.connect(tmp_path / store.FILE)) as reading:
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM decisions").fetchone()
        for _ in range(30):
            database.write(decisions)
        size = database._pragma("page_count") * database._pragma("page_size")
        assert database.totals()[1] > 1.5 * size
        database.keep_within(size)
        assert database.totals()[0] == 31 * 20
    database.keep_within(size)
    assert database.totals()[1] <= size
    assert database.totals()[0] == 31 * 20
    database.close()
