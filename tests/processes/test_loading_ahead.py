"""Which plugins are loaded before they are called, and how often."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.processes import pool_maintenance
from ovirt_scheduler.processes.executor import Executor
from tests.support.jobs import HOSTS, job_of, only
from tests.support.processes import SPARE_BELOW, change_times, offspring, title, zygote_of
from tests.support.waiting import LONG, wait_until


def below(executor: Executor) -> list[int]:
    return offspring(zygote_of(executor))


@pytest.fixture
def loaded(tmp_path):
    """The file in which plugins note that they are loaded."""
    return tmp_path / "loaded"


@pytest.fixture
def load_ahead(own, unit_named, tmp_path, loaded):
    """Writes a filter that keeps all hosts, and has it loaded before it is called."""

    def load(name: str, top: str, call: str = "") -> PolicyUnit:
        function = f"def do_filter(hosts, vm, properties):\n{call}    return hosts\n"
        (tmp_path / f"{name}.py").write_text(f"{top}{function}")
        unit = unit_named(name, folder=tmp_path)
        loaded.unlink()  # the analysis has loaded it, too
        own.prewarm([(unit.plugin, unit.limits)])
        return unit

    return load


def test_what_is_wanted_is_loaded_before_it_is_called(own, load_ahead, loaded, monkeypatch):
    """So no call pays for its imports; one that was called and is killed is missed at once."""
    unit = load_ahead(
        "Slow",
        f"import os, pathlib\npathlib.Path({str(loaded)!r}).write_text(str(os.getpid()))\n",
        call="    print(os.getpid())\n",
    )
    ahead = wait_until(lambda: _ready(own))
    assert int(only(own.run(job_of([unit]))).stdout) == ahead
    own.wait_until_idle(LONG)
    change_times(own, tick=3600.0)
    monkeypatch.setattr(pool_maintenance, "_LONGEST_DELAY", 3600.0)
    os.kill(ahead, signal.SIGKILL)
    wait_until(lambda: _ready(own), suits=lambda pid: pid not in (0, ahead))


def test_a_process_that_serves_one_call_is_replaced_at_once(own, load_ahead, loaded):
    """Callers would be there before the next look, and pay for the plugin's imports."""
    unit = load_ahead("Once", f"import os\nprint(os.getpid(), file=open({str(loaded)!r}, 'a'))\n")
    unit = replace(unit, limits=replace(unit.limits, calls_per_process=1))
    own.prewarm([(unit.plugin, unit.limits)])
    pids = lambda: {*loaded.read_text().split()} if loaded.exists() else set()  # noqa: E731
    before = len(wait_until(pids, suits=lambda seen: len(seen) >= 2))
    change_times(own, tick=3600.0)
    for calls in range(1, 4):
        assert only(own.run(job_of([unit]))).value == HOSTS
        wait_until(pids, suits=lambda seen, calls=calls: len(seen) >= before + calls)


@pytest.mark.long
def test_a_process_that_does_not_take_its_setup_keeps_no_other_from_being_made(
    own, unit_named, tmp_path, loaded
):
    """Its setup is more than a socket holds; whoever waited for that would wait for a minute."""
    function = "def do_filter(hosts, vm, properties):\n    return hosts\n"
    for name in ("Large1", "Large2"):
        (tmp_path / f"{name}.py").write_text(f"{function}TEXT = {'x' * (4 << 20)!r}\n")
    (tmp_path / "Small.py").write_text(f"open({str(loaded)!r}, 'w').close()\n{function}")
    units = [unit_named(name, folder=tmp_path) for name in ("Large1", "Large2", "Small")]
    loaded.unlink()
    wait_until(lambda: below(own), suits=lambda seen: len(seen) == SPARE_BELOW)
    for pid in below(own):
        os.kill(pid, signal.SIGSTOP)
    own.prewarm([(unit.plugin, unit.limits) for unit in units])
    wait_until(loaded.exists)
    for pid in below(own):
        os.kill(pid, signal.SIGCONT)
    assert only(own.run(job_of(units[:1]))).value == HOSTS


@pytest.mark.long
def test_what_is_killed_while_it_loads_is_loaded_again(own, load_ahead, loaded):
    """However often, and when its pause is over: who kills it may stop doing so."""
    change_times(own, rest=3600.0)
    load_ahead(
        "Slow",
        "import os, pathlib, time\n"
        f"pathlib.Path({str(loaded)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(0.5)\n",
    )
    for _ in range(4):
        pid = int(wait_until(lambda: loaded.exists() and loaded.read_text()))
        loaded.unlink()
        os.kill(pid, signal.SIGKILL)
    last = int(wait_until(lambda: loaded.exists() and loaded.read_text()))
    assert last in below(own)


@pytest.mark.long
def test_what_is_loaded_ahead_may_print_a_lot(load_ahead, loaded):
    """More than a pipe holds: somebody reads it although nobody calls."""
    load_ahead(
        "Tells",
        f"import os, pathlib\nos.write(1, b'x' * 500_000)\npathlib.Path({str(loaded)!r}).touch()\n",
    )
    assert wait_until(loaded.exists)


@pytest.mark.long
@pytest.mark.parametrize("how", ["threading.Timer(0.05, os._exit, [0]).start()", "differ()"])
def test_a_plugin_whose_process_ends_itself_is_loaded_ahead_less_and_less_often(
    own, load_ahead, loaded, how
):
    """By a thread that it starts when it is loaded; or by what it says itself then."""
    change_times(own, tick=0.05)
    load_ahead(
        "Ends",
        "import os, sys, threading, time\n"
        "from ovirt_scheduler.processes.protocol import frames\n"
        f"with open({str(loaded)!r}, 'a') as file:\n"
        "    print(time.monotonic(), file=file)\n"
        "def differ():\n"
        "    frame = sys._getframe()\n"
        "    while frame and frame.f_code.co_name != 'serve':\n"
        "        frame = frame.f_back\n"
        "    if frame:  # no analysis\n"
        "        os.write(3, frames.pack(frames.DIFFERS, frame.f_locals['nonce'], b'limit:x'))\n"
        f"{how}\n",
    )
    *_, before, last = wait_until(
        lambda: loaded.read_text().split() if loaded.exists() else [],
        suits=lambda seen: len(seen) >= 5,
    )
    assert float(last) - float(before) >= 8 * 0.05


@pytest.mark.long
def test_a_process_that_was_loaded_ahead_is_replaced_as_often_as_it_is_killed(own_with, unit_named):
    """After a pause, each time: who kills it may stop doing so."""
    own = own_with(tick=0.01)
    unit = unit_named("keeps_all")
    own.prewarm([(unit.plugin, unit.limits)])
    for _ in range(5):
        kept = wait_until(lambda: _ready(own))
        os.kill(kept, signal.SIGKILL)
        wait_until(lambda: below(own), suits=lambda seen, gone=kept: gone not in seen)
    assert wait_until(lambda: _ready(own))


def _ready(executor: Executor) -> int:
    """The pid of the process that is kept of a plugin, once it is ready; else 0."""
    with executor._pool._lock:
        benches = [[*bench] for bench in executor._pool._idle.values()]
    if not any(kept.is_ready for bench in benches for kept in bench):
        return 0
    return next((pid for pid in below(executor) if "plugin" in title(pid)), 0)
