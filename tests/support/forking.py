"""Scripts that change the process that they run in, or fork: each in an interpreter of its own."""

from __future__ import annotations

from tests.support.command import script

PREAMBLE = """
import os, resource, select, signal, subprocess, sys, time
from ovirt_scheduler.processes.kernel import children, limits, prctl
from ovirt_scheduler.model.plugins import Limits

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

def child(do=lambda: time.sleep(600)):
    pid = os.fork()
    if pid == 0:
        try:
            do()
        finally:
            os._exit(0)
    return pid

def gone(pid):
    return not os.path.exists(f"/proc/{pid}")

def until(condition):
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up
        select.select([], [], [], 0.005)

def any_child():
    list(children.reap(()))
    return bool(children.pids())

def all_end():
    until(lambda: not any_child() or children.kill_all(children.pids()))
"""


def run(code: str) -> list[str]:
    """What a script prints, by lines; it has to end well, and soon."""
    done = script(PREAMBLE + code)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()
