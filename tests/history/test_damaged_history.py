"""What the history does when its file is damaged, deleted, cut or of another version."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import schema, store
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import History
from tests.support.waiting import LONG, wait_until
from tests.support.written_records import made, written


@pytest.mark.parametrize("column", ["body = x'00'", "host_set = 99", "time = 1 << 62"])
def test_a_row_that_is_damaged_is_told(tmp_path: Path, column: str):
    """SQLite itself sees nothing wrong in it."""
    path = tmp_path / store.FILE
    written(path, made(1, time.time()))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE decisions SET {column}")
        db.commit()
    with pytest.raises(HistoryUnreadable, match=f"{path} is damaged: "):
        RecordReader(path, LONG).decisions(Query())


def test_a_damaged_file_that_cannot_be_set_aside_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Nothing says that another history begins, as none does."""
    path = tmp_path / store.FILE
    path.write_bytes(b"no database at all " * 1000)
    aside = [f"{store.FILE}.damaged{number}" for number in ("", *(f".{n}" for n in range(2, 10)))]
    for name in aside:
        (tmp_path / name).write_text(name)
    history = History(path)
    history.start()
    for number in range(3):
        history.put(made(number, time.time()))
        wait_until(lambda goal=number + 1: history.dropped >= goal)
    history.close(LONG)
    (told,) = caplog.messages
    assert "the history cannot be written" in told
    assert f"{store.FILE}.damaged.9 are there already" in told
    assert history.state().problem
    assert [(tmp_path / name).read_text() for name in aside] == aside


def test_a_history_that_is_deleted_meanwhile_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Else the next decisions would go into a file that nobody finds."""
    path = tmp_path / store.FILE
    history = History(path)
    history.start()
    history.put(made(1, time.time()))
    wait_until(lambda: RecordReader(path, LONG).decisions(Query()))
    for each in sorted(tmp_path.iterdir(), reverse=True):  # the log first: another has its name
        each.unlink()
    history.put(made(2, time.time()))
    wait_until(lambda: RecordReader(path, LONG).decisions(Query(vm="vm 2")))
    history.close(LONG)
    assert caplog.messages == ["the history begins anew: its file was deleted or replaced"]


def test_a_file_that_is_deleted_between_two_steps_of_a_write_is_no_trouble(tmp_path: Path):
    """Nothing is told before the next write, which finds it gone."""
    path = tmp_path / store.FILE
    with contextlib.closing(Database(path)) as database:
        database.write([(schema.pack(made(1, time.time())()), None)])
        path.unlink()
        database.check_size()
        database.write([(schema.pack(made(2, time.time())()), None)])
        database.forget_before(time.time() - 1)
        database.keep_within(1 << 30)
        assert database.totals()[0] == 2
        assert database.is_gone()


@pytest.mark.parametrize("size", [0, 4096, 100_000])
def test_a_history_that_is_cut_in_place_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
):
    """SQLite has its pages in memory, and would write on into a file with a gap."""
    path = tmp_path / store.FILE
    history = History(path)
    history.start()
    for number in range(100):
        history.put(made(number, time.time(), 20))
    wait_until(lambda: not history.waiting)
    assert history._database is not None
    history._database._release()  # from the log into the file
    history._database.check_size()
    history.put(made(100, time.time()))
    wait_until(lambda: not history.waiting)
    os.truncate(path, size)
    history.put(made(101, time.time()))
    wait_until(lambda: caplog.messages)
    history.close(LONG)
    (message,) = caplog.messages
    assert re.search(rf"anew: it was cut from \d+ bytes to {size}; its file is set aside", message)
    assert path.with_name(f"{store.FILE}.damaged").exists()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT count(*) FROM decisions").fetchone() == (1,)


def test_a_history_of_another_version_is_set_aside_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Under a name that says so and that no file has; also what is in its log only."""
    path = tmp_path / store.FILE
    former = tmp_path / f"{store.FILE}.version-77"
    former.write_text("set aside before")
    newer = sqlite3.connect(path)
    newer.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (x); PRAGMA user_version = 77")
    newer.execute("INSERT INTO t VALUES ('in the log')")
    newer.commit()
    shutil.copytree(tmp_path, tmp_path / "killed")  # as a daemon that is killed leaves it
    newer.close()
    path = tmp_path / "killed" / store.FILE
    with pytest.raises(HistoryUnreadable, match="of version 77 of the schema, and this program"):
        RecordReader(path, LONG).decisions(Query())
    history = written(path, made(1, time.time()))
    assert (history.state().problem, history.dropped) == ("", 0)
    assert len(RecordReader(path, LONG).decisions(Query())) == 1
    aside = f"{path}.version-77.2"
    assert [message.rpartition(" ")[2] for message in caplog.messages] == [aside]
    with contextlib.closing(sqlite3.connect(aside)) as db:
        assert db.execute("SELECT x FROM t").fetchall() == [("in the log",)]
    assert (tmp_path / "killed" / former.name).read_text() == "set aside before"
