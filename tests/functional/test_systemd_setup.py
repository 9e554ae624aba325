"""``ovirt-scheduler setup`` and its undoing under a real systemd, on a machine of its own."""

from __future__ import annotations

import json

import pytest

from tests.support.machine import CONF, PYTHON, UNIT, Machine, drop_in, missing, processes, show

USER = "ovirt-scheduler"

pytestmark = [pytest.mark.skipif(missing() is not None, reason=missing() or ""), pytest.mark.long]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    booted = Machine(tmp_path_factory.mktemp("machine"))
    try:
        booted.run("ovirt-scheduler", "setup")
        yield booted
    finally:
        booted.end()


@pytest.fixture
def running(machine):
    """The machine as it is set up, with a fresh daemon."""
    machine.run("systemctl", "restart", UNIT)
    return machine


@pytest.fixture
def stopped(running):
    """The same without a daemon; no start counts against it."""
    running.run("systemctl", "stop", UNIT)
    running.run("systemctl", "reset-failed", UNIT, check=False)
    return running


def answers(machine):
    """Whether the daemon answers a command on the machine."""
    return "Memory" in machine.run("ovirt-scheduler", "discover", check=False)


def test_a_taken_port_is_tried_again(stopped):
    """Exit status 75; setup shows why, and the unit comes up once the port is free."""
    stopped.run("systemd-run", "--unit=taker", PYTHON, "-m", "http.server",
                "--bind=127.0.0.1", "18781")  # fmt: skip
    listening = "import socket; socket.create_connection(('127.0.0.1', 18781)).close()"
    stopped.wait_for(
        lambda: "Error" not in stopped.run(PYTHON, "-c", listening, check=False), "the other one"
    )
    with drop_in(stopped, "RestartSec=2s"):
        told = stopped.run("ovirt-scheduler", "setup", check=False)
        assert told.splitlines()[-1].startswith(
            "the daemon's last line: ovirt-scheduler: cannot listen on port 18781 of localhost: "
            "another program, or daemon, has it; "
        )
        assert show(stopped, "ExecMainStatus") == "75"
        stopped.run("systemctl", "stop", "taker")
        stopped.wait_for(lambda: show(stopped, "ActiveState") == "active", "another try")
    assert answers(stopped)


def test_a_machine_that_does_not_know_localhost_is_served(stopped):
    """At the loopback address, where the commands find it."""
    hosts = stopped.root / "etc/hosts"
    known = hosts.read_text()
    hosts.write_text("")
    try:
        stopped.run("systemctl", "start", UNIT)
        assert answers(stopped)
        assert "port 18781 of localhost: the daemon listens\n" in stopped.run(
            "ovirt-scheduler", "check"
        )
    finally:
        hosts.write_text(known)


def test_setup_is_undone_and_done_again(running):
    """The unit goes with its aliases, and comes back started and enabled."""
    told = running.run("ovirt-scheduler", "setup", "--remove", check=False)
    for name in (UNIT, "ovirt-scheduler-proxy.service"):
        assert show(running, "LoadState", name) == "not-found"
    assert processes(running) == []
    assert "no such user" in running.run("id", USER, check=False), told
    running.run("ovirt-scheduler", "setup")
    assert [show(running, name) for name in ("ActiveState", "UnitFileState")] == [
        "active", "enabled",
    ]  # fmt: skip


def test_what_a_second_run_started_is_stopped_before_its_files_go(stopped):
    """The first broke off at the start of the unit, which it had enabled already."""
    stopped.run("ovirt-scheduler", "setup", "--remove")
    with drop_in(stopped, "ExecStartPre=/bin/false\nRestart=no"):
        told = stopped.run("ovirt-scheduler", "setup", check=False)
        assert "Job for ovirt-scheduler.service failed" in told
    stopped.run("ovirt-scheduler", "setup")
    assert processes(stopped)
    dry = stopped.run("ovirt-scheduler", "setup", "--remove", "--dry-run")
    acts = [line for line in dry.splitlines() if line.startswith("would ")]
    assert acts[0] == f"would run systemctl stop {UNIT}; run systemctl disable {UNIT}"
    assert processes(stopped)
    assert stopped.run("ovirt-scheduler", "setup", "--remove") == dry.replace("would ", "")
    assert processes(stopped) == []
    assert show(stopped, "LoadState") == "not-found"
    stopped.run("ovirt-scheduler", "setup")


def test_a_daemon_that_setup_did_not_start_is_stopped_too(stopped):
    """Without a word of the unit in the record, and while systemd waits to start it again."""
    record = stopped.root / "var/lib/ovirt-scheduler-setup.json"
    with drop_in(stopped, "ExecStart=\nExecStart=/bin/false\nRestartSec=1h"):
        record.write_text(json.dumps({**json.loads(record.read_text()), "enabled": False}))
        stopped.run("systemctl", "start", UNIT, check=False)
        assert show(stopped, "SubState") == "auto-restart"
        stopped.run("ovirt-scheduler", "setup", "--remove")
        assert show(stopped, "ActiveState") == "inactive"
    stopped.run("ovirt-scheduler", "setup")


def test_setup_finds_nothing_to_do_on_a_machine_that_is_set_up(running):
    """The daemon goes on; what was edited stays."""
    pid = show(running, "MainPID")
    (running.root / CONF).write_text("log_level = debug\n")
    told, _, next_steps = running.run("ovirt-scheduler", "setup").partition("next:\n")
    lines = told.splitlines()
    assert f"kept: /{CONF}, which was edited" in lines
    assert [line for line in lines if not line.startswith(("already so: ", "kept: "))] == []
    assert "see how the daemon is: ovirt-scheduler status" in next_steps
    assert show(running, "MainPID") == pid
