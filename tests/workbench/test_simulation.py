"""Clusters played forward, by the plugins and the code that serve."""

from __future__ import annotations

import re

import pytest

from ovirt_scheduler.errors import BadInput, ConfigError
from ovirt_scheduler.workbench import reports
from tests.support.rest_server import GIB, id_of
from tests.support.snapshots import filled, host, snapshot, vm, vm_counts

FEW = """\
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.summary.total < int(properties["most"])]
"""
NOT_B = """\
def do_filter(hosts, vm, properties):
    assert all(host.memory for host in hosts), "no host can be told from another"
    return [host for host in hosts if host.name != "b"]
"""
BROKEN = "def do_filter(hosts, vm, properties):\n    raise ValueError('oh')\n"
SEES = """\
def do_score(hosts, vm, properties):
    told = {each.name: each.values[0].datum for host in hosts[:1] for each in host.statistics}
    room, used = hosts[0].max_scheduling_memory / 2**30, told["memory.used"] / 2**30
    print(f"{room:g} {used:g} {told['cpu.current.idle']:g}")
    return {host.id: host.summary.active for host in hosts}
"""
ASKS = """\
from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    there = engine_connection().system_service().hosts_service().list(search="cluster=Default")
    return [host.id for host in there]
"""
ONE = """\
from ovirt_scheduler.plugin import LoadBalancer


class One(LoadBalancer):
    name = "one"

    def load_balance(self, hosts, vms, properties):
        on = {host.id: [vm for vm in vms if vm.host.id == host.id] for host in hosts}
        full, empty = max(on, key=lambda id: len(on[id])), min(on, key=lambda id: len(on[id]))
        return {on[full][0]: [empty]} if len(on[full]) > len(on[empty]) + 1 else {}
"""


CROWD = """\
from ovirt_scheduler.plugin import LoadBalancer


class Crowd(LoadBalancer):
    topic = None

    def load_balance(self, hosts, vms, properties):
        return {vm: hosts[:1] for vm in vms}
"""


@pytest.fixture(scope="module")
def plugin_texts():
    return {
        "Few": FEW,
        "Broken": BROKEN,
        "Sees": SEES,
        "One": ONE,
        "Asks": ASKS,
        "Crowd": CROWD,
        "NotB": NOT_B,
        "Strays": "def do_balance(hosts, properties):\n    return 'nobody', hosts\n",
    }


class TestPowerSaving:
    # High mark 80 %: 51.2 GiB of 64, 12.8 processors of 16.
    TAKEN = filled(lynx=[(4, 1)] * 10, puma=[(4, 0.5)] * 6, ocelot=[(4, 0.5)] * 2, serval=[(8, 1)])

    def test_it_empties_the_hosts_that_it_should(self, simulate):
        """Worked out by hand.

        Used are: lynx 40 GiB, puma 24, ocelot 8, serval 8. Of serval's one VM lynx takes 8 GiB and
        has 48. Neither of ocelot's two fits there any more (52 > 51.2), so puma takes both and has
        32. puma's eight VMs do not fit on lynx, so it keeps them. That is 3 migrations.
        """
        outcome = simulate(self.TAKEN, policy="power_saving")
        assert outcome.rested
        assert vm_counts(outcome.views[-1]) == {"lynx": 11, "puma": 8, "ocelot": 0, "serval": 0}
        moves = sorted((move.source, move.target) for move in outcome.migrations)
        assert moves == [("ocelot", "puma"), ("ocelot", "puma"), ("serval", "lynx")]
        assert [view.imbalance["memory"] for view in outcome.views] == pytest.approx(
            [44.7, 44.7, 70.1], abs=0.05
        )
        assert not outcome.refused
        assert not outcome.problems

    def test_no_host_is_filled_beyond_the_high_mark(self, simulate):
        """With a lower one nothing of ocelot and serval fits on lynx: 44 GiB are 69 %."""
        outcome = simulate(self.TAKEN, policy="power_saving", properties="high_utilization=65")
        after = {host.name: host for host in outcome.views[-1].hosts}
        assert all(host.used <= 0.65 for host in after.values())
        assert after["lynx"].vms == 10
        assert sorted(vm_counts(outcome.views[-1]).values())[:2] == [0, 0]


def test_a_placement_changes_what_the_next_call_sees(simulate, caplog):
    """The host's summary, its room, its statistics; and the VM's host."""
    taken = snapshot([host("lynx"), host("puma")])
    happens = "[vms]\n[[web]]\ncount = 5\nmemory = 8 GiB\nprocessors = 4\nload = 50\n"
    caplog.set_level("INFO")
    outcome = simulate(taken, happens, cost_functions="Sees", load_balance_interval="0")
    assert [move.vm for move in outcome.moves] == [f"web-{number}" for number in range(1, 6)]
    # Each goes to the host that runs fewer, and keeps two of its sixteen processors busy.
    assert sorted(vm_counts(outcome.views[1]).values()) == [2, 3]
    first = [move.target for move in outcome.moves].count("lynx")
    printed = {str(each.args["output"]).strip() for each in caplog.records if "output" in each.args}
    assert first in (2, 3)
    assert printed >= {"64 0 100", "56 8 87.5"}
    view = {host.name: host for host in outcome.views[-1].hosts}
    assert view["lynx"].cpu == pytest.approx(first * 2 / 16)
    assert view["lynx"].memory == pytest.approx(first * 8 / 64)


def test_a_vm_that_no_host_takes_is_told_with_why(simulate):
    """By the filters, and by what the engine itself would say; and the hosts that took none."""
    taken = snapshot([host("lynx", running=0), host("puma", status="maintenance"), host("ape", 8)])
    happens = "[vms]\n[[web]]\ncount = 3\nmemory = 16 GiB\n"
    outcome = simulate(taken, happens, filters="Few", properties="most=2")
    assert outcome.unplaced == {
        "web-3": "1 host removed by Few; "
        "1 host has too little memory left; 1 host is in maintenance"
    }
    assert outcome.closed == {"puma": "is in maintenance", "ape": "takes none of 3 VMs that asked"}


def test_filters_hold_for_migrations_too(simulate):
    """Where they let no VM go, nothing is emptied."""
    taken = TestPowerSaving.TAKEN
    outcome = simulate(taken, policy="power_saving", filters="Few", properties="most=1")
    assert vm_counts(outcome.views[0]) == vm_counts(outcome.views[-1])
    assert outcome.rested


def test_a_filter_holds_beside_a_host_that_is_being_installed(simulate):
    """It is not asked about that host, and so does not fail for all."""
    new = host("new", 0, processors=0, status="installing")
    vms = [vm(f"vm{number}", "a", 8) for number in range(7)]
    taken = snapshot([new, host("a", used=56), host("b"), host("c", used=16)], vms)
    outcome = simulate(taken, policy="evenly_distribute", filters="NotB")
    assert {move.target for move in outcome.moves} == {"c"}
    assert not outcome.problems


def crowded():
    """A host that is too full; one that is used less, by more VMs; one that runs few."""
    system = "<os><type>rhel_9x64</type></os></vm>"
    vms = [vm(f"lynx{number}", "lynx", 8) for number in range(7)]
    vms += [vm(f"puma{number}", "puma", 1) for number in range(12)]
    vms += [vm("ocelot0", "ocelot", 16)]
    hosts = [
        host("lynx", used=56, running=7),
        host("puma", used=12, running=12),
        host("ocelot", used=16, running=1),
    ]
    return snapshot(hosts, [each.replace("</vm>", system) for each in vms])


@pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
def test_the_cost_functions_of_a_section_choose_among_the_hosts_that_the_policy_allows(
    simulate, policy
):
    """As in the manual: EvenVms sends VMs where few run; without it the policy's host comes first."""
    keys = {"policy": policy, "properties": "maximum_vm_count=20", "filters": "MaxVms"}
    keys["properties"] += ";high_utilization=85"
    costs = {"EvenVms=2;KsmScore": "ocelot", "EvenVms=-2": "puma"}
    for functions, target in costs.items():
        outcome = simulate(crowded(), cost_functions=functions, **keys, hold="0", margin="0")
        assert outcome.moves[0][3:5] == ("lynx", target)
        assert not outcome.problems


def test_a_migration_that_an_engine_would_refuse_is_told(simulate):
    """And is not made."""
    vms = [vm("large", "puma", 80), vm("fixed", "puma", affinity="pinned")]
    taken = snapshot([host("lynx"), host("puma", 128, used=84)], vms)
    outcome = simulate(taken, scheduler="Crowd", hold="0", margin="0")
    assert outcome.refused.keys() == {
        "large: lynx has too little memory left", "fixed: may not be migrated"
    }  # fmt: skip
    assert not outcome.moves


@pytest.mark.parametrize(
    "keys", [{"policy": "evenly_distribute"}, {"policy": "power_saving"}, {"scheduler": "Crowd"}]
)
def test_a_balancing_leaves_the_hosted_engine_where_it_is(simulate, keys):
    """Whatever the scheduler answers; a maintenance takes it along."""
    own = vm("engine", "puma", 16).replace("</vm>", "<origin>managed_hosted_engine</origin></vm>")
    others = [vm(f"vm{number}", "puma", 8) for number in range(5)]
    taken = snapshot([host("lynx"), host("puma", used=56)], [own, *others])
    outcome = simulate(taken, **keys, hold="0", margin="0")
    assert "engine" not in {move.vm for move in outcome.moves}
    outcome = simulate(taken, "[hosts]\n[[puma]]\nmaintenance = 0\n", **keys)
    assert "engine" in {move.vm for move in outcome.moves}


@pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
def test_a_host_without_figures_is_not_emptied_for_its_cpu(simulate, policy):
    """It tells 0 of user, system and idle, at its beginning and later; its VMs tell theirs."""
    new = re.sub("<datum>100.0(?=</datum></value></values></statistic></statistics>)", "<datum>0",
                 host("new", used=24))  # fmt: skip
    vms = [vm(f"new{number}", "new", 6, busy=4) for number in range(4)]
    vms += [vm(f"{name}{number}", name, 6, busy=1) for name in "ab" for number in range(4)]
    taken = snapshot([new, host("a", used=24, busy=4), host("b", used=24, busy=4)], vms)
    settings = {"policy": policy, "properties": "high_utilization=60;low_utilization=30"}
    outcome = simulate(taken, "[vms]\n[[web]]\ncount = 3\n", **settings)
    assert not [move for move in outcome.moves if move.source == "new"]


def test_a_migration_of_a_vm_that_is_not_there_is_told(simulate):
    """As a balance may answer with any id."""
    taken = snapshot([host("lynx"), host("puma")])
    outcome = simulate(taken, balance="Strays", hold="0")
    (told,) = outcome.problems
    assert told == "nobody is to be migrated, and no VM that runs has this id"


def test_a_plugin_that_fails_is_told(simulate):
    """Once, with how often."""
    taken = snapshot([host("lynx")])
    outcome = simulate(taken, "[vms]\n[[web]]\ncount = 2\n", filters="Broken")
    assert outcome.problems == {"Broken: ValueError: oh (Broken.py:2)": 2, "all filters failed": 2}
    assert len(outcome.moves) == 2


def test_a_filter_that_fails_for_a_migration_is_told(simulate):
    """As it is for a placement."""
    outcome = simulate(TestPowerSaving.TAKEN, policy="power_saving", filters="Broken", hold="0")
    assert outcome.problems["Broken: ValueError: oh (Broken.py:2)"] >= 3
    assert len(outcome.migrations) == 3


def test_a_scheduler_that_only_balances_leaves_placing_to_the_units(simulate):
    """Ten VMs of one host come to three; the eleventh goes where a cost function says."""
    taken = filled(lynx=[(1, 0.1)] * 10, puma=[], ocelot=[])
    keys = {"scheduler": "one", "hold": "0", "margin": "0", "load_balance_interval": "10"}
    outcome = simulate(
        taken, "hours = 3\n[vms]\n[[web]]\nat = 3\n", cost_functions="EvenVms", **keys
    )
    assert sorted(vm_counts(outcome.views[-1]).values()) == [3, 4, 4]
    assert not outcome.problems


def test_a_balance_unit_stands_for_the_schedulers(simulate):
    """VmBalance of the samples, which asks its engine for VMs."""
    taken = filled(lynx=[(1, 0.1)] * 10, puma=[], ocelot=[])
    outcome = simulate(
        taken, balance="VmBalance", properties="maximum_vm_difference=3", hold="0", margin="0"
    )
    assert (
        max(vm_counts(outcome.views[-1]).values()) - min(vm_counts(outcome.views[-1]).values()) <= 3
    )
    assert {move.source for move in outcome.migrations} == {"lynx"}


def test_the_same_seed_gives_the_same_result(simulate):
    """And another one another, where chance has a part."""
    happens = (
        "hours = 6\n[vms]\n[[web]]\ncount = 8\nprocessors = 8\nload = 60\nat = 1\nlasts = 3\n"
        "[load]\n[[*]]\nlowest = 20\nhighest = 150\njitter = 40\npeak = 3\n"
    )
    keys = {"policy": "evenly_distribute", "load_balance_interval": "30"}
    one, same, other = (
        simulate(TestPowerSaving.TAKEN, happens, seed, **keys) for seed in (7, 7, 8)
    )
    assert (one.moves, one.course, one.views) == (same.moves, same.course, same.views)
    assert one.course != other.course
    assert sum(vm_counts(one.views[-1]).values()) == 19


def test_samples_that_ask_the_engine_get_the_simulated_cluster(simulate):
    """A unit with a connection sees what the simulation has made of it."""
    taken = snapshot([host("lynx"), host("puma")])
    outcome = simulate(
        taken, "[vms]\n[[web]]\ncount = 3\n", filters="MaxVms", properties="maximum_vm_count=2"
    )
    assert sorted(vm_counts(outcome.views[-1]).values()) == [1, 2]


def test_the_simulated_cluster_is_found_by_its_name(simulate):
    """Hosts have only its id; the snapshot has its name."""
    outcome = simulate(snapshot([host("lynx")]), "[vms]\n[[web]]\n", filters="Asks")
    assert vm_counts(outcome.views[-1]) == {"lynx": 1}
    assert not outcome.problems


def test_ctrl_c_ends_it_with_what_it_came_to(simulate):
    """Wherever it was."""

    def interrupt(progress):
        if progress.startswith("hour 0.1"):
            raise KeyboardInterrupt

    happens = "hours = 5\n[vms]\n[[web]]\ncount = 2\n"
    outcome = simulate(snapshot([host("lynx")]), happens, tell=interrupt)
    assert (outcome.stopped, outcome.rested) == ("hour 0.1 of 5", False)
    assert [vm_counts(view) for view in outcome.views] == [{"lynx": 0}, {"lynx": 2}, {"lynx": 2}]
    told = dict(reports.notes(outcome))
    assert told["stopped"] == "by Ctrl-C at hour 0.1 of 5, before it was at rest"


def test_of_many_notes_the_first_are_shown(simulate):
    """And how many more there are."""
    happens = "[vms]\n[[web]]\ncount = 24\nmemory = 100 GiB\n"
    outcome = simulate(snapshot([host("lynx")]), happens)
    told = [text for what, text in reports.notes(outcome) if what == "no host"]
    assert told[0] == "web-1: 1 host has too little memory left"
    assert told[19:] == [
        "web-20: 1 host has too little memory left",
        "and 4 more; -o json has them all",
    ]


def test_a_vm_on_a_host_that_is_not_there_is_told(simulate):
    """It cannot count for any host."""
    outcome = simulate(snapshot([host("lynx")], [vm("web", "puma"), vm("mail", "lynx")]))
    assert vm_counts(outcome.views[-1]) == {"lynx": 1}
    notes = dict(reports.notes(outcome))
    assert notes["left out"] == f"web: runs on host {id_of('puma')}, which is not there"


@pytest.mark.parametrize("number", ["nan", "-5", "inf", "9" * 400, "64 GiB"])
def test_a_number_that_cannot_be_is_told_with_its_host(simulate, number):
    """Of a statistic, nothing is made: nobody writes those by hand."""
    wrong = host("lynx").replace(f"<memory>{64 * GIB}<", f"<memory>{number}<")
    with pytest.raises(BadInput, match=f"^host {id_of('lynx')}: memory is '{number:.20}"):
        simulate(snapshot([wrong]))
    measured = vm("web", "lynx").replace("<datum>0.0<", f"<datum>{number}<")
    outcome = simulate(snapshot([host("lynx")], [measured]))
    assert vm_counts(outcome.views[-1]) == {"lynx": 1}


def test_what_cannot_be_simulated_is_refused(simulate):
    """Elements of version 3; no host; a section that names what is not there."""
    old = snapshot(['<host id="a"><name>a</name><status><state>up</state></status></host>'])
    with pytest.raises(BadInput, match="version 3 of the engine's API; 4 is needed"):
        simulate(old)
    with pytest.raises(BadInput, match="there is no host in the cluster"):
        simulate(snapshot([]))
    with pytest.raises(ConfigError, match="there is no filter 'Fewer'"):
        simulate(snapshot([host("lynx")]), filters="Fewer")


def test_after_the_scenario_the_progress_names_no_end(simulate):
    """There is none but that nothing migrates any more; never "of 0"."""
    progress = []
    simulate(snapshot([host("lynx")]), "hours = 0.05\n[vms]\n[[web]]\n", tell=progress.append)
    assert progress[0].startswith("hour 0.0 of 0.05: ")
    assert progress[-1].startswith("hour 0.1, when nothing happens any more: ")
