"""What the daemon keeps of its decisions, as the one who asks finds it."""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import queue
import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ovirt_scheduler.errors import HistoryUnreadable
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import History
from ovirt_scheduler.model.jobs import Decision, Execution, Request, ShadowCall
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from tests.support.daemon import Daemon, StartDaemon
from tests.support.waiting import LONG, wait_until

HOSTS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]
VM = "99999999-0000-4000-8000-000000000000"

FILTER = """
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.id != {refused!r}]
"""
SCORE = """
def do_score(hosts, vm, properties):
    return dict(zip([host.id for host in hosts], {costs!r}))
"""
RAISES = """
def do_filter(hosts, vm, properties):
    raise RuntimeError("no such thing")
"""


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon) -> Daemon:
    files = {
        "First": FILTER.format(refused=HOSTS[0]),
        "Second": FILTER.format(refused=HOSTS[2]),
        "Raises": RAISES,
        "Even": SCORE.format(costs=[4, 1, 3, 4]),
        "Odd": SCORE.format(costs=[0, 5, 1, 2]),
    }
    return start_daemon(files, "ssl = false")


def newest(daemon: Daemon, **query: object) -> Record:
    """The one record that fits, when it is written."""
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    wanted = Query(**query)  # type: ignore[arg-type]
    return wait_until(lambda: reader.decisions(wanted))[0]


def test_a_filters_decision_has_every_host(daemon: Daemon):
    """Who passed, who was removed by whom, who was not asked about any more."""
    left = daemon.design.runFilters(
        ["First", "Raises", "Second"], HOSTS, VM, {"a": "b", "Token": "x"}
    )
    assert left == [HOSTS[1], HOSTS[3]]
    record = newest(daemon, vm=VM, unit="First")
    assert record["method"] == "runFilters"
    assert record["form"] == "design"
    assert record["vm"] == {"id": VM}
    assert record["properties"] == {"a": "b", "Token": "\u2026"}
    assert record["answer"] == left
    assert [(unit["name"], unit["kind"], unit["outcome"]) for unit in record["units"]] == [
        ("First", "filter", "ok"), ("Raises", "filter", "raised"), ("Second", "filter", "ok"),
    ]  # fmt: skip
    assert record["units"][1]["message"] == "RuntimeError: no such thing (Raises.py:3)"
    verdicts = {
        host["id"]: [verdict["verdict"] for verdict in host["verdicts"]] for host in record["hosts"]
    }
    assert verdicts == {
        HOSTS[0]: ["removed", "never asked", "never asked"],
        HOSTS[1]: ["passed", "failed", "passed"],
        HOSTS[2]: ["passed", "failed", "removed"],
        HOSTS[3]: ["passed", "failed", "passed"],
    }


def test_costs_are_kept_raw_with_totals_ranks_and_who_was_decisive(daemon: Daemon):
    """The numbers are those of the plugins, worked out by hand."""
    daemon.design.runCostFunctions([["Even", 2], ["Odd", 1]], HOSTS, "scored", {})
    record = newest(daemon, vm="scored")
    totals = {host["id"]: (host["total"], host["rank"]) for host in record["hosts"]}
    assert totals == {HOSTS[0]: (8, 3), HOSTS[1]: (7, 1), HOSTS[2]: (7, 2), HOSTS[3]: (10, 4)}
    assert record["hosts"][1]["costs"] == [
        {"unit": "Even", "cost": 1, "factor": 2, "weighted": 2},
        {"unit": "Odd", "cost": 5, "factor": 1, "weighted": 5},
    ]
    assert record["answer"] == [HOSTS[1], HOSTS[2], HOSTS[0], HOSTS[3]]
    assert record["decisive"] == ["Even"]  # without Odd, host 1 has the lowest total too


def test_another_program_reads_the_file_meanwhile(daemon: Daemon):
    """As it is documented, with nothing but sqlite; and nobody else may."""
    daemon.design.runFilters(["Second"], HOSTS, "read by another", {})
    newest(daemon, vm="read by another")
    path = daemon.state / "history.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute(
            "SELECT method, host_sets.hosts FROM decisions JOIN names ON vm = names.number "
            "JOIN host_sets ON host_set = host_sets.number WHERE names.id = 'read by another'"
        ).fetchall()
    assert [method for method, _ in found] == ["runFilters"]
    modes = {each.name: each.stat().st_mode & 0o777 for each in daemon.state.glob("history.*")}
    assert set(modes.values()) == {0o600}


def test_what_happens_to_plugins_and_settings_is_kept(start_daemon: StartDaemon):
    """An auditor can tell which code decided, from when to when."""
    daemon = start_daemon({"Edited": FILTER.format(refused=HOSTS[0])}, "ssl = false")
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    path = daemon.plugins / "Edited.py"

    def happened(event: str) -> Record:
        def look() -> list[Record]:
            named = [each for each in reader.events() if each["event"] == event]
            return [each for each in named if each.get("file", str(path)) == str(path)]

        return wait_until(look)[0]

    assert "version" in happened("started")
    loaded = happened("loaded")
    with daemon.proxy() as proxy:
        path.write_text(FILTER.format(refused=HOSTS[1]), "utf-8")
        proxy.discover()
        edited = happened("edited")
        assert edited["former"] == loaded["checksum"] != edited["checksum"]
        path.write_text("def do_filter(:\n", "utf-8")
        proxy.discover()
        assert (happened("not loaded")["line"], happened("not loaded")["file"]) == (1, str(path))
        path.unlink()
        proxy.discover()
        happened("unloaded")
    daemon.process.send_signal(signal.SIGHUP)
    happened("reloaded")
    (daemon.state.parent / "scheduler.conf").write_text("nonsense = 1\n", "utf-8")
    daemon.process.send_signal(signal.SIGHUP)
    assert "nonsense" in happened("reload refused")["message"]


def test_a_list_goes_on_after_the_last_of_an_answer(start_daemon: StartDaemon):
    """In whichever letters its id is given; after one that is not there comes nothing."""
    settings = "ssl = false\npages = loopback"
    daemon = start_daemon({"First": FILTER.format(refused=HOSTS[0])}, settings)
    with daemon.proxy() as scheduler:
        for number in range(3):
            scheduler.runFilters(["First"], HOSTS, f"vm {number}", {})
        newest(daemon, vm="vm 2")
        (last,) = scheduler.decisions({"limit": 1})
        assert last["vm"] == {"id": "vm 2"}
        for named in (last["id"], last["id"].upper()):
            after = scheduler.decisions({"before": named})
            assert [each["vm"]["id"] for each in after] == ["vm 1", "vm 0"]
        assert scheduler.decisions({"before": "0" * 16}) == []


def test_a_killed_daemon_loses_no_more_than_the_last_second(
    start_daemon: StartDaemon, tmp_path: Path
):
    """What was answered a second before is there, and the next daemon goes on with it."""
    files = {"First": FILTER.format(refused=HOSTS[0])}
    daemon = start_daemon(files, "ssl = false", folder=tmp_path)
    daemon.design.runFilters(["First"], HOSTS, "before", {})
    newest(daemon, vm="before")
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
    again = start_daemon(files, "ssl = false", folder=tmp_path)
    assert newest(again, vm="before")["answer"] == HOSTS[1:]


def test_a_damaged_history_is_set_aside(start_daemon: StartDaemon, tmp_path: Path):
    """It is told, no call is stopped, and another begins."""
    (tmp_path / "state").mkdir(mode=0o700)
    file = tmp_path / "state" / "history.sqlite"
    file.write_bytes(b"no database at all " * 1000)
    with pytest.raises(
        HistoryUnreadable, match="file is not a database; restart the daemon, which"
    ):
        RecordReader(file).decisions(Query())
    files = {"First": FILTER.format(refused=HOSTS[0])}
    daemon = start_daemon(files, "ssl = false", folder=tmp_path)
    assert daemon.design.runFilters(["First"], HOSTS, "after", {}) == HOSTS[1:]
    wait_until(lambda: "the history begins anew: file is not a database; its file" in daemon.log)
    daemon.design.runFilters(["First"], HOSTS, "after", {})
    newest(daemon, vm="after")
    assert (daemon.state / "history.sqlite.damaged").exists()


def record(number: int, at: float) -> Record:
    return {
        "id": f"{number:016x}", "time": written(at), "milliseconds": 1.0, "caller": "x" * 300,
        "method": "runFilters", "form": "design", "vm": {"id": f"vm {number}"},
        "units": [], "hosts": [{"id": f"host {number}"}], "answer": [],
    }  # fmt: skip


def test_what_is_older_than_the_days_that_it_is_kept_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However little there is; events go, too."""
    history = History(tmp_path / "history.sqlite")
    history.bound(2, 1 << 30)
    for days in (3, 1):
        at = time.time() - days * 86400
        made = record(days, at)
        monkeypatch.setattr(time, "time", lambda at=at: at)
        history.event({"event": "edited", "unit": made["id"]})
        monkeypatch.undo()
        history.put(lambda made=made: made)
    history.start()
    history.close(LONG)
    reader = RecordReader(tmp_path / "history.sqlite", LONG)
    assert [each["id"] for each in reader.decisions(Query())] == [record(1, 0)["id"]]
    assert [each["unit"] for each in reader.events()] == [record(1, 0)["id"]]


def test_the_oldest_go_when_the_history_is_full(tmp_path: Path):
    """By bytes; what no decision names any more goes with them."""
    history = History(tmp_path / "history.sqlite")
    history.bound(30, 200_000)
    history.start()
    for number in range(1500):
        made = record(number, time.time())
        history.put(lambda made=made: made)
    history.close(LONG)
    reader = RecordReader(tmp_path / "history.sqlite", LONG)
    assert reader.decisions(Query(vm="vm 1499"))
    assert not reader.decisions(Query(vm="vm 0"))
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
        (kept,) = db.execute("SELECT count(*) FROM decisions").fetchone()
        assert db.execute("SELECT count(*) FROM vm_decisions").fetchone() == (kept,)
        assert db.execute("SELECT count(*) FROM host_sets").fetchone() == (kept,)
        assert db.execute("SELECT count(*) FROM names").fetchone() == (2 * kept,)
    assert 0 < kept < 1500


def test_memory_is_given_back_when_there_is_nothing_to_write(tmp_path: Path):
    """SQLite's pages of the file; what comes after that is written all the same."""
    used = getattr(ctypes.CDLL(_sqlite3.__file__), "sqlite3_memory_used", None)
    if used is None:
        pytest.skip("this SQLite does not say how much memory it uses")
    rests: queue.SimpleQueue[int] = queue.SimpleQueue()
    history = History(tmp_path / "history.sqlite", at_rest=lambda: rests.put(used()), rest=0.1)
    history.start()
    empty = rests.get(timeout=LONG)
    for number in range(500):
        history.event({"event": "reloaded", "message": "x" * 4000, "number": number})
    assert rests.get(timeout=LONG) < empty + 200_000
    history.event({"event": "stopped"})
    history.close(LONG)
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (501,)


def test_what_units_in_shadow_say_is_added_to_the_record_that_is_there(tmp_path: Path):
    """It is one decision, found by what is in it now; one that was deleted does not come back."""
    caller = Caller("5" * 16, AnswerForm.ENGINE, "here")
    request = Request(caller, Entities(("h",), vm="vm-1"), {}, {Kind.FILTER: ()})
    decision = Decision(request, Execution(("h",), vm="vm-1"), ("h",), time=time.time())
    code, limits = PluginCode("New", "/", ()), Limits(1, 1, 1, 1)
    unit = PolicyUnit("New", Kind.FILTER, "", code, "", limits, shadow=True)
    added = [ShadowCall(UnitCall(unit, {}), CallResult("New", CallOutcome.OK, ()))]
    history = History(tmp_path / "history.sqlite")
    history.start()
    for decided in (decision, decision._replace(request=of_other(request))):
        history.decided(decided)
    (_, bare) = wait_until(lambda: len(both := history.reader.decisions(Query())) == 2 and both)
    assert bare["units"] == []
    history.add_shadows(decision, added)
    (whole,) = wait_until(lambda: history.reader.decisions(Query(unit="New")))
    assert history.reader.decisions(Query())[1] == whole
    assert [(each["name"], each["outcome"]) for each in whole["units"]] == [("New", "ok")]
    assert whole["hosts"][0]["verdicts"] == [{"unit": "New", "verdict": "removed"}]
    assert {**whole, "units": [], "hosts": bare["hosts"]} == bare
    assert history.tally.requests == {("runFilters", "engine", "ok"): 2}
    assert history.tally.unit("New", "filter").hosts_removed == {"shadow": 1}
    gone = decision._replace(request=of_other(request, "6" * 16))
    history.add_shadows(gone, added)
    history.close(LONG)
    assert len(RecordReader(tmp_path / "history.sqlite", LONG).decisions(Query())) == 2


def test_a_question_of_the_daemons_own_stays_one_when_units_in_shadow_complete_it(tmp_path: Path):
    """Though the engine was asked about the VM again meanwhile."""
    caller = Caller("5" * 16, AnswerForm.ENGINE, "here")
    request = Request(caller, Entities(("h",), vm="vm-1"), {}, {Kind.FILTER: ()})
    unit = PolicyUnit(
        "New", Kind.FILTER, "", PluginCode("New", "/", ()), "", Limits(1, 1, 1, 1), shadow=True
    )
    decision = Decision(request, Execution(("h",), vm="vm-1"), ("h",), time=time.time())
    decision = decision._replace(shadows=(UnitCall(unit, {}),))
    answers = iter([True, False])
    history = History(tmp_path / "history.sqlite", is_inquiry=lambda _vm, _at: next(answers))
    history.start()
    for decided in (decision, decision._replace(request=of_other(request))):
        history.decided(decided)
        history.add_shadows(decided, [ShadowCall(decided.shadows[0], problem="no place")])
    history.close(LONG)
    (second, first) = RecordReader(tmp_path / "history.sqlite", LONG).decisions(Query())
    assert [len(record["units"]) for record in (first, second)] == [1, 1]
    assert (first.get("beforehand"), second.get("beforehand")) == (True, None)


def of_other(request: Request, request_id: str = "7" * 16) -> Request:
    return request._replace(caller=replace(request.caller, request_id=request_id))
