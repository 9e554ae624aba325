"""What a call may change in its process, in one line each, and a plugin that does it."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

_IMPORTS = (
    "atexit, builtins, contextvars, ctypes, decimal, faulthandler, gc, io, json, locale, logging, "
    "os, random, resource, signal, socket, subprocess, sys, threading, time, tracemalloc, types, "
    "warnings, _thread, ovirt_scheduler.processes.protocol.frames, ovirtsdk4.types"
)
_PLUGIN = """
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


PUT_BACK = [
    Change("a global", "KEPT", "KEPT.append(1)"),
    Change("entities", "hosts[0].comment", "hosts[0].comment = 'seen'"),
    Change("folder", "os.getcwd()", "os.chdir('/')"),
    Change("umask", "status('Umask')", "os.umask(0)"),
    Change("environment", "dict(os.environ)", "os.environ['TRACE'] = '1'"),
    Change("less environment", "dict(os.environ)", "os.environ.clear()"),
    Change("os.environ", "type(os.environ)", "os.environ = {}"),
    Change("putenv", "LIBC.getenv(b'TRACE')", "os.putenv('TRACE', '1')"),
    Change(
        "time zone", "time.localtime(0).tm_zone",
        "os.environ['TZ'] = 'XYZ-9'; time.tzset(); del os.environ['TZ']",
    ),
    Change(
        "time zone with its variable", "time.localtime(0).tm_zone",
        "os.environ['TZ'] = 'XYZ-9'; time.tzset()",
    ),
    Change("sys.path", "sys.path", "sys.path.append('/trace')"),
    Change("another sys.path", "sys.path", "sys.path = ['/trace']"),
    Change("sys.argv", "sys.argv", "sys.argv[:] = ['trace']"),
    Change("meta_path", "len(sys.meta_path)", "sys.meta_path.append(sys.meta_path[0])"),
    Change("path_hooks", "len(sys.path_hooks)", "sys.path_hooks.pop()"),
    Change("warnings", "warnings.filters", "warnings.simplefilter('error')"),
    Change("logging", "logging.root.level", "logging.basicConfig(level=10)"),
    Change("handler", "logging.root.handlers", "logging.root.addHandler(logging.Handler())"),
    Change(
        "level of a logger", "logging.getLogger('trace').isEnabledFor(50)",
        "logging.getLogger('trace').setLevel(60)",
    ),
    Change(
        "disabled logging", "logging.getLogger('trace').isEnabledFor(50)",
        "logging.disable(50); logging.getLogger('trace').isEnabledFor(50)",
    ),
    Change("level names", "logging.getLevelName(33)", "logging.addLevelName(33, 'TRACE')"),
    Change(
        "locale", "locale.setlocale(locale.LC_ALL)",
        "locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')",
    ),
    Change("socket timeout", "socket.getdefaulttimeout()", "socket.setdefaulttimeout(3)"),
    Change("recursion limit", "sys.getrecursionlimit()", "sys.setrecursionlimit(9999)"),
    Change("low recursion limit", "sys.getrecursionlimit()", "sys.setrecursionlimit(60)"),
    Change("switch interval", "sys.getswitchinterval()", "sys.setswitchinterval(1)"),
    Change("stack size", "threading.stack_size()", "threading.stack_size(1 << 20)"),
    Change("bytecode", "sys.dont_write_bytecode", "sys.dont_write_bytecode ^= True"),
    Change("gc", "gc.isenabled()", "gc.disable()"),
    Change("gc threshold", "gc.get_threshold()", "gc.set_threshold(10)"),
    Change("asyncgen hooks", "sys.get_asyncgen_hooks()", "sys.set_asyncgen_hooks(print)"),
    Change(
        "random", "random.getstate() == random.Random(1).getstate()", "random.seed(1)",
    ),
    Change("decimal context", "decimal.getcontext().prec", "decimal.getcontext().prec = 5"),
    Change("context variable", "VARIABLE.get()", "VARIABLE.set(1)"),
    Change("stdout", "type(sys.stdout).__name__", "sys.stdout = io.StringIO()"),
    Change("closed stdout", "sys.stdout.closed", "sys.stdout.close()"),
    Change("child that has ended", "children()", "os.fork() or os._exit(0); os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"),
]  # fmt: skip
if sys.version_info >= (3, 11):
    PUT_BACK.append(
        Change("digits", "sys.get_int_max_str_digits()", "sys.set_int_max_str_digits(0)")
    )

REPLACED = [
    Change("child", "children()", "subprocess.Popen(['sleep', '3600'])", "child processes"),
    Change("child of a child", "children()", "fork_twice()", "child processes"),
    Change(
        "thread", "threading.active_count()",
        "threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()", "threads",
    ),
    Change(
        "bare thread", "status('Threads')",
        "_thread.start_new_thread(time.sleep, (3600,))", "threads",
    ),
    Change(
        "traceback later", "status('Threads')",
        "faulthandler.dump_traceback_later(3600, file=sys.__stdin__)", "threads",
    ),
    Change("file", "os.listdir('/proc/self/fd')", "os.open('/', 0)", "descriptors"),
    Change("closed stdin", "sys.stdin.closed", "sys.stdin.close()", "sys"),
    Change("closed descriptor", "os.fstat(0).st_mode", "os.close(0)", "descriptors"),
    Change("other stdout", "os.fstat(1).st_mode", "os.dup2(os.open('/', 0), 1)", "descriptors"),
    Change("non-blocking", "os.get_blocking(1)", "os.set_blocking(1, False)", "descriptors"),
    Change(
        "wakeup", "signal.set_wakeup_fd(-1)",
        "a, b = os.pipe(); os.set_blocking(b, False); signal.set_wakeup_fd(b)", "descriptors",
    ),
    Change(
        "signal handler", "signal.getsignal(10)", "signal.signal(10, lambda *_: None)", "signals",
    ),
    Change("signal ignored by C", "status('SigIgn')", "LIBC.signal(10, 1)", "signals"),
    Change("signal mask", "status('SigBlk')", "signal.pthread_sigmask(0, {10})", "signals"),
    Change(
        "pending signal", "status('ShdPnd')",
        "signal.pthread_sigmask(0, {10}); os.kill(os.getpid(), 10)", "signals",
    ),
    Change("alarm", "signal.getitimer(0)", "signal.alarm(3600)", "timers"),
    Change("timer", "signal.getitimer(2)", "signal.setitimer(2, 3600)", "timers"),
    Change(
        "timer of POSIX", "open('/proc/self/timers').read()",
        "LIBC.timer_create(1, None, ctypes.byref(ctypes.c_void_p()))", "timers",
    ),
    Change(
        "resource limit", "resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))", "resource limits",
    ),
    Change(
        "limit of memory", "resource.getrlimit(resource.RLIMIT_DATA)[1] > 10**8",
        "resource.setrlimit(resource.RLIMIT_DATA, (10**8, 10**8))", "resource limits",
    ),
    Change("nice", "os.nice(0)", "os.nice(1)", "priority"),
    Change(
        "scheduling", "os.sched_getscheduler(0)",
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", "priority",
    ),
    Change("seccomp", "status('Seccomp')", "allow_all()", "seccomp"),
    Change("dumpable", "LIBC.prctl(3)", "LIBC.prctl(4, 1)", "prctl"),
    Change("subreaper", "prctl_into(37)", "LIBC.prctl(36, 0, 0, 0, 0)", "prctl"),
    Change("parent's death", "prctl_into(2)", "LIBC.prctl(1, 0)", "prctl"),
    Change("timer slack", "LIBC.prctl(30)", "LIBC.prctl(29, 7)", "prctl"),
    Change("trace", "sys.gettrace()", "sys.settrace(lambda *_: None)", "tracing"),
    Change("profile", "sys.getprofile()", "sys.setprofile(lambda *_: None)", "tracing"),
    Change("threads' trace", "threading._trace_hook", "threading.settrace(print)", "tracing"),
    Change("tracemalloc", "tracemalloc.is_tracing()", "tracemalloc.start()", "tracing"),
    Change("excepthook", "sys.excepthook", "sys.excepthook = print", "sys"),
    Change("unraisablehook", "sys.unraisablehook", "sys.unraisablehook = print", "sys"),
    Change(
        "threads' excepthook", "threading.excepthook", "threading.excepthook = print", "modules",
    ),
    Change("atexit", "atexit._ncallbacks()", "atexit.register(print)", "atexit"),
    Change("faulthandler", "faulthandler.is_enabled()", "faulthandler.enable()", "faulthandler"),
    Change("gc callback", "gc.callbacks", "gc.callbacks.append(lambda *_: None)", "garbage collection"),
    Change(
        "decimal's template", "decimal.DefaultContext", "decimal.DefaultContext.prec = 5",
        "decimal",
    ),
    Change("builtin", "len(hosts)", "builtins.len = lambda _: 0", "modules"),
    Change("isinstance", "isinstance(hosts, list)", "builtins.isinstance = None", "modules"),
    Change("further builtin", "hasattr(builtins, 'trace')", "builtins.trace = 1", "modules"),
    Change(
        "other module", "sys.modules['json'] is json",
        "sys.modules['json'] = types.ModuleType('json')", "modules",
    ),
    Change("lost module", "'json' in sys.modules", "del sys.modules['json']", "modules"),
    Change(
        "made module", "'trace' in sys.modules",
        "sys.modules['trace'] = types.ModuleType('trace')", "modules",
    ),
    Change("os.write", "os.write", "os.write = None", "modules"),
    Change("os.listdir", "os.listdir", "os.listdir = None", "modules"),
    Change("json", "json.encoder.c_make_encoder", "json.encoder.c_make_encoder = 1", "modules"),
    Change("gc.collect", "gc.collect", "gc.collect = None", "modules"),
    Change("a library's constant", "socket.AF_INET", "socket.AF_INET = 0", "modules"),
    Change(
        "a library's private function", "os.path._get_sep.__name__",
        "os.path._get_sep = lambda _: '/'", "modules",
    ),
    Change("a library's name", "hasattr(json, 'trace')", "json.trace = {}", "modules"),
    Change("sys.modules", "len(sys.modules) > 9", "sys.modules = {}", "modules"),
    Change(
        "our frames", "ovirt_scheduler.processes.protocol.frames.send", "ovirt_scheduler.processes.protocol.frames.send = None",
        "modules",
    ),
    Change(
        "the SDK's attribute", "hosts[0].name",
        "ovirtsdk4.types.Host.name = property(lambda _: 'trace')", "modules",
    ),
    Change(
        "the SDK's class", "hasattr(ovirtsdk4.types.Host, 'trace')",
        "ovirtsdk4.types.Host.trace = 1", "modules",
    ),
    Change(
        "memory", "hasattr(json, '_trace')", "json._trace = b'x' * (32 << 20)", "memory",
    ),
]  # fmt: skip
if sys.version_info >= (3, 12):
    REPLACED.append(
        Change(
            "monitoring", "sys.monitoring.get_tool(3)", "sys.monitoring.use_tool_id(3, 'trace')",
            "tracing",
        )
    )  # fmt: skip
if len(os.sched_getaffinity(0)) > 1:
    REPLACED.append(
        Change(
            "affinity", "sorted(os.sched_getaffinity(0))",
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "affinity",
        )
    )  # fmt: skip
if os.getuid() == 0:
    REPLACED += [
        Change("groups", "os.getgroups()", "os.setgroups([99])", "user"),
        Change("capabilities", "status('CapBnd')", "LIBC.prctl(24, 36, 0, 0, 0)", "capabilities"),
        Change("root folder", "os.stat('/').st_ino", "os.chroot('/tmp')", "comparison"),
    ]


def changing(change: Change) -> str:
    return _PLUGIN.format(imports=_IMPORTS, look=change.look, change=change.change)
