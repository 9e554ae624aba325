"""The zygote by itself, in a process of its own: it takes signals for itself."""

from __future__ import annotations

from tests.support.command import script

# The daemon was killed: nobody takes what the zygote tells.
ALONE = """
import socket
from ovirt_scheduler.processes.worker.zygote import _Zygote
daemons, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
zygote = _Zygote(control, lambda *_: None)
daemons.close()
zygote._tell(1, 0)
print("goes on")
"""


def test_what_nobody_takes_does_not_end_it():
    """It has yet to end all that is below it, when it reads that the daemon has gone."""
    ended = script(ALONE)
    assert (ended.stdout, ended.returncode) == ("goes on\n", 0), ended.stderr
