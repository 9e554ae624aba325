"""What a process does that the zygote has just forked: its first task says what it becomes.

::

    daemon ──(socket: Setup)────► a plugin's process: calls, until it differs from what it was
           ──(socket: ReadTask)─► a reader: the documents of one request, and the end
           ──(socket: Candidate)► an analysis: one file of a folder of plugins, and the end

It leads a session of its own, and dies with the zygote. Its stdout and stderr are pipes to the
daemon from when a plugin's code may run in it. It never returns from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn, Optional, Tuple

from ovirt_scheduler.model import records
from ovirt_scheduler.model.analysis import Analysis, FileFault
from ovirt_scheduler.model.plugins import Candidate
from ovirt_scheduler.model.tasks import ANALYSIS_LIMITS, ReadTask, Setup
from ovirt_scheduler.processes.kernel import limits, titles
from ovirt_scheduler.processes.loading.analysis import analyse
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.worker import reader
from ovirt_scheduler.processes.worker.plugin_process import PluginProcess

_DESCRIPTORS = (3, 4, 5)  # the daemon's socket, what becomes stdout, what becomes stderr
_ASIDE = 16  # above these


def serve(zygote: int, channel: int, stdout: int, stderr: int) -> NoReturn:
    """Do the first task, and whatever follows from it; never return.

    Args:
        zygote: its pid.
        channel: the daemon's socket, from which tasks come.
        stdout, stderr: pipes to the daemon.
    """
    status = 0
    try:
        titles.show("waiting")
        daemon = _enter(zygote, channel, (stdout, stderr))
        task, nonce, _ = frames.receive_task(daemon)
        if isinstance(task, ReadTask):
            titles.show("reader")
            reader.serve(task, nonce, daemon)
        elif isinstance(task, Candidate):
            titles.show(f"loading {task.source.name}")
            _be_plugins()
            limits.apply(ANALYSIS_LIMITS)
            answer = records.dump(_analysis(task))
            _flush()
            frames.send(daemon, frames.pack(frames.ANSWER, nonce, answer))
        elif isinstance(task, Setup):
            titles.show(f"plugin {task.plugin.name}")
            _be_plugins()
            PluginProcess(task, daemon).serve(nonce)
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
            _flush()
        os._exit(status)


def _enter(zygote: int, channel: int, pipes: Tuple[int, int]) -> socket.socket:
    """Leave the zygote's session, signals and descriptors."""
    os.setsid()
    limits.die_with_parent(zygote)
    limits.become_subreaper()
    limits.reset_signals([signal.SIGCHLD, signal.SIGINT])
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for each in (channel, *pipes)]
    for descriptor, wanted in zip(aside, _DESCRIPTORS):
        os.dup2(descriptor, wanted, inheritable=False)
    limits.close_all_but(_DESCRIPTORS)
    return socket.socket(fileno=_DESCRIPTORS[0])


def _be_plugins() -> None:
    """Capture what is printed: from now on a plugin's code may run."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, descriptor in enumerate((nothing, *_DESCRIPTORS[1:])):
        os.dup2(descriptor, standard)
        os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):  # the plugin may have put anything there
            stream.flush()


def _analysis(candidate: Candidate) -> Analysis:
    closed = _closed(Path(candidate.folder))
    if closed is not None:
        message = (
            f"cannot be run in its folder: {closed} is closed to {os.environ.get('USER')}, whom "
            f"plugins run as; mend it: chmod o+x {shlex.quote(str(closed))}"
        )
        return Analysis(fault=FileFault(candidate.source.path, None, message))
    limits.enter_folder(candidate.folder)
    return analyse(candidate)


def _closed(folder: Path) -> Optional[Path]:
    """The first folder on the way to this one that the process's user cannot enter."""
    way = (*reversed(folder.parents), folder)
    shut = (place for place in way if os.path.lexists(place) and not os.access(place, os.X_OK))
    return next(shut, None)
