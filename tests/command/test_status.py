"""What ovirt-scheduler status prints and how it ends, of a real daemon and of none."""

from __future__ import annotations

import json
import os
import socket
import threading
from xmlrpc.client import Fault

import pytest

from ovirt_scheduler import __version__
from tests.support.command import run, script, spawned
from tests.support.waiting import wait_until

HOSTS = ["h1", "h2"]
NIGHT = "def do_filter(hosts, vm, properties):\n    raise RuntimeError('it is dark')\n"
WELL = "def do_filter(hosts, vm, properties):\n    return hosts\n"


def status(daemon, *arguments):
    return run(daemon.state.parent, "status", *arguments)


@pytest.fixture(scope="module")
def well(start_daemon):
    """A daemon that each of the tests leaves as well as it was."""
    return start_daemon({"Well": WELL}, "ssl = false")


def test_a_daemon_that_is_well(well):
    """Exit status 0; the units, the processes, how long it runs."""
    ended, out, err = spawned(well.state.parent, "status")
    assert (ended, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "1 unit, all well"
    assert lines[2].split() == ["NAME", "KIND", "STATE", "CALLS", "FAILED", "MEDIAN", "P99"]
    assert lines[3].split() == ["Well", "filter", "ok", "0", "0", "-", "-"]
    assert any(line.startswith("Processes of plugins") for line in lines)


def test_a_daemon_in_which_something_fails(start_daemon):
    """Exit status 1: what, since when, and what to do; as JSON, too; well again, 0 again."""
    daemon = start_daemon({"Night": NIGHT, "Well": WELL}, "ssl = false")
    assert daemon.design.runFilters(["Night", "Well"], HOSTS, "vm", {}) == HOSTS
    wait_until(lambda: status(daemon)[0] == 1)
    _, out, err = status(daemon)
    assert err == ""
    assert out.startswith("2 units; 1 failing: Night, since ")
    assert "RuntimeError: it is dark (Night.py:2)" in out
    assert status(daemon, "--health")[:2] == (0, "ok\n")  # a restart would mend no plugin
    assert "ovirt-scheduler decisions --unit Night" in out
    ended, out, _ = status(daemon, "-o", "json")
    told = json.loads(out)
    assert (ended, told["well"]) == (1, False)
    night = next(unit for unit in told["units"] if unit["name"] == "Night")
    assert (night["state"], night["calls"], night["failures"]) == ("failing", 1, 1)
    file = next(daemon.plugins.glob("Night.py"))
    file.write_text(WELL)
    wait_until(lambda: status(daemon)[0] == 0)
    _, out, _ = status(daemon)  # a mended file fails no more, though nobody has called it
    assert out.startswith("2 units, all well\n")
    assert ["Night", "filter", "not", "called", "yet"] in [
        line.split()[:5] for line in out.splitlines()
    ]
    assert daemon.design.runFilters(["Night"], HOSTS, "vm", {}) == HOSTS
    wait_until(lambda: "not called yet" not in status(daemon)[1])


def test_a_plugin_that_is_broken_by_an_edit_is_seen_without_a_call(well):
    """Its former version answers: which, since when, and why."""
    daemon = well
    (daemon.plugins / "Well.py").write_text("def do_filter(:\n")
    wait_until(lambda: status(daemon)[0] == 1)
    assert "an older version of Well (filter) answers" in status(daemon)[1]
    told = json.loads(status(daemon, "-o", "json")[1])
    (well,) = [unit for unit in told["units"] if unit["name"] == "Well"]
    assert (well["state"], "line 1: syntax error" in well["because"]) == ("old version", True)
    assert [problem["kind"] for problem in told["problems"]] == ["old version"]
    (daemon.plugins / "Well.py").write_text(WELL)
    wait_until(lambda: status(daemon)[0] == 0)


def test_a_reload_that_failed_is_told_with_its_reason(well):
    """Until one goes well."""
    daemon = well
    conf = daemon.state.with_name("scheduler.conf")
    before = conf.read_text()
    conf.write_text(f"{before}\nlog_levle = debug\n")
    daemon.process.send_signal(1)
    first = "1 unit; the last reload failed: "
    wait_until(lambda: status(daemon)[1].startswith(first))
    ended, out, _ = status(daemon)
    assert (ended, "log_levle" in out.splitlines()[0]) == (1, True)
    conf.write_text(before)
    daemon.process.send_signal(1)
    ended, out, _ = wait_until(lambda: status(daemon), suits=lambda seen: seen[0] == 0)
    assert (ended, "the last reload" in out) == (0, False)


def test_a_password_that_cannot_be_read_is_told(tmp_path, start_daemon):
    """Before the engine is asked; no more when a reload has read it."""
    password = tmp_path / "password"
    daemon = start_daemon(
        {"Well": WELL},
        "ssl = false\n[engine]\nurl = https://localhost:1/ovirt-engine/api\n"
        f"username = a@internal\npassword_file = {password}",
    )
    ended, out, _ = status(daemon)
    reason = f"password_file {password}: cannot be read: No such file or directory"
    assert (ended, f"  {reason}\n" in out) == (1, True)
    assert out.startswith(f"1 unit; the engine cannot be asked: {reason:.60}")
    password.write_text("secret\n")
    password.chmod(0o600)
    daemon.process.send_signal(1)
    wait_until(lambda: status(daemon)[0] == 0)


def test_units_that_callers_name_and_that_are_not_there_are_told_by_name(start_daemon):
    """In both forms, of each kind, schedulers and topics too; until they are there."""
    daemon = start_daemon({"Well": WELL}, "ssl = false")
    for _ in range(3):
        daemon.engine.runFilters(["Later", "Well"], HOSTS, "vm", {})
    for call in (
        lambda: daemon.design.runCostFunctions([["Wel", 1]], HOSTS, "vm", {}),
        lambda: daemon.design.selectHost("defualt", HOSTS, "vm", {}),
        lambda: daemon.design.schedule("nowhere", "method", {}),
    ):
        with pytest.raises(Fault):
            call()
    ended, out, _ = status(daemon)
    assert ended == 1
    assert "; 4 units are named and not there: Later (3 times), " in out.splitlines()[0]
    assert " and 1 more, since " in out.splitlines()[0]
    for words in ("cost function Wel,", "scheduler defualt,", "topic nowhere,"):
        assert f"callers name the {words} which is not there: 1 time, since " in out
    assert "did you mean default?" in out
    (daemon.plugins / "Later.py").write_text(WELL)
    (daemon.plugins / "Wel.py").write_text("def do_score(hosts, vm, properties):\n    return {}\n")
    ended, out, _ = wait_until(
        lambda: status(daemon), suits=lambda seen: "named and not there: defualt" in seen[1]
    )
    assert (ended, "Later (" in out, "2 units are named" in out) == (1, False, True)


def test_what_is_named_in_vain_is_told_by_its_case_with_the_remedy_of_that(start_daemon):
    """Not there; of another kind; switched off; and a file that does not load, which is told once."""
    daemon = start_daemon({"Well": WELL, "Bad": "def do_filter(:\n", "Off": WELL}, "ssl = false")
    (daemon.plugins / "Off.conf").write_text("enabled = false\n")
    daemon.design.discover()
    daemon.engine.runCostFunctions([["Well", 1]], HOSTS, "vm", {})
    daemon.engine.runFilters(["Nope", "Off", "Bad"], HOSTS, "vm", {})
    _, out, _ = status(daemon)
    first, *causes = [cause.splitlines() for cause in out.split("\n\n")]
    assert "; 2 units are named and not there: " in first[0]
    assert "; 1 unit is of another kind than named: Well (1 time)" in first[0]
    assert "; 1 file does not load: Bad" in first[0]
    remedies = {
        "callers name the filter Nope, which is not there": "  Put its file back into",
        "callers name the filter Off, which is not there": "  Mend what keeps it out, or",
        "callers name the cost function Well, which is a filter": "  Have callers name it as what",
        "Bad is not loaded, and callers name it: 1 time": "  Mend the file: the daemon reads it",
    }
    told = {cause[0]: cause[-1] for cause in causes[: len(remedies)]}
    for words, remedy in remedies.items():
        (mend,) = [mend for what, mend in told.items() if what.startswith(words)]
        assert mend.startswith(remedy)


@pytest.mark.parametrize("words", [["status"], ["plan", "list"], ["clusters", "list"]])
def test_the_option_of_other_commands_is_taken(well, words):
    """Who gave it to the daemon may give it here, too: the daemon is that of the state folder."""
    conf = str(well.state.with_name("scheduler.conf"))
    assert run(well.state.parent, *words, "--config", conf)[0] == 0


def test_no_daemon(tmp_path):
    """Which one was asked, and what to look at."""
    ended, out, err = run(tmp_path, "status")
    assert out == ""
    assert ended not in (0, 1)
    assert f"no daemon answers at {tmp_path / 'state' / 'control'}" in err
    assert "systemctl status ovirt-scheduler" in err
    assert "without systemd, ovirt-scheduler serve starts one" in err


ENDED = "the daemon ended before it had answered; ask it again"
OTHER = (
    f"the running daemon is of version {{}}, and this command of {__version__}; restart the daemon"
    ": systemctl restart ovirt-scheduler"
)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", ENDED),
        (b'{"answer": ', ENDED),
        (b'{"answer": {"fine": true}, "version": "0.9"}', OTHER.format("0.9")),
        (b'["1.0"]', OTHER.format("unknown")),
    ],
)
def test_an_answer_that_is_none(tmp_path, answer, told):
    """The daemon ends before all of it has come, or is of another version, as after an upgrade."""
    (tmp_path / "state").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "state" / "control"))
        server.listen()
        thread = threading.Thread(target=_answers, args=(server, answer))
        thread.start()
        assert run(tmp_path, "status") == (69, "", f"ovirt-scheduler: {told}\n")
        thread.join()


def _answers(server, answer):
    caller, _ = server.accept()
    with caller:
        caller.recv(1 << 16)
        caller.sendall(answer)


ANOTHER = """
import os, sys
from ovirt_scheduler.command import cli
cli.parser()  # while what it loads can be read
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(cli.main(["status"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_another_user_may_not_ask(well, elsewhere):
    """And is told how to, also where that user's own daemon would be."""
    state = "/nowhere" if elsewhere else str(well.state)
    ended = script(ANOTHER, env={**os.environ, "STATE_DIRECTORY": state})
    assert ended.returncode not in (0, 1)
    told = "use sudo to ask the one that systemd started" if elsewhere else "try it with sudo"
    assert ended.stderr.endswith(f"{told}\n")
