"""What systemd is told, over a real socket."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
import uuid

import pytest

from ovirt_scheduler.daemon.watchdog import Notifier, Watchdog
from tests.support.waiting import LONG


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket as systemd binds it, and its address as systemd writes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(LONG)
        if request.param == "path":
            address = str(tmp_path / "notify")
            bound.bind(address)
        else:
            address = f"@ovirt-scheduler-test-{uuid.uuid4()}"
            bound.bind(f"\0{address[1:]}")
        yield bound, address


def test_the_states_are_told(manager):
    """Each in one message, with a status to read (sd_notify(3))."""
    bound, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.ready("listening\non it")
    assert bound.recv(4096) == b"READY=1\nSTATUS=listening on it"
    notifier.reloading()
    state, clock, status = bound.recv(4096).decode().split("\n")
    assert (state, status) == ("RELOADING=1", "STATUS=reloading")
    assert int(clock.removeprefix("MONOTONIC_USEC=")) >= before
    notifier.stopping()
    assert bound.recv(4096).startswith(b"STOPPING=1\nSTATUS=")
    notifier.alive()
    assert bound.recv(4096) == b"WATCHDOG=1"


def test_without_a_manager_nothing_is_told(caplog):
    """Started from a shell."""
    Notifier({}).ready("listening")
    assert caplog.records == []


def test_a_manager_that_is_gone_is_told_in_the_log_only(tmp_path, caplog):
    """The daemon serves on."""
    caplog.set_level(logging.WARNING)
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("listening")
    (record,) = caplog.records
    assert record.getMessage() == "systemd could not be told READY=1: No such file or directory"


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_time_is_read(environment, seconds):
    """Where it is meant for this process."""
    notifier = Notifier({"NOTIFY_SOCKET": "/run/notify", **environment})
    assert notifier.watchdog_seconds == seconds
    assert Notifier(environment).watchdog_seconds is None


def test_a_look_that_fails_is_told_and_the_next_one_counts(manager, executor, monkeypatch):
    """Without memory or descriptors for a moment, say: nobody else would feed the watchdog."""
    bound, address = manager
    bound.settimeout(LONG)
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
    failed = threading.Event()

    def fail(_candidate: object) -> None:
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    watchdog = Watchdog(notifier, executor, lambda: watchdog.problem or "all well")
    with monkeypatch.context() as patched:
        patched.setattr(executor, "analyse", fail)
        watchdog.start()
        assert failed.wait(LONG)
        assert bound.recv(4096) == b"STATUS=OSError: [Errno 24] Too many open files"
    while bound.recv(4096) != b"STATUS=all well":
        pass
    watchdog.stop()
