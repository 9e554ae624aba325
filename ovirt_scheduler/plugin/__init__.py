"""What a plugin may import: the interfaces of a scheduler and of a driver (``interfaces``), a
connection to the engine that needs no configuration, and a way to give reasons (``reasons``).

::

    from ovirt_scheduler.plugin import engine_connection

    def do_filter(hosts, vm, properties):
        with engine_connection() as connection:
            clusters = connection.system_service().clusters_service().list()

    from ovirt_scheduler.plugin import reason

    def do_filter(hosts, vm, properties):
        for host in hosts:
            if host.cpu.cores >= 8:
                yield host
            else:
                reason(host, f"has {host.cpu.cores} cores, 8 are needed")

The daemon logs in with the section ``[engine]`` of scheduler.conf, and hands the
token to the calls of the plugins that name ``engine_connection`` in their code, or import version 3
of the SDK (``sdk3``). The password never reaches a plugin. A plugin's own tests say
``provide(EngineAccess(url, ca_file, token))`` first.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NoReturn

from ovirtsdk4 import AuthError, Connection

from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, PlacedVms, Rule
from ovirt_scheduler.model.plugins import Engine, EngineAccess, NoEngine, set_proxy
from ovirt_scheduler.plugin.interfaces import (
    Driver,
    HostSelector,
    HostStatusChanged,
    LoadBalancer,
    Scheduler,
    TimerInvokedScheduler,
    VmStatusChanged,
)
from ovirt_scheduler.plugin.reasons import reason

__all__ = [
    "AffinityGroup",
    "AffinityRules",
    "Driver",
    "EngineAccess",
    "EngineUnavailable",
    "HostSelector",
    "HostStatusChanged",
    "LoadBalancer",
    "PlacedVms",
    "Rule",
    "Scheduler",
    "TimerInvokedScheduler",
    "VmStatusChanged",
    "engine_connection",
    "provide",
    "reason",
]

_TIMEOUT = 20  # seconds for one answer; a silent engine should not use up all of a call's time

_NONE = "the daemon gives a connection to its calls of a policy unit alone"
# The engine of the call that runs. In a list: a global that changes in each call would have this
# module compared name by name after each call.
_provided: list[Engine] = [NoEngine(_NONE)]
_connections: list[Connection] = []  # of the call that runs


def engine_connection() -> Connection:
    """A connection to the engine's REST API, logged in.

    Closing it is optional and harmless: the login stays, since other calls use it.

    Raises:
        EngineUnavailable: scheduler.conf has no ``[engine]`` section, the engine did not answer
            the daemon, or ``ca_file`` cannot be read. The text says which.
    """
    engine = provided()
    if isinstance(engine, NoEngine):
        raise EngineUnavailable(f"no connection to the engine: {engine.reason}")
    if engine.ca_file is not None and not os.access(engine.ca_file, os.R_OK):
        raise EngineUnavailable(
            f"no connection to the engine: {engine.ca_file} is not to be read by the user whom "
            "plugins run as; it is no secret: let everybody read it"
        )
    connection = _SharedLogin(
        engine.proxy, url=engine.url, token=engine.token, ca_file=engine.ca_file, timeout=_TIMEOUT
    )
    _connections.append(connection)
    return connection


def forget() -> None:
    """For a process after its call: close what the call left open, and drop the login."""
    provide(NoEngine(_NONE))
    for connection in [*_connections]:
        with contextlib.suppress(Exception):
            connection.close()
    _connections.clear()


def provide(engine: Engine) -> None:
    """For the process of a call: set the values for ``engine_connection``, or why there is none."""
    _provided[0] = engine


def provided() -> Engine:
    """The values for ``engine_connection`` here, or why there is none."""
    return _provided[0]


class _SharedLogin(Connection):  # type: ignore[misc]  # the SDK has no type hints
    """A connection that leaves the login to the daemon, and uses no proxy but this one."""

    def __init__(self, proxy: str, **options: Any) -> None:
        super().__init__(**options)
        self._multi: Any = _Handles(self._multi, proxy)

    def close(self, logout: bool = False) -> None:  # noqa: ARG002  the token is not ours alone
        super().close(logout=False)

    def _get_access_token(self) -> NoReturn:
        """After a 401 the SDK would log in again, but it has no password."""
        raise AuthError(f"{self.url}: the engine no longer takes the token of the daemon's login")


class _Handles:
    """The SDK's handle for many transfers, through which each of them goes before it begins.

    The SDK has no parameter for a proxy.
    """

    def __init__(self, handles: Any, proxy: str) -> None:
        self._handles = handles
        self._proxy = proxy

    def add_handle(self, curl: Any) -> None:
        set_proxy(curl, self._proxy)
        self._handles.add_handle(curl)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handles, name)
