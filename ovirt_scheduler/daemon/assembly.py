"""The parts of a running daemon, made of its settings, and made anew while it runs.

Everything that can fail is made before anything is replaced: what runs is always what one
scheduler.conf says, never a mixture of two.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import List, Optional, Tuple

from OpenSSL import SSL

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.memory import DriveMemory
from ovirt_scheduler.clusters.threads import ClusterThreads
from ovirt_scheduler.daemon import state_lock
from ovirt_scheduler.daemon.log_output import say
from ovirt_scheduler.decisions.drivers import Scheduling
from ovirt_scheduler.decisions.selections import Selections
from ovirt_scheduler.decisions.units import Service
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.security.clients import Clients
from ovirt_scheduler.server import driver_methods
from ovirt_scheduler.server.http.server import SchedulerServer, ServerSettings
from ovirt_scheduler.server.http.stream import tls_context
from ovirt_scheduler.server.method import Method
from ovirt_scheduler.server.methods import methods
from ovirt_scheduler.settings.config import Settings
from ovirt_scheduler.settings.values import Drive, is_loopback

_log = logging.getLogger(__name__)

# The socket is bound, the places for calls are given out, and plugins get their user when the
# daemon starts.
_FIXED = (
    "listening_port", "listening_address", "ssl", "max_parallel_calls", "max_waiting",
    "plugin_user",
)  # fmt: skip


class Parts:
    """What the daemon consists of, put together; nothing is started yet.

    Args:
        state: the state folder.

    Raises:
        ConfigError: the settings name something that cannot be used.
    """

    def __init__(self, settings: Settings, state: Path) -> None:
        self._settings = settings
        self._state = state
        self._lock = state_lock.take(state)
        self.executor = Executor(
            settings.max_parallel_calls,
            settings.max_waiting,
            settings.plugin_user,
            adopts=True,
            kept=settings.kept_processes,
        )
        loader = Loader(settings, self.executor.analyse, SHIPPED)
        self.registry = Registry(loader, LastGood(state / "plugins"), self.executor.want)
        self._selections = Selections()
        self._inventories: List[Inventory] = []  # calls under way may use a former one
        self._inventory = self._made_inventory(settings)
        self._scheduling = self._made_scheduling(settings, self._inventory)
        self._service = self._made_service(settings, self._inventory)
        self._drive_memory = DriveMemory(state / "clusters.json")
        self._drive = self._made_drive(settings, self._inventory, self._scheduling, self._service)
        self.server = SchedulerServer(self._server_settings(settings), self._methods(settings))

    def renew(self, settings: Settings) -> None:
        """Go on with other settings, and with what their files hold now; breaks no call.

        Raises:
            ConfigError: they cannot be used, or change what takes a restart; nothing is changed.
        """
        changed = [
            name for name in _FIXED if getattr(settings, name) != getattr(self._settings, name)
        ]
        if changed:
            raise ConfigError(f"{' and '.join(changed)} cannot change without a restart")
        server_settings = self._server_settings(settings)
        inventory = self._inventory
        if settings.engine != self._settings.engine:
            inventory = self._made_inventory(settings)
        scheduling = self._made_scheduling(settings, inventory)
        service = self._made_service(settings, inventory)
        loader = Loader(settings, self.executor.analyse, SHIPPED)
        drive = self._made_drive(settings, inventory, scheduling, service)
        # From here on nothing is made that could fail.
        self.stop_drive()
        self._settings, self._inventory = settings, inventory
        self._scheduling, self._service, self._drive = scheduling, service, drive
        self.executor.keep(settings.kept_processes)
        self.registry.renew(loader)
        self.server.renew(server_settings, self._methods(settings))
        self.start_drive()

    @property
    def settings(self) -> Settings:
        """Those that are in force."""
        return self._settings

    def start_drive(self) -> None:
        """Look after the clusters of the settings, in threads of their own."""
        if self._drive is not None:
            self._drive.start()

    def _made_drive(
        self,
        settings: Settings,
        inventory: Optional[Inventory],
        scheduling: Scheduling,
        service: Service,
    ) -> Optional[ClusterThreads]:
        if settings.drive is Drive.OFF or inventory is None:
            return None
        makes = settings.drive is Drive.ON
        clusters = [
            ClusterDrive(
                cluster,
                makes,
                inventory,
                scheduling,
                service,
                self.executor,
                self._drive_memory,
            )
            for cluster in settings.clusters
        ]
        return ClusterThreads(clusters, inventory)

    def stop_drive(self, seconds: float = 5.0) -> None:
        """Let the clusters be; what is under way in the engine goes on there.

        Args:
            seconds: for what is under way here to end, at most.
        """
        if self._drive is not None:
            self._drive.stop(seconds)

    def close(self) -> None:
        """End what the server's calls were made with, when there are none any more."""
        self.executor.close()
        self.stop_drive(1.0)  # that a hook was cut off is remembered, too
        for inventory in self._inventories:
            inventory.close()

    def _made_inventory(self, settings: Settings) -> Optional[Inventory]:
        if settings.engine is None:
            return None
        self._inventories.append(Inventory(settings.engine))
        return self._inventories[-1]

    def _made_scheduling(self, settings: Settings, inventory: Optional[Inventory]) -> Scheduling:
        return Scheduling(
            self.registry,
            self.executor,
            settings.request_timeout,
            self._selections,
            inventory,
        )

    def _made_service(self, settings: Settings, inventory: Optional[Inventory]) -> Service:
        return Service(self.registry, self.executor, settings.request_timeout, inventory)

    def _methods(self, settings: Settings) -> Tuple[Method, ...]:
        return (
            *methods(self._service, settings.engine_scores),
            *driver_methods.methods(self._scheduling),
        )

    def _server_settings(self, settings: Settings) -> ServerSettings:
        if not settings.ssl_client_ca and not is_loopback(settings.listening_address):
            _log.warning(
                "whoever reaches %(address)s may call: allow_unauthenticated = true; ssl_client_ca "
                "lets in only whom it signed",
                {"address": settings.listening_address},
            )
        return ServerSettings(
            address=settings.listening_address,
            port=settings.listening_port,
            tls=self._tls(settings) if settings.ssl else None,
            root_form=settings.root_api,
            max_connections=settings.max_connections,
            max_request_size=settings.max_request_size,
            connection_timeout=settings.connection_timeout,
        )

    def _tls(self, settings: Settings) -> SSL.Context:
        """The context for the configured certificate, or for one of our own making."""
        certificate, key = settings.ssl_certificate, settings.ssl_key
        if certificate is None or key is None:
            certificate, key = certificates.ensure(self._state / "certificate")
            for file, problem_of in ((certificate, trust.tampering), (key, trust.exposure)):
                problem = problem_of(file.absolute())
                if problem:
                    raise ConfigError(problem, str(file))
            fingerprint = certificates.fingerprint(certificate)
            say(f"the certificate is self-signed: {certificate}, SHA-256 {fingerprint}")
        admitted = None
        if settings.ssl_client_ca is not None:
            admitted = Clients(settings.ssl_client_ca, settings.ssl_allowed_clients)
        return tls_context(certificate, key, admitted)
