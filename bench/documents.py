"""What the calls carry: ids, hosts and a VM as version-4 XML, and the calls as bytes.

The same number always gives the same document. A host takes 3.6 kB, as the engine writes it.
"""

from __future__ import annotations

import uuid
import xmlrpc.client

GIB = 1 << 30

_LINKS = (
    "nics", "numanodes", "statistics", "storage", "hooks", "tags", "permissions", "devices",
    "affinitylabels",
)  # fmt: skip

_HOST = """\
    <host href="/ovirt-engine/api/hosts/{id}" id="{id}">
        <name>host-{number}</name>
        <comment></comment>
{links}
        <address>host-{number}.example.org</address>
        <auto_numa_status>unknown</auto_numa_status>
        <certificate>
            <organization>example.org</organization>
            <subject>O=example.org,CN=host-{number}.example.org</subject>
        </certificate>
        <cpu>
            <name>Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz</name>
            <speed>2100</speed>
            <topology>
                <cores>16</cores>
                <sockets>2</sockets>
                <threads>2</threads>
            </topology>
            <type>Intel Cascadelake Server Family</type>
        </cpu>
        <device_passthrough>
            <enabled>false</enabled>
        </device_passthrough>
        <external_status>ok</external_status>
        <hardware_information>
            <manufacturer>Example Computers</manufacturer>
            <product_name>Rack 4216</product_name>
            <serial_number>{serial:012d}</serial_number>
            <uuid>{id}</uuid>
        </hardware_information>
        <iscsi>
            <initiator>iqn.1994-05.org.example:{serial:012x}</initiator>
        </iscsi>
        <ksm>
            <enabled>true</enabled>
            <merge_across_nodes>true</merge_across_nodes>
        </ksm>
        <max_scheduling_memory>{free}</max_scheduling_memory>
        <memory>{memory}</memory>
        <os>
            <type>RHEL</type>
            <version>
                <full_version>9.4 - 2.el9</full_version>
                <major>9</major>
                <minor>4</minor>
            </version>
        </os>
        <port>54321</port>
        <power_management>
            <enabled>true</enabled>
            <kdump_detection>true</kdump_detection>
        </power_management>
        <protocol>stomp</protocol>
        <spm>
            <priority>5</priority>
            <status>none</status>
        </spm>
        <ssh>
            <port>22</port>
        </ssh>
        <status>up</status>
        <summary>
            <active>{vms}</active>
            <migrating>0</migrating>
            <total>{vms}</total>
        </summary>
        <transparent_hugepages>
            <enabled>true</enabled>
        </transparent_hugepages>
        <type>rhel</type>
        <update_available>false</update_available>
        <cluster href="/ovirt-engine/api/clusters/{cluster}" id="{cluster}"/>
    </host>
"""
_LINK = '        <link href="/ovirt-engine/api/hosts/{id}/{name}" rel="{name}"/>'

_CLUSTER = "0c3f7b1a-8d52-4e0f-a5e6-7d3b2c9e4f10"
VM_ID = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"
VM = f"""\
<vm href="/ovirt-engine/api/vms/{VM_ID}" id="{VM_ID}">
    <name>wiki</name>
    <cpu>
        <architecture>x86_64</architecture>
        <topology><cores>2</cores><sockets>1</sockets><threads>1</threads></topology>
    </cpu>
    <memory>4294967296</memory>
    <status>down</status>
    <type>server</type>
    <cluster href="/ovirt-engine/api/clusters/{_CLUSTER}" id="{_CLUSTER}"/>
</vm>
"""


def host_ids(count: int) -> list[str]:
    return [str(uuid.UUID(int=0x5CED << 112 | number)) for number in range(count)]


def hosts(count: int) -> str:
    """So many hosts, each with room for the VM."""
    parts = ['<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<hosts>\n']
    for number, host_id in enumerate(host_ids(count)):
        links = "\n".join(_LINK.format(id=host_id, name=name) for name in _LINKS)
        parts.append(
            _HOST.format(
                id=host_id,
                number=number,
                links=links,
                serial=number * 7919,
                free=(20 + number % 40) * GIB,
                memory=128 * GIB,
                vms=number % 20,
                cluster=_CLUSTER,
            )
        )
    parts.append("</hosts>\n")
    return "".join(parts)


def call(method: str, *parameters: object) -> bytes:
    """The XML-RPC document of a call."""
    return xmlrpc.client.dumps(parameters, method).encode()  # type: ignore[arg-type]
