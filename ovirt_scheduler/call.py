"""One plugin call: the last process of the chain, in which the plugin's code runs.

::

    stdin   /dev/null
    stdout  a pipe to the request process, captured
    stderr  a pipe to the request process, captured
    answer  a pipe to the request process: one frame, then the process ends

The process leads a session of its own, stands under the limits of its unit, and never returns
from here. Nothing that the plugin does to it is seen by another call (contract 5.4).
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import Callable, List, NoReturn, Optional, Tuple, cast

from ovirtsdk4 import types

from ovirt_scheduler import entities, frames, limits, plugin, plugin_modules, properties
from ovirt_scheduler.analysis import analyse
from ovirt_scheduler.answers import NO_TEXT, READERS, BadAnswer
from ovirt_scheduler.model import (
    Analysis,
    CallResult,
    CallTask,
    Candidate,
    Engine,
    FileFault,
    Kind,
    Outcome,
    PluginCode,
    PolicyUnit,
    UnitCall,
)
from ovirt_scheduler.supervisor import Pipes

_CHUNK = 1 << 16
_MESSAGE_LIMIT = 500  # characters of a failure's one line
_TRACEBACK_LIMIT = 64 << 10  # characters


def enter(pipes: Pipes) -> None:
    """Make this process, just forked, a plugin call's: alone, and quiet."""
    os.setsid()
    limits.die_with_parent(pipes.parent)
    limits.become_subreaper()
    limits.reset_signals()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(pipes.stdout, 1)
    os.dup2(pipes.stderr, 2)
    limits.close_all_but({pipes.answer, pipes.task})
    sys.stdout = sys.__stdout__ = _writer(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2)  # type: ignore[misc]


def wait_for_task(pipes: Pipes) -> NoReturn:
    """Be a call that was forked ahead: do the one task that comes, or end when none does."""
    enter(pipes)
    unframer = frames.Unframer(frames.ANSWER_LIMIT)
    while True:
        data = os.read(pipes.task, _CHUNK)
        if not data:
            os._exit(0)
        for payload in unframer.feed(data):
            os.close(pipes.task)
            _do(cast("CallTask", frames.unpack_task(payload)), pipes.answer)


def _do(task: CallTask, answer: int) -> NoReturn:
    limits.apply(task.call.unit.limits)
    answer_and_exit(answer, lambda: run_task(task))


def _write(pipe: io.RawIOBase, payload: bytes) -> None:
    for piece in frames.frame(payload):
        view = memoryview(piece)
        while view:
            view = view[pipe.write(view) :]


def run_task(task: CallTask) -> bytes:
    """``run_unit`` where nothing but ids is known."""
    hosts = entities.hosts_of_ids(task.hosts)
    vm = None if task.vm is None else entities.vm_of_id(task.vm)
    return run_unit(task.call, hosts, vm, task.engine)


def answer_and_exit(answer: int, payload: Callable[[], bytes]) -> NoReturn:
    """Say that the work begins, write what ``payload`` gives, and end the process."""
    try:
        with open(answer, "wb", buffering=0) as pipe:
            _write(pipe, b"")
            told = payload()
            for stream in (sys.stdout, sys.stderr):
                # The plugin may have closed it or put something else there.
                with contextlib.suppress(BaseException):
                    stream.flush()
            _write(pipe, told)
    finally:
        os._exit(0)


def run_unit(
    call: UnitCall,
    hosts: List[types.Host],
    vm: Optional[types.Vm],
    engine: Engine,
) -> bytes:
    """Load the unit's plugin from the registry's code and call its function.

    Returns:
        A message: the result; or ``printed`` where a class unit returned nothing, so that what
        it printed counts (contract 5.3), which only the request process has.
    """
    unit = call.unit
    try:
        _enter_folder(unit.plugin.folder)
        plugin.provide(engine)
        plugin_modules.finder_of(unit.plugin).install(unit.plugin.folder)
        module = importlib.import_module(unit.plugin.name)
        if unit.class_name is None:
            returned = _returned(getattr(module, unit.kind.function), _arguments(call, hosts, vm))
        else:
            ids = [host.id for host in hosts]
            method = getattr(getattr(module, unit.class_name)(), unit.kind.function)
            returned = _returned(method, _arguments(call, ids, vm and vm.id))
            if returned is None:
                return frames.pack("printed")
        result = _answered(unit, returned)
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything
        result = _raised(unit.plugin, unit.name, error)
    return frames.pack_result(result, 0)


def read_printed(unit: PolicyUnit, stdout: str, stderr: str) -> bytes:
    """Make a class unit's result of what it printed: the whole of it, else its last line.

    Runs in a process of its own, as every reading of what a plugin made does.
    """
    text = stdout.strip()
    for candidate in (text, text[text.rfind("\n") + 1 :]):
        with contextlib.suppress(Exception):
            value = ast.literal_eval(candidate)
            if value is not None:
                return frames.pack_result(_answered(unit, value), 0)
    if not stderr.strip() and unit.kind is Kind.BALANCE:
        return frames.pack_result(CallResult(unit.name, Outcome.OK), 0)
    message = one_line(stderr) or f"{unit.kind.function} returned nothing, and printed no answer"
    if not stderr.strip() and text:
        message += f": {one_line(text)!r:.200}"
    return frames.pack_result(CallResult(unit.name, Outcome.BAD_ANSWER, message=message), 0)


def _arguments(call: UnitCall, hosts: object, vm: object) -> Tuple[object, ...]:
    given = dict(call.properties)
    if call.unit.properties is not None:
        given = properties.fill(call.unit.properties, given)
    return (hosts, given) if call.unit.kind is Kind.BALANCE else (hosts, vm, given)


def _answered(unit: PolicyUnit, value: object) -> CallResult:
    try:
        return CallResult(unit.name, Outcome.OK, READERS[unit.kind](value))
    except BadAnswer as error:
        message = one_line(f"{unit.kind.function} {error}")
        return CallResult(unit.name, Outcome.BAD_ANSWER, message=message)


def run_analysis(candidate: Candidate) -> bytes:
    closed = _closed(Path(candidate.folder))
    if closed is not None:
        message = (
            f"cannot be run in its folder: {closed} is closed to {os.environ.get('USER')}, whom "
            f"plugins run as; mend it: chmod o+x {shlex.quote(str(closed))}"
        )
        fault = FileFault(candidate.source.path, None, message)
        return frames.pack_analysis(Analysis(fault=fault))
    _enter_folder(candidate.folder)
    return frames.pack_analysis(analyse(candidate))


def one_line(text: str) -> str:
    """Text for a log and an answer: one line, not endless, and nothing that XML cannot carry."""
    line = NO_TEXT.sub("\ufffd", " ".join(text.split()))
    return line if len(line) <= _MESSAGE_LIMIT else line[: _MESSAGE_LIMIT - 1] + "\u2026"


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


def _enter_folder(folder: str) -> None:
    # The folder may have vanished since the plugin was read; its code is still good.
    for place in (folder, "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            return


def _writer(descriptor: int) -> io.TextIOWrapper:
    binary = open(descriptor, "wb", closefd=False)  # noqa: SIM115  lives on
    return io.TextIOWrapper(binary, "utf-8", errors="backslashreplace", write_through=False)


def _raised(code: PluginCode, name: str, error: BaseException) -> CallResult:
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
        traceback="".join(lines)[-_TRACEBACK_LIMIT:].encode("utf-8", "replace").decode("utf-8"),
    )
