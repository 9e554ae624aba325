"""Clusters that the daemon looks after itself, in a made engine."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import pytest
from conftest import Daemon
from rest_server import GIB, Host, RestServer, Vm
from waiting import wait_until

OFTEN = "0.004"  # minutes

RECORDER = '''\
"""Writes down what it is told; answers with what a file says."""

import json, pathlib

from ovirt_scheduler.plugin import Scheduler

FOLDER = pathlib.Path({folder!r})


def note(*words):
    with (FOLDER / "told").open("a") as file:
        file.write(" ".join(words) + "\\n")


class Recorder(Scheduler):
    name = "recorder"

    def on_host_status_changed(self, host, old_status, new_status, hosts, vms, properties):
        note("host", host.name, old_status, new_status)
        return {{}}

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        note("vm", vm.name, old_status, new_status)
        return {{}}

    def on_timer_invoked(self, hosts, vms, properties):
        note("timer", properties.get("word", ""), str(len(hosts)), str(len(vms)))
        return {{}}

    def load_balance(self, hosts, vms, properties):
        wanted = json.loads((FOLDER / "wanted").read_text())
        host_ids = {{host.name: host.id for host in hosts}}
        return {{
            vm.id: [host_ids[name] for name in wanted[vm.name].split()]
            for vm in vms
            if vm.name in wanted
        }}
'''
FAILING = '''\
"""Fails whatever it is asked."""

from ovirt_scheduler.plugin import Scheduler


class Failing(Scheduler):
    name = "failing"
    topic = "failing"

    def load_balance(self, hosts, vms, properties):
        raise RuntimeError("out of order")
'''


class Driven:
    """A made engine, and daemons that look after its clusters, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.told = folder / "told"
        self.told.touch()
        self.want({})
        (self.plugins / "recorder.py").write_text(RECORDER.format(folder=str(folder)))
        self.open = contextlib.ExitStack()
        hosts = [Host("lynx", measured=True), Host("puma", measured=True)]
        vms = [Vm("web", host="lynx"), Vm("mail", host="puma")]
        self.engine = self.open.enter_context(RestServer(folder, hosts, vms))
        self.daemon: Daemon

    def start(self, drive: str, clusters: str, engine: str = "") -> Daemon:
        settings = f"ssl = false\nlog_level = info\ndrive = {drive}\n{engine or self.engine.conf()}"
        settings = f"{settings}\n[clusters]\n{clusters}\n"
        self.daemon = Daemon(self.folder, self.plugins, settings, [])
        self.open.callback(self.stop)
        return self.daemon

    def stop(self) -> None:
        self.daemon.stop()

    def want(self, migrations) -> None:
        """VM to host, by name: what the recorder answers when it is to balance."""
        unfinished = self.folder / "unfinished"
        unfinished.write_text(str(migrations).replace("'", '"'))
        unfinished.replace(self.folder / "wanted")

    def vm(self, name: str) -> Vm:
        return next(vm for vm in self.engine.vms if vm.name == name)

    def wait(self, condition, what="it did not happen") -> None:
        wait_until(condition, lambda: f"{what}:\n{self.daemon.log}\n{self.told.read_text()}")

    def wait_for_log(self, words: str) -> None:
        self.wait(lambda: words in self.daemon.log, f"the log never said {words!r}")

    def looks(self) -> int:
        return len(self.engine.asked("vms"))

    def wait_for_looks(self, more: int = 2) -> None:
        """Until the cluster has been looked at so often again."""
        goal = self.looks() + more
        self.wait(lambda: self.looks() >= goal, "it was not looked at")


@pytest.fixture
def driven(tmp_path):
    made = Driven(tmp_path)
    with made.open:
        yield made


def cluster(scheduler="recorder", name="Default", balance=OFTEN, timer="0", **others):
    lines = [f"[[{name}]]", f"scheduler = {scheduler}"]
    lines += [f"load_balance_interval = {balance}", f"timer_interval = {timer}"]
    return "\n".join(lines + [f"{key} = {value}" for key, value in others.items()])


def test_a_dry_run_only_says_what_it_would_do(driven):
    """Once, however often it comes to the same."""
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster())
    driven.wait_for_log("cluster Default: would migrate web from lynx to puma")
    driven.wait_for_looks()
    assert driven.daemon.log.count("would migrate") == 1
    assert driven.engine.migrations == []


def test_a_migration_is_made_and_followed_to_its_end(driven):
    """And nothing is balanced meanwhile."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: migrating web from lynx to puma")
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])
    driven.want({"mail": "lynx"})
    driven.wait_for_looks()
    assert driven.engine.migrations == [("web", "puma")]
    driven.engine.finish_migrations()
    driven.wait_for_log("cluster Default: the migration of web to puma is done after")
    driven.wait(lambda: ("mail", "lynx") in driven.engine.migrations)


def test_a_vm_that_was_moved_stays_in_the_next_balancing(driven):
    """Whatever the scheduler answers."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    moved = [("web", "puma"), ("mail", "lynx"), ("web", "lynx")]
    for number in range(1, 4):
        driven.wait(lambda wanted=moved[:number]: driven.engine.migrations == wanted)
        driven.want({"web": "lynx", "mail": "lynx"})
        driven.engine.finish_migrations()


def test_a_migration_to_any_host_is_the_engines_choice(driven):
    """It is done when the VM is on another host."""
    driven.want({"web": ""})
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: migrating web from lynx to any host")
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])
    driven.engine.finish_migrations()
    driven.wait_for_log("cluster Default: the migration of web to any host is done after")


def test_a_migration_is_followed_across_a_restart(driven):
    """Who begins it need not be who sees it end."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    driven.wait_for_log("migrating web from lynx to puma")
    driven.stop()
    driven.engine.finish_migrations()
    driven.want({})
    driven.start("on", cluster())
    driven.wait_for_log("the migration of web to puma is done after")


def test_a_stop_begins_no_other_migration_and_forgets_none(driven):
    """Those that the engine was asked for are followed after the start."""
    crowd = [Vm(f"vm{number}", host="lynx") for number in range(100)]
    driven.engine.vms[:] = crowd
    driven.want({vm.name: "puma" for vm in crowd})
    driven.start("on", cluster())
    driven.wait(lambda: driven.engine.migrations)
    driven.stop()
    begun = [name for name, _ in driven.engine.migrations]
    assert len(begun) < len(crowd)
    driven.engine.finish_migrations()
    driven.want({})
    driven.start("on", cluster())
    for name in begun:
        driven.wait_for_log(f"the migration of {name} to puma is done after")


def test_a_migration_that_fails_is_told(driven):
    """With the host on which the VM is; it is tried again after the next balancing but one."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    driven.wait(lambda: len(driven.engine.migrations) == 1)
    driven.wait_for_looks()
    driven.engine.finish_migrations(well=False)
    driven.wait_for_log("the migration of web to puma failed, the VM is on lynx, after")
    driven.wait(lambda: len(driven.engine.migrations) == 2)


def test_a_migration_that_the_engine_refuses_is_told(driven):
    """With what the engine says."""
    driven.want({"web": "puma"})
    driven.engine.hosts[1].status = "maintenance"
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: cannot migrate web from lynx to puma: ")
    assert "Cannot migrate VM." in driven.daemon.log


def test_a_change_of_status_reaches_its_hook_once(driven):
    """With the old and the new one, as soon as the engine has an event."""
    driven.start("dry-run", cluster(balance="0"))
    driven.wait_for_looks(1)
    driven.wait(lambda: driven.engine.asked("events"))
    driven.engine.hosts[0].status = "non_operational"
    driven.vm("mail").status = "paused"
    driven.engine.happened()
    wanted = "host lynx up non_operational\nvm mail up paused\n"
    driven.wait(lambda: driven.told.read_text() == wanted)
    driven.engine.happened()
    driven.wait_for_looks(1)
    driven.stop()
    assert driven.told.read_text() == wanted


def test_a_change_of_status_reaches_its_hook_once_across_a_restart(driven):
    """Also one that happened while the daemon was away."""
    driven.start("dry-run", cluster())
    driven.wait_for_looks()
    driven.stop()
    driven.engine.hosts[0].status = "maintenance"
    driven.start("dry-run", cluster())
    driven.wait(lambda: driven.told.read_text() == "host lynx up maintenance\n")
    driven.stop()
    driven.start("dry-run", cluster())
    driven.wait_for_looks()
    assert driven.told.read_text() == "host lynx up maintenance\n"


def test_the_timer_is_invoked_again_and_again(driven):
    """With the cluster's properties, hosts and VMs."""
    driven.start("dry-run", cluster(balance="0", timer=OFTEN, properties="word=hello"))
    driven.wait(lambda: driven.told.read_text().count("timer hello 2 2\n") >= 3)


def test_a_cluster_sees_its_own_hosts_and_vms_alone(driven):
    """Others of the engine are none of its business."""
    driven.engine.hosts.append(Host("lion", cluster="Other"))
    driven.engine.vms.append(Vm("elsewhere", host="lion", cluster="Other"))
    driven.start("dry-run", cluster(timer=OFTEN))
    driven.wait(lambda: "timer  2 2\n" in driven.told.read_text())
    assert "timer  3" not in driven.told.read_text()


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
        "cluster Unknown: scheduler: there is no scheduler 'nobody'; write one of default, failing"
    )
    driven.wait_for_log("cluster Empty: the engine knows no host in it")
    driven.wait_for_log("out of order")
    driven.wait_for_looks(8)
    assert driven.daemon.log.count("cluster Empty: the engine knows no host in it") == 1


def test_an_engine_that_is_away_is_waited_for(driven):
    """It is told once, and once more when it is well."""
    driven.engine.hosts, hosts = [], driven.engine.hosts
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster())
    driven.wait_for_log("the engine knows no host in it")
    driven.engine.hosts = hosts
    driven.wait_for_log("would migrate web")
    driven.wait_for_log("cluster Default: is looked after again")


def test_other_settings_hold_after_sighup(driven):
    """From a dry run to the real thing, without a restart."""
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster())
    driven.wait_for_log("would migrate web")
    conf = driven.folder / "scheduler.conf"
    conf.write_text(conf.read_text().replace("drive = dry-run", "drive = on"))
    driven.daemon.process.send_signal(1)
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])


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
        elif "is done after" in line and rounds[-1]:
            rounds.append(set())
    return rounds[:-1] if not rounds[-1] else rounds
