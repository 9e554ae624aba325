"""The daemon: puts the parts together, starts them in order, and ends them in order.

Start: settings, certificate, port, zygote, plugins; then it says that it listens, to whoever
started it and to systemd.
Stop (SIGTERM, SIGINT): no new calls, those under way end or reach their grace, every process
that was forked is gone, exit status 0.
SIGHUP: settings, certificates and plugins are read again; connections and calls go on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from types import FrameType
from typing import Callable, Optional

from ovirt_scheduler import __version__, config, log_output, secrecy
from ovirt_scheduler.config import Settings
from ovirt_scheduler.errors import ConfigError, ExecutorUnavailable
from ovirt_scheduler.log_output import say
from ovirt_scheduler.notify import Notifier
from ovirt_scheduler.parts import Parts
from ovirt_scheduler.watchdog import Watchdog

_log = logging.getLogger(__name__)

_GRACE = 10.0  # seconds for the calls under way when the daemon is told to stop


def serve(read: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT; read the settings again on SIGHUP.

    Args:
        read: gives the settings as they are in the files now; raises ConfigError.

    Raises:
        ConfigError: the settings name something that cannot be used.
        ExecutorUnavailable: no zygote could be started.
    """
    # A handler may run while this thread holds any lock: SimpleQueue is made for that.
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ask(number: int, _frame: Optional[FrameType]) -> None:
        asked.put(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    secrecy.hide_memory()  # before there is a secret in it
    settings = read()
    log_output.use(log_output.handler(settings, os.environ), settings.log_level)
    about = {"version": __version__, "pid": os.getpid()}
    _log.info("ovirt-scheduler %(version)s, pid %(pid)d", about)
    notifier = Notifier(os.environ)
    parts = Parts(settings, config.state_folder(os.environ, os.getuid()))
    watchdog = Watchdog(notifier, parts.executor)
    with parts.server as server:
        try:
            parts.executor.start()
            if parts.registry.look().empty:
                folders = ", ".join(map(str, settings.plugins_path))
                _log.warning(
                    "nothing to call; put a plugin into one of: %(folders)s",
                    {"folders": folders or "(none)"},
                )
            threading.Thread(target=server.serve_forever, name="accept", daemon=True).start()
            say(f"listening on {server.url}")
            notifier.ready(f"listening on {server.url}")
            watchdog.start()
            parts.start_drive()
            received = asked.get()
            while received == signal.SIGHUP:
                notifier.reloading()
                refused = "" if _reload(read, parts) else "; the last reload failed, see the log"
                notifier.ready(f"listening on {server.url}{refused}")
                received = asked.get()
            _log.info("stopping on %(signal)s", {"signal": signal.Signals(received).name})
        finally:
            notifier.stopping()
            watchdog.stop()
            parts.stop_drive()
            server.stop(_GRACE, parts.executor.close)
            parts.close()


def _reload(read: Callable[[], Settings], parts: Parts) -> bool:
    """Read settings, certificates and plugins again; what is bad changes nothing, and is told.

    Returns:
        Whether they are in force.
    """
    try:
        settings = read()
        with contextlib.ExitStack() as unless_used:
            handler = log_output.handler(settings, os.environ)
            unless_used.callback(handler.close)
            parts.renew(settings)
            unless_used.pop_all()
        log_output.use(handler, settings.log_level)
        parts.registry.look()
    except ConfigError as error:
        _log.error(
            "SIGHUP: the settings are refused, the former ones go on: %(reason)s",
            {"reason": str(error), "file": error.file, "line": error.line},
        )
    except ExecutorUnavailable as error:
        _log.error(
            "SIGHUP: no plugin can be loaded now, those that were go on: %(reason)s",
            {"reason": str(error)},
        )
    except Exception:  # noqa: BLE001  what runs is to go on, whatever is lacking just now
        _log.exception("SIGHUP: not all could be read again")
    else:
        _log.info("SIGHUP: settings, certificates and plugins are read again")
        return True
    return False
