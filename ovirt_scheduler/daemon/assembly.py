"""Builds the daemon from its settings, and rebuilds parts of it when they are read again.

Every part that can fail is made before any is replaced. So the daemon never runs on a mixture of
two scheduler.conf.
"""

from __future__ import annotations

import importlib
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from ovirt_scheduler import __version__
from ovirt_scheduler.catalogue.catalogue import Catalogue
from ovirt_scheduler.clusters import persistence
from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.clusters.plan_approval import Plans
from ovirt_scheduler.daemon.control_socket import FILE as CONTROL
from ovirt_scheduler.daemon.control_socket import Command, ControlSocket
from ovirt_scheduler.daemon.runtime import Runtime, Services
from ovirt_scheduler.daemon.watchdog import Notifier, Watchdog
from ovirt_scheduler.errors import ConfigError, SchedulerError
from ovirt_scheduler.history.tally import Tally
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.model.units import PolicyUnit
from ovirt_scheduler.security.addresses import is_loopback
from ovirt_scheduler.security.state_folder import StateFolder
from ovirt_scheduler.server.http.routes import Route
from ovirt_scheduler.server.http.server import SchedulerServer, ServerSettings
from ovirt_scheduler.server.pages import status
from ovirt_scheduler.server.pages.daemon_state import (
    DaemonState,
    ReloadFailure,
    ThreadState,
    UnitState,
    UnloadedFile,
)
from ovirt_scheduler.server.pages.site import CLOSED, Site
from ovirt_scheduler.server.pages.status import Status
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.settings.value_types import Drive

if TYPE_CHECKING:
    from ovirt_scheduler.clusters.migrations import ClusterServices
    from ovirt_scheduler.clusters.threads import ClusterThreads
    from ovirt_scheduler.security.certificates import Description

_log = logging.getLogger(__name__)

_TLS = "ovirt_scheduler.daemon.server_tls"
_MIGRATIONS, _THREADS = "ovirt_scheduler.clusters.migrations", "ovirt_scheduler.clusters.threads"
_DAY = 86400.0  # seconds
_HOOK_SECONDS = 5.0  # for a running hook of a cluster's scheduler to end

# A change of these takes a restart: the socket is bound, and the executor made, at the start.
_FIXED = (
    "listening_port", "listening_address", "ssl", "max_parallel_calls", "max_waiting",
    "plugin_user",
)  # fmt: skip


class Assembly:
    """The daemon's runtime, its server, and what looks after both; nothing is started yet.

    Args:
        state: the state folder.
        notifier: reports the daemon's state to systemd.
        listener: a listening socket that was handed over.

    Raises:
        ConfigError: the settings name something that cannot be used, or the state folder cannot.
    """

    def __init__(
        self,
        settings: Settings,
        state: Path,
        notifier: Notifier,
        listener: Optional[socket.socket] = None,
    ) -> None:
        self._state = StateFolder(state)
        self._started = time.time()
        self._control: Optional[ControlSocket] = None
        self.reload_failure: Optional[ReloadFailure] = None  # of the last reload
        self.runtime = Runtime(settings, self._state)
        services = self.runtime.services
        # Plain HTTP does without that module, and so without 10 MB.
        self._tls: Any = importlib.import_module(_TLS) if settings.ssl else None
        self._drive_memory = DriveMemory(self._state / persistence.FILE)
        self._plans = Plans(self.runtime.keep_event, self._wake)
        self._drive = self._make_drive(services)
        server_settings, self._certificate = self._server_settings(services)
        self.server = SchedulerServer(server_settings, services.methods(), listener)
        if notifier.store_socket(self.server.socket):
            self.server.socket_is_kept = True
        self._certificates_due = 0.0  # when they are looked at, on the monotonic clock
        self._watchdog = Watchdog(notifier, self.runtime.executor, self._line)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.runtime.services.settings

    def renew(self, settings: Settings) -> None:
        """Put other settings in force, and read their files again; no call is broken.

        Raises:
            ConfigError: they cannot be used, or change what needs a restart; nothing is changed.
        """
        changed = [
            name for name in _FIXED if getattr(settings, name) != getattr(self.settings, name)
        ]
        if changed:
            raise ConfigError(f"{' and '.join(changed)} cannot change without a restart")
        services = self.runtime.prepare(settings)
        server_settings, certificate = self._server_settings(services)
        drive = self._make_drive(services)
        # From here on nothing is made that could fail, but for threads: the watchdog's tries again.
        self._stop_drive(_HOOK_SECONDS)
        self.runtime.use(services)
        self._drive, self._certificate = drive, certificate
        clusters = settings.clusters if settings.drive is Drive.APPROVE else ()
        self._plans.keep_clusters({each.name for each in clusters}, "the settings were read again")
        losses = self._drive_memory.worst_losses
        for name in losses.keys() - ({each.name for each in settings.clusters} if drive else ()):
            del losses[name]
        self.server.renew(server_settings, services.methods())
        self._start_drive()
        self._look_at_certificates()

    def listen(self) -> None:
        """Answer calls and questions from now on."""
        self._start_control()  # who knows of the daemon's start may ask it at once
        threading.Thread(target=self.server.serve_forever, name="accept", daemon=True).start()

    def watch(self) -> None:
        """Look after plugins, calls, certificates and clusters from now on."""
        self._watch_plugins()
        self._start_drive()
        self._watchdog.start()

    def _start_control(self) -> None:
        """Answer on the control socket from now on; where there can be none, the log says so."""
        path = self._state / CONTROL
        commands: Mapping[str, Command] = {
            "status": lambda _request, _user: self.status(),
            "health": lambda _request, _user: self._unwell(),
            "plan": self._plans.answer,
            "take": lambda request, _user: self._take(str(request.get("cluster", ""))),
            "inquiry": lambda request, _user: self.runtime.following.inquiries.note(
                str(request["vm"]), float(request["began"]), float(request["ended"])
            ),
        }
        try:
            self._control = ControlSocket(path, commands)
            self._control.start()
        except (OSError, RuntimeError) as error:
            _log.warning(
                "ovirt-scheduler status cannot ask this daemon: %(reason)s",
                {"reason": f"{path}: {error}", "file": str(path)},
            )

    def _watch_plugins(self) -> None:
        """Look at the plugins' folders from now on; where there is no thread, the log says so."""
        try:
            self.runtime.registry.watch()
        except RuntimeError as error:
            _log.error(
                "the plugins' folders cannot be looked at now: %(reason)s", {"reason": str(error)}
            )

    def _start_drive(self) -> None:
        """Look after clusters; where a thread for one cannot be started, the log says so."""
        try:
            if self._drive is not None:
                self._drive.start()
        except RuntimeError as error:
            _log.error(
                "not every cluster is looked after now: %(reason)s; it is tried again",
                {"reason": str(error)},
            )

    def _wake(self, cluster: str) -> None:
        """Have a cluster looked at now, if it is looked after."""
        if self._drive is not None:
            self._drive.wake(cluster)

    def _stop_drive(self, seconds: float) -> None:
        """Stop the threads that look after clusters; migrations in the engine go on."""
        if self._drive is not None:
            self._drive.stop(seconds)

    def _take(self, cluster: str) -> Mapping[str, str]:
        """Have this daemon drive a cluster; return the daemon that did before."""
        if self._drive is None:
            raise SchedulerError("this daemon looks after no cluster: see drive in scheduler.conf")
        return {"driven_by": self._drive.take_over(cluster)}

    def stop(self, grace: float) -> None:
        """Let running calls finish, and end all processes and threads.

        Args:
            grace: seconds for the calls.
        """
        hooks_until = time.monotonic() + _HOOK_SECONDS
        self._watchdog.stop()
        self.runtime.begin_no_more()
        self._stop_drive(0.0)  # hooks and calls go on side by side
        self.server.stop(grace, self.runtime.executor.close, self.settings.drain_time)
        self._stop_drive(hooks_until - time.monotonic())
        if self.runtime.history is not None:
            self.runtime.history.drain()
        self.runtime.executor.close()
        self._stop_drive(1.0)  # that a hook was cut off is remembered, too
        self._plans.keep_clusters((), "the daemon ends")
        self.runtime.close()
        if self._control is not None:
            self._control.close()

    def _make_drive(self, services: Services) -> Optional[ClusterThreads]:
        settings, inventory, decisions, _ = services
        if settings.drive is Drive.OFF or inventory is None:
            return None
        executor, stopping = self.runtime.executor, threading.Event()
        # Who looks after no cluster does without these modules, and so without 1 MB.
        make_services: type[ClusterServices] = importlib.import_module(_MIGRATIONS).ClusterServices
        make_threads: type[ClusterThreads] = importlib.import_module(_THREADS).ClusterThreads
        shared = make_services(
            self._plans,
            self._drive_memory,
            inventory,
            decisions,
            executor,
            stopping,
            self.runtime.following,
        )
        return make_threads(settings.clusters, shared)

    def _server_settings(self, services: Services) -> tuple[ServerSettings, Optional[Description]]:
        """The settings of the server, and its certificate if it has one."""
        settings = services.settings
        _warn(services)
        tls, certificate = None, None
        if self._tls is not None:
            tls, certificate = self._tls.context(settings, self._state.path)
        server_settings = ServerSettings(
            address=settings.listening_address,
            port=settings.listening_port,
            tls=tls,
            root_form=settings.root_api,
            max_connections=settings.max_connections,
            max_request_size=settings.max_request_size,
            connection_timeout=settings.connection_timeout,
            routes=self._routes(settings, certificate.names if certificate else ()),
            decided=services.decisions.report,
        )
        return server_settings, certificate

    def _routes(self, settings: Settings, certificate_names: Sequence[str]) -> Mapping[str, Route]:
        history = self.runtime.history
        if settings.pages is Pages.OFF or history is None:
            return CLOSED
        names = (settings.listening_address, *certificate_names)
        tally, reader = history.tally, history.reader
        site = Site(settings.pages, names, self.observed, self._unwell, tally, reader)
        return site.routes()

    def _unwell(self) -> str:
        """Why callers should not begin a call here; empty if all is well."""
        if self.server.stopping:
            return "the daemon stops"
        troubles = (f"{each.work}: {each.problem}" for each in self._threads() if each.problem)
        return self._watchdog.problem or next(troubles, "")

    def _threads(self) -> Iterator[ThreadState]:
        """The threads that go on whatever their work raises."""
        drive, writer = self._drive, self.runtime.event_writer
        watching = [each.trouble for each in (drive, writer) if each is not None]
        for trouble in (self.runtime.executor.trouble, self.runtime.registry.trouble, *watching):
            yield ThreadState(trouble.work, trouble.failures, trouble.problem)

    def observed(self) -> DaemonState:
        """The state of the daemon now. Opens no document."""
        settings, inventory, decisions, _ = self.runtime.services
        catalogue = self.runtime.registry.current()
        history = self.runtime.history if settings.history else None
        return DaemonState(
            version=__version__,
            started=self._started,
            plugins_path=":".join(map(str, settings.plugins_path)),
            units=tuple(_unit_states(catalogue)),
            processes=self.runtime.executor.state(),
            unloaded=_unloaded(catalogue),
            missing=decisions.missing_units(),
            certificate_ends=self._certificate.ends.timestamp() if self._certificate else None,
            engine=None if inventory is None else inventory.state(),
            clusters=() if self._drive is None else self._drive.state(),
            followed=None if self._drive is None else self.runtime.following.counts,
            history=None if history is None else history.state(),
            reload_failure=self.reload_failure,
            stuck=self._watchdog.problem,
            threads=tuple(self._threads()),
        )

    def _line(self) -> str:
        """The status in one line, for the watchdog's thread, which looks after what else is due.

        It looks at the certificates once a day, and starts threads that could not be started, and
        makes anew what is gone from the state folder.
        """
        self._watch_plugins()
        self._start_drive()
        self._restore_state()
        if time.monotonic() >= self._certificates_due:
            # This thread feeds the watchdog: a file that hangs must not hold it up.
            look = self._look_at_certificates
            threading.Thread(target=look, name="certificates", daemon=True).start()
            self._certificates_due = time.monotonic() + _DAY
        return str(self.status()["line"])

    def _restore_state(self) -> None:
        """Make the lock and the control socket anew, if somebody emptied the state folder."""
        lacks_socket = self._control is not None and not (self._state / CONTROL).exists()
        if not (self._state.is_emptied or lacks_socket):
            return
        folder = {"file": str(self._state.path)}
        try:
            if self._state.is_emptied:
                self._state.open()
        except ConfigError as error:
            _log.error("%(file)s was emptied: %(reason)s", {**folder, "reason": str(error)})
            return
        _log.warning("%(file)s was emptied: its lock and its socket are made anew", folder)
        if self._control is not None:
            self._control.close()
        self._start_control()

    def _look_at_certificates(self) -> None:
        self._certificates_due = time.monotonic() + _DAY
        if self._tls is not None:
            self._tls.warn(self.settings, self._state.path, self._certificate)

    def status(self) -> Status:
        """The state of the daemon, in words and numbers."""
        history = self.runtime.history
        tally = Tally() if history is None else history.tally
        return status.status(self.observed(), tally)


def _warn(services: Services) -> None:
    """Log warnings about settings and files with which the daemon still runs."""
    settings = services.settings
    if not settings.ssl_client_ca and not is_loopback(settings.listening_address):
        _log.warning(
            "whoever reaches %(address)s may call: allow_unauthenticated = true; ssl_client_ca "
            "lets in only clients whose certificates it signed",
            {"address": settings.listening_address},
        )
    try:
        if services.inventory is not None:
            services.inventory.check_password()
    except ConfigError as error:
        _log.warning(
            "the engine cannot be asked: %(reason)s", {"reason": str(error), "file": error.file}
        )


def _unit_states(catalogue: Catalogue) -> Iterator[UnitState]:
    """The policy units, then the drivers, in the order of their names."""
    for unit in sorted(catalogue.all_units.values(), key=lambda unit: (unit.name, unit.kind.value)):
        yield _state(unit, unit.kind.label, unit.mode, catalogue)
    for driver in sorted(catalogue.drivers.values(), key=lambda driver: driver.name):
        yield _state(driver, driver.label, "live", catalogue)


def _unloaded(catalogue: Catalogue) -> tuple[UnloadedFile, ...]:
    """The files that do not load, or not all; of an outdated one, the former version answers."""
    outdated = [former.fault for former in catalogue.outdated.values()]
    faults: dict[str, list[str]] = {}
    for fault in catalogue.faults:
        if fault not in outdated:
            faults.setdefault(fault.file or "", []).append(str(fault))
    files = catalogue.files
    return tuple(
        UnloadedFile(file, "; ".join(texts), file in files) for file, texts in faults.items()
    )


def _state(
    unit: Union[PolicyUnit, DriverUnit], words: str, mode: str, catalogue: Catalogue
) -> UnitState:
    file = unit.plugin.modules[0].path
    properties = unit.properties.properties if unit.properties else ()
    patterns = tuple({each.name: each.pattern for each in properties}.items())
    state = UnitState(unit.name, words, file, unit.checksum, mode, unit.description, patterns)
    old = catalogue.outdated.get(file)
    if old is None:
        return state
    return state._replace(old_version=old.version, old_since=old.since, old_because=old.because)
