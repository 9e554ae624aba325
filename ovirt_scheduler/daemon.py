"""The daemon: puts the parts together, starts them in order, and ends them in order.

Start: settings, certificate, port, zygote, plugins; then it says that it listens.
Stop (SIGTERM, SIGINT): no new calls, those under way end or reach their grace, every process
that was forked is gone, exit status 0.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Optional

from OpenSSL import SSL

from ovirt_scheduler import __version__, certificates, config
from ovirt_scheduler.config import Settings
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.executor import Executor
from ovirt_scheduler.inventory import Inventory
from ovirt_scheduler.last_good import LastGood
from ovirt_scheduler.loader import Loader
from ovirt_scheduler.methods import methods
from ovirt_scheduler.registry import Registry
from ovirt_scheduler.server import SchedulerServer, ServerSettings
from ovirt_scheduler.service import Service
from ovirt_scheduler.streams import tls_context

_log = logging.getLogger(__name__)

_GRACE = 10.0  # seconds for the calls under way when the daemon is told to stop
_LOG_BYTES = 10 << 20
_LOG_FILES = 6


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: the settings name something that cannot be used.
        ExecutorUnavailable: no zygote could be started.
    """
    # A handler may run while this thread holds any lock: SimpleQueue is made for that.
    asked_to_stop: queue.SimpleQueue[int] = queue.SimpleQueue()

    def stop(number: int, _frame: Optional[FrameType]) -> None:
        asked_to_stop.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    _log_to(settings)
    state = config.state_folder(os.environ, os.getuid())
    executor = Executor(settings.max_parallel_calls, settings.max_waiting)
    registry = Registry(Loader(settings, executor.analyse), LastGood(state / "plugins"))
    inventory = None if settings.engine is None else Inventory(settings.engine)
    service = Service(registry, executor, settings.request_timeout, inventory)
    offered = methods(service, settings.engine_scores)
    with SchedulerServer(_server_settings(settings, state), offered) as server:
        try:
            executor.start()
            if not registry.look().units:
                folders = ", ".join(map(str, settings.plugins_path))
                _log.warning("no policy units; put a plugin into one of: %s", folders or "(none)")
            threading.Thread(target=server.serve_forever, name="accept", daemon=True).start()
            _say(f"listening on {server.url}")
            received = asked_to_stop.get()
            _log.info("stopping on %s", signal.Signals(received).name)
        finally:
            server.stop(_GRACE)
            executor.close()
            if inventory is not None:
                inventory.close()


def _server_settings(settings: Settings, state: Path) -> ServerSettings:
    return ServerSettings(
        address=settings.listening_address,
        port=settings.listening_port,
        tls=_tls(settings, state) if settings.ssl else None,
        root_form=settings.root_api,
        max_connections=settings.max_connections,
        max_request_size=settings.max_request_size,
        connection_timeout=settings.connection_timeout,
    )


def _tls(settings: Settings, state: Path) -> SSL.Context:
    """The context for the configured certificate, or for one of our own making."""
    certificate, key = settings.ssl_certificate, settings.ssl_key
    if certificate is None or key is None:
        certificate, key = certificates.ensure(state / "certificate")
        fingerprint = certificates.fingerprint(certificate)
        _say(f"the certificate is self-signed: {certificate}, SHA-256 {fingerprint}")
    for warning in certificates.check(certificate, key):
        _log.warning("%s", warning)
    return tls_context(certificate, key)


def _log_to(settings: Settings) -> None:
    """Send the log to standard error, or to a file that rotates (contract 6)."""
    handler: logging.Handler
    if settings.log_file is None:
        handler = logging.StreamHandler()
    else:
        try:
            handler = logging.handlers.RotatingFileHandler(
                settings.log_file, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8"
            )
        except OSError as error:
            message = f"the log cannot be written: {error.strerror}; mend log_file"
            raise ConfigError(message, str(settings.log_file)) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    _log.info("ovirt-scheduler %s, pid %d", __version__, os.getpid())


def _say(line: str) -> None:
    """Tell whoever started it, whatever the log's level and place."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201  not for the log alone
