"""The daemon: how it starts, what it does on signals, and how it ends.

Start: settings, certificate, port, zygote, plugins; then it reports that it listens, on standard
error and to systemd.
Stop (SIGTERM, SIGINT): ``/health`` says so for ``drain_time``, then there are no new calls. Running
calls get ten more seconds, then every forked process is ended. The exit status is 0.
SIGHUP: settings, certificates and plugins are read again; connections and calls go on.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from concurrent.futures import Future
from typing import Callable, Optional, TypeVar

from ovirt_scheduler import __version__
from ovirt_scheduler.daemon.assembly import Assembly
from ovirt_scheduler.daemon.watchdog import Notifier
from ovirt_scheduler.errors import ConfigError, ExecutorUnavailable
from ovirt_scheduler.log import handlers
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.processes.kernel import malloc, prctl
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.server.pages.daemon_state import ReloadFailure
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import Settings

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ENDS = (signal.SIGTERM, signal.SIGINT)
_WORK_DONE = 0  # among the numbers of signals
_GRACE = 10.0  # seconds for the calls under way when the daemon is told to stop


def serve(read: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT; read the settings again on SIGHUP.

    Args:
        read: returns the settings as they are in the files now, or raises ConfigError.

    Raises:
        ConfigError: the settings name something that cannot be used.
        ExecutorUnavailable: no zygote could be started.
    """
    signals = _Signals()
    prctl.hide_memory()  # before there is a secret in it
    malloc.give_back_large_blocks()
    settings = read()
    handler = handlers.make(settings.log_format, settings.log_file, os.environ)
    handlers.activate(handler, settings.log_level)
    _log.info(
        "ovirt-scheduler %(version)s, pid %(pid)d", {"version": __version__, "pid": os.getpid()}
    )
    notifier = Notifier(os.environ)
    address = (settings.listening_address, settings.listening_port)
    assembly = Assembly(
        settings,
        scheduler_conf.state_folder(),
        notifier,
        listening.handed_over(os.environ, *address),
    )
    try:
        _start(assembly, notifier, signals)
        received = signals.next()
        while received == signal.SIGHUP:
            notifier.reloading()
            assembly.reload_failure = failure = _reload(read, assembly, signals)
            refused = f"; the last reload failed: {failure.reason}" if failure else ""
            notifier.ready(f"listening on {assembly.server.url}{refused}")
            received = signals.next()
        _log.info("stopping on %(signal)s", {"signal": received.name})
    finally:
        notifier.stopping()
        assembly.stop(_GRACE)


def _start(assembly: Assembly, notifier: Notifier, signals: _Signals) -> None:
    """Load the plugins, then listen; neither, if the daemon is told to stop meanwhile."""
    assembly.runtime.start()
    assembly.runtime.keep_event({"event": "started", "version": __version__})
    catalogue = signals.unless_stopped(assembly.runtime.registry.refresh)
    if catalogue is None:
        return
    if catalogue.empty:
        folders = ", ".join(map(str, assembly.settings.plugins_path))
        _log.warning(
            "no plugin is loaded but our own scheduler default, so there is no policy unit to "
            "call; plugins go into one of: %(folders)s",
            {"folders": folders or "(none)"},
        )
    # What is there now stays. Each full collection of garbage would go through it, for 20 ms.
    gc.collect()
    gc.freeze()
    assembly.listen()
    handlers.print_line(f"listening on {assembly.server.url}")
    notifier.ready(f"listening on {assembly.server.url}")
    assembly.watch()


class _Signals:
    """The signals that the daemon gets: those that end it first, and one SIGHUP for several.

    A handler in Python runs only in the main thread. If another thread gets the signal, or if it
    comes just before the main thread begins to wait, nothing ends that wait. So the thread that
    gets a signal writes its number into a pipe, where it stays until it is read.
    """

    def __init__(self) -> None:
        self._pipe, self._written = os.pipe()
        os.set_blocking(self._written, False)
        for number in (*_ENDS, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        self._pending: set[int] = set()

    def next(self) -> signal.Signals:
        """Wait for the next signal."""
        while not self._pending:
            self._wait_for_signals()
        number = min(self._pending, key=lambda number: number == signal.SIGHUP)
        self._pending.remove(number)
        return signal.Signals(number)

    def unless_stopped(self, work: Callable[[], T]) -> Optional[T]:
        """Do work that may take long in another thread, and wait for it.

        Returns:
            What the work returned. None if SIGTERM or SIGINT came first: ``next`` returns that
            signal then. A SIGHUP waits for ``next``, too, and does not end the wait.
        """
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                result.set_exception(error)
            os.write(self._written, bytes((_WORK_DONE,)))

        threading.Thread(target=run, name="start", daemon=True).start()
        while _WORK_DONE not in self._pending:
            if self._pending.intersection(_ENDS):
                return None
            self._wait_for_signals()
        self._pending.remove(_WORK_DONE)
        return result.result()

    def _wait_for_signals(self) -> None:
        """Wait until something is in the pipe, and take all of it."""
        self._pending.update(os.read(self._pipe, 1 << 16))


def _reload(
    read: Callable[[], Settings], assembly: Assembly, signals: _Signals
) -> Optional[ReloadFailure]:
    """Read settings, certificates and plugins again; mistakes change nothing, and are logged.

    Does not wait for the plugins if SIGTERM or SIGINT comes meanwhile.

    Returns:
        Why they are not in force; None if they are.
    """
    try:
        settings = read()
        with contextlib.ExitStack() as unless_used:
            handler = handlers.make(settings.log_format, settings.log_file, os.environ)
            unless_used.callback(handler.close)
            assembly.renew(settings)
            unless_used.pop_all()
        handlers.activate(handler, settings.log_level)
        if signals.unless_stopped(assembly.runtime.registry.refresh) is None:
            return None
    except ConfigError as error:
        reason = str(error)
        _log.error(
            "SIGHUP: the settings are refused, the former settings stay in use: %(reason)s",
            {"reason": reason, "file": error.file, "line": error.line},
            extra=for_engine(),
        )
        assembly.runtime.keep_event({"event": "reload refused", "message": reason})
    except ExecutorUnavailable as error:
        reason = f"no plugin can be loaded now: {error}"
        _log.error(
            "SIGHUP: no plugin can be loaded now, the loaded ones stay in use: %(reason)s",
            {"reason": str(error)},
            extra=for_engine(),
        )
    except Exception as error:  # noqa: BLE001  what runs is to go on, whatever is lacking just now
        reason = f"{type(error).__name__}: {error}"
        _log.exception("SIGHUP: not everything could be read again", extra=for_engine())
    else:
        _log.info("SIGHUP: settings, certificates and plugins are read again")
        assembly.runtime.keep_event({"event": "reloaded"})
        return None
    return ReloadFailure(time.time(), reason)
