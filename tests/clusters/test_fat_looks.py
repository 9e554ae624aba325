"""A look at a cluster whose engine answers more than there is memory for."""

from __future__ import annotations

import contextlib
import gc
import threading
from pathlib import Path

import pytest

from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.clusters.plan_approval import Plans
from ovirt_scheduler.clusters.planning import ClusterServices
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory, InventoryBounds
from ovirt_scheduler.model.answer_memory import AnswerMemory
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.driven import RECORDER
from tests.support.rest_server import Host, RestServer, Vm

_ENOUGH = 1 << 20
_SETTINGS = ClusterSettings("Default", Drive.ON, scheduler="recorder", properties={})


@pytest.fixture
def engine(tmp_path):
    vms = [Vm(f"vm{number}", host="lynx") for number in range(40)]
    with RestServer(tmp_path, [Host("lynx", measured=True)], vms, tls=False) as server:
        yield server


@pytest.fixture
def memory():
    return AnswerMemory(_ENOUGH)


@pytest.fixture
def cluster(tmp_path, engine, memory, place, executor):
    (tmp_path / "wanted").write_text("{}")
    place.write("recorder", RECORDER.format(folder=str(tmp_path)))
    place.registry.refresh()
    asking = Inventory(
        engine.settings(cache_seconds=0), memory=memory, bounds=InventoryBounds(page=5)
    )
    services = ClusterServices(
        Plans(lambda _: None, lambda _: None), DriveMemory(tmp_path / "clusters.json"), asking,
        DecisionService(place.registry, executor, 60.0, asking), executor, threading.Event(),
        Following(),
    )  # fmt: skip
    yield ClusterDrive(_SETTINGS, services)
    asking.close()


@pytest.fixture
def without_gc():
    """What is given back goes at once, and not when Python looks for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def memory_files():
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            count += "memfd:packed" in str(each.readlink())
    return count


def test_a_look_that_takes_too_much_fails_and_gives_all_of_it_back(
    cluster, engine, memory, without_gc
):
    """At once, though the problem is remembered; the next look that fits is a good one."""
    before, memory.most_each = memory_files(), 20 << 10
    cluster.run_due()
    assert "its answers to one look or request take more than" in cluster.state().problem
    assert len(engine.asked("vms")) in range(2, 8)
    assert (memory.used, memory_files()) == (0, before)
    memory.most_each = _ENOUGH
    cluster._balance_at = cluster._rest_until = cluster._pause = 0.0  # as when it is due again
    cluster.run_due()
    assert cluster.state().problem == ""
    assert (memory.used, memory_files()) == (0, before)


def test_an_engine_is_not_away_for_requests_after_a_look_that_took_too_much(
    cluster, engine, memory
):
    memory.most_each = 20 << 10
    cluster.run_due()
    assert cluster._services.inventory.state().problem == ""
