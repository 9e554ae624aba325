"""Entities: those we make equal those of the SDK, also where they are made bit by bit."""

from __future__ import annotations

import copy
import datetime
import pickle
import threading
from pathlib import Path
from typing import Any, Callable

import pytest
from lxml import etree
from ovirtsdk4 import List as SdkList
from ovirtsdk4 import types
from ovirtsdk4.reader import TZ

from ovirt_scheduler.errors import UnreadableDocument, UnreadableState
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import sdk_entities
from tests.support import reading
from tests.support.sdk_reading import by_the_sdk, differences, documents, written

HOST = b"""<host id="a" href="/hosts/a">
    <name>h</name><comment></comment><description/><status>up</status><memory>5</memory>
    <cpu><speed>2100</speed><topology><cores>4</cores></topology></cpu>
    <summary><active>1</active></summary>
    <link rel="nics" href="/hosts/a/nics"/><tags><tag id="t"><name>x</name></tag></tags>
</host>"""
VM = b"""<vm id="v"><creation_time>2026-07-21T10:11:12.5+02:00</creation_time>
    <start_time>2026-07-21T10:11:12</start_time><stop_time>2026-07-21T10:11:12Z</stop_time>
    <os><boot><devices><device>hd</device><device>network</device></devices></boot></os></vm>"""


def read(data: bytes) -> list[Any]:
    """Hosts or VMs, each attribute of them made."""
    document = Document(data)
    return reading.read_vms(document) if b"<vm" in data else reading.read_hosts(document)


def unpacked(data: bytes) -> list[Any]:
    """Hosts or VMs that are made when they are looked at."""
    document = Document(data)
    kind, pack = ("Vm", reading.pack_vms) if b"<vm" in data else ("Host", reading.pack_hosts)
    return sdk_entities.unpack(kind, [pack(document)], [each.id for each in read(data)])


READ: list[Callable[[bytes], list[Any]]] = [read, unpacked]


def host() -> Any:
    (found,) = unpacked(HOST)
    return found


def both_read(path: Path) -> bool:
    """Whether a document is one that we read, and the SDK alone can read too."""
    data = path.read_bytes()
    try:
        return len(read(data)) == len(by_the_sdk(data))
    except (UnreadableDocument, etree.XMLSyntaxError):  # the latter: in another encoding
        return False


COPIES: dict[str, Callable[[Any], Any]] = {
    "as read": lambda entity: entity,
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "pickled": lambda entity: pickle.loads(pickle.dumps(entity)),
}


@pytest.mark.parametrize("as_read", READ)
@pytest.mark.parametrize("changed", COPIES)
def test_entities_equal_the_sdks(changed: str, as_read: Any) -> None:
    """Attribute by attribute and as written, of each document, also when copied or pickled."""
    read_by_both = [path for path in documents() if both_read(path)]
    assert {path.stem for path in read_by_both} >= {"hosts-v3", "hosts-v4", "vm-v3", "vm-v4"}
    for path in read_by_both:
        data = path.read_bytes()
        ours, theirs = map(COPIES[changed], as_read(data)), by_the_sdk(data)
        for mine, other in zip(ours, theirs):
            assert list(differences(mine, other)) == [], path
            assert written(mine) == written(other), path


@pytest.mark.parametrize("as_read", READ)
def test_states_of_entities_are_those_of_the_document(as_read: Any) -> None:
    """What the SDK reads has the state that we read."""
    for data in (HOST, VM):
        (ours,), (theirs,) = as_read(data), by_the_sdk(data)
        assert sdk_entities.state_of(ours) == sdk_entities.state_of(theirs)
        made = reading.entity_of(sdk_entities.state_of(theirs))
        assert list(differences(made, theirs)) == []


# -- lazy attributes ----------------------------------------------------------------------


def test_types_are_exact() -> None:
    """Nobody can tell by the type."""
    assert type(host()) is types.Host
    assert type(unpacked(VM)[0]) is types.Vm
    assert type(host().cpu) is types.Cpu
    assert type(host().nics) is SdkList


def test_an_attribute_is_the_same_object_each_time() -> None:
    """What is changed in it stays."""
    one = host()
    assert one.cpu is one.cpu
    one.cpu.topology.cores = 8
    one.tags.append(types.Tag(name="y"))
    assert one.cpu.topology.cores == 8
    assert [tag.name for tag in one.tags] == ["x", "y"]


@pytest.mark.parametrize("value", [None, types.Cpu(speed=1.0)])
@pytest.mark.parametrize("looked", [False, True])
def test_what_is_set_counts(value: Any, looked: bool) -> None:
    """Before and after the first look, also where it is None."""
    one = host()
    if looked:
        assert one.cpu.speed == 2100
    one.cpu, one.memory, one.id = value, 7, "b"
    assert (one.cpu, one.memory, one.id, one.name) == (value, 7, "b", "h")
    twin = copy.deepcopy(one)
    assert (twin.memory, twin.id, twin.name) == (7, "b", "h")
    assert (twin.cpu and twin.cpu.speed) == (value and 1.0)


def test_a_copy_shares_what_it_is_a_copy_of() -> None:
    """As a copy of the SDK's entity does; a deep copy shares nothing."""
    one = host()
    twin, other = copy.copy(one), copy.deepcopy(one)
    assert twin.cpu is one.cpu
    assert other.cpu is not one.cpu
    twin.name = "i"
    assert one.name == "h"


def test_vars_show_what_was_set_or_read() -> None:
    """What is told in docs/plugins.md."""
    one = host()
    assert "_cpu" not in vars(one)
    assert one.cpu.speed == 2100
    assert "_cpu" in vars(one)
    assert "_spm" not in vars(one)
    assert one.spm is None
    assert set(vars(copy.copy(one))) == {
        *("_id", "_href", "_name", "_comment", "_status", "_memory", "_cpu"),
        *("_summary", "_nics", "_tags"),
    }


def test_two_threads_get_the_same_object() -> None:
    """Whoever reads an attribute first."""
    for _ in range(50):
        one, got = host(), []
        together = threading.Barrier(2)

        def look(one: Any = one, got: list[Any] = got, together: Any = together) -> None:
            together.wait()
            got.append((one.summary, one.nics, one.status))

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [id(part) for part in got[0]] == [id(part) for part in got[1]]


def test_made_by_a_plugin() -> None:
    """The SDK's constructors make what they always made."""
    made = types.Host(id="a", cpu=types.Cpu(speed=1.0))
    assert (made.id, made.cpu.speed, made.name) == ("a", 1.0, None)
    assert "_name" in vars(made)
    assert types.Vm().cpu is None
    with pytest.raises(AttributeError):
        made._nothing  # noqa: B018


def test_of_ids() -> None:
    """Hosts of which nothing is known have an id, and no attribute that fails."""
    first, second = sdk_entities.unpack("Host", [], ["a", "b"])
    assert (first.id, second.id, first.cpu, first.name) == ("a", "b", None, None)
    assert list(differences(first, types.Host(id="a"))) == []
    assert written(first) == written(types.Host(id="a"))


def test_a_date_with_a_zone_can_be_copied() -> None:
    """The SDK's time zone has no copy of its own."""
    date = datetime.datetime(2026, 7, 21, tzinfo=TZ(-90, "-01:30"))
    for twin in (copy.deepcopy(date), pickle.loads(pickle.dumps(date))):
        assert (twin, twin.tzname()) == (date, "-01:30")


# -- what is no state ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        {"": "Host", "_cpu": {}},
        {"": "Host", "_cpu": {"": "Nothing"}},
        {"": "Host", "_cpu": {"": "Struct"}},
        {"": "Host", "_cpu": {"": "Connection"}},
        {"": "Host", "_cpu": {"": "os"}},
        {"": "Host", "_cpu": {"": ["Host"]}},
        {"": "Host", "__class__": "x"},
        {"": "Host", "_nothing": 1},
        {"": "Host", "_cpu": {"": "Cpu", "_nothing": 1}},
        {"": "Host", "_cpu": []},
        {"": "Host", "_cpu": ["os.system", "true"]},
        {"": "Host", "_status": ("enum", "HostStatus", "nothing")},
        {"": "Host", "_status": ("enum", "HostStatus")},
        {"": "Host", "_status": ("enum", ["HostStatus"], "up")},
        {"": "Host", "_nics": ["list"]},
        {"": "Vm", "_start_time": ("date", "yesterday", None, None)},
        {"": "Vm", "_start_time": ("date", "2026-07-21T10:11:12", 10**9, "x")},
        {"": "Vm", "_start_time": ("date", "2026-07-21T10:11:12", "1", "x")},
        {"": "Vm", "_start_time": ("date", 1, None, None)},
    ],
    ids=str,
)
def test_wrong_states(state: Any) -> None:
    """Nothing is made of what is no state; one kind of mistake says so."""
    with pytest.raises(UnreadableState):
        reading.entity_of(state)


@pytest.mark.parametrize("thing", [object(), types.HostStatus.UP, "x", datetime])
def test_no_state_of_anything_else(thing: Any) -> None:
    """Only what the SDK's readers make is packed."""
    with pytest.raises(TypeError):
        sdk_entities.state_of(thing)
    with pytest.raises(TypeError):
        sdk_entities.state_of(types.Host(comment=object(), cpu=None))
    zone = datetime.timezone.utc
    with pytest.raises(TypeError, match="time zone"):
        sdk_entities.state_of(types.Vm(start_time=datetime.datetime(2026, 7, 21, tzinfo=zone)))
