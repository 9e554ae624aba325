"""Limits, sessions, and the end of everything that a process left behind.

Each test's script runs in an interpreter of its own, with the module as ``limits``.
"""

from __future__ import annotations

import subprocess
import sys
from typing import List

from tests.support.paths import PROJECT

PREAMBLE = """
import os, resource, select, signal, subprocess, sys, time
from ovirt_scheduler.processes.kernel import limits
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
    list(limits.reap(()))
    return bool(limits.children())

def all_end():
    until(lambda: not any_child() or limits.kill_all(limits.children()))
"""


def run(script: str) -> List[str]:
    """What a script prints, by lines; it has to end well, and soon."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_limits_of_a_call_hold_for_good():
    """Soft and hard, but for processor time, which warns a second before it kills."""
    shown = run("""
limits.apply(Limits(timeout=1.0, memory=64 << 20, cpu=7, open_files=50))
for name in ("CPU", "NOFILE", "CORE"):
    print(name, *resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
print(soft == hard, (64 << 20) <= soft < (64 << 20) + (256 << 20))
""")
    assert shown == ["CPU 7 8", "NOFILE 50 50", "CORE 0 0", "True True"]


def test_no_limit_is_set_above_the_hard_one_in_force():
    """An administrator's lower one stays; asking for more is no error."""
    shown = run("""
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 60))
limits.apply(Limits(timeout=1.0, memory=1 << 50, cpu=7, open_files=256))
print(*resource.getrlimit(resource.RLIMIT_CPU))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
""")
    assert shown == ["5 5", "60 60"]


def test_memory_is_limited_above_what_the_process_has():
    """Within it there is room, beyond it MemoryError, and after the limit room again."""
    shown = run("""
held = bytearray(100 << 20)
limits.limit_memory(50 << 20)
few = bytearray(20 << 20)
try:
    many = bytearray(60 << 20)
except MemoryError:
    print("refused")
limits.unlimit_memory()
many = bytearray(60 << 20)
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
print(soft == hard)
""")
    assert shown == ["refused", "True"]


def test_a_subreaper_gets_the_orphans_below_it():
    """A grandchild in a session of its own becomes its child, and can be ended."""
    shown = run("""
limits.become_subreaper()
read, write = os.pipe()
def leave_an_orphan():
    started = subprocess.Popen(SLEEP, start_new_session=True)
    os.write(write, str(started.pid).encode())
    os._exit(0)
os.waitpid(child(leave_an_orphan), 0)
orphan = int(os.read(read, 20))
print(limits._parent(orphan) == os.getpid())
all_end()
print(gone(orphan))
""")
    assert shown == ["True", "True"]


def test_what_a_process_starts_gains_no_rights():
    """Set-user-ID programs are programs like all others, which it can kill."""
    shown = run("""
limits.gain_no_privileges()
status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
print(status[status.index("NoNewPrivs"):].split()[1])
""")
    assert shown == ["1"]


def test_a_process_dies_with_its_parent():
    """Whatever way the parent ends; one that is orphaned already ends at once."""
    shown = run("""
limits.become_subreaper()
read, write = os.pipe()
def parent():
    own = os.getpid()
    def bound():
        limits.die_with_parent(own)
        os.write(write, b"%d " % os.getpid())
        time.sleep(600)
    child(bound)
    time.sleep(600)
first = child(parent)
bound = int(os.read(read, 20))
os.kill(first, signal.SIGKILL)
until(lambda: not any_child())
print(gone(bound))
late = child(lambda: (limits.die_with_parent(1), os._exit(7)))
print(os.waitstatus_to_exitcode(os.waitpid(late, 0)[1]))
""")
    assert shown == ["True", "0"]


def test_inherited_handlers_are_forgotten():
    """SIGTERM ends a process again that was forked from one that handles it."""
    shown = run("""
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
limits.reset_signals()
print(signal.set_wakeup_fd(-1))
print({signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)}
      == {signal.SIG_DFL})
""")
    assert shown == ["-1", "True"]


def test_every_descriptor_is_closed_but_the_kept_and_the_standard_ones():
    """However many there are."""
    shown = run("""
many = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
kept = {many[3], many[150]}
limits.close_all_but(kept)
left = set()
for number in range(1000):
    try:
        os.fstat(number)
        left.add(number)
    except OSError:
        pass
print(left == {0, 1, 2, *kept})
""")
    assert shown == ["True"]


def test_reaping_tells_of_the_known_and_takes_the_others_along():
    """Exit statuses and signals as waitpid(2) gives them."""
    shown = run("""
exits = child(lambda: os._exit(3))
killed = child()
stranger = child(lambda: os._exit(0))
runs = child()
os.kill(killed, signal.SIGKILL)
found = {}
until(lambda: found.update(limits.reap({exits, killed, runs})) or len(found) == 2 and gone(stranger))
print(os.WEXITSTATUS(found[exits]), os.WTERMSIG(found[killed]), runs in found, gone(runs))
os.kill(runs, signal.SIGKILL)
until(lambda: dict(limits.reap({runs})))
print(list(limits.reap(())), any_child())
""")
    assert shown == ["3 9 False False", "[] False"]


def test_what_a_known_process_left_in_its_group_is_killed_when_it_is_reaped():
    """While its number is still its own."""
    shown = run("""
limits.become_subreaper()
read, write = os.pipe()
def leader():
    os.setsid()
    os.write(write, b"%d" % child())
    os._exit(0)
known = child(leader)
left = int(os.read(read, 20))
found = {}
until(lambda: found.update(limits.reap({known})) or found)
until(lambda: not any_child())
print(gone(left))
""")
    assert shown == ["True"]


def test_children_are_told_but_for_those_that_are_spared():
    """And killing them leaves the spared alone."""
    shown = run("""
spared, first, second = child(), child(), child()
found = limits.children(spared={spared})
print(sorted(found) == sorted([first, second]))
limits.kill_all(found)
until(lambda: any_child() and gone(first) and gone(second))
print(gone(spared), limits.children(spared={spared}))
limits.kill_all(limits.children())
until(lambda: not any_child())
print(limits.children(), limits.children(spared={spared}))
""")
    assert shown == ["True", "False []", "[] []"]


def test_children_are_found_without_the_kernels_list_too():
    """By the parent that each process names."""
    shown = run("""
started = {child() for _ in range(3)}
listed = limits._read
def unlisted(path):
    if path.endswith("/children"):
        raise FileNotFoundError(path)
    return listed(path)
limits._read = unlisted
print(set(limits.children()) == started)
print(limits.children(spared=started))
all_end()
""")
    assert shown == ["True", "[]"]


def test_a_child_that_has_ended_counts_until_it_is_reaped():
    """And another's child that became its own."""
    shown = run("""
limits.become_subreaper()
print(limits.has_children())
read, write = os.pipe()
middle = child(lambda: (os.write(write, b"%d" % child()), os._exit(0)))
orphan = int(os.read(read, 20))
until(lambda: dict(limits.reap({middle})))
print(limits.has_children())
os.kill(orphan, signal.SIGKILL)
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
print(limits.has_children())
os.waitpid(orphan, 0)
print(limits.has_children())
""")
    assert shown == ["False", "True", "True", "False"]


def test_killing_takes_the_group_along_and_forgives_who_is_gone():
    """A leader with its group, one that leads none, one that is not there."""
    shown = run("""
limits.become_subreaper()
read, write = os.pipe()
def leader():
    os.setsid()
    child()
    os.write(write, b"x")
    time.sleep(600)
leads, plain = child(leader), child()
os.read(read, 1)
limits.kill(leads)
limits.kill(plain)
until(lambda: not any_child())
limits.kill(plain)
print("all gone")
""")
    assert shown == ["all gone"]


def test_a_processs_parent_is_found_whatever_the_process_is_called():
    """A name may hold brackets and spaces."""
    shown = run("""
read, write = os.pipe()
def renamed():
    with open("/proc/self/comm", "w") as name:
        name.write(") R 1 (x")
    os.write(write, b"x")
    time.sleep(600)
pid = child(renamed)
os.read(read, 1)
print(limits._parent(pid) == os.getpid(), limits._parent(2**22 + 1))
all_end()
""")
    assert shown == ["True 0"]
