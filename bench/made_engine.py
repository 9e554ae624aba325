"""Engines that tell of hosts and VMs: the one that the tests have, with larger clusters."""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path
from typing import Mapping

from tests.support.rest_server import GIB, Host, Named, Reply, RestServer, Vm, id_of


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


class LargeEngine(RestServer):
    """Writes each host and VM with all the elements that an engine of 4.4 has, as long as its own.

    Of ten hosts one is busy, nine are not: there is something to balance.

    Attributes:
        answers: how many requests are being answered now.
    """

    answers = 0

    def __init__(self, folder: Path, hosts: int, vms: int) -> None:
        super().__init__(
            folder,
            [Host(f"host-{n:04d}", busy=95 if n % 10 == 0 else 40) for n in range(hosts)],
            [Vm(f"vm-{n:05d}", host=f"host-{n % hosts:04d}", busy=20) for n in range(vms)],
            tls=False,
        )

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
        return _host_text(host.name, host.id, host.status, host.busy or 0, follow)

    def _vm(self, vm: Vm, follow: bool = False) -> str:  # type: ignore[override]
        return _vm_text(vm.name, vm.id, vm.status, id_of(vm.host) if vm.host else "", follow)


@cache
def _ids(search: str) -> frozenset[str]:
    return frozenset(term.partition("=")[2] for term in search.split(" or "))


_CLUSTER = "5d0f0f8e-58c6-4a3e-9d5c-0a3f0c6f7a11"
_VM_ACTIONS = (
    "cancelmigration", "clone", "commitsnapshot", "detach", "export", "freezefilesystems",
    "logon", "maintenance", "migrate", "previewsnapshot", "reboot", "reordermacaddresses",
    "shutdown", "start", "stop", "suspend", "thawfilesystems", "ticket", "undosnapshot",
)  # fmt: skip
_HOST_ACTIONS = (
    "activate", "approve", "commitnetconfig", "deactivate", "enrollcertificate", "fence",
    "forceselectspm", "install", "iscsidiscover", "iscsilogin", "refresh", "setupnetworks",
    "unregisteredstoragedomainsdiscover", "upgrade", "upgradecheck",
)  # fmt: skip
_VM_LINKS = (
    "affinitylabels", "applications", "backups", "cdroms", "diskattachments", "graphicsconsoles",
    "hostdevices", "katelloerrata", "nics", "numanodes", "permissions", "reporteddevices",
    "sessions", "snapshots", "tags", "watchdogs",
)  # fmt: skip
_HOST_LINKS = (
    "affinitylabels", "devices", "externalnetworkproviderconfigurations", "fenceagents", "hooks",
    "katelloerrata", "networkattachments", "nics", "numanodes", "permissions", "storage",
    "storageconnectionextensions", "tags", "unmanagednetworks",
)  # fmt: skip
_VM_STATISTICS = {
    "memory.installed": 4 * GIB, "memory.used": 3 * GIB, "memory.free": GIB,
    "cpu.current.guest": 18, "cpu.current.hypervisor": 2, "cpu.current.total": 20,
    "network.current.total": 1, "migration.progress": 0, "disks.usage": 0,
    "elapsed.time": 86400, "cpu.usage.history": 20, "memory.usage.history": 75,
    "network.usage.history": 1,
}  # fmt: skip
_HOST_STATISTICS = {
    "memory.total": 256 * GIB, "memory.used": 64 * GIB, "memory.free": 192 * GIB,
    "memory.shared": 0, "memory.buffers": 0, "memory.cached": 0, "swap.total": 4 * GIB,
    "swap.free": 4 * GIB, "swap.used": 0, "swap.cached": 0, "ksm.cpu.current": 0,
    "cpu.current.user": 0, "cpu.current.system": 1, "cpu.current.idle": 0,
    "cpu.load.avg.5m": 2, "boot.time": 1700000000, "hugepages.2048.free": 0,
}  # fmt: skip


def _statistic(kind: str, base: str, entity_id: str, name: str, datum: int) -> str:
    own = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    indent = " " * 20
    value = f"{indent}<value>\n{indent}    <datum>{datum}</datum>\n{indent}</value>\n"
    values = value * (5 if name.endswith("history") else 1)
    return f"""\
            <statistic href="{base}/statistics/{own}" id="{own}">
                <name>{name}</name>
                <description>What the monitoring of the {kind} told last of {name}</description>
                <kind>gauge</kind>
                <type>{"decimal" if "cpu" in name else "integer"}</type>
                <unit>{"percent" if "cpu" in name else "bytes"}</unit>
                <values>
{values}                </values>
                <{kind} href="{base}" id="{entity_id}"/>
            </statistic>
"""


def _statistics(kind: str, base: str, entity_id: str, values: dict[str, int], follow: bool) -> str:
    if not follow:
        return f'        <link href="{base}/statistics" rel="statistics"/>\n'
    each = "".join(_statistic(kind, base, entity_id, *value) for value in values.items())
    return f"        <statistics>\n{each}        </statistics>\n"


def _links(base: str, names: tuple[str, ...]) -> str:
    return "".join(f'            <link href="{base}/{name}" rel="{name}"/>\n' for name in names)


_CERTIFICATE = "".join(f"{'MIIDujCCAqKgAwIBAgICEAAwDQYJKoZI' * 2}\n" for _ in range(18))


@cache
def _vm_text(name: str, vm_id: str, status: str, host: str, follow: bool) -> str:
    base = f"/ovirt-engine/api/vms/{vm_id}"
    runs_on = f'        <host href="/ovirt-engine/api/hosts/{host}" id="{host}"/>\n' if host else ""
    return f"""\
    <vm href="{base}" id="{vm_id}">
        <actions>
{_links(base, _VM_ACTIONS)}        </actions>
        <name>{name}</name>
        <description></description>
        <comment></comment>
{_links(base, _VM_LINKS)}{_statistics("vm", base, vm_id, _VM_STATISTICS, follow)}\
        <bios>
            <boot_menu>
                <enabled>false</enabled>
            </boot_menu>
            <type>q35_sea_bios</type>
        </bios>
        <cpu>
            <architecture>x86_64</architecture>
            <topology>
                <cores>2</cores>
                <sockets>1</sockets>
                <threads>1</threads>
            </topology>
        </cpu>
        <cpu_shares>0</cpu_shares>
        <creation_time>2024-05-21T08:12:40.512+02:00</creation_time>
        <delete_protected>false</delete_protected>
        <display>
            <address>192.0.2.17</address>
            <allow_override>false</allow_override>
            <certificate>
                <content>{_CERTIFICATE}</content>
                <organization>example.org</organization>
                <subject>O=example.org,CN=host.example.org</subject>
            </certificate>
            <copy_paste_enabled>true</copy_paste_enabled>
            <disconnect_action>LOCK_SCREEN</disconnect_action>
            <file_transfer_enabled>true</file_transfer_enabled>
            <monitors>1</monitors>
            <port>5901</port>
            <secure_port>5902</secure_port>
            <smartcard_enabled>false</smartcard_enabled>
            <type>vnc</type>
        </display>
        <high_availability>
            <enabled>false</enabled>
            <priority>1</priority>
        </high_availability>
        <io>
            <threads>1</threads>
        </io>
        <memory>{4 * GIB}</memory>
        <memory_policy>
            <ballooning>true</ballooning>
            <guaranteed>{2 * GIB}</guaranteed>
            <max>{16 * GIB}</max>
        </memory_policy>
        <migration>
            <auto_converge>inherit</auto_converge>
            <compressed>inherit</compressed>
        </migration>
        <migration_downtime>-1</migration_downtime>
        <multi_queues_enabled>true</multi_queues_enabled>
        <origin>ovirt</origin>
        <os>
            <boot>
                <devices>
                    <device>hd</device>
                </devices>
            </boot>
            <type>rhel_9x64</type>
        </os>
        <placement_policy>
            <affinity>migratable</affinity>
        </placement_policy>
        <sso>
            <methods>
                <method id="guest_agent"/>
            </methods>
        </sso>
        <start_paused>false</start_paused>
        <stateless>false</stateless>
        <storage_error_resume_behaviour>auto_resume</storage_error_resume_behaviour>
        <time_zone>
            <name>Etc/GMT</name>
        </time_zone>
        <type>server</type>
        <usb>
            <enabled>false</enabled>
        </usb>
        <cluster href="/ovirt-engine/api/clusters/{_CLUSTER}" id="{_CLUSTER}"/>
        <fqdn>{name}.example.org</fqdn>
        <next_run_configuration_exists>false</next_run_configuration_exists>
        <numa_tune_mode>interleave</numa_tune_mode>
        <run_once>false</run_once>
        <start_time>2026-03-02T05:31:15.000+01:00</start_time>
        <status>{status}</status>
        <stop_time>2026-03-02T05:29:40.000+01:00</stop_time>
{runs_on}    </vm>
"""


@cache
def _host_text(name: str, host_id: str, status: str, busy: int, follow: bool) -> str:
    base = f"/ovirt-engine/api/hosts/{host_id}"
    values = {**_HOST_STATISTICS, "cpu.current.user": busy, "cpu.current.idle": 99 - busy}
    return f"""\
    <host href="{base}" id="{host_id}">
        <actions>
{_links(base, _HOST_ACTIONS)}        </actions>
        <name>{name}</name>
        <comment></comment>
{_links(base, _HOST_LINKS)}{_statistics("host", base, host_id, values, follow)}\
        <address>{name}.example.org</address>
        <auto_numa_status>unknown</auto_numa_status>
        <certificate>
            <organization>example.org</organization>
            <subject>O=example.org,CN={name}.example.org</subject>
        </certificate>
        <cpu>
            <name>Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz</name>
            <speed>2100</speed>
            <topology>
                <cores>16</cores>
                <sockets>2</sockets>
                <threads>1</threads>
            </topology>
            <type>Intel Cascadelake Server Family</type>
        </cpu>
        <external_status>ok</external_status>
        <ksm>
            <enabled>true</enabled>
        </ksm>
        <max_scheduling_memory>{160 * GIB}</max_scheduling_memory>
        <memory>{256 * GIB}</memory>
        <os>
            <type>RHEL</type>
            <version>
                <full_version>9.4 - 2.el9</full_version>
                <major>9</major>
                <minor>4</minor>
            </version>
        </os>
        <port>54321</port>
        <protocol>stomp</protocol>
        <spm>
            <priority>5</priority>
            <status>none</status>
        </spm>
        <status>{status}</status>
        <summary>
            <active>12</active>
            <migrating>0</migrating>
            <total>12</total>
        </summary>
        <transparent_hugepages>
            <enabled>true</enabled>
        </transparent_hugepages>
        <type>rhel</type>
        <update_available>false</update_available>
        <cluster href="/ovirt-engine/api/clusters/{_CLUSTER}" id="{_CLUSTER}"/>
    </host>
"""
