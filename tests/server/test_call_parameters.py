"""XML-RPC parameters to requests."""

from __future__ import annotations

from datetime import datetime

import pytest

from ovirt_scheduler.errors import BadParameters, UnreadableDocument
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Document, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.server import parameter_values
from ovirt_scheduler.server.call_parameters import unit_request

CALLER = Caller("r1", AnswerForm.DESIGN, "127.0.0.1:1")
HOSTS = ["h1", "h2"]
XML = "<hosts/>"


def filters(*parameters: object) -> Request:
    return unit_request(CALLER, Kind.FILTER, parameters)


def test_the_parameters_of_run_filters_make_a_request():
    """Names in their order, hosts as ids, the VM as an id (contract 2.2)."""
    assert filters(["b", "a"], HOSTS, "vm-1", {"k": "v"}) == Request(
        CALLER,
        Entities(("h1", "h2"), vm="vm-1"),
        {"k": "v"},
        {Kind.FILTER: (RequestedUnit("b"), RequestedUnit("a"))},
    )


@pytest.mark.parametrize("functions", [[["a", 2], ["b", -1]], {"a": 2, "b": -1}])
def test_the_parameters_of_run_cost_functions_make_a_request(functions):
    """Pairs, or a struct (contract 2.3)."""
    assert unit_request(CALLER, C, (functions, HOSTS, "vm-1", {})) == Request(
        CALLER,
        Entities(("h1", "h2"), vm="vm-1"),
        {},
        {Kind.COST_FUNCTION: (RequestedUnit("a", 2), RequestedUnit("b", -1))},
    )


def test_the_parameters_of_run_load_balancing_make_a_request():
    """One name, and no VM (contract 2.4)."""
    assert unit_request(CALLER, B, ("a", HOSTS, {})) == Request(
        CALLER, Entities(("h1", "h2")), {}, {Kind.BALANCE: (RequestedUnit("a"),)}
    )


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        (XML, Document(b"<hosts/>", "utf-8")),
        ("\n <hosts/>", Document(b"\n <hosts/>", "utf-8")),
        (b"<hosts/>", Document(b"<hosts/>")),
        (["h1"], ("h1",)),
        ([], ()),
    ],
)
def test_hosts_as_one_text_are_a_document_as_an_array_ids(given, hosts):
    """A base64 document keeps the encoding that it declares (contract 1.4)."""
    assert filters([], given, "vm", {}).entities.hosts == hosts


@pytest.mark.parametrize(
    ("given", "vm"),
    [
        ("vm-1", "vm-1"),
        ("<vm/>", Document(b"<vm/>", "utf-8")),
        ("\ufeff\t\r\n <vm/>", Document("\ufeff\t\r\n <vm/>".encode(), "utf-8")),
        (b"<vm/>", Document(b"<vm/>")),
        ("vm<1", "vm<1"),
    ],
)
def test_a_vm_that_starts_with_an_angle_bracket_is_a_document(given, vm):
    """White space before it does not count (contract 1.4)."""
    assert filters([], HOSTS, given, {}).entities.vm == vm


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ({}, {}),
        (None, {}),
        ("", {}),
        ([], {}),  # PHP's empty array, which is its empty struct, too
        ({"k": "", "l": "x"}, {"k": "", "l": "x"}),
        ({"k": None, "l": "x"}, {"l": "x"}),
    ],
)
def test_no_properties_may_be_said_in_several_ways(given, properties):
    """A nil value counts as not given (contract 3.7)."""
    assert filters([], HOSTS, "vm", given).properties == properties


OF_A_NAME = "characters; the name of a policy unit has at most 128"
F, C, B = Kind


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (F, ("a", [], "vm", {}), "filters: expected an array of strings, not a string"),
        (F, (["a", 1], [], "vm", {}), "filters[1]: expected a string, not an int"),
        (F, ([], 5, "vm", {}),
         "hosts: expected an XML document as a string, or an array of ids, not an int"),
        (F, ([], {}, "vm", {}),
         "hosts: expected an XML document as a string, or an array of ids, not a struct"),
        (F, ([], ["h", 1.5], "vm", {}), "hosts[1]: expected a string, not a double"),
        (F, ([], ["h", " "], "vm", {}), "hosts[1]: an empty id; an id has 1 to 255"),
        (F, ([], ["h", "i", "h"], "vm", {}), "hosts[2]: 'h' is hosts[0] already; give it once"),
        (F, ([], [], [], {}),
         "vm: expected an XML document as a string, or an id, not an array"),
        (F, ([], [], None, {}), "vm: expected an XML document as a string, or an id, not nil"),
        (F, ([], [], "", {}), "vm: an empty id; an id has 1 to 255"),
        (F, ([], [], "vm", ["k"]), "properties: expected a struct of strings, not an array"),
        (F, ([], [], "vm", "k=v"), "properties: expected a struct of strings, not a string"),
        (F, ([], [], "vm", {"k": True}), "properties['k']: expected a string, not a boolean"),
        (F, ([], [], "vm", {"k": b"v"}), "properties['k']: expected a string, not a base64"),
        (F, ([], [], "vm", {"k": datetime(2026, 1, 1)}),  # noqa: DTZ001  XML-RPC's have no zone
         "properties['k']: expected a string, not a dateTime"),
        (C, ("a", [], "vm", {}),
         "cost_functions: expected an array of [name, factor], not a string"),
        (C, (["a"], [], "vm", {}), "cost_functions[0]: expected [name, factor]"),
        (C, ([["a", 1, 2]], [], "vm", {}), "cost_functions[0]: expected [name, factor]"),
        (C, ([[1, "a"]], [], "vm", {}), "cost_functions[0][0]: expected a string, not an int"),
        (C, ([["a", 1.0]], [], "vm", {}),
         "cost_functions[0][1], the factor of a: expected an int, not a double"),
        (C, ({"a": True}, [], "vm", {}),
         "cost_functions[0][1], the factor of a: expected an int, not a boolean"),
        (C, ([["a", 2**31]], [], "vm", {}),
         "cost_functions: the factor of a: 2147483648 is beyond 32 bits"),
        (B, (["a"], [], {}), "balance: expected a string, not an array"),
        (F, ([], ["h", "i" * 256], "vm", {}),
         "hosts[1]: an id of 256 characters; an id has 1 to 255"),
        (F, ([], [], "v" * 256, {}), "vm: an id of 256 characters; an id has 1 to 255"),
        (F, (["a", "u" * 129], [], "vm", {}), f"filters: '{'u' * 40}'… has 129 {OF_A_NAME}"),
        (C, ({"u" * 129: 1}, [], "vm", {}), f"cost_functions: '{'u' * 40}'… has 129 {OF_A_NAME}"),
        (B, ("u" * 129, [], {}), f"balance: '{'u' * 40}'… has 129 {OF_A_NAME}"),
        (F, ([], [], "vm", {"k": "v" * 2**17, "l": "w" * 2**17}),
         "properties: 262146 characters in names and values; at most 262144 are taken"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_parameter_and_what_was_expected(kind, parameters, message):
    """Fault -32602, for somebody who sees nothing but the sentence (contract 1.5)."""
    with pytest.raises(BadParameters) as caught:
        unit_request(CALLER, kind, parameters)
    assert str(caught.value) == message


def test_what_is_as_long_as_it_may_be_is_taken():
    """Ids of 255 characters, names of 128, and properties of 262,144 in all."""
    given = {"k": "v" * (2**18 - 1)}
    request = filters(["u" * 128], ["h" * 255], "v" * 255, given)
    assert request.entities.hosts == ("h" * 255,)
    assert request.properties == given


def test_hosts_that_are_neither_a_document_nor_ids_are_refused():
    """Fault 102 says what is taken; a lone id, or ids with commas between, are none."""
    for given in ("", "a,b", "8a3e"):
        with pytest.raises(UnreadableDocument, match=r"hosts: .* send ids as an array"):
            filters([], given, "vm", {})


@pytest.mark.parametrize("factor", [2**31 - 1, -(2**31), 0])
def test_any_factor_of_32_bits_is_taken(factor):
    """Zero and the extremes too."""
    (wanted,) = unit_request(CALLER, C, ([["a", factor]], [], "vm", {})).units[C]
    assert wanted.factor == factor


def test_a_message_holds_no_more_than_the_beginning_of_a_long_name():
    """A caller's megabytes do not come back in the fault."""
    with pytest.raises(BadParameters) as caught:
        unit_request(CALLER, C, ([["a" * 10_000, "x"]], [], "vm", {}))
    assert len(str(caught.value)) < 200


def test_calls_with_the_same_ids_share_their_strings():
    """Decisions wait for the history: each with strings of its own, they would take much memory."""
    first, second = (
        parameter_values.hosts([f"host {number}" for number in range(100)]) for _ in range(2)
    )
    assert isinstance(first, tuple)
    assert all(one is other for one, other in zip(first, second))
    for call in range(30):
        others = [f"host {call} {number}" for number in range(1000)]
        assert parameter_values.hosts(others) == tuple(others)
    assert len(parameter_values._shared_ids) <= 20_000
    many = [f"host {number}" for number in range(10_001)]
    assert parameter_values.hosts(many) == tuple(many)
    assert len(parameter_values._shared_ids) <= 20_000
