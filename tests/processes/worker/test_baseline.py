"""What a call changes in its process: the next call of that plugin finds it as it was."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ovirt_scheduler.processes.protocol.ending import Reason
from tests.support.jobs import HOSTS
from tests.support.settled_calls import ordinary, seen

pytestmark = pytest.mark.long

IMPORTS = (
    "atexit, builtins, contextvars, ctypes, decimal, faulthandler, gc, io, json, locale, logging, "
    "mmap, os, random, resource, signal, socket, subprocess, sys, threading, time, tracemalloc, types, "
    "warnings, _thread, ovirt_scheduler.processes.protocol.frames, ovirtsdk4.services, ovirtsdk4.types"
)
PLUGIN = """
import {imports}

LIBC = ctypes.CDLL(None)
KEPT = []
VARIABLE = contextvars.ContextVar("VARIABLE", default=0)

class Filter(ctypes.Structure):
    _fields_ = [("c", ctypes.c_ushort), ("t", ctypes.c_ubyte), ("f", ctypes.c_ubyte),
                ("k", ctypes.c_uint)]

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.POINTER(Filter))]

def allow_all():
    filters = (Filter * 1)(Filter(6, 0, 0, 0x7FFF0000))
    assert LIBC.prctl(22, 2, ctypes.byref(Program(1, filters))) == 0

def status(name):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(name + ":")]
    return line

def fork_twice():
    child = os.fork()
    if not child:
        if not os.fork():
            time.sleep(3600)
        os._exit(0)
    os.waitpid(child, 0)

def prctl_into(option):
    value = ctypes.c_int()
    LIBC.prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value

def children():
    return open(f"/proc/self/task/{{os.getpid()}}/children").read()

def do_filter(hosts, vm, properties):
    print(os.getpid(), ascii({look}), flush=True)
    {change}
    return hosts
"""


class Change(NamedTuple):
    """What a call looks at, and then does; how its process ends by that, unless it is put back."""

    what: str
    look: str
    change: str
    ends: str = ""

    @property
    def plugin(self) -> str:
        return PLUGIN.format(imports=IMPORTS, look=self.look, change=self.change)


def rows(table: str) -> Iterator[list[str]]:
    return (line.split(" | ") for line in table.strip().splitlines())


# What is changed; what a call sees of it; how it is changed.
PUT_BACK = [Change(*row) for row in rows(r"""
a global | KEPT | KEPT.append(1)
entities | hosts[0].comment | hosts[0].comment = 'seen'
folder | os.getcwd() | os.chdir('/')
umask | status('Umask') | os.umask(0)
environment | dict(os.environ) | os.environ['TRACE'] = '1'
less environment | dict(os.environ) | os.environ.clear()
os.environ | type(os.environ) | os.environ = {}
what os.environ holds | dict(os.environ) | os.environ._data = {}
putenv | LIBC.getenv(b'TRACE') | os.putenv('TRACE', '1')
time zone | time.localtime(0).tm_zone | os.environ['TZ'] = 'XYZ-9'; time.tzset(); del os.environ['TZ']
time zone of the same name | (time.localtime(0).tm_hour, time.altzone) | os.environ['TZ'] = 'UTC0UTC-5,0/0,J365/25'; time.tzset(); del os.environ['TZ']
time zone with its variable | time.localtime(0).tm_zone | os.environ['TZ'] = 'XYZ-9'; time.tzset()
sys.path | sys.path | sys.path.append('/trace')
another sys.path | sys.path | sys.path = ['/trace']
sys.argv | sys.argv | sys.argv[:] = ['trace']
meta_path | len(sys.meta_path) | sys.meta_path.append(sys.meta_path[0])
path_hooks | len(sys.path_hooks) | sys.path_hooks.pop()
warnings | warnings.filters | warnings.simplefilter('error')
logging | logging.root.level | logging.basicConfig(level=10)
handler | logging.root.handlers | logging.root.addHandler(logging.Handler())
level of a logger | logging.getLogger('trace').isEnabledFor(50) | logging.getLogger('trace').setLevel(60)
disabled logging | logging.getLogger('trace').isEnabledFor(50) | logging.disable(50); logging.getLogger('trace').isEnabledFor(50)
level names | logging.getLevelName(33) | logging.addLevelName(33, 'TRACE')
locale | locale.setlocale(locale.LC_ALL) | locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')
socket timeout | socket.getdefaulttimeout() | socket.setdefaulttimeout(3)
recursion limit | sys.getrecursionlimit() | sys.setrecursionlimit(9999)
low recursion limit | sys.getrecursionlimit() | sys.setrecursionlimit(60)
switch interval | sys.getswitchinterval() | sys.setswitchinterval(1)
stack size | threading.stack_size() | threading.stack_size(1 << 20)
bytecode | sys.dont_write_bytecode | sys.dont_write_bytecode ^= True
gc | gc.isenabled() | gc.disable()
gc threshold | gc.get_threshold() | gc.set_threshold(10)
asyncgen hooks | sys.get_asyncgen_hooks() | sys.set_asyncgen_hooks(print)
random | random.getstate() == random.Random(1).getstate() | random.seed(1)
event loop | __import__('asyncio').get_event_loop().is_closed() | __import__('asyncio').get_event_loop().close()
decimal context | decimal.getcontext().prec | decimal.getcontext().prec = 5
context variable | VARIABLE.get() | VARIABLE.set(1)
stdout | type(sys.stdout).__name__ | sys.stdout = io.StringIO()
closed stdout | sys.stdout.closed | sys.stdout.close()
detached stdout | sys.stdout.buffer.name | sys.stdout.detach()
encoding of stdout | sys.stdout.encoding | sys.stdout.reconfigure(encoding='ascii')
attribute of stdout | vars(sys.stdout) | sys.stdout.trace = 1
method of stdout's buffer | vars(sys.stdout.buffer) | sys.stdout.buffer.trace = 1
method of stdout's file | sorted(vars(sys.stdout.buffer.raw)) | sys.stdout.buffer.raw.trace = 1
newlines of stdout | vars(sys.stdout) | sys.stdout.reconfigure(newline='\r\n')
child that has ended | children() | os.fork() or os._exit(0); os.waitid(os.P_ALL, 0, os.WEXITED + os.WNOWAIT)
""")]  # fmt: skip
if sys.version_info >= (3, 11):
    PUT_BACK.append(
        Change("digits", "sys.get_int_max_str_digits()", "sys.set_int_max_str_digits(0)")
    )

# Why the process is ended, and the same.
REPLACED = [Change(*row, ends=ends) for ends, *row in rows(r"""
leftovers | child | children() | subprocess.Popen(['sleep', '3600'])
leftovers | child of a child | children() | fork_twice()
leftovers | thread | threading.active_count() | threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
leftovers | bare thread | status('Threads') | _thread.start_new_thread(time.sleep, (3600,))
leftovers | traceback later | status('Threads') | faulthandler.dump_traceback_later(3600, file=sys.__stdin__)
leftovers | file | os.listdir('/proc/self/fd') | os.open('/', 0)
leftovers | closed descriptor | os.fstat(0).st_mode | os.close(0)
leftovers | other stdout | os.fstat(1).st_mode | os.dup2(os.open('/', 0), 1)
leftovers | non-blocking | os.get_blocking(1) | os.set_blocking(1, False)
leftovers | wakeup | signal.set_wakeup_fd(-1) | a, b = os.pipe(); os.set_blocking(b, False); signal.set_wakeup_fd(b)
changed | closed stdin | sys.stdin.closed | sys.stdin.close()
changed | excepthook | sys.excepthook | sys.excepthook = print
changed | unraisablehook | sys.unraisablehook | sys.unraisablehook = print
changed | signal handler | signal.getsignal(10) | signal.signal(10, lambda *_: None)
changed | signal ignored by C | status('SigIgn') | LIBC.signal(10, 1)
changed | signal mask | status('SigBlk') | signal.pthread_sigmask(0, {10})
changed | pending signal | status('ShdPnd') | signal.pthread_sigmask(0, {10}); os.kill(os.getpid(), 10)
leftovers | alarm | signal.getitimer(0) | signal.alarm(3600)
leftovers | timer | signal.getitimer(2) | signal.setitimer(2, 3600)
leftovers | timer of POSIX | open('/proc/self/timers').read() | LIBC.timer_create(1, None, ctypes.byref(ctypes.c_void_p()))
changed | resource limit | resource.getrlimit(resource.RLIMIT_NOFILE) | resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))
changed | limit of memory | resource.getrlimit(resource.RLIMIT_DATA)[1] > 10**8 | resource.setrlimit(resource.RLIMIT_DATA, (10**8, 10**8))
changed | nice | os.nice(0) | os.nice(1)
changed | scheduling | os.sched_getscheduler(0) | os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
changed | seccomp | status('Seccomp') | allow_all()
changed | builtin | len(hosts) | builtins.len = lambda _: 0
changed | isinstance | isinstance(hosts, list) | builtins.isinstance = None
changed | further builtin | hasattr(builtins, 'trace') | builtins.trace = 1
changed | private builtin | hasattr(builtins, '_') | builtins._ = str
changed | sys.modules | len(sys.modules) > 9 | sys.modules = {}
changed | the SDK's attribute | hosts[0].name | ovirtsdk4.types.Host.name = property(lambda _: 'trace')
changed | the SDK's connection | ovirtsdk4.Connection.send.__name__ | ovirtsdk4.Connection.send = lambda *_: None
changed | the SDK's services | ovirtsdk4.services.HostsService.list.__name__ | ovirtsdk4.services.HostsService.list = lambda *_: None
changed | the SDK's class | hasattr(ovirtsdk4.types.Host, 'trace') | ovirtsdk4.types.Host.trace = 1
changed | the SDK's equality | '__eq__' in vars(ovirtsdk4.types.Host) | ovirtsdk4.types.Host.__eq__ = lambda *_: True
changed | the SDK's private name | hasattr(ovirtsdk4.Connection, '_trace') | ovirtsdk4.Connection._trace = 1
changed | the SDK's private attribute | hosts[0]._comment | ovirtsdk4.types.Host._comment = 'trace'
leftovers | atexit | atexit._ncallbacks() | atexit.register(print)
limit | memory | hasattr(json, '_trace') | json._trace = b'x' * (32 << 20)
limit | reserved memory | hasattr(json, '_trace') | json._trace = mmap.mmap(-1, 300 << 20, mmap.MAP_PRIVATE)
limit | shared memory | hasattr(json, '_trace') | json._trace = mmap.mmap(-1, 32 << 20); json._trace.write(b'x' * (32 << 20))
""")]  # fmt: skip
if len(os.sched_getaffinity(0)) > 1:
    REPLACED.append(
        Change(
            "affinity", "sorted(os.sched_getaffinity(0))",
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "changed",
        )
    )  # fmt: skip
if os.uname().machine == "x86_64":
    REPLACED.append(
        Change(
            "child without SIGCHLD", "children()",
            "LIBC.syscall(56, 0, 0, 0, 0, 0) or time.sleep(3600)", "leftovers",  # clone(2)
        )
    )  # fmt: skip
if os.getuid() == 0:
    REPLACED += [
        Change("groups", "os.getgroups()", "os.setgroups([99])", "changed"),
        Change("capabilities", "status('CapBnd')", "LIBC.prctl(24, 36, 0, 0, 0)", "changed"),
        Change("root folder", "os.stat('/').st_ino", "os.chroot('/tmp')", "changed"),
    ]


@pytest.mark.parametrize("change", PUT_BACK, ids=lambda change: change.what)
def test_what_a_plugin_may_well_change_is_put_back(calls_of, change):
    """In the same process, the next call finds it as it was."""
    calls = calls_of(change.plugin)
    found = [seen(calls.call()) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert calls.replaced == {}


@pytest.mark.parametrize("change", REPLACED, ids=lambda change: change.what)
def test_a_process_that_differs_otherwise_is_replaced(calls_of, caplog, change):
    """The next call has another one, in which it is as it was; why is counted and logged."""
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.ending_counts")
    calls = calls_of(change.plugin)
    (pid, found), (next_pid, next_found) = seen(calls.call()), seen(calls.call())
    assert calls.replaced == {change.ends: 2}
    assert next_pid != pid
    if "0x" not in found:
        assert next_found == found
    (label,) = [reason.label for reason in Reason if reason.word == change.ends]
    assert f"Changes.py is ended: {label}: " in caplog.text


@pytest.mark.parametrize("change", [*PUT_BACK, *REPLACED], ids=lambda change: change.what)
def test_with_one_call_for_each_process_nothing_is_seen_either(calls_of, change):
    """Each call has a process of its own, made ahead."""
    calls = calls_of(change.plugin, calls_per_process=1)
    (pid, found), (next_pid, next_found) = seen(calls.call()), seen(calls.call())
    assert sum(calls.replaced.values()) == 2
    assert next_pid != pid
    if "0x" not in found:
        assert next_found == found


@pytest.mark.parametrize(
    "source",
    [
        ordinary("", "import sys\nsys.path.insert(0, '/opt/lib')"),
        ordinary("", "import sys\nsys.path.remove(sys.path[-1])"),
        ordinary("", "os.environ['TRACE'] = '1'\nos.environ['TZ'] = 'UTC'\ndel os.environ['PATH']"),
        ordinary("", "import locale\nlocale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
        ordinary("", "import warnings\nwarnings.simplefilter('ignore')\nos.umask(0o77)"),
        ordinary("", "import decimal, random\nrandom.seed(1)\ndecimal.getcontext().prec = 9"),
        ordinary("", "import socket, sys\nsocket.setdefaulttimeout(5)\nsys.setrecursionlimit(5000)"),
        ordinary("", "import logging\nlogging.basicConfig(level=10)\nlogging.captureWarnings(True)"),
        ordinary(
            "logging.getLogger('Changes').warning('hello')",
            "import logging\nlogging.getLogger('Changes').addHandler(logging.FileHandler('log'))",
        ),
        ordinary("import colorsys, xml.dom.minidom, sqlite3, cryptography.x509"),
        ordinary("import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor"),
        ordinary(  # as libraries do that Cython compiled
            "for name in ('cython_runtime', '_cython_0_1'):\n"
            "    vars(sys.modules.setdefault(name, types.ModuleType(name)))['trace'] = 1",
            "import sys, types",
        ),
        ordinary("import asyncio\nasyncio.run(asyncio.sleep(0))"),
        ordinary(
            "asyncio.run(main())",
            "import asyncio, time\n"
            "async def main():\n"
            "    await asyncio.gather(*[asyncio.to_thread(time.sleep, 0) for _ in range(4)])\n",
        ),
        ordinary("with ThreadPoolExecutor(4) as pool:\n    assert sum(pool.map(len, ['a'] * 9)) == 9",
                 "from concurrent.futures import ThreadPoolExecutor"),
        ordinary("import subprocess\nsubprocess.run(['true'], check=True)\nos.system('true')"),
        ordinary(
            "import tempfile\n"
            "with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:\n"
            "    file.write(b'x')"
        ),
        ordinary("import multiprocessing, uuid, ssl, urllib.request\nuuid.uuid4()"),
        ordinary("multiprocessing.get_context()",
                 "import multiprocessing\nmultiprocessing.set_start_method('spawn')"),
        ordinary("import re, fnmatch, struct\nre.compile('tr[a]ce')\nfnmatch.fnmatch('a', 'b*')"),
        ordinary("import warnings\nwarnings.warn('careful')\nwarnings.warn('deep', stacklevel=99)"),
        ordinary("import time\ntime.tzset()\ntime.strftime('%c', time.localtime(-10**9))"),
        ordinary("kept = [b'x' * 4096 for _ in range(8000)]"),
        ordinary("class A: pass\na = A()\na.a = a", "import dataclasses, enum\n"
                 "@dataclasses.dataclass\nclass D:\n    a: int = 0\n"
                 "class E(enum.Enum):\n    A = 1"),
    ],
    ids=lambda source: source[10:60].strip().splitlines()[0],
)  # fmt: skip
def test_ordinary_plugins_keep_their_process(calls_of, caplog, source):
    """Twenty calls have one, whatever is set at the top level, imported late, or ends in time."""
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.ending_counts")
    calls = calls_of(source)
    found = [calls.call() for _ in range(20)]
    assert [result.value for result in found] == [HOSTS] * 20, found[0]
    assert calls.replaced == {}, caplog.text
    assert len({result.stdout for result in found}) == 1


# As numpy does: its threads of C wait for work for as long as the process lives.
NATIVE = """
import ctypes
LIBC = ctypes.CDLL(None)
for _ in range(2):
    assert LIBC.pthread_create(ctypes.byref(ctypes.c_ulong()), None, LIBC.pause, None) == 0
"""


def test_native_threads_of_a_library_keep_their_process(calls_of, tmp_path_factory, caplog):
    """They are no difference in the call that imports it; in a later call they are."""
    library = tmp_path_factory.mktemp("library")
    (library / "native.py").write_text(NATIVE)
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.ending_counts")
    imports = f"import sys\nsys.path.insert(0, {str(library)!r})"
    calls = calls_of(ordinary("import native", imports))
    found = [calls.call() for _ in range(5)]
    assert [result.value for result in found] == [HOSTS] * 5, found[0]
    assert len({result.stdout for result in found}) == 1
    assert calls.replaced == {}, caplog.text
    calls = calls_of(ordinary(f"import native\nexec({NATIVE!r})", imports))
    calls.call()
    assert calls.replaced == {}, caplog.text
    calls.call()
    assert calls.replaced == {"leftovers": 1}


def test_a_thread_that_a_call_tells_to_end_may_take_a_moment(calls_of):
    """An executor that is not shut down ends its threads when it is freed."""
    calls = calls_of(
        ordinary("ThreadPoolExecutor(2).submit(len, '').result()",
                 "from concurrent.futures import ThreadPoolExecutor")
    )  # fmt: skip
    assert len({calls.call().stdout for _ in range(5)}) == 1
    assert calls.replaced == {}
