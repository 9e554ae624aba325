"""Two daemons behind the HAProxy of the manual: one is killed or stopped while others call it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.processes import offspring
from tests.support.twins import HAPROXY, VM, Callers, Twins
from tests.support.waiting import LONG, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not here: apt-get install haproxy"),
    # ssl leaves a socket open that is reset just before the handshake.
    pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning"),
]


@contextlib.contextmanager
def running(folder: Path, keeps: bool = False) -> Iterator[Twins]:
    both = Twins(folder, "drain_time = 5", keeps)
    try:
        wait_until(lambda: both.is_up("a") and both.is_up("b"), both.told)
        yield both
    finally:
        both.close()


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    with running(tmp_path) as both:
        yield both


def test_a_daemon_is_killed_and_only_calls_under_way_on_it_fail(twins):
    """The other serves whoever comes then; back again, the first is used."""
    with Callers(twins) as callers:
        callers.wait_for("a")
        failed: list[BaseException] = []

        def wait_long() -> None:
            try:
                twins.call("runFilters", ["Waits"], ["a"], VM, {"begun": str(twins.folder / "x")})
            except (OSError, HTTPException) as error:
                failed.append(error)

        under_way = threading.Thread(target=wait_long)
        under_way.start()
        wait_until((twins.folder / "x").exists)
        killed = twins.daemons["a"]
        below = offspring(killed.pid)
        assert killed.stop(signal.SIGKILL) == -signal.SIGKILL
        gone = time.monotonic()
        callers.wait_for("b")
        under_way.join(LONG)
        assert failed
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
        wait_until(lambda: not twins.is_up("a"))
        twins.start("a")
        callers.wait_for("a")
    assert [each for each in callers.failures if each.begun > gone] == []
    assert "CN=engine,O=Example at" in twins.daemons["b"].log


def test_a_daemon_that_crashes_while_systemd_keeps_its_socket(tmp_path):
    """Who comes meanwhile waits for the restart; only calls under way fail."""
    with running(tmp_path, keeps=True) as twins, Callers(twins) as callers:
        callers.wait_for("a")
        assert twins.daemons["a"].stop(signal.SIGKILL) == -signal.SIGKILL
        gone = time.monotonic()
        twins.start("a")
        callers.wait_for("a")
        assert [each for each in callers.failures if each.begun > gone] == []


def test_a_daemon_that_is_stopped_loses_no_call(twins):
    """It says so at /health first, and HAProxy takes it out."""
    with Callers(twins) as callers:
        for name, other in ("ab", "ba"):
            twins.daemons[name].process.send_signal(signal.SIGTERM)
            callers.wait_for(other)
            assert twins.daemons[name].stop() == 0
            twins.start(name)
            wait_until(lambda name=name: twins.is_up(name))
        callers.wait_for("a")
    assert callers.failures == []


def test_each_tells_what_it_decided_itself(twins):
    """After a fail-over nothing is selected yet, and a decision is where it was made."""
    assert twins.call("selectHost", "chooses", ["a", "b"], VM, {}) == "a"
    assert twins.call("getSelectedHosts", "chooses") == ["a"]
    wait_until(lambda: run(twins.folder / "a", "why", VM)[0] == 0)
    twins.daemons["a"].stop(signal.SIGKILL)
    assert twins.call("getSelectedHosts", "chooses") == []
    assert f"no decision on a VM {VM!r}" in run(twins.folder / "b", "why", VM)[2]
    assert twins.call("selectHost", "chooses", ["a", "b"], VM, {}) == "b"
    assert twins.call("getSelectedHosts", "chooses") == ["b"]
    for name in "ab":
        status, told, _ = wait_until(
            lambda name=name: run(twins.folder / name, "why", VM), suits=lambda ended: ended[0] == 0
        )
        assert status == 0
        assert "chooses" in told
