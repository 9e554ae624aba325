"""Flags of prctl(2): orphans, rights, the end of the parent."""

from __future__ import annotations

from tests.support.forking import run


def test_a_subreaper_gets_the_orphans_below_it():
    """A grandchild in a session of its own becomes its child, and can be ended."""
    shown = run("""
prctl.become_subreaper()
read, write = os.pipe()
def leave_an_orphan():
    started = subprocess.Popen(SLEEP, start_new_session=True)
    os.write(write, str(started.pid).encode())
    os._exit(0)
os.waitpid(child(leave_an_orphan), 0)
orphan = int(os.read(read, 20))
print(children._parent(orphan) == os.getpid())
all_end()
print(gone(orphan))
""")
    assert shown == ["True", "True"]


def test_what_a_process_starts_gains_no_rights():
    """Set-user-ID programs are programs like all others, which it can kill."""
    shown = run("""
prctl.gain_no_privileges()
status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
print(status[status.index("NoNewPrivs"):].split()[1])
""")
    assert shown == ["1"]


def test_a_process_dies_with_its_parent():
    """Whatever way the parent ends; one that is orphaned already ends at once."""
    shown = run("""
prctl.become_subreaper()
read, write = os.pipe()
def parent():
    own = os.getpid()
    def bound():
        prctl.die_with_parent(own)
        os.write(write, b"%d " % os.getpid())
        time.sleep(600)
    child(bound)
    time.sleep(600)
first = child(parent)
bound = int(os.read(read, 20))
os.kill(first, signal.SIGKILL)
until(lambda: not any_child())
print(gone(bound))
late = child(lambda: (prctl.die_with_parent(1), os._exit(7)))
print(os.waitstatus_to_exitcode(os.waitpid(late, 0)[1]))
""")
    assert shown == ["True", "0"]
