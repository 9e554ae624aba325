"""Compares a plugin's process after each call with what it was before, and restores what it can.

::

    before the first load ─ SavedState: the plugin may change it whenever it is loaded
    after it ────────────── the rest: what is looked at after each call

A call may change its process as it likes; the next one must not see it (contract 5.4). What a
plugin's file may well change each time that it is loaded is put back. Anything else that differs
is told, and the process is ended in favour of a new one. This finds accidents, not intent.

A change within a library is not noticed, except in ``builtins`` and in the classes of the SDK
whose objects plugins get. Modules that a call imported stay for the next one, with those of their
threads that are not Python's.
"""

from __future__ import annotations

import atexit
import builtins
import fcntl
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.model.plugins import Limits
from ovirt_scheduler.processes.kernel import children, limits, malloc
from ovirt_scheduler.processes.protocol.ending import Ending, Reason
from ovirt_scheduler.processes.worker.saved_state import SavedState

MOST_GROWTH = 8 << 20  # bytes of memory that calls may leave in use, except what they imported
_MUCH_GROWTH = 1 << 20  # bytes that are worth a new process, once it is idle

_GRACE_SECONDS = 0.01  # for threads that were told to end
_PAUSE = 0.0005
_CHUNK = 1 << 13

_OF_LIBC = 3 << 31  # signals 32 and 33, in a mask
_SIGNALS = [number for number in range(1, 65) if number not in (9, 19, 32, 33)]
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# Names of sys that differ in each call, or do not matter.
_VOLATILE = (
    "stdout", "stderr", "__stdout__", "__stderr__",
    "last_type", "last_value", "last_traceback", "last_exc", "__warningregistry__",
)  # fmt: skip

# Lines of /proc/self/status that have to stay, each with the word for a difference.
_STATUS = {
    b"Uid": "user", b"Gid": "user", b"Groups": "user", b"NSpgid": "session", b"NSsid": "session",
    b"SigPnd": "signals", b"ShdPnd": "signals", b"SigBlk": "signals", b"SigIgn": "signals",
    b"SigCgt": "signals", b"CapInh": "capabilities", b"CapPrm": "capabilities",
    b"CapEff": "capabilities", b"CapBnd": "capabilities", b"CapAmb": "capabilities",
    b"NoNewPrivs": "capabilities", b"Seccomp": "seccomp", b"Seccomp_filters": "seccomp",
    b"Cpus_allowed": "affinity", b"Mems_allowed": "affinity",
}  # fmt: skip

# Bound before any plugin could put others in their place.
_collect, _freeze, _sleep, _now = gc.collect, gc.freeze, time.sleep, time.monotonic
_listdir, _fstat, _stat, _pread, _fcntl = os.listdir, os.fstat, os.stat, os.pread, fcntl.fcntl
_getpriority, _getscheduler = os.getpriority, os.sched_getscheduler
_set_recursion_limit = sys.setrecursionlimit
_trim, _has_children, _lift_limits = malloc.give_back, children.exist, limits.lift_soft
# The functions of signal make an enumeration of each value, which takes ten times as long.
_handler_of: Callable[[int], object] = importlib.import_module("_signal").getsignal
_python_threads: Callable[[], int] = vars(importlib.import_module("_thread"))["_count"]

_THREADS = Ending(Reason.LEFTOVERS, "threads")
_LEFT_BEHIND = ("descriptors", "timers")  # of the state that is compared

_BUILTINS = vars(builtins)
# The classes of the SDK whose objects plugins get. To look at all its classes would copy 2.5 MB of
# the memory that a process shares with the zygote.
_SDK_CLASSES = {
    "ovirtsdk4": ("Connection", "List", "Struct"),
    "ovirtsdk4.types": ("Host", "Vm"),
    "ovirtsdk4.service": ("Service",),
    "ovirtsdk4.services": (
        "SystemService",
        "HostsService",
        "HostService",
        "VmsService",
        "VmService",
    ),
}
# What Python itself adds to a class: copyreg, and whoever reads its annotations.
_OF_PYTHON = ("__slotnames__", "__annotations__", "__annotations_cache__")


class _Namespace(NamedTuple):
    """The names of a module or class, now and before the plugin was first loaded."""

    label: str
    names: Mapping[str, object]
    before: dict[str, object]

    def difference(self) -> str:
        """The first name with another value; empty if there is none."""
        for name in {**self.before, **self.names}:
            is_there = name in self.before and name in self.names
            if is_there and self.names[name] is self.before[name]:
                continue
            if name not in _OF_PYTHON:
                return f"{self.label}.{name}"
        self.before.update(self.names)
        return ""


def _sdk_namespaces() -> list[_Namespace]:
    classes = [
        (f"{module}.{name}", vars(getattr(sys.modules[module], name)))
        for module, names in _SDK_CLASSES.items()
        if module in sys.modules
        for name in names
    ]
    return [_Namespace(label, names, {**names}) for label, names in classes]


class Baseline:
    """The state that the process had before its plugin was first loaded.

    Args:
        compares: whether ``settle`` will be called. To look at the classes of the SDK copies
            memory that the process shares with the zygote.
    """

    def __init__(self, compares: bool) -> None:
        self._saved = SavedState()
        self._compares = compares
        self._modules = {*sys.modules}
        self._builtins = _Namespace("builtins", _BUILTINS, {**_BUILTINS})
        self._namespaces = _sdk_namespaces() if compares else []
        self._status = _ProcStatus()
        self._timers, self._limits = _opened("/proc/self/timers"), _opened("/proc/self/limits")
        self._mended = ""
        self._recursion_limit = sys.getrecursionlimit()
        self._threads = self._atexit = self._memory = self._data = 0
        self._handled: list[int] = []  # signals
        self._state: dict[str, object] = {}

    def begin(self) -> None:
        """Restore what the plugin changed while it was loaded; it has been forgotten.

        ``settle`` compares with the state of now.
        """
        if _has_children():
            children.end_all(1.0)
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        self._saved.keep_filters()
        self._modules.update(self._restore())
        if not self._compares:
            self._memory = self._status.read().memory
            return
        self._status.keep()
        self._take_in_new()
        self._data = self._status.number(b"VmData")
        self._handled = [number for number in _SIGNALS if callable(_handler_of(number))]
        self._state = self._look()
        _freeze()  # what there is now, this comparison's own memory as well, is never garbage

    def allow(self, bounds: Limits) -> None:
        """Let the next call use so much beside what is used already."""
        limits.set_soft(bounds, self._status.number(b"VmData"), self._status.number(b"VmSize"))

    def mend(self) -> None:
        """Restore what all code needs, straight after the plugin's function."""
        _set_recursion_limit(self._recursion_limit)
        names, before = self._builtins.names, self._builtins.before
        if names != before:  # looked at with nothing of builtins that may be another now
            changed = {**names}
            _BUILTINS.update(before)
            for name in changed:
                if name not in before:
                    del _BUILTINS[name]
            self._mended = self._builtins._replace(names=changed).difference()

    def left_running(self) -> Optional[Ending]:
        """LEFTOVERS if child processes or threads of the call still run; else None."""
        if _has_children():
            for _ in children.reap(()):  # those that have ended are no trouble
                pass
            if _has_children():
                return Ending(Reason.LEFTOVERS, "child processes")
        return _THREADS if _stays(_python_threads) else None

    def reset_and_compare(self) -> Optional[Ending]:
        """Restore what can be restored, and compare the rest, once the call's modules are dropped.

        Returns:
            Why the process has to end: what differs; None if nothing does. Whatever is raised
            differs, too.
        """
        new = self._restore()
        changed = self._mended
        for namespace in self._namespaces:
            if namespace.names != namespace.before:
                changed = changed or namespace.difference()
        if changed:
            return Ending(Reason.CHANGED, changed)
        self._status.read()
        ending = self._leftovers(bool(new)) or self._of_state() or self._of_memory(bool(new))
        if new and not ending:
            self._modules.update(new)
            self._take_in_new()
            _freeze()
        return ending

    def _restore(self) -> Collection[str]:
        """Restore what can be restored; return the names of modules that are new."""
        new = sys.modules.keys() - self._modules if len(sys.modules) != len(self._modules) else ()
        self._saved.release(new)
        _collect()  # else finalizers run in the next call
        self._saved.restore()
        _lift_limits()
        return new

    def _leftovers(self, imported: bool) -> Optional[Ending]:
        """LEFTOVERS if the call left something that runs, or would run at the exit; else None."""
        running = self.left_running()
        if running or imported:  # which may have brought native threads, and functions for the exit
            return running
        if self._status.number(b"Threads") > self._threads and _stays(
            lambda: self._status.read().number(b"Threads") > self._threads
        ):
            return _THREADS
        registered = atexit._ncallbacks() > self._atexit  # noqa: SLF001
        return Ending(Reason.LEFTOVERS, "a function for atexit") if registered else None

    def _of_state(self) -> Optional[Ending]:
        state = self._look()
        if state == self._state:
            changed = self._status.difference()
            return Ending(Reason.CHANGED, changed) if changed else None
        name = next(name for name, value in state.items() if value != self._state[name])
        reason = Reason.LEFTOVERS if name in _LEFT_BEHIND else Reason.CHANGED
        return Ending(reason, name)

    def _of_memory(self, imported: bool) -> Optional[Ending]:
        most = limits.ROOM if imported else MOST_GROWTH
        if self._status.memory > self._memory + most:
            _trim()
            self._status.read()
        grown = self._status.memory > self._memory + most
        reserved = self._status.number(b"VmData") > self._data + limits.ROOM
        return Ending(Reason.LIMIT, "memory that stays in use") if grown or reserved else None

    @property
    def has_grown(self) -> bool:
        """Whether the process has so much more memory than at first that a new one is better.

        Large documents leave free memory in pieces, between memory in use.
        """
        return self._status.memory > self._memory + _MUCH_GROWTH

    def _take_in_new(self) -> None:
        """Take threads, functions for the exit and memory as they are after an import."""
        self._threads, self._memory = self._status.number(b"Threads"), self._status.memory
        self._atexit = atexit._ncallbacks()  # noqa: SLF001

    def _look(self) -> dict[str, object]:
        """The state of the process to compare: label to value."""
        interpreter = {**vars(sys)}
        for name in _VOLATILE:
            interpreter.pop(name, None)
        return {
            "descriptors": _descriptors(),
            "signals": [*map(_handler_of, self._handled)],  # the status has all others
            "timers": (*map(signal.getitimer, _TIMERS), _pread(self._timers, _CHUNK, 0)),
            "resource limits": _pread(self._limits, _CHUNK, 0),
            "priority": (_getpriority(os.PRIO_PROCESS, 0), _getscheduler(0)),
            "root folder": _stat("/")[1:3],
            "sys": (interpreter, sys.stdin.closed),
        }


class _ProcStatus:
    """The lines of /proc/self/status, by their numbers, which stay the same."""

    def __init__(self) -> None:
        self._file = _opened("/proc/self/status")
        self._lines: list[bytes] = []
        self.read()
        names = [line.partition(b":")[0] for line in self._lines]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._compared = [
            (self._numbers[name], words) for name, words in _STATUS.items() if name in self._numbers
        ]
        self._before: list[bytes] = []

    def read(self) -> _ProcStatus:
        """Read the file again."""
        self._lines = _pread(self._file, _CHUNK, 0).split(b"\n")
        return self

    def keep(self) -> None:
        """Read the file, and compare with this reading from now on."""
        self.read()
        self._before = self._lines

    def number(self, name: bytes) -> int:
        """The number in a line; in bytes where the line is about memory."""
        words = self._lines[self._numbers[name]].split()
        return int(words[1]) << (10 if len(words) > 2 else 0)

    @property
    def memory(self) -> int:
        """Bytes of memory that this process has in use, swapped out or not, except its files."""
        return self.number(b"RssAnon") + self.number(b"RssShmem") + self.number(b"VmSwap")

    def difference(self) -> str:
        """The first line that differs, after the word for it; empty if none does."""
        for number, words in self._compared:
            now, before = self._lines[number], self._before[number]
            if now != before and _but_for_libc(now) != _but_for_libc(before):
                return f"{words}: {now.decode('ascii', 'replace')}"
        return ""


def _but_for_libc(line: bytes) -> object:
    """A line without the signals that the C library handles once there has been a thread."""
    name, _, value = line.partition(b":")
    return int(value, 16) & ~_OF_LIBC if name == b"SigCgt" else line


def _stays(look: Callable[[], object]) -> bool:
    """Whether something is still there after the time that it has to go."""
    give_up = _now() + _GRACE_SECONDS
    while look():
        if _now() > give_up:
            return True
        _sleep(_PAUSE)
    return False


def _opened(path: str) -> int:
    """A file of /proc for reading; an empty one where the kernel has no such file."""
    readable = path if os.path.exists(path) else os.devnull  # noqa: PTH110  no objects on this path
    return os.open(readable, os.O_RDONLY)


def _descriptors() -> list[tuple[int, ...]]:
    descriptors: list[tuple[int, ...]] = []
    for name in _listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            about = _fstat(descriptor)
            flags = _fcntl(descriptor, fcntl.F_GETFL), _fcntl(descriptor, fcntl.F_GETFD)
        except OSError:  # the one that listed the folder
            continue
        descriptors.append((descriptor, about.st_dev, about.st_ino, *flags))
    return descriptors
