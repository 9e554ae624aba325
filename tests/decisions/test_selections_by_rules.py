"""A selection keeps to the affinity rules of a cluster that is looked after."""

from __future__ import annotations

import json

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.recent_selections import RecentSelections
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.history import input_recording
from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, PlacedVms, Rule
from ovirt_scheduler.model.jobs import DriverCall, Request
from ovirt_scheduler.model.requests import Caller, Document, Entities
from tests.support.elements import id_of
from tests.support.rest_server import GIB, Host, RestServer, Vm

NAMES = ("lynx", "ocelot", "puma")
HARD, SOFT = Rule(positive=False, enforcing=True), Rule(positive=False, enforcing=False)


@pytest.fixture
def service(tmp_path, place, executor):
    hosts = [Host(name, measured=True, max_scheduling_memory=20 * GIB) for name in NAMES]
    vms = [Vm(name, status="down") for name in ("a", "b", "c")]
    with RestServer(tmp_path, hosts, vms, tls=False) as engine:
        registry = Registry(Loader(place.settings, place.analyse, SHIPPED), LastGood(None))
        registry.refresh()
        made = DecisionService(registry, executor, 60.0, recent=RecentSelections())
        made.engine = engine
        yield made


def requested(service, name, driver="default"):
    hosts = Document(service.engine.hosts_document(follow=True).encode())
    vm = Document(service.engine.vm_document(name).encode())
    driver = service.scheduler(driver, "select_host")
    return Request(
        Caller.of_cluster("a test"), Entities(hosts, vm=vm), {"policy": "none"},
        driver_call=DriverCall(driver, "select_host"),
    )  # fmt: skip


def decide(service, name, driver="default"):
    return service.decide(requested(service, name, driver))


def selected(service, name):
    names = {id_of(host): host for host in NAMES}
    return [names[host] for host in decide(service, name).answer]


def note(service, rule, running, members=("a", "b", "c")):
    group = AffinityGroup("fw", frozenset(map(id_of, members)), vm_rule=rule)
    running = {id_of(vm): id_of(host) for vm, host in running.items()}
    service.note_cluster("Default", running, AffinityRules([group]))


def test_a_host_that_a_hard_rule_forbids_is_none_and_the_reason_names_the_group(service):
    note(service, HARD, {"b": "lynx"})
    decision = decide(service, "a")
    assert id_of("lynx") not in decision.answer
    assert len(decision.answer) == 2
    reasons = decision.execution.driver_call.reasons
    assert reasons[id_of("lynx")] == "the affinity group fw keeps it apart from a VM there"


def test_a_soft_rule_has_its_hosts_last(service):
    note(service, SOFT, {"b": "lynx", "c": "puma"})
    assert selected(service, "a")[0] == "ocelot"


def test_vms_that_are_started_together_are_kept_apart(service):
    note(service, HARD, {})
    first = [selected(service, name)[0] for name in ("a", "b", "c")]
    assert sorted(first) == sorted(NAMES)


def test_other_vms_and_clusters_without_rules_are_not_concerned(service):
    note(service, HARD, {"b": "lynx"}, members=("b", "c"))
    assert len(selected(service, "a")) == 3
    service.note_cluster("Default", {}, AffinityRules())
    assert len(selected(service, "c")) == 3


def test_a_scheduler_of_a_users_gets_the_rules_with_where_vms_run(service, place):
    place.write(
        "Mine",
        "from ovirt_scheduler.plugin import HostSelector\n\n\n"
        "class Mine(HostSelector):\n"
        "    def candidates(self, hosts, vm, properties):\n"
        "        ids = [host.id for host in hosts]\n"
        "        assert [group.name for group in self.rules.rules.groups] == ['fw']\n"
        "        return self.rules.acceptable([vm.id], ids)\n",
    )
    service.registry.refresh()
    note(service, HARD, {"b": "lynx", "c": "puma"})
    assert decide(service, "a", "Mine").answer == (id_of("ocelot"),)


def test_the_rules_of_a_selection_are_recorded_for_its_replay(service):
    """Those of the VM alone."""
    note(service, HARD, {"b": "lynx"})
    decision = service.decide_unreported(requested(service, "a"))
    known = input_recording.inputs(decision.request, decision.replies, decision.selected)
    placed = PlacedVms.of_plain(json.loads(json.dumps(known.request["rules"])))
    assert placed.plain() == decision.request.driver_call.rules.plain()
    assert [group.name for group in placed.rules.groups] == ["fw"]
