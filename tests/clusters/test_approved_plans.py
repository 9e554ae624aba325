"""Plans that wait for approval, in a real daemon with a fake engine."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from ovirt_scheduler.model.plans import WAITING
from ovirt_scheduler.security import trust
from tests.support.command import run
from tests.support.driven import OFTEN, cluster
from tests.support.rest_server import GIB, Host, Vm

BOTH = """\
from ovirt_scheduler.plugin import Scheduler


class Both(Scheduler):
    name = "both"

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        return {vm: [host] for vm in vms for host in hosts if (vm.name, host.name) == ("vm0", "puma")}

    def load_balance(self, hosts, vms, properties):
        return {vm: [host] for vm in vms for host in hosts if host.name == "lion"}
"""


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
    assert command(driven, "show", key)[0]["because"] == "puma is in maintenance"


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
    assert why_left(driven, key) == "puma is in maintenance"
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
