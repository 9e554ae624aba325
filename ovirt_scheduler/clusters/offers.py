"""Asks the engine beforehand to which hosts it would migrate a VM.

It runs the filters of its policy for that, as for a migration, but a no costs nothing: no error in
its events, and no VM locked for a moment. Among these filters may be our own, so nothing that a
call of filters needs may be held meanwhile.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Optional
from urllib.parse import urlencode

from ovirt_scheduler.clusters.engine_events import ID
from ovirt_scheduler.clusters.inquiries import Inquiries
from ovirt_scheduler.engine.client import MOST_BYTES
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineDenial, EngineRefusal, EngineUnavailable

_log = logging.getLogger(__name__)

_SECONDS = 20.0  # for an answer
_HOST = re.compile(rb"<host" + ID)


class Offers:
    """The engine's answers for one cluster; used by one thread.

    Args:
        pause: seconds until the engine is asked again, after it has denied an answer.
        inquiries: get to know of each question.
    """

    def __init__(
        self, cluster: str, inventory: Inventory, pause: float, inquiries: Inquiries
    ) -> None:
        self._cluster = cluster
        self._inquiries = inquiries
        self._inventory = inventory
        self._pause = pause
        self._of_look: dict[str, frozenset[str]] = {}  # by VM
        self._is_silent = False  # in this look
        self._ask_again_at = 0.0  # on the monotonic clock
        self._denial_logged = False

    def begin_look(self) -> None:
        """Ask anew from now on."""
        self._of_look.clear()
        self._is_silent = False

    def hosts(self, vm: str) -> Optional[frozenset[str]]:
        """The ids of the hosts that the engine offers for a VM; None if it does not say.

        An engine that does not answer, or denies it, is not asked again in this look.
        """
        if vm in self._of_look:
            return self._of_look[vm]
        if self._is_silent or time.monotonic() < self._ask_again_at:
            return None
        try:
            hosts = self._ask(vm)
        except EngineDenial as error:
            self._ask_again_at = time.monotonic() + self._pause
            if not self._denial_logged:
                _log.warning(
                    "cluster %(cluster)s: the engine does not say beforehand which VMs it would "
                    "migrate: %(reason)s; give the user of [engine] the role ReadOnlyAdmin",
                    {"cluster": self._cluster, "reason": error.words},
                )
            self._denial_logged = True
            return None
        except EngineRefusal:
            return None  # of this VM alone
        except EngineUnavailable:
            self._is_silent = True
            return None
        self._denial_logged = False
        self._of_look[vm] = hosts
        return hosts

    def _ask(self, vm: str) -> frozenset[str]:
        path = f"/hosts?{urlencode({'migration_target_of': vm})}"
        with self._inquiries.about(vm):
            document = self._inventory.bytes_at(path, time.monotonic() + _SECONDS, MOST_BYTES)
        return frozenset(host.decode() for host in _HOST.findall(document))
