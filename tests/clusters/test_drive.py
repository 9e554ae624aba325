"""Clusters that the daemon looks after itself, in a fake engine: what it tells their schedulers."""

from __future__ import annotations

import errno
import random
import re
import signal
import socket
import time

import pytest

from tests.support.driven import OFTEN, cluster
from tests.support.rest_server import GIB, Event, Host, Reply, Vm
from tests.support.waiting import LONG

pytestmark = pytest.mark.long

FAILING = '''\
"""Fails whatever it is asked."""

from ovirt_scheduler.plugin import Scheduler


class Failing(Scheduler):
    name = "failing"
    topic = "failing"

    def load_balance(self, hosts, vms, properties):
        raise RuntimeError("out of order")
'''


def test_a_change_of_status_reaches_its_hook_once(driven):
    """As soon as the engine has an event, or after the restart if the daemon was away."""
    driven.start("dry-run", cluster(balance="0"))
    driven.wait_until_known()
    driven.wait(lambda: len(driven.engine.asked("events")) > 1)
    driven.engine.hosts[0].status = "non_operational"
    driven.vm("mail").status = "paused"
    driven.engine.happened(driven.engine.hosts[0], driven.vm("mail"))
    wanted = "host lynx up non_operational\nvm mail up paused\n"
    driven.wait(lambda: driven.told.read_text() == wanted)
    driven.engine.happened(driven.vm("mail"))
    driven.wait_for_looks(1)
    driven.stop()
    assert driven.told.read_text() == wanted
    driven.vm("mail").status = "up"
    driven.start("dry-run", cluster())
    wanted += "vm mail paused up\n"
    driven.wait(lambda: driven.told.read_text() == wanted)
    driven.wait_for_looks()
    assert driven.told.read_text() == wanted


def test_events_are_heard_of_an_engine_that_counts_them_from_a_lower_number(driven):
    """As one does that was restored from a backup."""
    driven.start("dry-run", cluster(balance="0"), driven.engine.conf(cache_seconds=0))
    driven.wait(lambda: any(query.after == 1000 for query in driven.engine.asked("events")))
    driven.engine.broken = Reply(503, "text/html", "")
    failed = len(driven.engine.asked("events"))
    driven.wait(lambda: len(driven.engine.asked("events")) > failed)
    driven.engine.events.clear()
    driven.engine.events[10] = Event(30, ())
    driven.engine.broken = None
    driven.wait(lambda: any(query.after == 10 for query in driven.engine.asked("events")))
    assert driven.engine.asked("events")[-1].after == 10


def test_many_changes_at_once_are_told_once_each_also_across_a_stop(driven):
    """The documents are read for many of them, not for each."""
    driven.crowd(50)
    slow = cluster("slow", balance="0", timer=OFTEN, properties="seconds=0.02")
    driven.start("dry-run", slow)
    driven.wake_all()
    driven.wait(lambda: driven.told.read_text().count("paused up") > 5)
    driven.stop()
    assert driven.told.read_text().count("paused up") < 50
    driven.start("dry-run", slow)
    driven.wait(lambda: driven.told.read_text().count("paused up") >= 50)
    driven.wait_for_looks()
    told = [line.split() for line in driven.told.read_text().splitlines() if line != "timer"]
    assert sorted(words[0] for words in told) == sorted(vm.name for vm in driven.engine.vms)
    assert len({words[3] for words in told}) < 25


def test_slow_hooks_do_not_keep_the_timer_waiting(driven):
    """It comes between two of them, and the others after it."""
    driven.crowd(40)
    slow = cluster("slow", balance="0", timer=OFTEN, properties="seconds=0.4")
    driven.start("dry-run", slow)
    driven.wake_all()
    between = re.compile(r"up \d+\n(timer\n)+vm")
    driven.wait(lambda: between.search(driven.told.read_text()))
    assert driven.told.read_text().count("paused up") < 40


def test_what_hooks_answered_is_not_lost_with_a_daemon_that_is_killed(driven):
    """Those that it had called, and not acted on yet, are called again."""
    driven.crowd(3)
    slow = cluster("slow", balance="0", timer="0", properties="seconds=1;target=puma")
    driven.start("on", slow)
    driven.wake_all()
    driven.wait(lambda: len(driven.engine.asked("events")) > 1)
    driven.engine.happened(*driven.engine.vms)
    driven.wait(lambda: driven.told.read_text().count("paused up") == 2)
    driven.daemon.process.kill()
    driven.daemon.process.wait()
    assert driven.engine.migrations == []
    driven.start("on", slow)
    driven.wait(lambda: len(driven.engine.migrations) == 3)


def test_a_hook_that_the_stop_cut_off_is_not_called_again(driven):
    """It had its time: whoever takes longer has failed, as everywhere."""
    driven.crowd(1)
    slow = cluster("slow", balance="0", timer=OFTEN, properties="seconds=20")
    driven.start("dry-run", slow)
    driven.wake_all()
    driven.wait(lambda: "paused up" in driven.told.read_text())
    driven.stop()
    driven.told.write_text("")
    driven.start("dry-run", slow)
    driven.wait(lambda: "timer" in driven.told.read_text())
    assert "paused up" not in driven.told.read_text()


WAITING = """
import pathlib, time

from ovirt_scheduler.plugin import Scheduler

class Waiting(Scheduler):
    name = topic = "waiting"

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        folder = pathlib.Path({folder!r})
        (folder / "begun").touch()
        while not (folder / "go on").exists():
            time.sleep(0.05)
        (folder / "ended").touch()
        return {{}}
"""


def test_a_daemon_that_stops_refuses_callers_while_it_waits_for_a_hook(driven):
    """Else hooks and calls would have their time one after the other, and the end would be late."""
    (driven.plugins / "waiting.py").write_text(WAITING.format(folder=str(driven.folder)))
    driven.crowd(1)
    driven.start("dry-run", cluster("waiting", balance="0", timer="0"))
    driven.wake_all()
    driven.wait(lambda: len(driven.engine.asked("events")) > 1)
    driven.engine.happened(*driven.engine.vms)
    driven.wait((driven.folder / "begun").exists)
    driven.daemon.process.send_signal(signal.SIGTERM)
    port = int(driven.daemon.url.rpartition(":")[2])
    driven.wait(lambda: is_refused(port))
    (driven.folder / "go on").touch()
    assert driven.daemon.process.wait(LONG) == 0
    assert (driven.folder / "ended").exists()


def is_refused(port: int) -> bool:
    with socket.socket() as channel:
        return channel.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_a_reload_does_not_tell_a_change_that_is_being_told(driven):
    """The cluster is looked after again when the hook has ended."""
    driven.crowd(1)
    driven.engine.hosts.append(Host("lion", cluster="Other"))
    settings = "\n".join(
        [cluster("slow", balance="0", timer=OFTEN, properties="seconds=7"), cluster(name="Other")]
    )
    driven.start("dry-run", settings)
    driven.wake_all()
    driven.wait(lambda: "paused up" in driven.told.read_text())
    driven.daemon.process.send_signal(signal.SIGHUP)
    driven.wait_for_log("are read again")
    goal = driven.looks("Other") + 3
    driven.wait(lambda: driven.looks("Other") >= goal)
    driven.wait(lambda: driven.told.read_text().endswith("timer\n"))
    assert driven.told.read_text().count("paused up") == 1


def test_the_timer_is_invoked_again_and_again(driven):
    """With the cluster's properties and its own hosts and VMs, not with others of the engine."""
    driven.engine.hosts.append(Host("lion", cluster="Other"))
    driven.engine.vms.append(Vm("elsewhere", host="lion", cluster="Other"))
    driven.start("dry-run", cluster(balance="0", timer=OFTEN, properties="word=hello"))
    driven.wait(lambda: driven.told.read_text().count("timer hello 2 2\n") >= 3)
    assert set(driven.told.read_text().splitlines()) == {"timer hello 2 2"}


def test_one_bad_cluster_or_scheduler_stops_no_other(driven):
    """Each problem is told once, with the cluster."""
    (driven.plugins / "failing.py").write_text(FAILING)
    for name in ("Failing", "Unknown"):
        driven.engine.hosts.append(Host(name.lower(), cluster=name))
    driven.want({"web": "puma"})
    clusters = [cluster("failing", "Failing"), cluster("nobody", "Unknown"), cluster(name="Empty")]
    driven.start("on", "\n".join([*clusters, cluster()]))
    driven.wait_for_log("cluster Default: migrating web")
    driven.wait_for_log(
        "[clusters] [[Unknown]] scheduler: there is no scheduler 'nobody'; write one of default, "
        "failing"
    )
    driven.wait_for_log("cluster Empty: the engine knows no host in it")
    driven.wait_for_log("out of order")
    driven.wait_for_looks(8)
    assert driven.daemon.log.count("cluster Empty: the engine knows no host in it") == 1


def test_an_engine_that_is_not_well_is_waited_for(driven):
    """That it gives no answer is told once, however it does that; and when it is well again."""
    driven.want({"web": "puma"})
    driven.engine.broken = Reply(200, "application/xml", "<hosts><host id='1'><na")
    driven.start("dry-run", cluster(), driven.engine.conf(cache_seconds=0))
    driven.wait_for_log("cluster Default: the engine's reply cannot be read: hosts, line 1")
    driven.engine.broken = Reply(503, "text/html", "<html>")
    driven.wait_for_log("answered HTTP 503")
    driven.engine.broken = Reply(502, "text/html", "<html>")
    goal = len(driven.engine.queries) + 3  # for hosts or events: one that failed speaks for others
    driven.wait(lambda: len(driven.engine.queries) >= goal)
    driven.engine.broken = None
    driven.wait_for_log("cluster Default: is looked after again")
    driven.wait_for_log("would migrate web")
    assert driven.daemon.log.count("WARNING") == 2


@pytest.mark.parametrize("policy", ["evenly_distribute", "power_saving"])
def test_a_cluster_of_50_hosts_and_500_vms_is_balanced(driven, policy):
    """By the default scheduler: within its thresholds, or on fewer hosts; no VM twice in a row."""
    chance = random.Random(policy)
    engine = driven.engine
    engine.hosts[:] = [
        Host(f"host{number:02}", max_scheduling_memory=None, measured=True) for number in range(50)
    ]
    crowded = 24 if policy == "evenly_distribute" else 50
    engine.vms[:] = [
        Vm(
            f"vm{number}",
            host=f"host{number % crowded:02}",
            memory=chance.choice([1, 2, 3]) * GIB,
            affinity="pinned" if number % 50 == 0 else "migratable",
        )
        for number in range(500)
    ]
    pinned = [(vm.name, vm.host) for vm in engine.vms if vm.affinity == "pinned"]
    engine.instant_migrations = True
    used_before = len({vm.host for vm in engine.vms})
    balancing = "high_utilization=60;low_utilization=20;most_migrations=100"
    driven.start("on", cluster("default", policy=policy, properties=balancing))
    before = -1
    while len(engine.migrations) > before:
        before = len(engine.migrations)
        driven.wait_for_looks(3)  # a VM that was moved stays the next time
    used = [sum(vm.memory for vm in engine.vms if vm.host == host.name) for host in engine.hosts]
    assert [(vm.name, vm.host) for vm in engine.vms if vm.affinity == "pinned"] == pinned
    assert max(used) <= 0.6 * 64 * GIB
    if policy == "evenly_distribute":
        assert min(used) >= 0.2 * 64 * GIB
    else:
        assert len({vm.host for vm in engine.vms}) < used_before
    assert "warning" not in driven.daemon.log.lower()
    rounds = moved_together(driven.daemon.log)
    assert len(rounds) > 1
    assert not any(first & second for first, second in zip(rounds, rounds[1:]))


def moved_together(log):
    """The names of the VMs that each balancing moved: all are there before the next one."""
    rounds = [set()]
    for line in log.splitlines():
        moved = re.search(r": migrating (\S+) from", line)
        if moved:
            rounds[-1].add(moved[1])
        elif "is done" in line and rounds[-1]:
            rounds.append(set())
    return rounds[:-1] if not rounds[-1] else rounds


def test_events_lead_to_a_look_when_they_name_something_of_the_cluster(driven):
    """Not sooner than ``look_distance`` after the look before; what came meanwhile is one look."""
    settings = cluster(balance="0")
    driven.start("dry-run", settings, driven.engine.conf(look_distance=3600))
    driven.wait_for_looks(1)

    def wait_for_watching():
        goal = len(driven.engine.asked("events")) + 2
        driven.wait(lambda: len(driven.engine.asked("events")) >= goal)

    wait_for_watching()
    looks = driven.looks()
    driven.vm("web").status = "paused"
    driven.engine.happened(driven.vm("web"))
    wait_for_watching()
    assert driven.looks() == looks
    driven.stop()
    driven.start("dry-run", settings)
    driven.wait(lambda: driven.told.read_text() == "vm web up paused\n")
    wait_for_watching()
    looks = driven.looks()
    driven.engine.happened()
    driven.engine.happened(Vm("stranger"))
    wait_for_watching()
    assert driven.looks() == looks
    driven.engine.happened(driven.vm("mail"))
    driven.wait_for_looks(1)


def test_an_engine_that_is_away_is_asked_less_and_less_often(driven):
    """The log tells it once, and when it is back."""
    asked_at = []
    answer = driven.engine.get

    def get(path, parameters):
        if path == "hosts":
            asked_at.append(time.monotonic())
        return answer(path, parameters)

    driven.engine.get = get
    driven.engine.broken = Reply(503, "text/html", "")
    driven.start("dry-run", cluster(), driven.engine.conf(cache_seconds=0))
    driven.wait(lambda: len(asked_at) >= 4)
    driven.engine.broken = None
    driven.wait_for_log("is looked after again")
    first, second, third, fourth = asked_at[:4]
    assert fourth - third > second - first
    assert driven.daemon.log.count("cluster Default: http") == 1
