"""A cluster of a fake engine that is looked after in this process, look by look, at a made time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.clusters import (
    affinity_watch,
    cluster_reader,
    drive,
    engine_side,
    migrations,
    offers,
    planning,
)
from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.migrations import ClusterServices
from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.clusters.plan_approval import Plans
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.model.plans import Plan
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.place import Place
from tests.support.rest_server import RestServer

_TIMED = (planning, affinity_watch, drive, engine_side, migrations, offers, cluster_reader)


class Looks:
    """Looks at a cluster under the default scheduler, once a minute.

    Args:
        folder: for its state.
    """

    def __init__(
        self, folder: Path, engine: RestServer, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.engine = engine
        self.now = time.monotonic()
        self.clock = (12, 0)  # the hour and the minute of the day
        self.following = Following()
        self.ended: list[dict[str, Any]] = []  # plans, as the history has them
        self._folder = folder
        clock = SimpleNamespace(
            time=time.time,
            monotonic=lambda: self.now,
            localtime=lambda: time.struct_time((2026, 3, 29, *self.clock, 0, 6, 88, 0)),
        )
        for module in _TIMED:
            monkeypatch.setattr(module, "time", clock)
        self.registry = registry = Registry(
            Loader(place.settings, place.analyse, SHIPPED), LastGood(None)
        )
        registry.refresh()
        self.inventory = Inventory(engine.settings(cache_seconds=0))
        self.plans = Plans(self.ended.append, lambda _: None)
        self.decisions = decisions = DecisionService(registry, place.executor, 60.0, self.inventory)
        self._services: Callable[[], ClusterServices] = lambda: ClusterServices(
            self.plans, DriveMemory(folder / "clusters.json"), self.inventory, decisions,
            place.executor, threading.Event(), self.following,
        )  # fmt: skip
        self.cluster: ClusterDrive

    def begin(
        self, drive: Drive = Drive.ON, policy: str = "evenly_distribute", **keys: Any
    ) -> None:
        """Begin to look after the cluster, or begin again as after a restart."""
        properties = {"policy": policy, "low_utilization": "0", **keys.pop("properties", {})}
        values = {"hold": 0.0, "margin": 0.0, "timer_interval": 0.0, **keys}
        settings = ClusterSettings("Default", drive, properties=properties, **values)
        self.cluster = ClusterDrive(settings, self._services())

    def look(self, minutes: float = 1.0) -> list[tuple[str, str]]:
        """Look once, so many minutes later.

        Returns:
            The migrations that the engine was asked for, the refused ones too.
        """
        number = len(self.engine.requested)
        self.now += 60 * minutes
        self.cluster.run_due()
        assert not self.cluster.state().problem
        return self.engine.requested[number:]

    @property
    def refused(self) -> list[tuple[str, str, str]]:
        """VM, host and what of the refusals that close something now."""
        refusals = self.cluster.state().refusals
        return [(each.vm_name, each.host_name, each.obstacle.value) for each in refusals]

    def asked_about(self) -> list[str]:
        """The names of the VMs that the engine was asked about beforehand."""
        names = {vm.id: vm.name for vm in self.engine.vms}
        return [names[query.target_of] for query in self.engine.queries if query.target_of]

    def plan(self) -> Plan:
        """The plan that waits."""
        (plan,) = [each for each in self.plans.of_cluster("Default") if each.is_open]
        return plan


@pytest.fixture
def looks(tmp_path, place, monkeypatch):
    """Without TLS: there are many of them."""
    with RestServer(tmp_path, tls=False) as engine:
        made = Looks(tmp_path, engine, place, monkeypatch)
        yield made
        made.inventory.close()
