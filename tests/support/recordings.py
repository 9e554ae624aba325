"""A recording to replay: calls of a rule, whose answers are worked out here, and one of each other kind."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from tests.support.daemon import Daemon, StartDaemon
from tests.support.paths import PROJECT
from tests.support.rest_server import RestServer, id_of

GIB = 1 << 30
ID = "00000000-0000-4000-8000-{:012}"
RULE = re.compile(r"^```\w+\n# Reserve\.(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

FREE = """
def do_score(hosts, vm, properties):
    return {host.id: -host.max_scheduling_memory // 2**30 for host in hosts}
"""
LARGE = """
def do_score(hosts, vm, properties):
    return {host.id: host.memory // 2**30 for host in hosts}
"""
OTHER_PLUGINS = {
    "Free": FREE,
    "Large": LARGE,
    "Chance": """
import random

def do_filter(hosts, vm, properties):
    return [host for host in hosts if random.random() < 0.5]
""",
    "Asks": """
from ovirt_scheduler.plugin import engine_connection

def do_filter(hosts, vm, properties):
    there = [each.name for each in engine_connection().system_service().hosts_service().list()]
    return [host for host in hosts if host.name in there]
""",
    "First": """
def do_filter(hosts, vm, properties):
    return hosts[:1]
""",
    "Named": """
def do_filter(hosts, vm, properties):
    return [host for host in hosts if (host.name, vm.name) == ("lynx", "web")]
""",
    "Mover": """
from ovirt_scheduler.plugin import LoadBalancer, VmStatusChanged

class Mover(LoadBalancer, VmStatusChanged):
    topic = None

    def load_balance(self, hosts, vms, properties):
        return {vm: hosts[:1] for vm in vms if vm.name == "web"}

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        return {vm: hosts[1:]} if (vm.name, old_status, new_status) == ("web", "up", "down") else {}
""",
    "Away": """
def do_balance(hosts, properties):
    return "a vm", [host for host in hosts if host.memory > 2**30 * int(properties["least"])]
""",
    "Both": """
def do_filter(hosts, vm, properties):
    return hosts

def do_score(hosts, vm, properties):
    return {host.id: number for number, host in enumerate(hosts)}
""",
}
LYNX, PUMA = id_of("lynx"), id_of("puma")
# Memory and free memory in GiB.
THREE = (
    "<hosts>"
    + "".join(
        f'<host id="{ID.format(number)}"><name>h{number}</name><memory>{memory * GIB}</memory>'
        f"<max_scheduling_memory>{free * GIB}</max_scheduling_memory></host>"
        for number, (memory, free) in enumerate([(64, 30), (32, 20), (16, 15)])
    )
    + "</hosts>"
)
H0, H1, H2 = map(ID.format, range(3))


class Asked(NamedTuple):
    """A decision of the recording, as the test knows it."""

    memory: int  # GiB, of the VM
    is_available: bool
    hosts: dict[str, Sequence[int]]  # memory and free memory, in GiB

    def left(self, percent: int) -> list[str]:
        """The hosts that the rule of the cookbook leaves, worked out here."""
        return [
            host
            for host, (memory, free) in self.hosts.items()
            if self.is_available or 100 * (free - self.memory) >= percent * memory
        ]


def ask(daemon: Daemon, count: int, chance: random.Random) -> dict[str, Asked]:
    """So many calls of the rule on some of ten hosts, by the names of their VMs."""
    asked: dict[str, Asked] = {}
    with daemon.proxy() as proxy:
        for number in range(count):
            hosts = {}
            for host in chance.sample(range(10), 4):
                memory = 32 * (1 + host % 3)
                hosts[ID.format(host)] = memory, chance.randrange(memory)
            one = Asked(chance.choice([1, 4, 16]), chance.random() < 0.1, hosts)
            elements = "".join(
                f'<host id="{host}"><name>h{host[-1]}</name><memory>{memory * GIB}</memory>'
                f"<max_scheduling_memory>{free * GIB}</max_scheduling_memory></host>"
                for host, (memory, free) in hosts.items()
            )
            vm = (
                f'<vm id="{ID.format(1000 + number)}"><name>vm{number}</name>'
                f"<memory>{one.memory * GIB}</memory><high_availability><enabled>"
                f"{str(one.is_available).lower()}</enabled></high_availability></vm>"
            )
            left = proxy.runFilters(["Reserve"], f"<hosts>{elements}</hosts>", vm, {})
            assert left == one.left(25)
            asked[f"vm{number}"] = one
    return asked


def ask_others(daemon: Daemon) -> None:
    """One call of each other kind; the VM's name says which."""
    vm = "<vm id='v'><name>{}</name><memory>{}</memory></vm>"
    with daemon.proxy("/engine") as proxy:  # which leaves out a unit that is not there
        proxy.runCostFunctions([["Free", 2], ["Large", 1]], THREE, vm.format("engine's", GIB), {})
    with daemon.proxy() as proxy:
        costs = [["Free", 2], ["Large", 1]]  # 64 - 60 = 4, 32 - 40 = -8, 16 - 30 = -14
        proxy.runCostFunctions(costs, THREE, vm.format("scored", GIB), {})
        properties = {"filters": "Reserve", "cost_functions": "Large=1"}  # h0 and h1 have room
        assert proxy.selectHost("default", THREE, vm.format("selected", 12 * GIB), properties) == H1
        both = {"filters": "Both", "cost_functions": "Both=1"}
        assert proxy.selectHost("default", THREE, vm.format("by both", GIB), both) == H0
        many = [ID.format(number) for number in range(40)]
        proxy.runFilters(["Chance"], many, "by chance \x9b", {})  # which steers a terminal
        proxy.runFilters(["Asks"], [LYNX, PUMA], "of the engine", {})
        assert proxy.runFilters(["Named"], [LYNX, PUMA], id_of("web"), {}) == [LYNX]
        vms = "<vms><vm id='1'><name>web</name></vm><vm id='2'><name>db</name></vm></vms>"
        assert proxy.loadBalance("Mover", THREE, vms, {}) == {"1": [H0]}
        changed = proxy.onVmStatusChanged("Mover", "1", "up", "down", THREE, vms, {})
        assert changed == {"1": [H1, H2]}
        web = id_of("web")
        changed = proxy.onVmStatusChanged("Mover", web, "up", "down", [LYNX, PUMA], [web], {})
        assert changed == {web: [PUMA]}
        assert proxy.runLoadBalancing("Away", THREE, {"least": "30"}) == {"a vm": [H0, H1]}


class Recording(NamedTuple):
    """A daemon's recording, and folders with policies."""

    state: Path
    today: Path
    other: Path  # the rule keeps 40 percent, and not 25
    asked: dict[str, Asked]


def recorded(
    start: StartDaemon, folder: Path, count: int, engine: Optional[RestServer] = None
) -> Recording:
    today, other, conf = folder / "today", folder / "other", folder / "conf"
    rule = dict(RULE.findall((PROJECT / "docs" / "cookbook.md").read_text("utf-8")))
    for each in (today, other, conf):
        each.mkdir()
    (conf / "Reserve.conf").write_text(rule["conf"], "utf-8")
    (conf / "First.conf").write_text("shadow = true\n", "utf-8")
    (other / "Reserve.conf").write_text(rule["conf"].replace('"25"', '"40"'), "utf-8")
    for each in (today, other):
        (each / "Reserve.py").write_text(rule["py"], "utf-8")
        for name, text in OTHER_PLUGINS.items():
            (each / f"{name}.py").write_text(text, "utf-8")
    section = "" if engine is None else engine.conf()
    settings = f"ssl = false\nrecord = true\nplugins_conf_path = {conf}\n{section}"
    daemon = start(today, settings, folder=folder)
    asked = ask(daemon, count, random.Random(count))
    if engine is not None:
        ask_others(daemon)
    daemon.process.terminate()
    daemon.process.wait()
    return Recording(daemon.state, today, other, asked)
