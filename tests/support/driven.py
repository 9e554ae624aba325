"""A fake engine whose clusters a daemon looks after, for tests: as an administrator has it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from tests.support.rest_server import Host, RestServer, Vm
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.daemon import Daemon

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
SLOW = '''\
"""Takes its time for each change, and answers with what its properties say."""

import os, pathlib, time

from ovirt_scheduler.plugin import Scheduler

FOLDER = pathlib.Path({folder!r})


def note(*words):
    with (FOLDER / "told").open("a") as file:
        file.write(" ".join(words) + "\\n")


class Slow(Scheduler):
    name = topic = "slow"
    properties_validation = "seconds=[0-9.]+;target=[a-z]*"
    default_values = "0;nowhere"

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        note(vm.name, old_status, new_status, str(os.getppid()))
        time.sleep(float(properties["seconds"]))
        return {{vm: [host] for host in hosts if host.name == properties["target"]}}

    def on_timer_invoked(self, hosts, vms, properties):
        note("timer")
        return {{}}
'''


class Driven:
    """A fake engine, and daemons that look after its clusters, one after another.

    Args:
        start: starts a daemon.
    """

    def __init__(self, folder: Path, start: Callable[..., Daemon]) -> None:
        self.folder = folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.told = folder / "told"
        self.told.touch()
        self.want({})
        for name, text in (("recorder", RECORDER), ("slow", SLOW)):
            (self.plugins / f"{name}.py").write_text(text.format(folder=str(folder)))
        self.open = contextlib.ExitStack()
        hosts = [Host("lynx", measured=True), Host("puma", measured=True)]
        vms = [Vm("web", host="lynx"), Vm("mail", host="puma")]
        self.engine = self.open.enter_context(RestServer(folder, hosts, vms))
        self.daemon: Daemon
        self._start = start

    def start(self, drive: str, clusters: str, engine: str = "") -> Daemon:
        settings = f"ssl = false\nlog_level = info\ndrive = {drive}\n{engine or self.engine.conf()}"
        settings = f"{settings}\n[clusters]\n{clusters}\n"
        self.daemon = self._start(self.folder, self.plugins, settings, [])
        self.open.callback(self.stop)
        return self.daemon

    def stop(self) -> None:
        self.daemon.stop()

    def want(self, migrations) -> None:
        """VM to host, by name: what the recorder answers when it is to balance."""
        unfinished = self.folder / "unfinished"
        unfinished.write_text(str(migrations).replace("'", '"'))
        unfinished.replace(self.folder / "wanted")

    def crowd(self, number: int) -> None:
        """So many VMs on one host, paused."""
        self.engine.vms[:] = [
            Vm(f"vm{each}", host="lynx", status="paused") for each in range(number)
        ]

    def wait_until_known(self) -> None:
        """Until the daemon knows the status of each VM; a change is one from then on."""
        memory = self.folder / "state" / "clusters.json"
        self.wait(memory.exists)
        self.wait(lambda: all(vm.id in memory.read_text() for vm in self.engine.vms))

    def wake_all(self) -> None:
        """The status of each VM becomes another, once they have been looked at."""
        self.wait_until_known()
        for vm in self.engine.vms:
            vm.status = "up"

    def vm(self, name: str) -> Vm:
        return next(vm for vm in self.engine.vms if vm.name == name)

    def wait(self, condition, what="it did not happen") -> None:
        wait_until(condition, lambda: f"{what}; {self._seen()}")

    def _seen(self) -> str:
        """What a test may have waited for."""
        vms = {vm.name: (vm.host, vm.status) for vm in self.engine.vms[:20]}
        hosts = {host.name: host.status for host in self.engine.hosts[:20]}
        return (
            f"migrations asked for: {self.engine.migrations[:20]}\nhosts: {hosts}\nVMs: {vms}\n"
            f"looks: {self.looks()}\nthe scheduler was told:\n{self.told.read_text()}\n"
            f"log:\n{self.daemon.log}"
        )

    def wait_for_log(self, words: str) -> None:
        self.wait(lambda: words in self.daemon.log, f"the log never said {words!r}")

    def looks(self, name: str = "") -> int:
        """Queries for VMs; of those in pages, the first."""
        searches = [query.search for query in self.engine.asked("vms")]
        return sum(
            name in search and not re.search(r" page ([2-9]|1\d)", search) for search in searches
        )

    def wait_for_looks(self, more: int = 2) -> None:
        """Until the cluster has been looked at so often again."""
        goal = self.looks() + more
        self.wait(lambda: self.looks() >= goal, "it was not looked at")


def cluster(scheduler="recorder", name="Default", balance=OFTEN, timer="0", **others):
    """A section; ``balance`` and ``timer`` are intervals in minutes."""
    lines = [f"[[{name}]]", f"scheduler = {scheduler}"]
    lines += [f"load_balance_interval = {balance}", f"timer_interval = {timer}"]
    others = {"hold": 0, "margin": 0, **others}  # else nothing would be made at once
    return "\n".join(lines + [f"{key} = {value}" for key, value in others.items()])
