"""The torture itself, for some seconds: that it does what it says, and that the daemon holds."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time

import pytest

from tests.support.command import executed
from tests.support.twins import HAPROXY
from torture.clients import calls
from torture.footing import Footing
from torture.report import Report
from torture.subject import Followed, Subject
from torture.tally import Tally

pytestmark = pytest.mark.long

SECONDS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What was printed, and what was written as JSON."""
    file = tmp_path_factory.mktemp("torture") / "report.json"
    begin = time.monotonic()
    words = f"-m torture.run --duration {SECONDS} --seed 1 --clients 40 --json {file}"
    ended = executed(sys.executable, *words.split(), timeout=SECONDS + 60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert time.monotonic() - begin < SECONDS + 30 + 5  # the interpreter's own start
    return ended.stdout, json.loads(file.read_text("utf-8"))


def test_a_short_torture_holds(run):
    """The report says so, and has every figure that the JSON has."""
    text, report = run
    assert report["holds"] is True
    assert text.endswith("Everything held.\n")
    assert f"seed {report['seed']}, " in text
    for what, number in report["counts"].items():
        assert f"{what} " in text
        assert f" {number:,}\n" in text


def test_everything_is_tried(run):
    """Good clients and bad ones, kills, edits: none of them idles."""
    counts = run[1]["counts"]
    assert counts["answered rightly"] > 0
    assert counts["bad inputs tried"] > 0
    assert counts["pages read"] > 0
    assert sum(number for what, number in counts.items() if what.startswith("kills")) > 0
    assert {what for what in counts if what.startswith("attack: ")} >= {
        "attack: sends random bytes", "attack: sends no call", "attack: half closes",
    }  # fmt: skip


def test_a_wrong_answer_is_forgiven_only_where_a_process_was_killed():
    """And one that no kill explains never is."""
    tally = Tally()
    begin = time.monotonic()
    assert not tally.harmed(begin)
    tally.harm(0.0)
    assert tally.harmed(begin)
    assert not tally.harmed(time.monotonic() + 1)


def test_each_call_knows_its_answer():
    """By ids and by documents, and after each of those that misbehave."""
    made = calls(["raises", "sleeps_forever"])
    assert [call.name for call in made].count("filter after raises") == 2
    assert all(call.answer not in call.hit for call in made)


def test_what_is_not_back_is_told():
    """Descriptors, threads, processes and memory, each on its own."""
    before = Footing(10, 3, 14, 100 << 20)
    assert before.regained(before) == []
    assert len(before.regained(Footing(40, 4, 40, 200 << 20))) == 4
    assert before.regained(Footing(None, 3, 14, None)) == []


def test_a_report_of_what_did_not_hold_says_what():
    """Each finding on a line of its own."""
    footing = Footing(10, 3, 14, 100 << 20)
    report = Report(7, 61.0, {"good": 1}, {"findings": 1}, footing, None, ["filter: got nothing"])
    assert not report.holds
    assert "What did not hold:\n  - filter: got nothing" in report.text()
    assert json.loads(report.as_json())["after"] is None


def test_a_log_is_followed_beyond_its_rotation(tmp_path):
    """What stood there before does not count, and no line is lost."""
    path = tmp_path / "log"
    path.write_text("read again\n")
    with contextlib.closing(Followed(path)) as log:
        assert not log.says("read again")
        with path.open("a") as file:
            file.write("read ")
        assert not log.says("read again")
        with path.open("a") as file:
            file.write("again\n")
        path.rename(tmp_path / "log.1")
        path.write_text("and more\n")
        assert log.says("read again")
        assert not log.says("read again")
        with path.open("a") as file:
            file.write("still more\n")
        assert log.says("still more")


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not here: apt-get install haproxy")
def test_two_daemons_that_are_killed_and_restarted_hold():
    """Only calls that were under way when one was killed fail."""
    words = ("-m", "torture.twins", "--duration", "10", "--seed", "1")
    ended = executed(sys.executable, *words, timeout=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("Everything held.\n")


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not here: apt-get install gdb")
def test_it_is_told_where_the_daemons_threads_are(tmp_path):
    """Each line of Python in which one waits."""
    with Subject(tmp_path, 8) as subject:
        threads = subject.threads()
    assert "Thread 0x" in threads
    assert "ovirt_scheduler/daemon/lifecycle.py" in threads
