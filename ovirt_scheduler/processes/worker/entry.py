"""A process that a zygote forked: it waits for its first task, does it, and ends.

It leads a session of its own, and dies with its zygote. It never returns from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import traceback
from typing import Callable, NoReturn, TextIO

from ovirt_scheduler.processes.kernel import children, prctl, titles
from ovirt_scheduler.processes.protocol import frames

DESCRIPTORS = (3, 4, 5)  # the daemon's socket, what becomes stdout, what becomes stderr
_ASIDE = 16  # above these

Do = Callable[[socket.socket], None]


def serve(do: Do, zygote: int, channel: int, stdout: int, stderr: int) -> NoReturn:
    """Be the process.

    Args:
        do: takes a task from the daemon's socket, and does it.
        zygote: its pid.
        channel: the daemon's socket, from which tasks come.
        stdout, stderr: pipes to the daemon.
    """
    status = 0
    try:
        titles.show("waiting")
        do(_enter(zygote, channel, (stdout, stderr)))
    except (EOFError, OSError):  # nobody is there to be told
        status = os.EX_UNAVAILABLE
    except MemoryError:
        with contextlib.suppress(OSError):
            os.write(2, b"a process below the zygote ran out of memory\n")
        status = frames.OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001  our own fault: say where, and end
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        status = os.EX_SOFTWARE
    finally:
        with contextlib.suppress(BaseException):
            flush()
        os._exit(status)


def _enter(zygote: int, channel: int, pipes: tuple[int, int]) -> socket.socket:
    """Leave what is the zygote's; the descriptors become the same in every worker."""
    os.setsid()
    prctl.die_with_parent(zygote)
    prctl.become_subreaper()
    children.reset_signals([signal.SIGCHLD, signal.SIGINT])
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for each in (channel, *pipes)]
    for descriptor, wanted in zip(aside, DESCRIPTORS):
        os.dup2(descriptor, wanted, inheritable=False)
    children.close_all_but(DESCRIPTORS)
    return socket.socket(fileno=DESCRIPTORS[0])


def flush(*others: TextIO) -> None:
    """Write what stdout, stderr and other streams hold back."""
    for stream in (sys.stdout, sys.stderr, *others):
        with contextlib.suppress(
            BaseException
        ):  # the plugin may have closed it, or put anything there
            stream.flush()


def enter_folder(folder: str) -> None:
    """Work in a folder; in / where it has vanished."""
    for place in (folder, "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            return
