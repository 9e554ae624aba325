"""A plugin's process: it calls the functions of one plugin, one call at a time.

::

    Setup ─► the plugin is loaded once ─► READY
    CallTask ─► fresh module, fresh entities ─► ANSWER ─► as it was before? ─► READY
                                                            └─ no: DIFFERS, and the end
    PingTask ─► READY

    stdin   /dev/null
    stdout  a pipe to the daemon, which captures it
    stderr  likewise
    3       the daemon's socket: tasks, with the descriptors of packs; answers

The next call sees nothing of a call (contract 5.4): module and helpers are run anew, ``baseline``
restores the process, and a process that still differs ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import importlib
import itertools
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from types import GeneratorType, ModuleType
from typing import Any, Optional, TextIO, Union

from ovirt_scheduler import plugin
from ovirt_scheduler.errors import RefusedProperty, SlowProperty
from ovirt_scheduler.model import tasks
from ovirt_scheduler.model.plugins import PluginCode
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.plugin import interfaces, reasons
from ovirt_scheduler.processes.documents import sdk_entities
from ovirt_scheduler.processes.kernel import children, limits
from ovirt_scheduler.processes.loading import modules, patterns
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.ending import Ending, Reason
from ovirt_scheduler.processes.worker import answers
from ovirt_scheduler.processes.worker.answers import BadAnswer
from ovirt_scheduler.processes.worker.baseline import Baseline
from ovirt_scheduler.processes.worker.output import Output, Stream

_A_CHILD_CAME_BACK = (
    b"a child that the plugin forked came back from the plugin's code and was ended; end it with "
    b"os._exit(0)\n"
)
_OUT_OF_MEMORY = Ending(Reason.LIMIT, "memory_limit")  # made before memory lacks
_CPU_LIMIT = Ending(Reason.LIMIT, "cpu_limit")
_EXIT = Ending(Reason.EXIT)
_flush_c = ctypes.CDLL(None).fflush  # of what C code prints by way of stdio
_CHILDREN_SECONDS = 1.0  # for what a call left running to be gone, once it is killed


class PluginProcess:
    """A process of one plugin, from its setup to its end.

    Args:
        daemon: the socket from which tasks come.
    """

    def __init__(self, setup: tasks.Setup, daemon: socket.socket) -> None:
        self._plugin = setup.plugin
        self._limits = setup.limits
        self._daemon = daemon
        self._connection = os.fstat(daemon.fileno())[1:3]  # inode and device
        self._pid = os.getpid()
        self._own = [module.name for module in setup.plugin.modules]
        self._finder = modules.finder_of(setup.plugin)
        self._outputs: list[Output] = []
        self._streams: list[Stream] = []
        calls = setup.limits.calls_per_process  # some a few less: not all end together
        self._calls_left = calls - random.randrange(calls // 10 + 1)  # noqa: S311  no secret
        self._module: Optional[ModuleType] = None  # for the next call; nothing of it has run
        self._baseline: Baseline

    def serve(self, nonce: int) -> None:
        """Load the plugin, and do tasks until there are no more or the process has to end."""
        limits.set_hard(self._limits)
        self._begin_output()
        enter_folder(self._plugin.folder)
        self._finder.install(self._plugin.folder)
        self._baseline = Baseline(compares=self._calls_left > 1)
        self._baseline.allow(self._limits)
        with contextlib.suppress(BaseException):  # the call that loads it again tells
            contextvars.Context().run(importlib.import_module, self._plugin.name)
        self._forget_modules()
        limits.set_hard(self._limits, loaded=True)
        self._baseline.begin()
        self._baseline.allow(self._limits)
        self._flush()
        self._begin_output()
        self._send(frames.pack(frames.READY, nonce))
        while True:
            task, nonce, descriptors = frames.receive_task(self._daemon)
            if not isinstance(task, tasks.PingTask):
                called = isinstance(task, tasks.CallTask)
                if self._do(task, nonce, descriptors):
                    return
                del task  # before memory is looked at: it may have many hosts
                ending = (self._forgotten() if called else None) or self._allowed()
                if ending:
                    self._send(frames.pack(frames.DIFFERS, nonce, ending.pack()))
                    os._exit(os.EX_OK)  # what is freed would be copied first: its memory is shared
            grown = frames.GROWN if self._baseline.has_grown else b""
            self._send(frames.pack(frames.READY, nonce, grown))

    def _send(self, whole: bytes) -> None:
        """Send frames; end the process where the plugin closed the connection.

        A child that the plugin forked ends here too: it has returned from the plugin's code, but
        the daemon waits for its parent.
        """
        if os.getpid() != self._pid:
            os.write(2, _A_CHILD_CAME_BACK)
            os._exit(os.EX_SOFTWARE)
        try:
            connected = os.fstat(self._daemon.fileno())[1:3] == self._connection
        except OSError:
            connected = False
        if not connected:
            for output in self._outputs:
                output.release()
            os._exit(frames.DISCONNECTED)
        frames.send(self._daemon, whole)

    def _do(self, task: tasks.Task, nonce: int, descriptors: Sequence[int]) -> Optional[Ending]:
        """Do a task and answer it.

        Returns:
            Why the process has to end; None if it need not.
        """
        ending: Optional[Ending] = None
        if isinstance(task, tasks.CallTask):
            enter_folder(self._plugin.folder)  # it may have been closed meanwhile
            answer, ending = contextvars.Context().run(self._called, task, descriptors)
            ending = ending or self._baseline.left_running()
        elif isinstance(task, tasks.PrintedTask):
            answer = _read_printed(task)
        elif isinstance(task, tasks.CheckTask):
            answer = _refusal(task) or messages.pack_answer(tasks.Returns.TRUTH, True, ())
        else:
            raise TypeError(f"a task of type {type(task).__name__}")
        whole = b""
        for kind, output in zip((frames.STDOUT, frames.STDERR), self._outputs):
            if output.unsent:
                whole += frames.pack(kind, nonce, bytes(output.unsent))
        if ending:  # this goes first: the answer is to wait for the end of all that was started
            whole += frames.pack(frames.DIFFERS, nonce, ending.pack())
        self._send(whole + frames.pack(frames.ANSWER, nonce, answer))
        for output in self._outputs:
            output.holds = False
            output.unsent.clear()
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # the plugin may have closed it
                os.close(descriptor)
        return ending

    def _called(
        self, task: tasks.CallTask, descriptors: Sequence[int]
    ) -> tuple[bytes, Optional[Ending]]:
        """Call the function.

        Returns:
            The answer; and why the process has to end, None if it need not.
        """
        function = task.function
        try:
            refusal = _refusal(task)
            if refusal:
                return refusal, None
            try:
                returned = self._returned(task, descriptors)
            finally:
                self._baseline.mend()
            if returned is None and function.takes_ids:
                return self._printed(task), None
            return _read_returned(task, returned), None
        except MemoryError as error:
            return _raised(self._plugin, error), _OUT_OF_MEMORY
        except SystemExit as error:
            return _raised(self._plugin, error), _EXIT
        except BaseException as error:  # noqa: BLE001  a plugin may raise anything
            return _raised(self._plugin, error), None
        finally:
            self._end_output()

    def _returned(self, task: tasks.CallTask, descriptors: Sequence[int]) -> object:
        """Run the plugin's module anew, and give what its function returns."""
        plugin.provide(task.engine)
        reasons.of_call.begin(task.hosts)
        unused, self._module = self._module, None
        module = self._finder.run(unused or self._finder.make(self._plugin.name))
        return _returned(module, task, descriptors)

    def _printed(self, task: tasks.CallTask) -> bytes:
        """Read the answer that a class unit printed, as far as this process has it."""
        self._end_output()
        if children.exist():
            children.end_all(_CHILDREN_SECONDS)
        stdout, stderr = (bytes(output.written) for output in self._outputs)
        return _read_printed(
            tasks.PrintedTask(task.function, task.hosts, stdout, stderr), _reasons()
        )

    def _forgotten(self) -> Optional[Ending]:
        """Forget the call.

        Returns:
            Why the process has to end; None if it need not.
        """
        self._calls_left -= 1
        if not self._calls_left:
            return Ending(Reason.SERVED, "calls_per_process")
        try:
            plugin.forget()
            self._forget_modules()
            ending = self._baseline.reset_and_compare()
            if ending:
                return ending
            self._flush()  # what was printed when objects of the call were freed
            self._begin_output()
            self._module = self._finder.make(self._plugin.name)
        except BaseException as error:  # noqa: BLE001  whatever the plugin made of it
            return Ending(Reason.CHANGED, f"it cannot be compared, {type(error).__name__}")
        return None

    def _allowed(self) -> Optional[Ending]:
        """Give the next task its limits, whatever the one before used of them.

        Returns:
            Why the process has to end instead; None if it need not.
        """
        self._baseline.allow(self._limits)
        return _CPU_LIMIT if time.process_time() >= self._limits.cpu else None

    def _forget_modules(self) -> None:
        for name in self._own:
            sys.modules.pop(name, None)

    def _begin_output(self) -> None:
        """Give the next call its standard output and error.

        They stay the same: a library keeps those that it found when it was imported. They are made
        anew where the plugin closed or changed one.
        """
        if not self._streams or any(stream.changed for stream in self._streams):
            self._outputs = [Output(1), Output(2)]
            self._streams = [*map(Stream, self._outputs)]
        for output in self._outputs:
            output.begin()
        sys.stdout, sys.stderr = self._streams
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]

    def _end_output(self) -> None:
        for output in self._outputs:
            output.holds = True
        self._flush()

    def _flush(self) -> None:
        flush(*self._streams)
        _flush_c(None)


def _refusal(task: Union[tasks.CallTask, tasks.CheckTask]) -> bytes:
    """The answer where the function's properties do not take a value; empty if they do."""
    function = task.function
    if function.properties is None:
        return b""
    try:
        owner = f"{function.kind} {function.unit}"
        patterns.check(owner, function.properties, task.properties, task.seconds)
    except RefusedProperty as error:
        is_failure = isinstance(error, SlowProperty) and not task.strict
        outcome = CallOutcome.TIMED_OUT if is_failure else CallOutcome.REFUSED
        return messages.pack_failure(outcome, str(error))
    return b""


def _returned(module: ModuleType, task: tasks.CallTask, descriptors: Sequence[int]) -> object:
    """What the function returns; ``sys.exit(0)`` counts as returning nothing (contract 5.3)."""
    function = task.function
    target: Any = module
    try:
        if function.class_name is not None:
            target = getattr(module, function.class_name)()
            for name, value in task.attributes.items():
                setattr(target, name, value)
        if function.parameters is None:
            return getattr(target, function.name)(**task.arguments)
        name, base = function.name, interfaces.HostSelector
        if name == "select_host" and type(target).select_host is base.select_host:
            name = "candidates"  # its class defines that one alone
        arguments = [_argument(each, task, descriptors) for each in function.parameters]
        returned = getattr(target, name)(*arguments)
        # What a generator does belongs to the call; the call may have changed isinstance().
        if returned.__class__ is GeneratorType:
            returned = answers.Yielded(returned)
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        raise
    return returned


def _argument(name: str, task: tasks.CallTask, descriptors: Sequence[int]) -> object:
    """The argument for one of the function's parameters."""
    function = task.function
    if name == "properties":
        if function.properties is None:
            return properties.Filled(task.properties)
        return properties.fill(function.properties, task.properties)
    if name in task.arguments:
        return task.arguments[name]
    if function.takes_ids:
        return list(task.hosts) if name == "hosts" else task.vm
    role, ids = tasks.Role(name), getattr(task, name)
    if name in ("hosts", "vms"):
        return _entities(role, ids, task, descriptors)
    is_given = ids is not None or task.packs.get(name)
    return _entities(role, [ids], task, descriptors)[0] if is_given else None


def _entities(
    role: tasks.Role, ids: Sequence[Optional[str]], task: tasks.CallTask, descriptors: Sequence[int]
) -> list[Any]:
    """The entities of these ids, in their order; each from the first pack that has it."""
    sources: list[Union[int, bytes]] = []
    for place, sizes in task.packs.get(role.value, ()):
        descriptor = descriptors[place]
        begins = itertools.accumulate(sizes, initial=0)  # of packs that lie in one file
        sources += [os.pread(descriptor, *each) for each in zip(sizes, begins)] or [descriptor]
    return sdk_entities.unpack(role.kind, sources, ids)


def _reasons() -> messages.ReasonsAndNotes:
    return reasons.of_call.texts, reasons.of_call.notes


def _read_returned(task: tasks.CallTask, returned: object) -> bytes:
    function = task.function
    try:
        value = answers.read_returned(function, returned)
    except BadAnswer as error:
        return messages.pack_failure(CallOutcome.BAD_ANSWER, one_line(str(error)))
    return messages.pack_answer(function.returns, value, task.hosts, reasons=_reasons())


def _read_printed(
    task: tasks.PrintedTask, explained: messages.ReasonsAndNotes = messages.NO_REASONS
) -> bytes:
    read = (len(task.stdout), len(task.stderr))
    stdout, stderr = (text.decode("utf-8", "replace") for text in (task.stdout, task.stderr))
    try:
        value = answers.read_printed(task.function, stdout, stderr)
    except BadAnswer as error:
        return messages.pack_unread(one_line(str(error)), task.hosts, read, explained)
    return messages.pack_answer(task.function.returns, value, task.hosts, read, explained)


def _raised(code: PluginCode, error: BaseException) -> bytes:
    """The message of a call whose plugin raised."""
    try:
        what, trace = _described(code, error)
    except BaseException:  # noqa: BLE001  its class, its text and its code are the plugin's too
        what, trace = "an exception that cannot be shown", ""
    return messages.pack_failure(CallOutcome.RAISED, what, trace)


def _described(code: PluginCode, error: BaseException) -> tuple[str, str]:
    """What was raised, in a line, and the plugin's own lines of the traceback."""
    own = {module.path for module in code.modules}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in own:
        trace = trace.tb_next
    what = modules.exception_text(error)
    if isinstance(error, MemoryError):
        what = "MemoryError: the call reached its memory_limit"
    place = modules.own_line(error, own)
    if place is not None:
        what += f" ({os.path.basename(place[0])}:{place[1]})"  # noqa: PTH119  a string will do
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    shown = "".join(lines)[-messages.TRACEBACK_LIMIT :].encode("utf-8", "replace").decode("utf-8")
    return one_line(what), shown


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
