"""VMs that a host was selected for a moment ago count in the next selection."""

from __future__ import annotations

from collections import Counter

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions import recent_selections
from ovirt_scheduler.decisions.recent_selections import RecentSelections
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.requests import Caller, Document, Entities
from tests.support.rest_server import GIB, Host, RestServer, Vm


def down(vm, host=None):
    """As a reader read it: with two processors and a GiB."""
    return {vm: ["web", host or "", 2, GIB]}


@pytest.fixture
def selections():
    return RecentSelections()


def test_what_was_selected_comes_to_its_first_host(selections):
    selections.add(down("w"), ("puma", "lynx"))
    selections.add(down("m"), ("puma",))
    assert selections.coming() == {"puma": {"w": (2, GIB), "m": (2, GIB)}}


def test_the_latest_selection_of_a_vm_counts(selections):
    """None is one, too."""
    selections.add(down("w"), ("puma",))
    selections.add(down("w"), ("lynx",))
    assert selections.coming() == {"lynx": {"w": (2, GIB)}}
    selections.add(down("w"), ())
    assert selections.coming() == {}


def test_what_runs_does_not_come(selections):
    """As its document says, or a look at its cluster."""
    selections.add(down("w", "lynx"), ("puma",))
    selections.add(down("m"), ("puma",))
    selections.forget(["m", "other"])
    assert selections.coming() == {}


def test_what_no_reader_tells_does_not_count(selections):
    selections.add({"w": ["web"]}, ("puma",))
    assert selections.coming() == {}


def test_after_a_minute_it_runs_or_never_will(selections, monkeypatch):
    selections.add(down("w"), ("puma",))
    later = recent_selections.time.monotonic() + 60
    monkeypatch.setattr(recent_selections.time, "monotonic", lambda: later)
    assert selections.coming() == {}


@pytest.fixture
def service(tmp_path, place, executor):
    """Its engine has two hosts with room for 20 GiB each."""
    hosts = [Host(name, measured=True, max_scheduling_memory=20 * GIB) for name in ("lynx", "puma")]
    vms = [Vm(f"vm{number}", status="down", memory=8 * GIB) for number in range(5)]
    with RestServer(tmp_path, hosts, vms, tls=False) as engine:
        registry = Registry(Loader(place.settings, place.analyse, SHIPPED), LastGood(None))
        registry.refresh()
        made = DecisionService(registry, executor, 60.0, recent=RecentSelections())
        made.engine = engine
        yield made


def select(service, hosts, vm, method="select_host"):
    driver = service.scheduler("default", method)
    entities, caller = Entities(hosts, vm=vm), Caller.of_cluster("a test")
    request = Request(caller, entities, {"policy": "none"}, driver_call=DriverCall(driver, method))
    return service.decide(request).answer


@pytest.mark.parametrize("by", ["documents", "ids"])
def test_vms_that_are_started_together_fill_no_host_twice(service, by):
    """Four of them find room, whoever tells of them; the fifth finds none."""
    engine = service.engine
    hosts = Document(engine.hosts_document(follow=True).encode())
    vms = [Document(engine.vm_document(vm.name).encode()) for vm in engine.vms]
    if by == "ids":
        service.inventory = Inventory(engine.settings(cache_seconds=0))
        hosts, vms = tuple(engine.ids()), [vm.id for vm in engine.vms]
    first = [select(service, hosts, vm)[:1] for vm in vms[:4]]
    assert sorted(Counter(host for (host,) in first).values()) == [2, 2]
    assert select(service, hosts, vms[4]) == ()
    assert select(service, hosts, vms[4], "has_any_hosts") is False
    assert select(service, hosts, vms[3])[:1] == first[3]  # once more: it does not count itself
    if by == "ids":
        service.inventory.close()


def test_vms_that_are_yet_to_be_made_count_by_their_names(service):
    """Asked about once more, one is the same."""
    hosts = Document(service.engine.hosts_document(follow=True).encode())
    document = "<vm><name>{}</name><memory>{}</memory></vm>"
    for name, count in (("one", 1), ("one", 1), ("two", 2)):
        assert select(service, hosts, Document(document.format(name, 8 * GIB).encode()))
        assert sum(map(len, service.recent.coming().values())) == count
