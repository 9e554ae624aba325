"""What the history does when the disk, the clock, the queue or a query gives it trouble."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from ovirt_scheduler.command.control_client import ask as ask_control
from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history import schema, store
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import History
from tests.support.command import run
from tests.support.daemon import StartDaemon
from tests.support.waiting import LONG, wait_until
from tests.support.written_records import made, written

HOSTS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]
_ROOM = 8192  # bytes of a file: enough for the log, and for no page of the history
KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts\n"


@pytest.mark.long
def test_a_full_disk_is_told_once_and_stops_no_call(
    start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory
):
    """Each call is answered meanwhile; when there is room again, the history goes on."""
    folder = tmp_path_factory.mktemp("full")
    daemon = start_daemon({"Keeps": KEEPS}, "ssl = false", folder=folder)
    reader = RecordReader(daemon.state / store.FILE, LONG)

    def ask(vm: str) -> None:
        assert daemon.design.runFilters(["Keeps"], HOSTS, vm, {}) == HOSTS

    ask("before")
    wait_until(lambda: reader.decisions(Query(vm="before")))
    _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (_ROOM, hard))
    for number in range(3):
        ask(f"lost {number}")
        wait_until(lambda: "the history cannot be written" in daemon.log)
        wait_until(lambda goal=number + 1: dropped(daemon.state) >= goal)
    for command in (("why", "before"), ("decisions",), ("why", "lost 1")):
        told = " ".join(run(daemon.state.parent, *command)[1:])
        assert "the history is not written since " in told
        assert ", and what was decided since then is missing here: " in told
        assert "Make room on the disk" in told
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def is_kept_again() -> bool:
        ask("after")
        return bool(reader.decisions(Query(vm="after")))

    wait_until(is_kept_again)
    assert not reader.decisions(Query(vm="lost 0"))
    assert reader.decisions(Query(vm="before"))
    assert "the history is not written" not in run(daemon.state.parent, "decisions")[1]
    assert daemon.log.count("the history cannot be written") == 1
    assert daemon.log.count("the history is written again; ") == 1


def dropped(state: Path) -> int:
    return int(ask_control(state, "status")["history"]["dropped"])


def test_calls_go_first_unless_many_decisions_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If calls never ended, the queue would overflow."""
    history, sleep = History(tmp_path / store.FILE), time.sleep
    waited: list[int] = []

    def rest(seconds: float) -> None:
        if seconds == store._BREATH:
            waited.append(len(history._queue))
        sleep(seconds)

    def first() -> Record:
        for number in range(store._NO_BREATH):
            history.put(made(number, time.time()))
        return made(0, time.time())()

    monkeypatch.setattr(time, "sleep", rest)
    monkeypatch.setattr(store, "_BREATH_AFTER", 0.0)  # so it is after each record
    history.put(first)
    for number in range(5):
        history.put(made(number, time.time()))
    history.start()
    wait_until(lambda: history.state().decisions == 6 + store._NO_BREATH)
    history.close()
    assert waited == [0] * (1 + store._NO_BREATH)


def test_large_decisions_that_wait_are_written_a_few_at_a_time(tmp_path: Path):
    """Else the rows of all would be in memory at once."""
    path = tmp_path / store.FILE
    history = History(path)
    written: list[int] = []

    def last() -> Record:
        with contextlib.closing(sqlite3.connect(path)) as database:
            written.extend(database.execute("SELECT count(*) FROM decisions").fetchone())
        return made(9, time.time())()

    for number in range(9):
        history.put(made(number, time.time()), store._MOST_TOGETHER // 2)
    history.put(last, store._MOST_TOGETHER // 2)
    history.start()
    history.close()
    assert written == [8]
    assert history.state().decisions == 10


def test_a_clock_that_is_set_back_loses_nothing(tmp_path: Path):
    """The newest is what was written last; a time asked for is a time as the clock said it."""
    now, hour = time.time(), 3600.0
    path = tmp_path / store.FILE
    written(path, made(1, now), made(2, now - 2 * hour), made(3, now - 2 * hour + 1))
    found = RecordReader(path, LONG).decisions(Query())
    assert [each["vm"]["id"] for each in found] == ["vm 3", "vm 2", "vm 1"]
    late = RecordReader(path, LONG).decisions(Query(since=now - hour))
    assert [each["vm"]["id"] for each in late] == ["vm 1"]


@pytest.mark.parametrize("bound", ["records", "bytes"])
def test_a_full_queue_drops_the_oldest_and_counts_them(tmp_path: Path, bound: str):
    """Neither many small decisions nor a few large ones fill the memory while the disk is slow."""
    path = tmp_path / store.FILE
    count, size = (5000, 0) if bound == "records" else (200, 1 << 20)
    history = History(path)  # nobody writes yet
    for number in range(count):
        history.put(made(number, time.time()), size)
    waiting, lost = history.waiting, history.dropped
    assert waiting < count
    assert waiting + lost == count
    history.start()
    wait_until(lambda: history.waiting == 0)
    history.close(LONG)
    reader = RecordReader(path, LONG)
    assert not reader.decisions(Query(vm="vm 0"))
    assert reader.decisions(Query(vm=f"vm {count - 1}"))
    assert history.state().decisions == waiting


def test_a_query_that_takes_longer_than_a_second_ends(tmp_path: Path):
    """It is told what to ask for instead; others are answered."""
    path = tmp_path / store.FILE
    written(path, made(1, time.time()))
    with contextlib.closing(sqlite3.connect(path)) as db:  # whose VMs have decisions without end
        db.executescript(
            "DROP TABLE vm_decisions; CREATE VIEW vm_decisions AS WITH RECURSIVE endless(n) AS "
            "(SELECT 2 UNION ALL SELECT n + 1 FROM endless) SELECT n AS vm, -n AS decision "
            "FROM endless"
        )
    with pytest.raises(HistoryUnreadable, match="more than 1 s; ask for less: a VM, a host"):
        RecordReader(path).decisions(Query(vm="vm 1"))
    assert len(RecordReader(path, LONG).decisions(Query())) == 1


def test_records_are_read_while_others_are_written(tmp_path: Path):
    """Each look finds whole records, the newest first, and no fewer than the look before."""
    path = tmp_path / store.FILE
    history = History(path)
    history.start()
    seen = 0
    for number in range(40):
        for each in range(50):
            history.put(made(number * 50 + each, time.time(), 3))
        found = RecordReader(path, LONG).decisions(Query(limit=1000))
        ids = [int(each["id"], 16) for each in found]
        assert ids == sorted(ids, reverse=True)
        assert all(len(each["hosts"]) == 3 for each in found)
        assert len(found) >= min(seen, 1000)
        seen = len(found)
    history.close(LONG)
    assert len(RecordReader(path, LONG).decisions(Query(limit=1000))) == 1000


def test_what_comes_while_others_are_written_is_written_at_the_end(tmp_path: Path):
    """A daemon that is stopped just then loses nothing."""
    path = tmp_path / store.FILE
    begun, ended = threading.Event(), threading.Event()

    def slow() -> Record:
        begun.set()
        ended.wait(LONG)
        return made(1, time.time())()

    history = History(path)
    history.start()
    history.put(slow)
    assert begun.wait(LONG)
    history.put(made(2, time.time()))
    closing = threading.Thread(target=history.close)
    closing.start()
    wait_until(history._closing.is_set)
    ended.set()
    closing.join(LONG)
    assert len(RecordReader(path, LONG).decisions(Query())) == 2


def test_a_record_that_cannot_be_written_takes_no_later_one_along(tmp_path: Path):
    """Whatever was taken back with it is written again when a later record names it."""
    path = tmp_path / store.FILE
    history = History(path)
    history.start()
    broken = made(2, time.time())()
    broken["vm"] = {"id": "half of a pair \ud800"}
    history.put(lambda: {**broken, "hosts": [{"id": "host 3 0"}]})
    wait_until(lambda: history.dropped == 1)
    history.put(made(3, time.time()))
    history.close(LONG)
    (found,) = RecordReader(path, LONG).decisions(Query())
    assert found["hosts"] == [{"id": "host 3 0"}]


def test_the_writers_memory_does_not_grow_with_sets_of_hosts(tmp_path: Path):
    """Each placement in a large fleet may be about other hosts of it."""
    hosts = [{"id": f"host {number}", "name": f"name {number}"} for number in range(1000)]
    database = Database(tmp_path / store.FILE)

    def write(number: int) -> None:
        record = {**made(number, time.time())(), "hosts": hosts[number:]}
        database.write([(schema.pack(record), None)])

    write(0)
    tracemalloc.start()
    try:
        for number in range(1, 50):
            write(number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        database.close()
    assert kept < 1 << 20


def test_a_long_history_makes_no_write_slower(tmp_path: Path):
    """What follows each write reads none of the decisions that are there."""
    database = Database(tmp_path / store.FILE)
    steps = []

    def steps_after(count: int) -> int:
        database.write([(schema.pack(made(1, time.time())()), None)] * count)
        steps.clear()
        database._db.set_progress_handler(lambda: steps.append(1), 1)
        database.keep_within(1 << 30)
        assert database.totals()[0] >= count
        database._db.set_progress_handler(None, 0)
        return len(steps)

    few = steps_after(10)
    assert 0 < steps_after(2_000) < few + 10
    database.close()


def test_written_decisions_are_not_lost_where_old_ones_cannot_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """That is told once, and tried again after each write."""
    path = tmp_path / store.FILE
    history = History(path)
    history.bound(1, 1 << 20)
    history.start()
    history.put(made(1, time.time()))
    wait_until(lambda: RecordReader(path, LONG).decisions(Query(vm="vm 1")))
    with contextlib.closing(sqlite3.connect(path, timeout=LONG)) as db:
        db.execute(
            "CREATE TRIGGER stays BEFORE DELETE ON decisions BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        db.execute("UPDATE decisions SET time = 1")
        db.commit()
    history.bound(1, 1 << 20)  # looks for old ones anew
    for vm in (2, 3):
        history.put(made(vm, time.time()))
        wait_until(lambda vm=vm: RecordReader(path, LONG).decisions(Query(vm=f"vm {vm}")))
    wait_until(lambda: history.waiting == 0)
    state = history.state()
    assert (state.decisions, state.dropped, state.problem) == (3, 0, "")
    assert state.undeleted == "no room"
    (told,) = caplog.messages
    assert told.startswith("the history grows, as its oldest decisions cannot be deleted: ")
    with contextlib.closing(sqlite3.connect(path, timeout=LONG)) as db:
        db.execute("DROP TRIGGER stays")
        db.commit()
    history.put(made(4, time.time()))
    wait_until(lambda: RecordReader(path, LONG).decisions(Query(vm="vm 4")))
    history.close(LONG)
    assert history.state().undeleted == ""
    assert not RecordReader(path, LONG).decisions(Query(vm="vm 1"))


def test_what_is_written_is_not_lost_where_there_is_no_memory_to_delete_old_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """SQLite says so with an error of its own class."""

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Database, "keep_within", fail)
    history = History(tmp_path / store.FILE)
    history.put(made(1, time.time()))
    history.start()
    history.close(LONG)
    state = history.state()
    assert (state.decisions, state.dropped, state.problem) == (1, 0, "")
    assert state.undeleted == "MemoryError"


@pytest.mark.parametrize("name", ["-000000000000001", "+000000000000001", "0x00000000000001", "1"])
def test_what_is_no_id_finds_no_decision(tmp_path: Path, name: str):
    """Even where Python would read a number in it."""
    path = tmp_path / store.FILE
    written(path, made(1, time.time()), made((1 << 64) - 1, time.time()))
    assert RecordReader(path, LONG).decision(name) is None
    assert RecordReader(path, LONG).decision(f"{1:016x}") is not None


def test_a_query_for_more_than_fits_into_memory_is_refused(tmp_path: Path):
    """With what to ask for instead; fewer of the same decisions are read."""
    hosts = [{"id": f"host {number}"} for number in range(2500)]
    row = schema.pack({**made(1, time.time())(), "hosts": hosts})
    database = Database(tmp_path / store.FILE)
    database.write([(row, None)] * 1000)
    database.close()
    reader = RecordReader(tmp_path / store.FILE, 60)
    with pytest.raises(HistoryUnreadable, match=r"2,500,000 verdicts on hosts.*a smaller limit"):
        reader.decisions(Query(limit=1000))
    assert len(reader.decisions(Query(limit=10))) == 10
    assert len(reader.decisions(Query(limit=1000, brief=True))) == 1000
