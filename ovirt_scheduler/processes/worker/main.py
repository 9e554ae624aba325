"""The start of a process that the zygote forked: its first task says what it becomes.

::

    daemon ──(Setup)───────► a plugin's process: calls, until it differs from what it was
           ──(ReaderSetup)─► a reader: documents of one request after another
           ──(Candidate)───► an analysis: one file of a folder of plugins, and the end
           ──(SplitTask)───► documents are cut for the history, and the end

Its stdout and stderr are pipes to the daemon from when a plugin's code may run in it.
"""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

from ovirt_scheduler.model.analysis import Analysis, FileFault
from ovirt_scheduler.model.plugins import Candidate
from ovirt_scheduler.model.tasks import ANALYSIS_LIMITS, ReaderSetup, Setup, SplitTask
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.processes.kernel import limits, titles
from ovirt_scheduler.processes.loading.file_analysis import analyse
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.worker import reader
from ovirt_scheduler.processes.worker.plugin_process import PluginProcess, enter_folder, flush
from ovirt_scheduler.processes.worker.zygote import DESCRIPTORS


def warm_up() -> None:
    """Prepare, in the zygote, what each worker would have to prepare for itself."""
    reader.warm_up()


def run(daemon: socket.socket) -> None:
    """Run a worker: the daemon's first task says what it becomes."""
    task, nonce, _ = frames.receive_task(daemon)
    if isinstance(task, ReaderSetup):
        reader.serve(daemon, nonce)
    elif isinstance(task, SplitTask):
        reader.split(task, nonce, daemon)
    elif isinstance(task, Candidate):
        titles.set_title(f"loading {task.source.name}")
        _be_plugins()
        limits.set_soft_and_hard(ANALYSIS_LIMITS)
        answer = typed_json.dump(_analysis(task))
        flush()
        frames.send(daemon, frames.pack(frames.ANSWER, nonce, answer))
    elif isinstance(task, Setup):
        titles.set_title(f"plugin {task.plugin.name}")
        _be_plugins()
        PluginProcess(task, daemon).serve(nonce)


def _be_plugins() -> None:
    """Capture what is printed: from now on a plugin's code may run."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, descriptor in enumerate((nothing, *DESCRIPTORS[1:])):
        os.dup2(descriptor, standard)
        os.close(descriptor)


def _analysis(candidate: Candidate) -> Analysis:
    folder = Path(candidate.folder)
    for place in (*reversed(folder.parents), folder):
        if os.path.lexists(place) and not os.access(place, os.X_OK):
            message = (
                f"cannot be run in its folder: {place} is closed to {os.environ.get('USER')}, whom "
                f"plugins run as; mend it: chmod o+x {shlex.quote(str(place))}"
            )
            return Analysis(fault=FileFault(candidate.source.path, None, message))
    enter_folder(candidate.folder)
    return analyse(candidate)
