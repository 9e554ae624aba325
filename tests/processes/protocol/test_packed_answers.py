"""What a plugin's function answers, on its way to the daemon: whole, bounded, held to what was given."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import pytest

from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import CallInputs, Pack, Returns, Role
from ovirt_scheduler.processes.protocol.packed_answers import MISSHAPEN, PACKINGS, Misnamed

HOSTS = ("h1", "h2", "h3")
INPUTS = CallInputs(HOSTS, vms=("v1", "v2"), vm="v0")
NOON = datetime(2026, 1, 31, 12, 0, 1)  # noqa: DTZ001  XML-RPC has no time zones


def travelled(returns: Returns, value: object, inputs: CallInputs = INPUTS) -> Any:
    """What the daemon makes of a value that a plugin's process sends."""
    packing = PACKINGS[returns]
    packed = json.dumps(packing.pack(value, inputs.hosts), separators=(",", ":"))
    return packing.unpack(json.loads(packed), inputs)


@pytest.mark.parametrize(
    ("returns", "value", "arrives"),
    [
        (Returns.HOSTS, ("h3", "h1"), ("h1", "h3")),
        (Returns.HOSTS, ("h1", "h1"), ("h1",)),
        (Returns.HOSTS, (), ()),
        (Returns.COSTS, {"h2": -7, "h1": 10**18}, {"h1": 10**18, "h2": -7}),
        (Returns.COSTS, {}, {}),
        (Returns.MIGRATION, None, None),
        (Returns.MIGRATION, Migration("any", ()), Migration("any", ())),
        (Returns.MIGRATION, Migration("v1", ("h2", "h1")), Migration("v1", ("h1", "h2"))),
        (Returns.SELECTION, ("h3", "h1"), ("h3", "h1")),
        (Returns.IDS, ("x", "\N{SNOWMAN}"), ("x", "\N{SNOWMAN}")),
        (Returns.TRUTH, False, False),
        (Returns.MIGRATIONS, {}, {}),
        (Returns.MIGRATIONS, {"v0": ("h2", "h1"), "v1": ()}, {"v0": ("h2", "h1"), "v1": ()}),
        (Returns.VALUE, b"\xff", b"\xff"),
        (Returns.VALUE, NOON, NOON),
        (Returns.VALUE, [1.5, True, -(2**31), "", (), {}], [1.5, True, -(2**31), "", [], {}]),
        (
            Returns.VALUE,
            {"struct": {"base64": ["dateTime", b""]}, "dateTime": "no date"},
            {"struct": {"base64": ["dateTime", b""]}, "dateTime": "no date"},
        ),
    ],
)
def test_an_answer_arrives(returns, value, arrives):
    """Hosts in the order given, but for a selection, whose order is its answer; none twice."""
    assert travelled(returns, value) == (arrives, ())


@pytest.mark.parametrize(
    ("returns", "value", "arrives", "notes"),
    [
        (Returns.HOSTS, ("x", "h1", "x"), ("h1",), ["hosts that it was not given (1 dropped: x)"]),
        (Returns.COSTS, {"x": 1, "h1": 2}, {"h1": 2}, ["hosts that it was not given (1"]),
        (Returns.SELECTION, ("x",), (), ["hosts that it was not given (1"]),
        (Returns.MIGRATION, Migration("v", ("x",)), None, ["hosts that it was not given (1"]),
        (Returns.MIGRATION, Migration("v", ("x", "h1")), Migration("v", ("h1",)), ["hosts"]),
        (Returns.MIGRATIONS, {"y": ("h1",)}, {}, ["VMs that it was not given (1 dropped: y)"]),
        (Returns.MIGRATIONS, {"v1": ("x",)}, {}, ["hosts that it was not given (1"]),
        (
            Returns.MIGRATIONS,
            {"y": ("x",), "v1": ("z", "h1")},
            {"v1": ("h1",)},
            ["VMs that it was not given (1", "hosts that it was not given (2 dropped: x, z)"],
        ),
        (Returns.HOSTS, tuple("abcde"), (), ["(5 dropped: a, b, c, ...)"]),
    ],
)
def test_what_was_not_given_is_dropped_and_told(returns, value, arrives, notes):
    """How many, and the first of them (contract 3.6); no hosts never become any host."""
    read, noted = travelled(returns, value)
    assert read == arrives
    assert len(noted) == len(notes)
    assert all(part in note for part, note in zip(notes, noted))


@pytest.fixture(scope="module")
def named():
    """What a call was given, with names: of the hosts lynx, puma and ocelot, of the VM web."""
    hosts, vms = (Pack(os.open(os.devnull, os.O_RDONLY), ()) for _ in range(2))
    hosts.names.update(zip(HOSTS, ("lynx", "puma", "ocelot")))
    vms.names["v0"] = "web"
    return INPUTS._replace(packs={Role.HOSTS: (hosts,), Role.VM: (vms,)})


@pytest.mark.parametrize(
    ("returns", "value", "shown"),
    [
        (Returns.HOSTS, ("lynx", "puma"), "lynx, puma"),
        (Returns.HOSTS, (*map(str, range(400)), "ocelot"), "ocelot"),
        (Returns.COSTS, {"a stranger": 1, "lynx": 2}, "lynx"),
        (Returns.MIGRATION, Migration("v1", ("puma",)), "puma"),
        (Returns.SELECTION, ("ocelot",), "ocelot"),
        (Returns.MIGRATIONS, {"v1": ("lynx",), "v2": ("puma",)}, "lynx, puma"),
    ],
)
def test_names_instead_of_ids_are_no_answer(named, returns, value, shown):
    told = rf"^answered with names of hosts \({shown}\); return the hosts, or their ids$"
    with pytest.raises(Misnamed, match=told):
        travelled(returns, value, named)


@pytest.mark.parametrize("value", [("lynx", "h2"), ("web",), ("Lynx",), ()])
def test_names_beside_an_id_and_names_of_no_host_are_strangers(named, value):
    """A fixed list of hosts is a filter, whichever of them are there."""
    hosts = tuple(each for each in value if each == "h2")
    assert travelled(Returns.HOSTS, value, named)[0] == hosts


def test_of_a_long_name_that_was_not_given_the_beginning_is_told():
    """Not a megabyte of it."""
    _, (note,) = travelled(Returns.HOSTS, ("x" * 10**6,))
    assert len(note) < 300


MISSHAPEN_PLACES = [
    None, "0", 7, {}, [], [[0]], [[0], 0], [[3], 0, []], [[-1], 0, []], [[True], 0, []],
    [["0"], 0, []], [[0.0], 0, []], [[[]], 0, []], [[0], -1, []], [[0], True, []], [[0], 0.5, []],
    [[0], 1, "x"], [[0], 1, [1]], [[0], 1, ["\ud800"]], [[0], 1, [], 0],
]  # fmt: skip


@pytest.mark.parametrize(
    ("returns", "packed"),
    [
        *((Returns.HOSTS, packed) for packed in MISSHAPEN_PLACES),
        *((Returns.SELECTION, packed) for packed in MISSHAPEN_PLACES),
        (Returns.COSTS, [[0], 0, []]),
        (Returns.COSTS, [[1, 2], [0], 0, []]),
        (Returns.COSTS, [["1"], [0], 0, []]),
        (Returns.COSTS, [[1.5], [0], 0, []]),
        (Returns.COSTS, [[True], [0], 0, []]),
        (Returns.COSTS, ["1", [0], 0, []]),
        (Returns.COSTS, [[1], [9], 0, []]),
        (Returns.MIGRATION, []),
        (Returns.MIGRATION, [7, [0], 0, []]),
        (Returns.MIGRATION, ["v", ["h1"], 0, []]),
        (Returns.MIGRATION, ["\ud800", [0], 0, []]),
        (Returns.TRUTH, 1),
        (Returns.TRUTH, None),
        (Returns.IDS, "h"),
        (Returns.IDS, [1]),
        (Returns.IDS, ["\ud800"]),
        (Returns.MIGRATIONS, None),
        (Returns.MIGRATIONS, {"v1": [[0], 0, []]}),
        (Returns.MIGRATIONS, [[]]),
        (Returns.MIGRATIONS, [[7, [0], 0, []]]),
        (Returns.MIGRATIONS, [["v1", [9], 0, []]]),
        (Returns.VALUE, None),
        (Returns.VALUE, 2**31),
        (Returns.VALUE, -(2**31) - 1),
        (Returns.VALUE, float("nan")),
        (Returns.VALUE, [float("inf")]),
        (Returns.VALUE, {}),
        (Returns.VALUE, {"base64": "", "dateTime": ""}),
        (Returns.VALUE, {"other": 1}),
        (Returns.VALUE, {"base64": "?"}),
        (Returns.VALUE, {"base64": 7}),
        (Returns.VALUE, {"dateTime": "noon"}),
        (Returns.VALUE, {"struct": [1]}),
        (Returns.VALUE, {"struct": {"\ud800": 1}}),
    ],
)
def test_an_answer_of_another_shape_is_refused(returns, packed):
    """The plugin could have written it: the daemon's socket is open to it."""
    with pytest.raises(MISSHAPEN):
        PACKINGS[returns].unpack(packed, INPUTS)


def test_an_answer_nested_past_all_reason_is_refused():
    """Before it can end the process that reads it."""
    packed: object = "x"
    for _ in range(100_000):
        packed = [packed]
    with pytest.raises(MISSHAPEN):
        PACKINGS[Returns.VALUE].unpack(packed, INPUTS)


MANY = CallInputs(
    tuple(f"host-{number}" for number in range(20_000)),
    tuple(f"vm-{number}" for number in range(20)),
)
LARGEST = {
    Returns.HOSTS: MANY.hosts,
    Returns.COSTS: dict.fromkeys(MANY.hosts, -(10**18)),
    Returns.MIGRATION: Migration("v" * 100, MANY.hosts),
    Returns.SELECTION: MANY.hosts[::-1],
    Returns.TRUTH: False,
    Returns.MIGRATIONS: dict.fromkeys(MANY.vms, MANY.hosts),
    Returns.IDS: tuple(f"{number:036}" for number in range(50_000)),
    Returns.VALUE: {f"{number:05}": "\0" * 100 for number in range(100_000)},
}


@pytest.mark.parametrize("returns", Returns)
def test_the_largest_answer_that_makes_sense_is_within_the_bound(returns):
    """In bytes and in values."""
    packing = PACKINGS[returns]
    packed = json.dumps(packing.pack(LARGEST[returns], MANY.hosts), separators=(",", ":"))
    size, values = packing.most(MANY)
    assert len(packed) <= size + 1000
    assert packed.count(",") <= 2 * values + 1000
    assert packing.unpack(json.loads(packed), MANY)[1] == ()
