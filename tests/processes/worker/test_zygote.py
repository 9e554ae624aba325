"""The zygote by itself, in a process of its own: it takes signals for itself."""

from __future__ import annotations

import socket

from ovirt_scheduler.processes.worker import zygote
from tests.support.command import script

# The daemon was killed: nobody takes what the zygote tells.
ALONE = """
import selectors, socket
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.worker.zygote import _Zygote
daemons, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
zygote = _Zygote(control, lambda *_: None)
daemons.close()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
with selectors.PollSelector() as selector:
    for message in (frames.ALIVE, frames.ENDED.pack(1, 0, False)):
        theirs.send(message)
        zygote._hear(ours, selector)
print("goes on")
"""


def test_what_nobody_takes_does_not_end_it():
    """It has yet to end all that is below it, when it reads that the daemon has gone."""
    ended = script(ALONE)
    assert (ended.stdout, ended.returncode) == ("goes on\n", 0), ended.stderr


def test_readers_zygote_that_ends_before_it_obeys_has_just_ended():
    """The kernel tells otherwise of an end with orders that nobody has read."""
    for order in (b"", b"an order"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            if order:
                ours.send(order)
            theirs.close()
            assert zygote._received(ours, 10) == (b"", [])
