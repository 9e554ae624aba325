"""One plugin call: the last process of the chain, in which the plugin's code runs.

::

    stdin   /dev/null
    stdout  a pipe to the request process, captured
    stderr  a pipe to the request process, captured
    answer  a pipe to the request process: one frame, and a second, empty one where nothing of
            the call is left but this process, which ends then

The process leads a session of its own, stands under the limits of its unit, and never returns
from here. Nothing that the plugin does to it is seen by another call (contract 5.4).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import linecache
import marshal
import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, NoReturn, Optional, Tuple, cast

from ovirtsdk4 import types

from ovirt_scheduler import entities, frames, limits, plugin, plugin_modules, properties
from ovirt_scheduler.analysis import analyse
from ovirt_scheduler.answers import one_line, read_printed, read_returned
from ovirt_scheduler.model import (
    Analysis,
    CallResult,
    CallTask,
    Candidate,
    FileFault,
    Kind,
    Limits,
    Module,
    NoEngine,
    Outcome,
    PluginCode,
    PolicyUnit,
    Source,
    UnitCall,
)
from ovirt_scheduler.supervisor import BEGUN, OUTPUT_LIMIT, Pipes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CHUNK = 1 << 16
TRACEBACK_LIMIT = 64 << 10  # characters

Entities = Tuple[List[types.Host], Optional[types.Vm]]


class _Output(io.FileIO):
    """Standard output or error, keeping what comes by way of Python: it may be the answer.

    Made before the fork, when the descriptor is not yet the pipe that it is in a call.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.kept = bytearray()

    def write(self, data: ReadableBuffer) -> int:
        written = super().write(data)
        self.kept += memoryview(data)[: min(written, OUTPUT_LIMIT - len(self.kept))]
        return written

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("a pipe has no position")


_OUTPUTS = _Output(1), _Output(2)
_WRITERS = tuple(
    io.TextIOWrapper(io.BufferedWriter(output), "utf-8", errors="backslashreplace")
    for output in _OUTPUTS
)


_SOURCE = Source(
    "ovirt_scheduler_rehearsal",
    "<rehearsal>",
    b"""class Filter:
    def do_filter(self, hosts, vm, properties):
        return hosts
""",
)
_MODULE = Module(
    _SOURCE.name,
    _SOURCE.path,
    _SOURCE.text,
    marshal.dumps(plugin_modules.compile_source(_SOURCE)),
)
_REHEARSED = PolicyUnit(
    name="rehearsal",
    kind=Kind.FILTER,
    description="",
    plugin=PluginCode(_MODULE.name, "/", (_MODULE,)),
    checksum="",
    limits=Limits(timeout=1, memory=0, cpu=1, open_files=0),
    class_name="Filter",
)
_TASK = CallTask(UnitCall(_REHEARSED, {}), ("host",), "vm", NoEngine(""))
_REHEARSAL = b"".join(frames.frame(frames.pack_task(_TASK)))


def enter(pipes: Pipes, *kept: int) -> None:
    """Make this process, just forked, a plugin call's: alone, and quiet.

    Args:
        kept: descriptors that stay open beside stdout, stderr and the answer's.
    """
    os.setsid()
    limits.die_with_parent(pipes.parent)
    limits.become_subreaper()
    limits.reset_signals([signal.SIGCHLD])  # which the request process handles
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(pipes.stdout, 1)
    os.dup2(pipes.stderr, 2)
    limits.close_all_but({pipes.answer, *kept})
    sys.stdout, sys.stderr = _WRITERS
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]


def wait_for_task(pipes: Pipes) -> NoReturn:
    """Be a call that was forked ahead: do the one task that comes, or end when none does."""
    enter(pipes, pipes.task)
    _rehearse()
    unframer = frames.Unframer(frames.ANSWER_LIMIT)
    while True:
        data = os.read(pipes.task, _CHUNK)
        if not data:
            os._exit(0)
        for payload in unframer.feed(data):
            os.write(pipes.task, BEGUN)
            os.close(pipes.task)
            _do(cast("CallTask", frames.unpack_task(payload)), pipes.answer)


def _rehearse() -> None:
    """Do a task that changes nothing.

    Whatever a process touches first after its fork is copied, page by page. This touches nearly
    all that a call does, while nobody waits for it.
    """
    path, finders, hooks = [*sys.path], [*sys.meta_path], [*sys.path_hooks]
    importers = {**sys.path_importer_cache}
    for payload in frames.Unframer(frames.ANSWER_LIMIT).feed(_REHEARSAL):
        run_task(cast("CallTask", frames.unpack_task(payload)))
    limits.data_bytes()
    limits.is_alone()
    sys.path[:], sys.meta_path[:], sys.path_hooks[:] = path, finders, hooks
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(importers)
    sys.modules.pop(_MODULE.name, None)  # where there was no memory for it, it is not there
    linecache.cache.pop(_MODULE.path, None)


def _do(task: CallTask, answer: int) -> NoReturn:
    limits.apply(task.call.unit.limits)
    answer_and_exit(answer, lambda: run_task(task))


def run_task(task: CallTask) -> bytes:
    """``run_unit`` where nothing but ids is known."""
    return run_unit(task, lambda: _entities_of_ids(task))


def _entities_of_ids(task: CallTask) -> Entities:
    vm = None if task.vm is None else entities.vm_of_id(task.vm)
    return entities.hosts_of_ids(task.hosts), vm


def answer_and_exit(answer: int, payload: Callable[[], bytes]) -> NoReturn:
    """Write what ``payload`` gives, and whether anything is left of it; end the process."""
    try:
        told = payload()
        _flush()
        frames.write(answer, told, *([b""] if limits.is_alone() else []))
    finally:
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The plugin may have closed it or put something else there.
        with contextlib.suppress(BaseException):
            stream.flush()


def run_unit(task: CallTask, given: Callable[[], Entities]) -> bytes:
    """Load the unit's plugin from the registry's code and call its function.

    Args:
        given: the entities of the task's ids, for a function unit.

    Returns:
        A message: the result. Where a class unit returned nothing, what it printed counts
        (contract 5.3): then it says how much of that this process knows of.
    """
    unit = task.call.unit
    try:
        enter_folder(unit.plugin.folder)
        plugin.provide(task.engine)
        plugin_modules.finder_of(unit.plugin).install(unit.plugin.folder)
        module = importlib.import_module(unit.plugin.name)
        if unit.class_name is None:
            hosts, vm = given()
            function = getattr(module, unit.kind.function)
            returned = _returned(function, _arguments(task.call, hosts, vm))
        else:
            method = getattr(getattr(module, unit.class_name)(), unit.kind.function)
            returned = _returned(method, _arguments(task.call, list(task.hosts), task.vm))
            if returned is None:
                _flush()
                told = [bytes(output.kept) for output in _OUTPUTS]
                result = read_printed(unit, *(text.decode("utf-8", "replace") for text in told))
                return frames.pack_printed(result, *map(len, told))
        result = read_returned(unit, returned)
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything
        result = raised(unit.plugin, unit.name, error)
    return frames.pack_result(result, 0)


def _arguments(call: UnitCall, hosts: object, vm: object) -> Tuple[object, ...]:
    given = properties.Filled(call.properties)
    if call.unit.properties is not None:
        given = properties.fill(call.unit.properties, given)
    return (hosts, given) if call.unit.kind is Kind.BALANCE else (hosts, vm, given)


def run_analysis(candidate: Candidate) -> bytes:
    closed = _closed(Path(candidate.folder))
    if closed is not None:
        message = (
            f"cannot be run in its folder: {closed} is closed to {os.environ.get('USER')}, whom "
            f"plugins run as; mend it: chmod o+x {shlex.quote(str(closed))}"
        )
        fault = FileFault(candidate.source.path, None, message)
        return frames.pack_analysis(Analysis(fault=fault))
    enter_folder(candidate.folder)
    return frames.pack_analysis(analyse(candidate))


def _returned(function: Callable[..., object], arguments: Tuple[object, ...]) -> object:
    """What the function returns; ``sys.exit(0)`` counts as returning nothing (contract 5.3)."""
    try:
        return function(*arguments)
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        raise


def _closed(folder: Path) -> Optional[Path]:
    """The first folder on the way that is there, and that this process's user cannot enter."""
    way = (*reversed(folder.parents), folder)
    shut = (place for place in way if os.path.lexists(place) and not os.access(place, os.X_OK))
    return next(shut, None)


def enter_folder(folder: str) -> None:
    """Work in the plugin's folder."""
    # The folder may have vanished since the plugin was read; its code is still good.
    for place in (folder, "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            return


def raised(code: PluginCode, name: str, error: BaseException) -> CallResult:
    """The failure of a call whose plugin raised, with the plugin's own lines of the traceback."""
    own = {module.path for module in code.modules}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in own:
        trace = trace.tb_next
    places = [
        f"{os.path.basename(frame.f_code.co_filename)}:{line}"  # noqa: PTH119  a string will do
        for frame, line in traceback.walk_tb(trace)
        if frame.f_code.co_filename in own
    ]
    text = ""
    with contextlib.suppress(BaseException):  # __str__ is the plugin's too
        text = str(error)
    what = type(error).__name__ + (f": {text}" if text else "")
    if isinstance(error, MemoryError):
        what = "MemoryError: the call reached its memory_limit"
    elif isinstance(error, SystemExit):
        what = f"called sys.exit({error.code!r})"
    place = f" ({places[-1]})" if places else ""
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return CallResult(
        name,
        Outcome.RAISED,
        message=one_line(what + place),
        traceback="".join(lines)[-TRACEBACK_LIMIT:].encode("utf-8", "replace").decode("utf-8"),
    )
