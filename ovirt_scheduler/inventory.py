"""What the engine knows of hosts and VMs that came as ids, over its REST API."""

from __future__ import annotations

from typing import Optional, Tuple

from ovirt_scheduler.config import EngineSettings
from ovirt_scheduler.model import EngineAccess, Known


class Inventory:
    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def known(self, hosts: Tuple[str, ...], vm: Optional[str], deadline: float) -> Known:
        raise NotImplementedError

    def access(self, deadline: float) -> EngineAccess:
        raise NotImplementedError

    def close(self) -> None:
        pass
