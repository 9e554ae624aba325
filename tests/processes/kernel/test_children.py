"""What a child gives up of its parent's, and the end of all children."""

from __future__ import annotations

from tests.support.forking import run


def test_inherited_handlers_are_forgotten():
    """SIGTERM ends a process again that was forked from one that handles it."""
    shown = run("""
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
children.reset_signals([signal.SIGCHLD, signal.SIGINT, signal.SIGTERM])
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
children.close_all_but(kept)
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
until(lambda: found.update(children.reap({exits, killed, runs})) or len(found) == 2 and gone(stranger))
print(os.WEXITSTATUS(found[exits]), os.WTERMSIG(found[killed]), runs in found, gone(runs))
os.kill(runs, signal.SIGKILL)
until(lambda: dict(children.reap({runs})))
print(list(children.reap(())), any_child())
""")
    assert shown == ["3 9 False False", "[] False"]


def test_what_a_known_process_left_in_its_group_is_killed_when_it_is_reaped():
    """While its number is still its own."""
    shown = run("""
prctl.become_subreaper()
read, write = os.pipe()
def leader():
    os.setsid()
    os.write(write, b"%d" % child())
    os._exit(0)
known = child(leader)
left = int(os.read(read, 20))
found = {}
until(lambda: found.update(children.reap({known})) or found)
until(lambda: not any_child())
print(gone(left))
""")
    assert shown == ["True"]


def test_children_are_told_but_for_those_that_are_spared():
    """And killing them leaves the spared alone."""
    shown = run("""
spared, first, second = child(), child(), child()
found = children.pids(spared={spared})
print(sorted(found) == sorted([first, second]))
children.kill_all(found)
until(lambda: any_child() and gone(first) and gone(second))
print(gone(spared), children.pids(spared={spared}))
children.kill_all(children.pids())
until(lambda: not any_child())
print(children.pids(), children.pids(spared={spared}))
""")
    assert shown == ["True", "False []", "[] []"]


def test_children_are_found_without_the_kernels_list_too():
    """By the parent that each process names."""
    shown = run("""
started = {child() for _ in range(3)}
listed = children._read
def unlisted(path):
    if path.endswith("/children"):
        raise FileNotFoundError(path)
    return listed(path)
children._read = unlisted
print(set(children.pids()) == started)
print(children.pids(spared=started))
all_end()
""")
    assert shown == ["True", "[]"]


def test_a_child_that_has_ended_counts_until_it_is_reaped():
    """And another's child that became its own."""
    shown = run("""
prctl.become_subreaper()
print(children.exist())
read, write = os.pipe()
middle = child(lambda: (os.write(write, b"%d" % child()), os._exit(0)))
orphan = int(os.read(read, 20))
until(lambda: dict(children.reap({middle})))
print(children.exist())
os.kill(orphan, signal.SIGKILL)
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
print(children.exist())
os.waitpid(orphan, 0)
print(children.exist())
""")
    assert shown == ["False", "True", "True", "False"]


def test_killing_takes_the_group_along_and_forgives_who_is_gone():
    """A leader with its group, one that leads none, one that is not there."""
    shown = run("""
prctl.become_subreaper()
read, write = os.pipe()
def leader():
    os.setsid()
    child()
    os.write(write, b"x")
    time.sleep(600)
leads, plain = child(leader), child()
os.read(read, 1)
children.kill(leads)
children.kill(plain)
until(lambda: not any_child())
children.kill(plain)
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
print(children._parent(pid) == os.getpid(), children._parent(2**22 + 1))
all_end()
""")
    assert shown == ["True 0"]
