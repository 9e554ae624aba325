"""Packed hosts and VMs: those asked for, in that order, and nothing of what is no packed form."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from ovirtsdk4 import types
from ovirtsdk4.reader import Reader

from bench.documents import host_ids
from bench.documents import hosts as hosts_document
from ovirt_scheduler.errors import UnreadableDocument, UnreadableState
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import packing, sdk_entities
from ovirt_scheduler.processes.kernel.memory_files import sealed
from tests.support import reading
from tests.support.command import script
from tests.support.processes import open_files
from tests.support.sdk_reading import differences

HOSTS = hosts_document(30).encode()
IDS = host_ids(30)
PACKED = reading.pack_hosts(Document(HOSTS))


@pytest.fixture
def descriptor() -> Iterator[int]:
    opened = sealed([PACKED])
    yield opened
    os.close(opened)


def test_all_of_them(descriptor: int) -> None:
    """From bytes and from a descriptor, in the order of the document."""
    for source in (PACKED, descriptor):
        found = sdk_entities.unpack("Host", [source], IDS)
        for mine, other in zip(found, Reader.read(HOSTS)):
            assert list(differences(mine, other)) == []
        assert [host.id for host in found] == IDS


@pytest.mark.parametrize("wanted", [[], IDS[5:6], IDS[::-1], [IDS[3], IDS[3]], IDS[:2] * 20])
def test_some_of_them(descriptor: int, wanted: list[str]) -> None:
    """Those that are asked for, in that order; asked for twice, two that share nothing."""
    for source in (PACKED, descriptor):
        found = sdk_entities.unpack("Host", [source], wanted)
        assert [host.id for host in found] == wanted
        assert [host.name for host in found] == [f"host-{IDS.index(one)}" for one in wanted]
        assert len({id(host.cpu) for host in found}) == len(wanted)


def test_an_id_that_was_not_packed(descriptor: int) -> None:
    """Nothing is known of it but the id."""
    for source in (PACKED, descriptor):
        known, unknown = sdk_entities.unpack("Host", [source], [IDS[1], "x"])
        assert (known.name, unknown.id, unknown.name) == ("host-1", "x", None)
        assert type(unknown) is types.Host


def test_a_vm_without_an_id() -> None:
    """One that is yet to be made."""
    data = reading.pack_vm(Document(b"<vm><name>x</name></vm>"))
    (vm,) = sdk_entities.unpack("Vm", [data], [None])
    assert (vm.id, vm.name) == (None, "x")


def test_none_at_all() -> None:
    """No hosts are packed as well."""
    data = reading.pack_hosts(Document(b"<hosts/>"))
    (host,) = sdk_entities.unpack("Host", [data], ["a"])
    assert (host.id, host.name) == ("a", None)


def test_several_packs() -> None:
    """Each is of the first one that has its id."""
    first, second = (
        reading.pack_hosts(Document(f"<hosts>{hosts}</hosts>".encode()))
        for hosts in (
            "<host id='a'><name>1</name></host>",
            "<host id='a'/><host id='b'><name>2</name></host>",
        )
    )
    found = sdk_entities.unpack("Host", [first, second], ["b", "a", "x"])
    assert [(host.id, host.name) for host in found] == [("b", "2"), ("a", "1"), ("x", None)]


def test_an_attribute_that_is_short_for_some() -> None:
    """A list with members, an empty one, one that is elsewhere, and none: each as the SDK has it."""
    lists = (
        "<tags><tag id='t'/><tag id='u'/></tags>", "<tags/>", "<link href='/tags' rel='tags'/>", ""
    )  # fmt: skip
    members = "".join(f"<host id='{place}'>{tags}</host>" for place, tags in enumerate(lists))
    document = f"<hosts>{members}</hosts>".encode()
    found = sdk_entities.unpack("Host", [reading.pack_hosts(Document(document))], [*"0123"])
    for mine, other in zip(found, Reader.read(document)):
        assert list(differences(mine, other)) == []
    assert [host.tags is not None and len(host.tags) for host in found] == [2, 0, 0, False]


def test_entities_of_the_sdk_are_packed() -> None:
    """Those that were read elsewhere, by way of their states."""
    read = Reader.read(HOSTS)
    data = packing.pack("Host", [sdk_entities.state_of(host) for host in read])
    found = sdk_entities.unpack("Host", [data], IDS)
    assert [[*differences(mine, other)] for mine, other in zip(found, read)] == [[] for _ in IDS]


@pytest.mark.parametrize("pack", [reading.pack_host, reading.pack_vm])
def test_what_is_refused_is_not_packed(pack: Any) -> None:
    """In the same words."""
    with pytest.raises(UnreadableDocument, match="line 1, column 1: expected <"):
        pack(Document(b"<nothing/>"))
    name = "host" if pack is reading.pack_host else "vm"
    with pytest.raises(UnreadableDocument, match=f"expected one <{name}>"):
        pack(Document(f"<{name}s/>".encode()))
    with pytest.raises(UnreadableDocument, match=r"<memory>: 'x' is not an integer"):
        pack(Document(f"<{name} id='a'><memory>x</memory></{name}>".encode()))


@pytest.mark.parametrize("count", [3, 30])
def test_entities_outlive_the_descriptor(count: int) -> None:
    """They hold what is theirs, or where it is mapped, and leave no file open behind them."""
    opened = sealed([reading.pack_hosts(Document(hosts_document(count).encode()))])
    packs = [*open_files().values()].count("/memfd:packed (deleted)")
    found = sdk_entities.unpack("Host", [opened], IDS[:count])
    os.close(opened)
    assert found[2].summary.active == 2
    del found
    assert [*open_files().values()].count("/memfd:packed (deleted)") == packs - 1


def test_the_offset_of_a_descriptor_is_left_alone(descriptor: int) -> None:
    """Several processes share it."""
    os.lseek(descriptor, 5, os.SEEK_SET)
    sdk_entities.unpack("Host", [descriptor], IDS[:2])
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 5


def test_a_sealed_file_stays_as_it_is(descriptor: int) -> None:
    """Neither written nor cut nor made longer, nor are its seals taken off."""
    for change in (
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, 1),
        lambda: os.ftruncate(descriptor, 1 << 20),
    ):
        with pytest.raises(PermissionError):
            change()
    assert not os.get_inheritable(descriptor)


# -- what is no packed form ---------------------------------------------------------------


def form(index: Any, *parts: bytes, mark: bytes = b"oVsP") -> bytes:
    head = index if isinstance(index, bytes) else json.dumps(index).encode()
    return mark + struct.pack("<I", len(head)) + head + b"".join(parts)


def one(columns: dict[str, str], cells: dict[str, str]) -> bytes:
    lengths = [{name: len(part) for name, part in parts.items()} for parts in (columns, cells)]
    parts = map(str.encode, (*columns.values(), *cells.values()))
    return form(["Host", ["a"], *lengths], *parts)


def column(text: str) -> bytes:
    return one({"_cpu": text}, {})


def cell(text: str, length: object = None) -> bytes:
    return one({}, {"_cpu": f"[{len(text) if length is None else length}]\n{text}"})


def test_the_form_that_the_others_differ_from() -> None:
    """Made by hand, and read."""
    data = one({"_name": '["x"]'}, {"_cpu": '[10]\n{"":"Cpu"}'})
    (host,) = sdk_entities.unpack("Host", [data], ["a"])
    assert (host.id, host.name, type(host.cpu)) == ("a", "x", types.Cpu)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"oVsP",
        b"oVsP\xff\xff\xff\xff",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",  # a pickle of os.system
        PACKED[:-1],
        PACKED + b"x",
        PACKED[:200],
        form(["Host", [], {}, {}], mark=b"oVsQ"),
        form(b"["),
        form(b"\xff"),
        form(b"[" * 100_000),
        form([]),
        form(None),
        form({}),
        form(["Host", ["a"], {}]),
        form(["Host", ["a"], {"_name": 5}, {}]),
        form(["Host", ["a"], {}, {"_cpu": 5}]),
        form(["Host", ["a"], {}, {}], b"x"),
        form(["Host", ["a"], [], {}]),
        form(["Host", ["a"], {}, []]),
        form(["Host", ["a"], {"_name": "1"}, {}], b"x"),
        form(["Host", ["a"], {}, {"_cpu": "1"}], b"x"),
        form(["Host", ["a"], {"_name": -1}, {"_cpu": 1}]),
        form(["Host", ["a"], {"_name": 1 << 40}, {"_cpu": -(1 << 40)}]),
        form(["Host", ["a"], {"_name": True}, {}], b"x"),
        form(["Host", "a", {}, {}]),
        form(["Host", [["a"]], {}, {}]),
        form(["Cpu", ["a"], {}, {}]),
        form(["Vm", ["a"], {}, {}]),
        form([["Host"], ["a"], {}, {}]),
        form(["Host", None, None, None]),
    ],
    ids=range(31),
)
def test_no_packed_form(data: bytes) -> None:
    """It is refused as a whole."""
    opened = sealed([data])
    for source in (data, opened):
        with pytest.raises(UnreadableState):
            sdk_entities.unpack("Host", [source], ["a"])
    os.close(opened)


@pytest.mark.parametrize(
    "data",
    [
        column("x"),
        column("[]"),
        column("[1,2]"),
        column('{"a":1}'),
        column('"x"'),
        column("[1] x"),
        column("[" * 100_000),
        column('[{"":"Connection"}]'),
        column('[["enum","HostStatus","no"]]'),
        form(["Host", ["a"], {"_cpu": 4}, {}], b'["\xff"'),
        one({}, {"_cpu": "[1]"}),
        one({}, {"_cpu": '{"a":1}\nx'}),
        cell("1", 2),
        cell("1", -1),
        cell("1", '"1"'),
        cell("1", "true"),
        cell("1", "1,0"),
        cell("x"),
        cell('{"":"Connection"}'),
        cell('{"":"os.system"}'),
        cell('["os","system","true"]'),
        cell("[]"),
        cell('{"":"Cpu"} x'),
        cell("[" * 100_000),
        cell('{"":"Tag","_parent":' * 20_000 + "0" + "}" * 20_000),
        cell('["enum","HostStatus","down down"]'),
        form(["Host", ["a"], {}, {"_cpu": 5}], b"[1]\n\xff"),
    ],
    ids=range(27),
)
def test_a_wrong_state(data: bytes) -> None:
    """It is told by the one attribute that cannot be made, and by all that need every attribute."""
    (host,) = sdk_entities.unpack("Host", [data], ["a"])
    assert host.id == "a"
    for _ in range(2):
        with pytest.raises(UnreadableState, match=r"^Host 'a'"):
            host.cpu  # noqa: B018
    with pytest.raises(UnreadableState):
        sdk_entities.complete(host)


@pytest.mark.parametrize(
    "data", [one({"__class__": '["x"]'}, {}), one({}, {"__class__": '[3]\n"x"'})]
)
def test_what_no_host_has(data: bytes) -> None:
    """It is told by all that need every attribute, and does nothing to the others."""
    (host,) = sdk_entities.unpack("Host", [data], ["a"])
    assert (type(host), host.cpu) == (types.Host, None)
    with pytest.raises(UnreadableState, match=r"^Host 'a'.*another's attributes"):
        sdk_entities.complete(host)


def test_damaged_bytes() -> None:
    """Whatever bytes are changed: entities, or the one mistake that says so."""
    chance = Random(5)
    for _ in range(3000):
        data = bytearray(PACKED[: chance.choice([len(PACKED), chance.randrange(len(PACKED))])])
        for _ in range(chance.choice([1, 1, 5])):
            if data:
                place = chance.randrange(min(len(data), chance.choice([40, 4000, len(data)])))
                data[place] = chance.choice([chance.randrange(256), *b'"[]{},:\\\n019'])
        try:
            for host in sdk_entities.unpack("Host", [bytes(data)], IDS):
                sdk_entities.complete(host)
        except UnreadableState as mistake:
            assert len(str(mistake)) < 300


def test_more_than_may_be(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size has a bound, which is looked at first."""
    monkeypatch.setattr(packing, "MOST_BYTES", 100)
    for source in (PACKED, descriptor):
        with pytest.raises(UnreadableState, match="more than the 100 allowed"):
            sdk_entities.unpack("Host", [source], IDS)


FORGED = """
import resource, sys
from ovirt_scheduler.processes.documents import sdk_entities
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for host in sdk_entities.unpack("Host", [data], ["a"]):
        sdk_entities.complete(host)
except sdk_entities.UnreadableState:
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(data))
"""
MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "data",
    [
        form(b"[" + b"[]," * MEGABYTE + b"[]]"),
        form(["Host", ["a"], {"_name": 1 << 31}, {}]) + b" " * MEGABYTE,
        column("[" + "[]," * MEGABYTE + "[]]"),
        cell("[" + "{}," * MEGABYTE + "{}]"),
        cell('["list",null' + ',["values"]' * MEGABYTE + "]"),
        cell("", "0," * MEGABYTE + "0"),
    ],
    ids=range(6),
)
def test_memory_of_a_forged_form(data: bytes) -> None:
    """Never more than some times its length, whatever it claims."""
    assert float(script(FORGED, input=data, text=False).stdout) < 60
