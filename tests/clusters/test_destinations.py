"""Where the VMs of a scheduler's answer may go."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.destinations import BALANCE, ClusterDestinations
from ovirt_scheduler.clusters.planning import HOOKS
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.table import ClusterSettings

STATE = ClusterState(
    {"l": HostState("lynx", "up"), "p": HostState("puma", "up")}, {"w": VmState("web", "up", "l")}
)


def test_a_call_keeps_the_destinations_that_it_was_given():
    """The history writes them later, when the scheduler has been asked again with more."""
    destinations = ClusterDestinations(
        None, ClusterSettings("Default"), None, BALANCE, ClusterView(STATE), {}, threading.Event(),
        doubtful={"w": ("l",)},
    )  # fmt: skip
    first = destinations.request().driver_call
    destinations._allowed = lambda _: {"p": 0}
    destinations.learn({"w": ("p",)})
    assert first.destinations == {}
    assert destinations.request().driver_call.destinations == {"w": {"p": 0}}


def test_a_vm_that_the_cluster_does_not_run_is_passed_over():
    """A balance unit may name one of another cluster, or one that is down."""
    settings = ClusterSettings("Default")
    destinations = ClusterDestinations(
        None, settings, None, BALANCE, ClusterView(STATE), {}, threading.Event()
    )
    assert destinations.choose({"other": ("p",), "w": ("p",)}) == ({"w": "p"}, [])


@pytest.mark.parametrize("method", [BALANCE, *HOOKS])
def test_only_a_balancing_leaves_the_hosted_engine_where_it_is(method):
    """A host that goes to maintenance is left by it, too."""
    engine = STATE.vms["w"]._replace(origin="hosted_engine")
    destinations = ClusterDestinations(
        None, ClusterSettings("Default"), None, method, ClusterView(STATE._replace(vms={"w": engine})),
        {}, threading.Event(),
    )  # fmt: skip
    chosen, unfit = destinations.choose({"w": ("p",)})
    if method == BALANCE:
        assert destinations.request().driver_call.destinations == {"w": {}}
        assert [step.problem for step in unfit] == ["no balancing moves the hosted engine"]
    else:
        assert (chosen, unfit) == ({"w": "p"}, [])


class Decisions:
    """Answers that all hosts are fit and cost nothing, and that a balance wants nothing."""

    def __init__(self):
        self.hosts_of = {}  # by kind, as they were asked about last

    def decide(self, request, _):
        (kind,) = request.units
        self.hosts_of[kind] = hosts = request.entities.hosts
        answers = {Kind.FILTER: hosts, Kind.COST_FUNCTION: dict.fromkeys(hosts, 0)}
        return SimpleNamespace(answer=answers.get(kind))


UNITS = ClusterSettings(
    "Default", filters=(RequestedUnit("F"),), cost_functions=(RequestedUnit("C"),),
    balance=RequestedUnit("B"),
)  # fmt: skip


def asking(state, decisions, method=BALANCE):
    return ClusterDestinations(
        decisions, UNITS, None, method, ClusterView(state), {}, threading.Event()
    )


def test_units_are_asked_about_hosts_that_are_up():
    """As an engine asks them; a balance about those that no VM is leaving."""
    hosts = {**STATE.hosts, "silent": HostState("silent", "")}
    for status in ("installing", "maintenance", "non_responsive"):
        hosts[status] = HostState(status, status)
    decisions = Decisions()
    vms = {**STATE.vms, "m": VmState("mail", "migrating", "p")}
    destinations = asking(STATE._replace(hosts=hosts, vms=vms), decisions)
    assert destinations.answer() == {}
    destinations.learn({"w": ("p",)})
    up = ("l", "p", "silent")
    assert decisions.hosts_of == {
        Kind.BALANCE: ("l", "silent"), Kind.FILTER: up, Kind.COST_FUNCTION: up
    }  # fmt: skip
    assert destinations.choose({"w": ()})[0] == {"w": ""}  # any host: that is, any that is up


def test_a_host_that_no_cost_function_scored_costs_nothing():
    """As an engine counts it: less than one that costs something."""
    decisions = Decisions()
    decide, costs = decisions.decide, {}

    def scored(request, known):
        is_scored = Kind.COST_FUNCTION in request.units
        return SimpleNamespace(answer=costs) if is_scored else decide(request, known)

    decisions.decide = scored
    hosts = {**STATE.hosts, "o": HostState("ocelot", "up")}
    for cost, target in ((5, "o"), (-5, "p")):
        costs["p"] = cost
        destinations = asking(STATE._replace(hosts=hosts), decisions)
        destinations.learn({"w": ("p", "o")})
        assert destinations.choose({"w": ("p", "o")})[0] == {"w": target}


def test_without_a_host_that_is_up_no_unit_is_asked():
    """It would be asked about nothing."""
    decisions = Decisions()
    destinations = asking(STATE._replace(hosts={"l": HostState("lynx", "error")}), decisions)
    assert destinations.answer() == {}
    destinations.learn({"w": ("l",)})
    assert decisions.hosts_of == {}
    assert destinations.choose({"w": ("l",)})[0] == {}
