"""Engines that tell of hosts and VMs: the one that the tests have, with larger clusters."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tests.support.elements import id_of
from tests.support.rest_affinity import HARD, SOFT, Group
from tests.support.rest_server import GIB, Host, Named, Reply, RestServer, Vm

_SLOW = 0.005  # seconds


def made(folder: Path, hosts: int) -> RestServer:
    """Of so many hosts, each with room for the VM.

    Args:
        folder: gets its password file and its certificate.
    """
    return RestServer(
        folder,
        [Host(f"host-{number}", max_scheduling_memory=32 * GIB) for number in range(hosts)],
        [Vm("wiki", status="down")],
    )


class SlowEngine(RestServer):
    """Takes 5 ms for each login and each request, as an engine on another machine does."""

    def __init__(self, folder: Path, hosts: int) -> None:
        named = [Host(f"host-{number}") for number in range(hosts)]
        super().__init__(folder, named, [Vm("wiki", status="down")])

    def get(self, path: str, parameters: Mapping[str, str]) -> Reply:
        time.sleep(_SLOW)
        return super().get(path, parameters)

    def login(self, form: Mapping[str, str]) -> Reply:
        time.sleep(_SLOW)
        return super().login(form)


class LargeEngine(RestServer):
    """Writes each host and VM with all the elements that an engine of 4.4 has, as long as its own.

    Of ten hosts one is busy, nine are not: there is something to balance.

    Attributes:
        answers: how many requests are being answered now.
    """

    answers = 0

    def __init__(self, folder: Path, hosts: int, vms: int, groups: int = 0) -> None:
        super().__init__(
            folder,
            [Host(f"host-{n:04d}", busy=95 if n % 10 == 0 else 40) for n in range(hosts)],
            [Vm(f"vm-{n:05d}", host=f"host-{n % hosts:04d}", busy=20) for n in range(vms)],
            tls=False,
        )
        self.groups = [_group(number, self.vms, self.hosts) for number in range(groups)]

    def get(self, path: str, parameters: Mapping[str, str]) -> Reply:
        self.answers += 1
        try:
            return super().get(path, parameters)
        finally:
            self.answers -= 1

    def _matches(self, entity: Named, search: str) -> bool:
        if search.startswith("id="):  # a hundred of them
            return entity.id in _ids(search)
        return super()._matches(entity, search)

    def _host(self, host: Host, follow: bool = False) -> str:  # type: ignore[override]
        busy = host.busy or 0
        return _template("host", follow).format(
            name=host.name, id=host.id, status=host.status, busy=busy, idle=99 - busy
        )

    def _vm(self, vm: Vm, follow: bool = False) -> str:  # type: ignore[override]
        text = _template("vm", follow).format(name=vm.name, id=vm.id, status=vm.status)
        if vm.host is None:
            return text
        host = id_of(vm.host)
        link = f'        <host href="/ovirt-engine/api/hosts/{host}" id="{host}"/>\n'
        return f"{text.removesuffix(_END)}{link}{_END}"


def _group(number: int, vms: list[Vm], hosts: list[Host]) -> Group:
    """One of 15 VMs beside each other in the list, which run on different hosts: none is broken."""
    members = [vm.name for vm in vms[number * 15 % len(vms) :][:15]]
    on = [host.name for host in hosts]
    rules: list[dict[str, Any]] = [
        {"apart": HARD}, {"apart": SOFT}, {"hosts": on, "on": HARD}, {"hosts": on[:5], "off": SOFT}
    ]  # fmt: skip
    return Group(f"group-{number}", members, **rules[number % len(rules)])


@cache
def _ids(search: str) -> frozenset[str]:
    return frozenset(term.partition("=")[2] for term in search.split(" or "))


_CLUSTER = "5d0f0f8e-58c6-4a3e-9d5c-0a3f0c6f7a11"
_END = "    </vm>\n"
_ACTIONS = {
    "vm": (
    "cancelmigration", "clone", "commitsnapshot", "detach", "export", "freezefilesystems",
    "logon", "maintenance", "migrate", "previewsnapshot", "reboot", "reordermacaddresses",
    "shutdown", "start", "stop", "suspend", "thawfilesystems", "ticket", "undosnapshot",
),
    "host": (
    "activate", "approve", "commitnetconfig", "deactivate", "enrollcertificate", "fence",
    "forceselectspm", "install", "iscsidiscover", "iscsilogin", "refresh", "setupnetworks",
    "unregisteredstoragedomainsdiscover", "upgrade", "upgradecheck",
),
}  # fmt: skip
_LINKS = {
    "vm": (
    "affinitylabels", "applications", "backups", "cdroms", "diskattachments", "graphicsconsoles",
    "hostdevices", "katelloerrata", "nics", "numanodes", "permissions", "reporteddevices",
    "sessions", "snapshots", "tags", "watchdogs",
),
    "host": (
    "affinitylabels", "devices", "externalnetworkproviderconfigurations", "fenceagents", "hooks",
    "katelloerrata", "networkattachments", "nics", "numanodes", "permissions", "storage",
    "storageconnectionextensions", "tags", "unmanagednetworks",
),
}  # fmt: skip
_STATISTICS: Mapping[str, Mapping[str, object]] = {
    "vm": {
    "memory.installed": 4 * GIB, "memory.used": 3 * GIB, "memory.free": GIB,
    "cpu.current.guest": 18, "cpu.current.hypervisor": 2, "cpu.current.total": 20,
    "network.current.total": 1, "migration.progress": 0, "disks.usage": 0,
    "elapsed.time": 86400, "cpu.usage.history": 20, "memory.usage.history": 75,
    "network.usage.history": 1,
},
    "host": {
    "memory.total": 256 * GIB, "memory.used": 64 * GIB, "memory.free": 192 * GIB,
    "memory.shared": 0, "memory.buffers": 0, "memory.cached": 0, "swap.total": 4 * GIB,
    "swap.free": 4 * GIB, "swap.used": 0, "swap.cached": 0, "ksm.cpu.current": 0,
    "cpu.current.user": "{busy}", "cpu.current.system": 1, "cpu.current.idle": "{idle}",
    "cpu.load.avg.5m": 2, "boot.time": 1700000000, "hugepages.2048.free": 0,
},
}  # fmt: skip
_CERTIFICATE = "".join(f"{'MIIDujCCAqKgAwIBAgICEAAwDQYJKoZI' * 2}\n" for _ in range(18))
# The elements of each host and VM by their names, and what is in them.
_ELEMENTS: Mapping[str, Mapping[str, Any]] = {
    "vm": {
        "name": "{name}",
        "description": "",
        "comment": "",
        "bios": {"boot_menu": {"enabled": "false"}, "type": "q35_sea_bios"},
        "cpu": {"architecture": "x86_64", "topology": {"cores": 2, "sockets": 1, "threads": 1}},
        "cpu_shares": 0,
        "creation_time": "2024-05-21T08:12:40.512+02:00",
        "delete_protected": "false",
        "display": {
            "address": "192.0.2.17",
            "allow_override": "false",
            "certificate": {
                "content": _CERTIFICATE,
                "organization": "example.org",
                "subject": "O=example.org,CN=host.example.org",
            },
            "copy_paste_enabled": "true",
            "disconnect_action": "LOCK_SCREEN",
            "file_transfer_enabled": "true",
            "monitors": 1,
            "port": 5901,
            "secure_port": 5902,
            "smartcard_enabled": "false",
            "type": "vnc",
        },
        "high_availability": {"enabled": "false", "priority": 1},
        "io": {"threads": 1},
        "memory": 4 * GIB,
        "memory_policy": {"ballooning": "true", "guaranteed": 2 * GIB, "max": 16 * GIB},
        "migration": {"auto_converge": "inherit", "compressed": "inherit"},
        "migration_downtime": -1,
        "multi_queues_enabled": "true",
        "origin": "ovirt",
        "os": {"boot": {"devices": {"device": "hd"}}, "type": "rhel_9x64"},
        "placement_policy": {"affinity": "migratable"},
        "sso": {"methods": ""},
        "start_paused": "false",
        "stateless": "false",
        "storage_error_resume_behaviour": "auto_resume",
        "time_zone": {"name": "Etc/GMT"},
        "type": "server",
        "usb": {"enabled": "false"},
        "fqdn": "{name}.example.org",
        "next_run_configuration_exists": "false",
        "numa_tune_mode": "interleave",
        "run_once": "false",
        "start_time": "2026-03-02T05:31:15.000+01:00",
        "status": "{status}",
        "stop_time": "2026-03-02T05:29:40.000+01:00",
    },
    "host": {
        "name": "{name}",
        "comment": "",
        "address": "{name}.example.org",
        "auto_numa_status": "unknown",
        "certificate": {
            "organization": "example.org",
            "subject": "O=example.org,CN={name}.example.org",
        },
        "cpu": {
            "name": "Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz",
            "speed": 2100,
            "topology": {"cores": 16, "sockets": 2, "threads": 1},
            "type": "Intel Cascadelake Server Family",
        },
        "external_status": "ok",
        "ksm": {"enabled": "true"},
        "max_scheduling_memory": 160 * GIB,
        "memory": 256 * GIB,
        "os": {"type": "RHEL", "version": {"full_version": "9.4 - 2.el9", "major": 9, "minor": 4}},
        "port": 54321,
        "protocol": "stomp",
        "spm": {"priority": 5, "status": "none"},
        "status": "{status}",
        "summary": {"active": 12, "migrating": 0, "total": 12},
        "transparent_hugepages": {"enabled": "true"},
        "type": "rhel",
        "update_available": "false",
    },
}


@cache
def _template(kind: str, follow: bool) -> str:
    """The element of a host or a VM, with places for ``str.format``."""
    base = f"/ovirt-engine/api/{kind}s/{{id}}"
    entity = Element(kind, href=base, id="{id}")
    _add_links(SubElement(entity, "actions"), base, _ACTIONS[kind])
    _add(entity, _ELEMENTS[kind])
    _add_links(entity, base, (*_LINKS[kind], *(() if follow else ("statistics",))))
    SubElement(entity, "cluster", href=f"/ovirt-engine/api/clusters/{_CLUSTER}", id=_CLUSTER)
    if follow:
        statistics = SubElement(entity, "statistics")
        for name, datum in _STATISTICS[kind].items():
            own = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
            statistic = SubElement(statistics, "statistic", href=f"{base}/statistics/{own}", id=own)
            _add(statistic, {
                "name": name,
                "description": f"What the monitoring of the {kind} told last of {name}",
                "kind": "gauge",
                "type": "decimal" if "cpu" in name else "integer",
                "unit": "percent" if "cpu" in name else "bytes",
            })  # fmt: skip
            values = SubElement(statistic, "values")
            for _ in range(5 if name.endswith("history") else 1):
                _add(values, {"value": {"datum": datum}})
            SubElement(statistic, kind, href=base, id="{id}")
    indent(entity, "    ", level=1)
    return f"{tostring(entity, 'unicode')}\n"


def _add_links(parent: Element, base: str, names: tuple[str, ...]) -> None:
    for name in names:
        SubElement(parent, "link", href=f"{base}/{name}", rel=name)


def _add(parent: Element, content: Mapping[str, Any]) -> None:
    for name, inside in content.items():
        child = SubElement(parent, name)
        if isinstance(inside, Mapping):
            _add(child, inside)
        else:
            child.text = str(inside)
