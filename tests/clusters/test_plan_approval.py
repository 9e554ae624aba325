"""Plans of migrations: what becomes of them, and who says so."""

from __future__ import annotations

import json
import os
import signal
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
from ovirt_scheduler.clusters.planning import ClusterActions
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError
from ovirt_scheduler.model.cluster_state import ClusterState, HostState, VmState
from ovirt_scheduler.model.plans import APPROVED, MADE, WAITING, Plan, Step
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.command import run
from tests.support.driven import OFTEN, cluster
from tests.support.rest_server import GIB, Host, Vm

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
    actions = ClusterActions(settings, services, None)
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
    actions, method = ClusterActions(settings, services, None), "on_vm_status_changed"
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
    ClusterActions(settings, services, None).perform(destinations, lambda: answer)
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
        ({"p": DOWN}, VmState("web", "up", "l"), 0, "puma is maintenance"),
        ({}, VmState("web", "up", "l"), 0, "puma is gone"),
        ({"p": UP}, VmState("web", "up", "l"), 3700, "it is more than an hour old"),
    ],
)
def test_a_plan_that_the_cluster_has_left_behind_is_told_why(hosts, vm, made, words):
    """Age, VM, host."""
    state = ClusterState({**LYNX, **hosts}, {} if vm is None else {"w": vm})
    assert left_behind(plan("w", made=time.time() - made), state, ()) == words


BOTH = """\
from ovirt_scheduler.plugin import Scheduler


class Both(Scheduler):
    name = "both"

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        return {vm: [host] for vm in vms for host in hosts if (vm.name, host.name) == ("vm0", "puma")}

    def load_balance(self, hosts, vms, properties):
        return {vm: [host] for vm in vms for host in hosts if host.name == "lion"}
"""

# The rest is a real daemon with a fake engine.

WE = trust.user_name(os.geteuid())


def command(driven, *arguments):
    """Its exit status, what it prints, and that as JSON where it is."""
    status, out, err = run(driven.folder, "plan", *arguments, "-o", "json")
    return (json.loads(out) if out else err), status


def the_plan(driven, state=WAITING):
    """The id of the newest plan, as soon as it is in that state."""
    found = []

    def is_there():
        told, failed = command(driven, "list")  # it may not answer yet
        newest = [] if failed else told[:1]
        found[:] = [each["plan"] for each in newest if each["state"] == state]
        return found

    driven.wait_for_log("listening on")
    driven.wait(is_there, f"no plan is {state}")
    return found[0]


def test_a_plan_waits_and_is_made_when_it_is_approved(driven):
    """Nothing before; the history has all of it, and who approved."""
    driven.vm("web").memory = 16 * GIB
    driven.engine.instant_migrations = True
    driven.want({"web": "puma"})
    driven.start("approve", cluster(margin=5))
    key = the_plan(driven)
    assert driven.engine.migrations == []
    told, status = command(driven, "approve", key)
    assert (told["state"], told["by"], status) == ("made", WE, 0)
    assert told["migrations"] == ["web from lynx to puma: memory 25 % to 2 %"]
    assert driven.engine.migrations == [("web", "puma")]
    told, status = command(driven, "approve", key)
    assert "does not wait: it is made" in told
    assert status == 1
    driven.stop()
    _, out, _ = run(driven.folder, "decisions", "--events", "-o", "json")
    events = [each for each in json.loads(out) if each["event"] == "plan"]
    assert [(each["state"], each.get("by")) for each in events] == [
        ("made", WE), ("approved", WE), ("waiting", None),
    ]  # fmt: skip


def test_a_plan_that_is_approved_amid_a_look_waits_for_the_next_one(driven):
    """What that look has read may be a minute old."""
    answer, begun, go_on = driven.engine.get, threading.Event(), threading.Event()
    driven.want({"web": "puma"})
    driven.start("approve", cluster())
    key = the_plan(driven)

    def get(path, parameters):
        if path == "vms":  # the hosts are read by then
            begun.set()
            go_on.wait()
        return answer(path, parameters)

    driven.engine.get = get
    driven.wait(begun.is_set)
    driven.engine.hosts[1].status = "maintenance"
    approval = threading.Thread(target=command, args=(driven, "approve", key))
    approval.start()
    driven.wait(lambda: command(driven, "show", key)[0]["state"] == "approved")
    go_on.set()
    approval.join()
    assert command(driven, "show", key)[0]["because"] == "puma is maintenance"


def why_left(driven, key):
    """Why a plan is left behind, which somebody approves unless a balancing was first to see it."""
    command(driven, "approve", key)
    told, _ = command(driven, "show", key)
    assert told["state"] == "left behind"
    return told["because"]


@pytest.mark.long
def test_a_plan_that_is_left_behind_is_not_made(driven):
    """A VM that has moved, a host that is not up, an imbalance that is gone: each is told."""
    driven.vm("web").memory = 12 * GIB
    driven.engine.hosts.append(Host("lion", measured=True))
    driven.engine.vms.append(Vm("other", host="lynx", memory=8 * GIB))
    driven.want({"web": "puma"})
    driven.start("approve", cluster(margin=15))
    key = the_plan(driven)
    driven.want({})
    assert command(driven, "approve", key)[1] == 1
    assert why_left(driven, key).startswith("the scheduler wants no VMs off these hosts")
    driven.want({"web": "puma"})
    key = the_plan(driven)
    driven.vm("web").memory = GIB  # it betters nothing any more
    assert why_left(driven, key).startswith("it changes the imbalance of the hosts from")
    driven.vm("web").memory = 12 * GIB
    key = the_plan(driven)
    driven.vm("web").host = "lion"
    assert why_left(driven, key) == "web is on lion, and not on lynx"
    key = the_plan(driven)
    driven.engine.hosts[1].status = "maintenance"
    assert why_left(driven, key) == "puma is maintenance"
    assert driven.engine.migrations == []


@pytest.mark.long
def test_what_was_refused_is_not_planned_again(driven):
    """Another migration is."""
    driven.want({"web": "puma"})
    driven.start("approve", cluster())
    told, status = command(driven, "refuse", the_plan(driven))
    assert (told["state"], told["by"], status) == ("refused", WE, 0)
    driven.want({"web": "puma", "mail": "lynx"})
    told, _ = command(driven, "show", the_plan(driven))
    assert [each.split(":")[0] for each in told["migrations"]] == ["mail from puma to lynx"]
    assert driven.engine.migrations == []


@pytest.mark.long
def test_what_hooks_want_waits_too_until_the_settings_say_otherwise(driven):
    """One plan of all that they wanted; a reload with another drive drops it, and tells."""
    driven.crowd(2)
    driven.start("approve", cluster("slow", balance="0", timer=OFTEN, properties="target=puma"))
    driven.wake_all()
    driven.wait(lambda: command(driven, "show", the_plan(driven))[0]["count"] == 2)
    key = the_plan(driven)
    assert driven.engine.migrations == []
    conf = driven.folder / "scheduler.conf"
    conf.write_text(conf.read_text().replace("drive = approve", "drive = dry-run"))
    driven.daemon.process.send_signal(signal.SIGHUP)
    driven.wait_for_log(f"plan {key} is dropped: the settings were read again")


@pytest.mark.long
def test_what_a_hook_wants_is_made_when_it_is_approved(driven):
    """At once."""
    driven.crowd(1)
    driven.start("approve", cluster("slow", balance="0", timer="0", properties="target=puma"))
    driven.wake_all()
    driven.wait(lambda: len(driven.engine.asked("events")) > 1)
    driven.engine.happened(*driven.engine.vms)
    told, _ = command(driven, "approve", the_plan(driven))
    assert told["state"] == "made"
    assert told["migrations"] == ["vm0 from lynx to puma: vm0 went from paused to up"]
    assert driven.engine.migrations == [("vm0", "puma")]


@pytest.mark.long
def test_of_two_plans_for_a_vm_one_is_made(driven):
    """Both are approved before a look sees either; the migration is followed to its end."""
    (driven.plugins / "both.py").write_text(BOTH)
    driven.engine.hosts.append(Host("lion"))
    driven.engine.vms[:] = [Vm("vm0", host="lynx"), Vm("vm1", host="lion", status="paused")]
    driven.start("approve", cluster("both", balance="60"), driven.engine.conf(cache_seconds=0))
    the_plan(driven)
    driven.wake_all()
    driven.engine.happened(driven.engine.vms[1])
    driven.wait(lambda: len([each for each in command(driven, "list")[0] if each["state"] == WAITING]) == 2)  # fmt: skip
    driven.engine.answering.clear()
    keys = [each["plan"] for each in command(driven, "list")[0] if each["state"] == WAITING]
    asking = [threading.Thread(target=command, args=(driven, "approve", key)) for key in keys]
    for each in asking:
        each.start()
    states = ("approved", "approved")
    driven.wait(lambda: tuple(command(driven, "show", key)[0]["state"] for key in keys) == states)
    driven.engine.answering.set()
    for each in asking:
        each.join()
    ended = {command(driven, "show", key)[0]["because"] for key in keys}
    assert ended == {"1 of 1 migrations are begun", "vm0 is migrating"}
    assert len(driven.engine.migrations) == 1
    driven.engine.finish_migrations()
    driven.wait_for_log("is done")


@pytest.mark.long
def test_plans_of_a_dry_run_are_in_the_history(driven):
    """Once each; nobody can approve them."""
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster())
    key = the_plan(driven, "told")
    driven.wait_for_looks(4)
    told, _ = command(driven, "approve", key)
    assert "does not wait: it is told" in told
    driven.want({})
    driven.wait(lambda: command(driven, "show", key)[0]["state"] == "left behind")
    driven.stop()
    _, out, _ = run(driven.folder, "decisions", "--events", "-o", "json")
    assert [each["state"] for each in json.loads(out) if each["event"] == "plan"] == [
        "left behind",
        "told",
    ]
