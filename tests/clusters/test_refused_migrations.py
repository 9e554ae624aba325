"""What the engine would refuse is not planned, and what it refused is not asked again for a while."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings.value_types import Drive
from tests.support.jobs import running
from tests.support.looks import Looks
from tests.support.place import Place
from tests.support.rest_server import GIB, Host, Reply, RestServer, Vm


def full(number: int, size: int = 2) -> list[Vm]:
    """So many VMs on lynx, vm0 the first to leave it."""
    return [Vm(f"vm{each}", "lynx", memory=size * GIB - each) for each in range(number)]


@pytest.fixture
def crowded(looks):
    """lynx is above the high mark by one VM; puma is empty, lion is not."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
    looks.engine.vms = [*full(13, 4), Vm("other", "lion", memory=8 * GIB)]
    looks.engine.instant_migrations = True
    return looks


def no_vm(*names):
    """The engine refuses these, wherever they are to go."""
    return lambda vm, _: f"{vm.name} is being backed up." if vm.name in names else ""


def no_host(*names):
    """The engine refuses to migrate any VM to one of these."""
    return lambda _, host: f"{host.name} has no network." if host.name in names else ""


def test_what_the_engine_does_not_offer_is_not_planned(crowded):
    """Another VM goes in the same look; nothing was refused."""
    crowded.engine.refusing = no_vm("vm0")
    crowded.begin()
    assert crowded.look() == [("vm1", "puma")]
    assert crowded.refused == [("vm0", "any host", "no host")]
    assert crowded.asked_about() == ["vm0", "vm1"]


def test_a_host_that_is_not_offered_gives_way_to_the_next(crowded):
    crowded.engine.refusing = no_host("puma")
    crowded.begin()
    assert crowded.look() == [("vm0", "lion")]
    assert crowded.refused == []


def test_what_is_refused_all_the_same_goes_elsewhere_in_the_same_look(crowded):
    """And not there again, for the pause."""
    crowded.engine.surprising = no_host("puma")
    crowded.begin(refused_pause=600.0)
    assert crowded.look() == [("vm0", "puma"), ("vm0", "lion")]
    assert crowded.refused == [("vm0", "puma", "refused")]
    crowded.engine.vms += [Vm("more", "lynx", memory=4 * GIB - 99)]
    assert ("vm0", "puma") not in crowded.look()


def test_a_vm_that_two_hosts_refuse_stays_for_the_pause(crowded):
    """Then it is asked for again; meanwhile others go."""
    crowded.engine.surprising = no_vm("vm0")
    crowded.begin(refused_pause=600.0)
    assert crowded.look() == [("vm0", "puma"), ("vm0", "lion"), ("vm1", "puma")]
    crowded.engine.vms += [Vm("more", "lynx", memory=4 * GIB - 99)]
    for minutes in range(1, 10):
        assert ("vm0", "puma") not in crowded.look(), minutes
    reasons = {each.reason for each in crowded.cluster.state().refusals}
    assert reasons == {"Operation Failed: vm0 is being backed up."}
    crowded.engine.vms += [Vm(f"last{each}", "lynx", memory=4 * GIB) for each in range(4)]
    assert "vm0" in [vm for vm, _ in crowded.look(2)]


def test_after_the_pause_a_host_that_has_not_refused_comes_first(crowded):
    """Though there is more room on the other."""
    crowded.engine.refusing, crowded.engine.surprising = no_host("lion"), no_vm("vm0")
    crowded.begin(refused_pause=120.0)
    assert crowded.look() == [("vm0", "puma"), ("vm1", "puma")]
    crowded.engine.vms += [Vm("more", "lynx", memory=4 * GIB - 99)]
    crowded.engine.refusing = crowded.engine.surprising = no_host()
    assert crowded.look(3) == [("vm0", "lion")]


def test_refusals_are_known_after_a_restart(crowded):
    crowded.engine.surprising = no_vm("vm0")
    crowded.begin(refused_pause=600.0)
    crowded.look()
    crowded.engine.vms += [Vm("more", "lynx", memory=4 * GIB - 99)]
    crowded.begin(refused_pause=600.0)
    assert ("vm0", "any host") not in crowded.look()
    assert [each[:2] for each in crowded.refused] == [("vm0", "puma"), ("vm0", "lion")]


def test_an_evacuation_tries_its_second_destination(looks):
    """In the same look: the host is about to go."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
    looks.engine.vms = [Vm("web", "lynx"), Vm("mail", "lynx")]
    looks.begin(policy="none", load_balance_interval=0.0)
    looks.look()
    looks.engine.surprising = no_host("puma")
    looks.engine.hosts[0].status = "preparing_for_maintenance"
    requested = looks.look()
    assert {host for _, host in requested} == {"puma", "lion"}
    assert sorted(looks.engine.migrations) == [("mail", "lion"), ("web", "lion")]


def test_no_host_is_half_emptied_for_a_vm_that_has_to_stay(looks):
    """The engine says so beforehand; another host is emptied."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
    looks.engine.vms = [
        *(Vm(f"l{each}", "lynx", memory=4 * GIB) for each in range(3)),
        *(Vm(f"p{each}", "puma", memory=5 * GIB) for each in range(3)),
        *(Vm(f"o{each}", "lion", memory=6 * GIB) for each in range(3)),
    ]
    looks.engine.instant_migrations = True
    looks.engine.refusing = no_vm("l1")
    looks.begin(policy="power_saving")
    assert {vm[0] for vm, _ in looks.look()} == {"p"}


def test_after_a_refusal_no_other_vm_leaves_a_host_that_was_to_be_emptied(looks):
    """Where the engine does not say beforehand: the largest goes first, and is refused."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma")]
    looks.engine.vms = [Vm(f"l{each}", "lynx", memory=(4 - each) * GIB) for each in range(3)]
    looks.engine.vms.append(Vm("p", "puma", memory=20 * GIB))
    looks.engine.denying = {"migration_target_of"}
    looks.engine.surprising = no_vm("l0")
    looks.begin(policy="power_saving")
    assert looks.look() == [("l0", "puma"), ("p", "lynx")]
    assert looks.engine.migrations == [("p", "lynx")]


def test_what_is_emptied_in_part_is_emptied_in_the_same_look(looks):
    """The refused VM has a second destination; no margin stops the rest, as they pack."""
    looks.engine.hosts = [
        Host(name, measured=True, max_scheduling_memory=room * GIB)
        for name, room in (("lynx", 0), ("puma", 32), ("lion", 9))
    ]
    looks.engine.vms = [Vm(f"l{each}", "lynx", memory=(4 - each) * GIB) for each in range(3)]
    looks.engine.vms += [Vm("p", "puma", memory=20 * GIB), Vm("o", "lion", memory=26 * GIB)]
    looks.engine.denying = {"migration_target_of"}
    looks.engine.surprising = lambda vm, host: (
        "no" if (vm.name, host.name) == ("l1", "lion") else ""
    )
    looks.begin(policy="power_saving", margin=5.0)
    assert looks.look()[:2] == [("l0", "lion"), ("l1", "lion")]
    assert {vm for vm, _ in looks.engine.migrations} >= {"l0", "l1", "l2"}


def test_a_destination_where_a_migration_failed_is_passed_over(crowded):
    """With the words of the engine's event."""
    crowded.engine.instant_migrations = False
    crowded.begin(refused_pause=600.0)
    assert crowded.look() == [("vm0", "puma")]
    crowded.look(0.1)
    crowded.engine.finish_migrations(well=False)
    assert crowded.look() == [("vm0", "lion")]
    (refusal,) = crowded.cluster.state().refusals
    assert (refusal.host_name, refusal.obstacle.value) == ("puma", "failed")
    assert refusal.reason == "Migration failed (VM: vm0, Destination: puma)."


def test_a_plan_to_be_approved_has_only_what_the_engine_offers(crowded):
    """What it no longer offers when somebody approves leaves the plan behind, for another one."""
    crowded.engine.refusing = no_vm("vm0")
    crowded.begin(Drive.APPROVE)
    crowded.look()
    plan = crowded.plan()
    assert [step.vm_name for step in plan.steps] == ["vm1"]
    crowded.engine.refusing = no_vm("vm0", "vm1")
    crowded.plans._decide(plan.id, "approved", "root")
    assert crowded.look() == []
    last = [each for each in crowded.ended if each["plan"] == plan.id][-1]
    assert (last["state"], last["because"]) == (
        "left behind", "the engine would not migrate vm1 so"
    )  # fmt: skip
    assert [step.vm_name for step in crowded.plan().steps] == ["vm2"]


def test_what_is_refused_of_an_approved_plan_waits_with_another_destination(crowded):
    crowded.begin(Drive.APPROVE)
    crowded.look()
    plan = crowded.plan()
    crowded.engine.surprising = no_host("puma")
    crowded.plans._decide(plan.id, "approved", "root")
    assert crowded.look() == [("vm0", "puma")]
    assert [(step.vm_name, step.target_name) for step in crowded.plan().steps] == [("vm0", "lion")]


@pytest.mark.parametrize("may_ask", [True, False])
def test_ten_refused_vms_of_twenty_two_do_not_keep_the_others(looks, may_ask):
    """If the engine does not say beforehand it takes more looks, of ten refusals each."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
    looks.engine.vms = [*full(22, 2), Vm("base", "lynx", memory=16 * GIB)]
    looks.engine.instant_migrations = True
    stuck = [f"vm{each}" for each in range(10)]
    looks.engine.refusing = no_vm(*stuck)
    looks.engine.denying = set() if may_ask else {"migration_target_of"}
    looks.begin(refused_pause=600.0)
    for number in range(1 if may_ask else 3):
        requested = looks.look()
        assert len([vm for vm, _ in requested if vm in stuck]) <= (0 if may_ask else 10), number
    assert looks.engine.migrations
    lynx = sum(vm.memory for vm in looks.engine.vms if vm.host == "lynx")
    assert lynx <= 0.8 * 64 * GIB


def test_where_the_account_may_not_ask_that_is_logged_once(crowded, caplog):
    """And migrations are made all the same."""
    crowded.engine.denying = {"migration_target_of"}
    crowded.begin(refused_pause=60.0)
    for _ in range(3):
        crowded.engine.vms += [Vm(f"more{len(crowded.engine.vms)}", "lynx", memory=4 * GIB)]
        assert crowded.look()
    assert caplog.text.count("does not say beforehand") == 1
    assert "give the user of [engine] the role ReadOnlyAdmin" in caplog.text


def test_a_right_to_ask_that_is_taken_away_once_more_is_logged_once_more(crowded, caplog):
    crowded.begin(refused_pause=0.0)
    for turn in (1, 2):
        for denying in ({"migration_target_of"}, set()):
            crowded.engine.denying = denying
            for _ in range(2):
                crowded.engine.vms += [Vm(f"more{len(crowded.engine.vms)}", "lynx", memory=4 * GIB)]
                assert crowded.look()
        assert caplog.text.count("does not say beforehand") == turn


def test_a_missing_right_is_one_state_and_closes_nothing(crowded, caplog):
    """It is over when the engine takes a migration."""
    crowded.engine.denying = {"migrate"}
    crowded.begin()
    for _ in range(3):
        crowded.look()
    assert crowded.engine.actions > 2
    assert caplog.text.count("may not migrate VMs") == 1
    assert "not authorized" in crowded.cluster.state().denial
    assert crowded.refused == []
    crowded.engine.denying = set()
    assert crowded.look() == [("vm0", "puma")]
    assert crowded.cluster.state().denial == ""


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(503, "text/html", "<html>"),
        Reply(500, "application/xml", "<fault><reason>Oh</reason></fault>"),
    ],
)
def test_trouble_of_the_engine_closes_nothing(crowded, trouble):
    """What it did is seen on the VM, here nothing: so it is wanted again."""
    crowded.engine.surprising = no_vm(*(vm.name for vm in crowded.engine.vms))
    crowded.engine.broken_action = trouble
    crowded.begin()
    crowded.engine.migrate = lambda *_: trouble
    crowded.look()
    crowded.look(2)
    assert crowded.refused == []


def test_a_vm_that_others_took_back_stays_for_an_hour(crowded, caplog):
    crowded.begin(refused_pause=600.0, migrations_per_vm=100)
    assert crowded.look() == [("vm0", "puma")]
    crowded.look(0.1)
    vm0 = crowded.engine.vms[0]
    vm0.host = "lynx"
    assert "vm0" not in [vm for vm, _ in crowded.look()]
    assert ("vm0", "any host", "taken back") in crowded.refused
    assert "others took vm0 from puma to lynx after it was migrated" in caplog.text
    crowded.engine.vms += [Vm(f"more{each}", "lynx", memory=4 * GIB) for each in range(2)]
    assert "vm0" not in [vm for vm, _ in crowded.look(50)]
    assert crowded.refused
    crowded.look(15)
    assert crowded.refused == []


def test_a_vm_that_left_a_host_for_its_maintenance_was_not_taken_back(crowded):
    crowded.begin(refused_pause=600.0)
    crowded.look()
    crowded.look(0.1)
    crowded.engine.hosts[1].status = "maintenance"
    crowded.engine.vms[0].host = "lion"
    crowded.look()
    assert crowded.refused == []


def test_while_the_engine_answers_it_may_call_our_filters(tmp_path, monkeypatch):
    """Though one call of a plugin may run at a time: the look holds nothing that it needs."""
    answers = []

    def run_filters():
        hosts, vm = tuple(engine.ids()), engine.vms[0].id
        entities = Entities(hosts, vm=vm)
        request = Request(
            Caller.of_cluster("of the engine"), entities, {}, {Kind.FILTER: (RequestedUnit("All"),)}
        )
        answers.append(looks.decisions.decide(request).answer == hosts)

    with RestServer(tmp_path, tls=False) as engine, running(parallel=1) as executor:
        place = Place(tmp_path, executor)
        place.write("All", "def do_filter(hosts, vm, properties):\n    return hosts\n")
        looks = Looks(tmp_path, engine, place, monkeypatch)
        engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma")]
        engine.vms = full(13, 4)
        engine.filtering = run_filters
        looks.begin(filters=(RequestedUnit("All"),))
        assert looks.look() == [("vm0", "puma")]
        looks.inventory.close()
    assert answers == [True]


def test_filters_of_the_section_and_the_engine_hold_together(crowded, place):
    """A host has to pass both."""
    place.write("NotLion", "def do_filter(hosts, vm, properties):\n"
                "    return [host for host in hosts if host.name != 'lion']\n")  # fmt: skip
    crowded.decisions.registry.refresh()
    crowded.engine.hosts.append(Host("cat", measured=True))
    crowded.engine.refusing = no_host("puma")
    crowded.begin(filters=(RequestedUnit("NotLion"),))
    assert crowded.look() == [("vm0", "cat")]


def test_a_dry_run_asks_too(crowded):
    """What would be made is what could be made."""
    crowded.engine.refusing = no_vm("vm0")
    crowded.begin(Drive.DRY_RUN)
    assert crowded.look() == []
    assert [step.vm_name for step in crowded.plan().steps] == ["vm1"]


def test_an_evacuation_asks_about_one_vm_after_another(looks):
    """The first leaves before the engine is asked about the second."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma")]
    looks.engine.vms = [Vm(name, "lynx") for name in ("web", "mail", "wiki")]
    looks.begin(policy="none", load_balance_interval=0.0)
    looks.look()
    begun: list[int] = []
    looks.engine.filtering = lambda: begun.append(len(looks.engine.requested))
    looks.engine.hosts[0].status = "preparing_for_maintenance"
    assert len(looks.look()) == 3
    assert begun == [0, 1, 2]


@pytest.mark.parametrize("told", ["refusing", "surprising"])
def test_what_is_refused_of_an_approved_plan_of_a_hook_waits_with_another_destination(looks, told):
    """In the same look, whether the engine says so beforehand or not; the rest is made."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma", "lion")]
    looks.engine.vms = [Vm("web", "lynx"), Vm("mail", "lynx")]
    looks.begin(Drive.APPROVE, policy="none", load_balance_interval=0.0)
    looks.look()
    looks.engine.hosts[0].status = "preparing_for_maintenance"
    looks.look()
    plan = looks.plan()
    planned = {step.vm_name: step.target_name for step in plan.steps}
    assert set(planned) == {"web", "mail"}
    setattr(looks.engine, told, lambda vm, host: (
        "no" if (vm.name, host.name) == ("web", planned["web"]) else ""
    ))  # fmt: skip
    looks.plans._decide(plan.id, "approved", "root")
    looks.look()
    assert looks.engine.migrations == [("mail", planned["mail"])]
    (step,) = looks.plan().steps
    (other,) = {"puma", "lion"} - {planned["web"]}
    assert (step.vm_name, step.target_name) == ("web", other)
    assert "lynx went from up to preparing_for_maintenance" in step.reason
    looks.plans._decide(looks.plan().id, "approved", "root")
    assert looks.look() == [("web", other)]


@pytest.mark.parametrize("told", ["refusing", "surprising"])
def test_a_balance_unit_that_names_a_refused_vm_is_asked_without_its_host(crowded, place, told):
    """It cannot be told that the VM has to stay; in the same look another host is relieved."""
    lynx, lion = crowded.engine.vms[0], crowded.engine.vms[-1]
    place.write("First", "def do_balance(hosts, properties):\n"
                f"    for name, vm in (('lynx', {lynx.id!r}), ('lion', {lion.id!r})):\n"
                "        if name in [host.name for host in hosts]:\n"
                "            return vm, [host for host in hosts if host.name != name]\n")  # fmt: skip
    crowded.decisions.registry.refresh()
    setattr(crowded.engine, told, no_vm("vm0"))
    crowded.begin(balance=RequestedUnit("First"))
    assert crowded.look()[-1] == ("other", "puma")
    assert crowded.engine.migrations == [("other", "puma")]
