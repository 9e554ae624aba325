"""The zygote by itself, in a process of its own: it takes signals for itself."""

from __future__ import annotations

from tests.support.command import script

# The daemon was killed: nobody takes what the zygote tells.
ALONE = """
import socket
from ovirt_scheduler.processes.worker.zygote import _ZygoteProcess
daemons, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
zygote = _ZygoteProcess(control, lambda *_: None)
daemons.close()
zygote._report(1, 0)
print("goes on")
"""


def test_a_daemon_that_is_gone_before_it_has_started_ends_it_quietly():
    """Ctrl-C of a command that is just making it."""
    ended = script(
        "import socket\n"
        "from ovirt_scheduler.processes.worker.zygote import main\n"
        "daemons, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "daemons.close()\n"
        "main(control.detach(), ())\n"
    )
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_what_nobody_takes_does_not_end_it():
    """It has yet to end all that is below it, when it reads that the daemon has gone."""
    ended = script(ALONE)
    assert (ended.stdout, ended.returncode) == ("goes on\n", 0), ended.stderr
