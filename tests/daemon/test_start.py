"""What ends a daemon that loads its plugins, at its start or again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.command import program, script
from tests.support.paths import PROJECT
from tests.support.processes import offspring
from tests.support.waiting import LONG, wait_until

_SOON = 30.0  # seconds: twenty imports of ten seconds, four at a time, are fifty


def add_plugins_that_hang(plugins, begun, count=20):
    """Their import makes a file and does not end."""
    for number in range(count):
        (plugins / f"hangs{number}.py").write_text(
            f"open({str(begun)!r}, 'w').close()\nimport time\ntime.sleep(300)\n"
            "def do_filter(hosts, vm, properties):\n    return hosts\n"
        )


@pytest.fixture
def loading(tmp_path):
    """A daemon with plugins whose import does not end."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    begun = tmp_path / "begun"
    add_plugins_that_hang(plugins, begun)
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\nssl = false\n")
    words = ("serve", "--config", conf, "--plugins", plugins)
    with program(tmp_path / "state", *words, stderr=subprocess.PIPE) as process:
        wait_until(begun.exists)
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_daemon_that_loads_its_plugins(loading, number):
    """At once: not when they have loaded, or their time is over; and nothing of it is left."""
    loading.send_signal(signal.SIGHUP)  # that one waits
    below = offspring(loading.pid)
    loading.send_signal(number)
    _, told = loading.communicate(timeout=_SOON)
    assert loading.returncode == 0
    assert f"stopping on {number.name}" in told
    assert "Traceback" not in told
    assert not [pid for pid in below if os.path.exists(f"/proc/{pid}")]  # noqa: PTH110


def test_a_signal_ends_a_daemon_that_loads_its_plugins_again(start_daemon, tmp_path):
    """SIGTERM amid a reload: at once, and not when an import of each has had its ten seconds."""
    daemon = start_daemon(tmp_path, "ssl = false")
    begun = tmp_path / "begun"
    add_plugins_that_hang(tmp_path, begun)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(begun.exists)
    below = offspring(daemon.pid)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(timeout=_SOON) == 0
    assert "stopping on SIGTERM" in daemon.log
    assert "Traceback" not in daemon.log
    assert not [pid for pid in below if os.path.exists(f"/proc/{pid}")]  # noqa: PTH110


def test_a_load_that_the_end_cuts_off_is_no_fault_of_its_plugin(start_daemon, tmp_path):
    """The log tells of none that cannot be loaded."""
    daemon = start_daemon(tmp_path, "ssl = false")
    begun = tmp_path / "begun"
    add_plugins_that_hang(tmp_path, begun, 1)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(begun.exists)
    assert daemon.stop() == 0
    assert "stopping on SIGTERM" in daemon.log
    assert "cannot be loaded" not in daemon.log


def test_a_daemon_without_plugins_says_what_can_be_called(start_daemon, tmp_path):
    """The default scheduler is there, and in which folders plugins would be."""
    daemon = start_daemon(tmp_path, "ssl = false")
    (there,) = daemon.design.getSchedulers()
    assert there["name"] == "default"
    assert "WARNING no plugin is loaded but our own scheduler default, so there is no" in daemon.log
    assert f"plugins go into one of: {tmp_path}\n" in daemon.log


def test_what_a_daemon_has_at_its_start_is_not_looked_through_for_garbage_again(tmp_path):
    """Each full collection would go through all modules, while every call waits."""
    (tmp_path / "scheduler.conf").write_text("listening_port = 0\nssl = false\n")
    counted = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > len(gc.get_objects())))\n"
        "from ovirt_scheduler.__main__ import main\n"
        "sys.exit(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", counted, "serve", "--config", str(tmp_path / "scheduler.conf")],
        cwd=PROJECT,
        env={**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("listening on" in line for line in process.stderr)
        process.terminate()
        told, _ = process.communicate(timeout=LONG)
    assert told.split() == ["True"]


def test_signals_that_came_together_are_one_reload_after_the_end():
    """Who sends SIGHUP all the time has the daemon neither reload for long nor stop late."""
    ended = script(
        "import os, signal\n"
        "from ovirt_scheduler.daemon.lifecycle import _Signals\n"
        "signals = _Signals()\n"
        "for name in ('HUP', 'HUP', 'TERM', 'HUP'):\n"
        "    os.kill(os.getpid(), getattr(signal, f'SIG{name}'))\n"
        "print(signals.next().name, signals.next().name)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(signals.next().name)\n"
    )
    assert ended.stdout.split() == ["SIGTERM", "SIGHUP", "SIGINT"]
