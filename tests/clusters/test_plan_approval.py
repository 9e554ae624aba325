"""Plans of migrations: what becomes of them, and who says so."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ovirt_scheduler.clusters import plan_approval
from ovirt_scheduler.clusters.cluster_reader import ClusterView
from ovirt_scheduler.clusters.destinations import ClusterDestinations
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.migrations import ClusterServices
from ovirt_scheduler.clusters.persistence import DriveMemory, Migrating
from ovirt_scheduler.clusters.plan_approval import Plans, left_behind
from ovirt_scheduler.clusters.planning import ClusterPlanning
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.plans import APPROVED, MADE, Plan, Step
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive

STATE = ClusterState(
    {"l": HostState("lynx", "up"), "p": HostState("puma", "up")},
    {"w": VmState("web", "up", "l"), "m": VmState("mail", "up", "l")},
)


def plan(*vms, method="load_balance", cluster="Default", made=None):
    steps = tuple(Step.planned(vm, "p", STATE, "CPU 84 % to 61 %") for vm in vms)
    return Plan(cluster, method, steps, time.time() if made is None else made)


@pytest.fixture
def kept():
    return []


@pytest.fixture
def registry(kept):
    return Plans(kept.append, lambda _: None)


def ask(registry, action, key=None, user=0, login=None):
    return registry.answer({"action": action, "plan": key, "login": login}, user)


def test_a_plan_tells_each_migration_with_its_reason():
    """In one line."""
    told = plan("w").record()
    assert told["migrations"] == ["web from lynx to puma: CPU 84 % to 61 %"]
    assert (told["cluster"], told["state"], told["count"]) == ("Default", "waiting", 1)


def test_a_plan_of_very_many_migrations_is_told_in_part():
    """As many as are asked for, and how many more there are."""
    told = plan(*["w"] * 1000).record(100)
    assert (len(told["migrations"]), told["migrations"][-1]) == (101, "and 900 more")
    assert len(plan(*["w"] * 1000).record()["migrations"]) == 1000


def test_a_listed_plan_has_ids_and_names(registry):
    """An id that is not there is left out, with its name."""
    made = plan("w")
    anywhere = replace(made.steps[0], target="", target_name="any host")
    registry.add(replace(made, steps=(*made.steps, anywhere)))
    vm, source = {"id": "w", "name": "web"}, {"id": "l", "name": "lynx"}
    reason = "CPU 84 % to 61 %"
    assert ask(registry, "list")[0]["steps"] == [
        {"vm": vm, "source": source, "target": {"id": "p", "name": "puma"}, "reason": reason},
        {"vm": vm, "source": source, "reason": reason},
    ]


def test_one_plan_of_a_method_is_open_at_a_time(registry, kept):
    """The same once more is no other; the next takes its place, and none does, too."""
    first = plan("w")
    assert registry.add(first)
    assert not registry.add(replace(plan("w"), steps=(replace(first.steps[0], reason="CPU"),)))
    registry.add(plan("w", method="on_timer_invoked"))
    registry.add(plan("m"))
    states = {each.id: each.state for each in registry.of_cluster("Default")}
    assert list(states.values()) == ["left behind", "waiting", "waiting"]
    assert states[first.id] == "left behind"
    registry.add(plan())
    assert registry.open("Default", "load_balance") is None
    assert [event["state"] for event in kept] == [
        "waiting", "waiting", "left behind", "waiting", "left behind",
    ]  # fmt: skip


def test_ended_plans_are_bounded(registry):
    """The oldest are forgotten."""
    for number in range(200):
        registry.add(plan("w" if number % 2 else "m"))
    assert len(ask(registry, "list")) == 51
    assert ask(registry, "list")[0]["state"] == "waiting"


def test_who_approves_waits_for_what_becomes_of_it(kept):
    """The cluster is woken; the history has who it was."""
    woken = []

    def wake(name):
        woken.append(name)
        found = registry.open("Default", "load_balance")
        assert found.state == APPROVED
        threading.Thread(target=registry.end, args=(found, MADE, "done")).start()

    registry = Plans(kept.append, wake)
    made = plan("w")
    registry.add(made)
    told = ask(registry, "approve", made.id)
    assert (told["state"], told["by"], told["because"]) == ("made", "root", "done")
    assert woken == ["Default"]
    assert [event["by"] for event in kept[1:]] == ["root", "root"]
    with pytest.raises(SchedulerError, match="does not wait: it is made, done"):
        ask(registry, "approve", made.id)


def test_what_was_refused_is_known_for_an_hour(registry, monkeypatch):
    """A user without a name is told by number."""
    made = plan("w")
    registry.add(made)
    assert ask(registry, "refuse", made.id, user=4_000_000)["by"] == "4000000"
    assert registry.was_refused("Default", "w", "p")
    assert not registry.was_refused("Other", "w", "p")
    registry.end(made, MADE)  # by a thread that had seen it approved
    assert ask(registry, "show", made.id)["state"] == "refused"
    later = time.monotonic() + 3601
    monkeypatch.setattr(plan_approval.time, "monotonic", lambda: later)
    assert not registry.was_refused("Default", "w", "p")


def test_who_approves_is_the_peer_whatever_the_client_claims(registry):
    """Whoever asks could write any number."""
    made = plan("w")
    registry.add(made)
    assert ask(registry, "refuse", made.id, login=1)["by"] == "root"


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("approve", "there is no plan 'nobody'"),
        ("show", "plan list"),
        ("eat", "list, show"),
        (["list"], "list, show"),
    ],
)
def test_what_cannot_be_asked_is_refused(registry, action, words):
    """With what can."""
    with pytest.raises(SchedulerError, match=words):
        ask(registry, action, "nobody")


def test_plans_of_clusters_that_are_gone_are_dropped(registry):
    """And those of the others wait on."""
    registry.add(plan("w"))
    registry.add(plan("w", cluster="Other"))
    registry.keep_clusters(["Other"], "the settings were read again")
    assert [(each["cluster"], each["state"]) for each in ask(registry, "list")] == [
        ("Other", "waiting"),
        ("Default", "dropped"),
    ]


def silent(migrate=None):
    """An engine that does not say beforehand what it would do."""

    def bytes_at(*_):
        raise EngineUnavailable("no login")

    return SimpleNamespace(migrate=migrate, bytes_at=bytes_at)


@pytest.mark.parametrize(("stops", "states"), [(False, ["waiting"]), (True, [])])
def test_a_plan_that_comes_late_does_not_wait(registry, tmp_path, stops, states):
    """A thread that the settings have ended may be in the middle of a look."""
    stopping, memory = threading.Event(), DriveMemory(tmp_path / "clusters.json")
    settings = ClusterSettings("Default", Drive.APPROVE, timer_interval=60.0)
    services = ClusterServices(registry, memory, silent(), None, None, stopping, Following())
    actions = ClusterPlanning(settings, services, None)
    view = ClusterView(STATE)
    destinations = ClusterDestinations(None, settings, None, "on_timer_invoked", view, {}, stopping)
    if stops:
        stopping.set()
    actions.perform(destinations, lambda: {"w": ("p",)})
    assert [each["state"] for each in ask(registry, "list")] == states


@pytest.mark.parametrize(("migrates", "planned"), [(False, ["mail", "web"]), (True, ["mail"])])
def test_what_a_hook_wanted_before_waits_on_unless_it_is_under_way(
    registry, tmp_path, migrates, planned
):
    """Else the whole plan would be left behind at the next look."""
    memory, stopping = DriveMemory(tmp_path / "clusters.json"), threading.Event()
    settings = ClusterSettings("Default", drive=Drive.APPROVE)
    services = ClusterServices(registry, memory, silent(), None, None, stopping, Following())
    actions, method = ClusterPlanning(settings, services, None), "on_vm_status_changed"
    destinations = ClusterDestinations(
        None, settings, None, method, ClusterView(STATE), {}, stopping
    )
    actions.perform(destinations, lambda: {"w": ("p",)}, {"w": "web went from paused to up"})
    (former,) = registry.of_cluster("Default")
    assert [step.reason for step in former.steps] == ["web went from paused to up"]
    if migrates:
        memory.cluster("Default").migrating["w"] = Migrating(former.steps[0], time.monotonic())
    actions.perform(destinations, lambda: {"m": ("p",)})
    plan = registry.open("Default", method)
    assert [step.vm_name for step in plan.steps] == planned


def test_migrations_that_cannot_be_asked_for_are_logged_and_forgotten(registry, tmp_path, caplog):
    """There is no login, which takes its time to find out: so that is found out once for all."""
    requested = []

    def migrate(vm, *_):
        requested.append(vm)
        raise EngineUnavailable("no login")

    memory = DriveMemory(tmp_path / "clusters.json")
    settings = ClusterSettings("Default", drive=Drive.ON)
    inventory = silent(migrate)
    services = ClusterServices(
        registry, memory, inventory, None, None, threading.Event(), Following()
    )
    state = STATE._replace(vms={f"v{each}": VmState(f"vm{each}", "up", "l") for each in range(25)})
    destinations = ClusterDestinations(
        None, settings, None, "on_timer_invoked", ClusterView(state), {}, services.stopping
    )
    answer = dict.fromkeys(state.vms, ("p",))
    ClusterPlanning(settings, services, None).perform(destinations, lambda: answer)
    assert caplog.text.count("from lynx to puma: no login") == 25
    assert requested == ["v0"]
    assert memory.cluster("Default").migrating == {}
    assert ask(registry, "list")[0]["because"] == "0 of 25 migrations are begun"


UP, DOWN = HostState("puma", "up"), HostState("puma", "maintenance")
LYNX = {"l": HostState("lynx", "up")}


@pytest.mark.parametrize(
    ("hosts", "vm", "made", "words"),
    [
        ({"p": UP}, VmState("web", "up", "l"), 0, ""),
        ({"p": UP}, VmState("web", "up", "p"), 0, "web is on puma, and not on lynx"),
        ({"p": UP}, VmState("web", "down", None), 0, "web does not run any more"),
        ({"p": UP}, None, 0, "web does not run any more"),
        ({"p": UP}, VmState("web", "paused", "l"), 0, "web is paused"),
        ({"p": DOWN}, VmState("web", "up", "l"), 0, "puma is in maintenance"),
        ({}, VmState("web", "up", "l"), 0, "puma is gone"),
        ({"p": UP}, VmState("web", "up", "l"), 3700, "it is more than an hour old"),
    ],
)
def test_a_plan_that_the_cluster_has_left_behind_is_told_why(hosts, vm, made, words):
    """Age, VM, host."""
    state = ClusterState({**LYNX, **hosts}, {} if vm is None else {"w": vm})
    assert left_behind(plan("w", made=time.time() - made), state, ()) == words
