"""Version 3 written as version 4."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import Struct

from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import version3
from tests.support.paths import DOCUMENTS, SHARED
from tests.support.reading import read_hosts, read_vm

SAMPLES = (("hosts", read_hosts), ("vm", read_vm))


def comparable(thing: Any) -> Any:
    """An entity as dicts and lists, whatever hangs from it included."""
    if isinstance(thing, Struct):
        fields = {name: comparable(value) for name, value in vars(thing).items()}
        return type(thing).__name__, fields
    if isinstance(thing, list):
        return getattr(thing, "href", None), [comparable(member) for member in thing]
    return thing


def sample(name: str, read: Any) -> Any:
    return comparable(read(Document((DOCUMENTS / f"{name}.xml").read_bytes())))


@pytest.mark.parametrize(("name", "read"), SAMPLES)
def test_both_versions_give_the_same_entities(name: str, read: Any) -> None:
    """A host and a VM in version 3 equal the same ones in version 4, field by field."""
    assert sample(f"{name}-v3", read) == sample(f"{name}-v4", read)


@pytest.mark.parametrize(
    ("table", "index"),
    [
        (table, index)
        for table in ("DIFFERENCES", "SPELLINGS")
        for index in range(len(getattr(version3, table)))
    ],
)
def test_every_difference_is_needed(
    table: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any one row of the tables, some sample of version 3 reads differently."""
    differences = getattr(version3, table)
    monkeypatch.setattr(version3, table, differences[:index] + differences[index + 1 :])
    assert any(sample(f"{name}-v3", read) != sample(f"{name}-v4", read) for name, read in SAMPLES)


def every_version4_document() -> list[Path]:
    return [*sorted(DOCUMENTS.glob("*-v4.xml")), *sorted((SHARED / "v4").glob("*.xml"))]


@pytest.mark.parametrize("path", every_version4_document(), ids=lambda path: path.name)
def test_version_4_stays_as_it_is(path: Path) -> None:
    """No row of the table finds anything in a document of version 4."""
    data = path.read_bytes()
    assert version3.to_version4(data) is data


def test_a_spelling_alone_is_none_of_version_3() -> None:
    """It is read as the SDK reads it."""
    data = b"<host id='a'><cpu><architecture>X86_64</architecture></cpu></host>"
    assert version3.to_version4(data) is data


@pytest.mark.parametrize(
    ("vm", "path", "value"),
    [
        ("<status><detail>x</detail><state>up</state></status>", "status_detail", "x"),
        ("<host><storage_manager>true</storage_manager></host>", "host.spm.status.value", "spm"),
        ("<host><selinux><mode>permissive</mode></selinux></host>", "host.se_linux.mode.value", "permissive"),
        ("<vmpool id='p'/>", "vm_pool.id", "p"),
        ("<memory_policy><overcommit percent='9'/></memory_policy>", "memory_policy.over_commit.percent", 9),
        ("<timezone>Etc/GMT</timezone>", "time_zone.name", "Etc/GMT"),
        ("<guest_info><fqdn>x.example.com</fqdn></guest_info>", "fqdn", "x.example.com"),
        ("<placement_policy><host id='h'/></placement_policy>", "placement_policy.hosts.0.id", "h"),
        ("<disks><disk id='d'/></disks>", "disk_attachments.0.disk.id", "d"),
        ("<os><boot dev='hd'/></os>", "os.boot.devices.0.value", "hd"),
        ("<cpu id='c'/>", "cpu.type", "c"),
        ("<os type='other'/>", "os.type", "other"),
        ("<console enabled='true'/>", "console.enabled", True),
    ],
)  # fmt: skip
def test_one_difference_alone_is_seen(vm: str, path: str, value: Any) -> None:
    """A document of version 3 that differs in one place only is known as such."""
    found = read_vm(Document(f"<vm>{vm}</vm>".encode()))
    for name in path.split("."):
        found = found[int(name)] if name.isdigit() else getattr(found, name)
    assert found == value


def test_an_old_and_a_new_host_in_one_document() -> None:
    """Each element is told by its own shape, so a mixed document reads well."""
    hosts = read_hosts(
        Document(
            b'<hosts><host id="a"><status><state>up</state></status></host>'
            b'<host id="b"><status>down</status><comment>state</comment></host></hosts>'
        )
    )
    assert [host.status.value for host in hosts] == ["up", "down"]


BOTH = """
    <storage_manager priority="5">false</storage_manager>
    <spm><priority>5</priority><status><state>contending</state></status></spm>
"""


@pytest.mark.parametrize(
    ("manager", "status", "priority"),
    [
        ('<storage_manager priority="5">true</storage_manager>', "spm", 5),
        ("<storage_manager>\n false </storage_manager>", "none", None),
        (BOTH, "contending", 5),
    ],
)
def test_storage_manager(manager: str, status: str, priority: int | None) -> None:
    """The old element says whether; where the newer one is there too, it is the one read."""
    (host,) = read_hosts(Document(f'<host id="a">{manager}</host>'.encode()))
    assert (host.spm.status.value, host.spm.priority) == (status, priority)


@pytest.mark.parametrize(
    ("policy", "hosts"),
    [
        ('<host id="a"/>', ["a"]),
        ('<hosts><host id="a"/></hosts><host id="a"/>', ["a"]),
        ('<hosts><host id="a"/><host id="b"/></hosts>', ["a", "b"]),
        ('<hosts><host id="a"/><host id="b"/></hosts><host id="a"/>', ["a", "b"]),
    ],
)
def test_placement_policy(policy: str, hosts: list[str]) -> None:
    """One host or several, and never one of them twice."""
    vm = read_vm(Document(f"<vm><placement_policy>{policy}</placement_policy></vm>".encode()))
    assert [host.id for host in vm.placement_policy.hosts] == hosts


def test_counts_beside_the_hosts() -> None:
    """What version 3 counts in a collection does not become a host."""
    data = b"<hosts><actions/><size>1</size><host id='a'/><total>1</total></hosts>"
    assert [host.id for host in read_hosts(Document(data))] == ["a"]


def test_comments_inside_a_value() -> None:
    """A comment does not cut a value short."""
    (host,) = read_hosts(Document(b"<host id='a'><status><state>u<!---->p</state></status></host>"))
    assert host.status.value == "up"


def test_elements_where_a_word_belongs() -> None:
    """An enumeration that holds elements is none of ours to change."""
    vm = read_vm(Document(b"<vm><cpu id='c'><architecture><A>X</A></architecture></cpu></vm>"))
    assert (vm.cpu.type, vm.cpu.architecture) == ("c", None)


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("<timezone>Europe/Brno</timezone>", "Europe/Brno"),
        ("<timezone>x</timezone><time_zone><name>Etc/GMT</name></time_zone>", "Etc/GMT"),
    ],
)
def test_time_zone(zone: str, name: str) -> None:
    """The newer element is the one read where both are there."""
    assert read_vm(Document(f"<vm>{zone}</vm>".encode())).time_zone.name == name


@pytest.mark.parametrize(
    "host",
    [
        "<comment type='x'>up to you</comment>",
        "<comment>see &lt;state&gt;</comment>",
        "<comment><![CDATA[<state>]]></comment>",
    ],
)
def test_text_is_not_taken_for_version_3(host: str) -> None:
    """An attribute beside text, and markup inside text, change nothing."""
    (read,) = read_hosts(Document(f'<host id="a">{host}<state/></host>'.encode()))
    assert read.comment in {"up to you", "see <state>", "<state>"}


@pytest.mark.parametrize(
    ("around", "member"),
    [
        ("vm", "<timezone>a</timezone>"),
        ("host", "<storage_manager/>"),
        ("placement_policy", "<host/>"),
        ("cpu_tune", "<vcpu_pin vcpu='1'/>"),
        ("os", "<boot dev='hd'/>"),
        ("disks", "<disk/>"),
        ("tags", "<cpu id='a'/>"),
        ("tags", "<vm><disks/></vm>"),
        ("tags", "<statistic><values type='A'/></statistic>"),
    ],
)
def test_time_grows_no_faster_than_the_document(around: str, member: str) -> None:
    """20,000 elements of version 3 side by side take a moment; their square would take much longer."""
    members = f"<{around}>{member * 20_000}</{around}>"
    began = time.process_time()
    version3.to_version4(f"<host id='a'><vm>{members}</vm></host>".encode())
    assert time.process_time() - began < 5
