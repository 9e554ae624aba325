"""XML-RPC parameters to requests, and decisions to the two answer forms."""

from __future__ import annotations

from datetime import datetime

import pytest

from ovirt_scheduler.errors import BadParameters, UnreadableDocument
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.decisions import Decision, Execution, Request
from ovirt_scheduler.model.plugins import Limits, PluginCode, Property, PropertySet
from ovirt_scheduler.model.requests import (
    AnswerForm,
    Caller,
    Document,
    EngineScores,
    Subjects,
    WantedUnit,
)
from ovirt_scheduler.model.results import CallResult, Migration, Outcome
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from ovirt_scheduler.server import methods
from ovirt_scheduler.server.dispatch import Reply

CALLER = Caller("r1", AnswerForm.DESIGN, "127.0.0.1:1")
ENGINE = Caller("r1", AnswerForm.ENGINE, "127.0.0.1:1")
HOSTS = ["h1", "h2"]
XML = "<hosts/>"
UUID = "0f7a9c6e-3b0d-4f6a-9a3e-5f0d6c1b2a79"
SUMMED, PER_UNIT = EngineScores.SUMMED, EngineScores.PER_UNIT


def reply(decision: Decision, scores: EngineScores) -> Reply:
    return methods.DecisionMethods(None, scores).reply(decision)


def filters(*parameters: object) -> Request:
    return methods.request(CALLER, Kind.FILTER, parameters)


def test_the_parameters_of_run_filters_make_a_request():
    """Names in their order, hosts as ids, the VM as an id (contract 2.2)."""
    assert filters(["b", "a"], HOSTS, "vm-1", {"k": "v"}) == Request(
        CALLER,
        Subjects(("h1", "h2"), vm="vm-1"),
        {"k": "v"},
        {Kind.FILTER: (WantedUnit("b"), WantedUnit("a"))},
    )


@pytest.mark.parametrize("functions", [[["a", 2], ["b", -1]], {"a": 2, "b": -1}])
def test_the_parameters_of_run_cost_functions_make_a_request(functions):
    """Pairs, or a struct (contract 2.3)."""
    assert methods.request(CALLER, C, (functions, HOSTS, "vm-1", {})) == Request(
        CALLER,
        Subjects(("h1", "h2"), vm="vm-1"),
        {},
        {Kind.COST_FUNCTION: (WantedUnit("a", 2), WantedUnit("b", -1))},
    )


def test_the_parameters_of_run_load_balancing_make_a_request():
    """One name, and no VM (contract 2.4)."""
    assert methods.request(CALLER, B, ("a", HOSTS, {})) == Request(
        CALLER, Subjects(("h1", "h2")), {}, {Kind.BALANCE: (WantedUnit("a"),)}
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
    assert filters([], given, "vm", {}).subjects.hosts == hosts


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
    assert filters([], HOSTS, given, {}).subjects.vm == vm


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ({}, {}),
        (None, {}),
        ("", {}),
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
        (F, ([], [], "vm", []), "properties: expected a struct of strings, not an array"),
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
        methods.request(CALLER, kind, parameters)
    assert str(caught.value) == message


def test_what_is_as_long_as_it_may_be_is_taken():
    """Ids of 255 characters, names of 128, and properties of 262,144 in all."""
    given = {"k": "v" * (2**18 - 1)}
    request = filters(["u" * 128], ["h" * 255], "v" * 255, given)
    assert request.subjects.hosts == ("h" * 255,)
    assert request.properties == given


def test_hosts_that_are_neither_a_document_nor_ids_are_refused():
    """Fault 102 says what is taken; a lone id, or ids with commas between, are none."""
    for given in ("", "a,b", "8a3e"):
        with pytest.raises(UnreadableDocument, match=r"hosts: .* send ids as an array"):
            filters([], given, "vm", {})


@pytest.mark.parametrize("factor", [2**31 - 1, -(2**31), 0])
def test_any_factor_of_32_bits_is_taken(factor):
    """Zero and the extremes too."""
    (wanted,) = methods.request(CALLER, C, ([["a", factor]], [], "vm", {})).wanted[C]
    assert wanted.factor == factor


def test_a_message_holds_no_more_than_the_beginning_of_a_long_name():
    """A caller's megabytes do not come back in the fault."""
    with pytest.raises(BadParameters) as caught:
        methods.request(CALLER, C, ([["a" * 10_000, "x"]], [], "vm", {}))
    assert len(str(caught.value)) < 200


def decision(caller: Caller, kind: Kind, answer: object, **changes: object) -> Decision:
    request = Request(caller, Subjects(("h1", "h2"), vm="vm"), {}, {kind: (WantedUnit("u"),)})
    return Decision(request, Execution(("h1", "h2"), vm="vm"), answer)._replace(**changes)


@pytest.mark.parametrize(
    ("kind", "answer", "shown"),
    [
        (Kind.FILTER, ("h2",), ["h2"]),
        (Kind.FILTER, (), []),
        (Kind.COST_FUNCTION, {"h1": 3}, {"h1": 3}),
        (Kind.COST_FUNCTION, {}, {}),
        (Kind.BALANCE, Migration("vm", ("h1",)), {"vm": ["h1"]}),
        (Kind.BALANCE, Migration("vm", ()), {"vm": []}),
        (Kind.BALANCE, None, {}),
    ],
)
def test_the_design_form_is_the_bare_answer(kind, answer, shown):
    """Array, struct of ints, struct of arrays (contract 2.2 to 2.4)."""
    made = decision(CALLER, kind, answer, errors=("not shown",))
    assert reply(made, SUMMED).answer == shown


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        (Kind.FILTER, ("h2",), ["h2"]),
        (Kind.FILTER, (), []),
        (Kind.COST_FUNCTION, {"h1": 3}, [["h1", 3]]),
        (Kind.COST_FUNCTION, {}, []),
        (Kind.BALANCE, Migration(UUID, ("h1",)), [UUID, ["h1"]]),
        (Kind.BALANCE, Migration(UUID, ()), [UUID, []]),
        (Kind.BALANCE, None, ["", []]),
    ],
)
def test_the_engine_form_is_an_envelope_without_empty_parts(kind, answer, result):
    """Errors are not there when there are none (contract 3.2 to 3.5)."""
    answered = reply(decision(ENGINE, kind, answer), SUMMED).answer
    assert answered == {"result_code": 0, "result": result}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"errors": ("all failed",)}, {"errors": ["all failed"]}),
        ({"unit_errors": {"u": ("a", "b")}}, {"plugin_errors": {"u": ["a", "b"]}}),
    ],
)
def test_the_engine_form_tells_errors_with_the_code_that_has_them_read(changes, shown):
    """The engine looks at them only where the code is not 0 (contract 3.2)."""
    made = decision(ENGINE, Kind.FILTER, ("h1",), **changes)
    answered = reply(made, SUMMED).answer
    assert answered == {"result_code": 1, "result": ["h1"], **shown}


def test_the_engine_form_gives_no_vm_that_is_no_uuid():
    """The engine could not read it: nothing to do, and an error that says why (3.6)."""
    migration = Migration("vm-7", ("h1",))
    before = decision(ENGINE, Kind.BALANCE, migration, unit_errors={"u": ("first",)})
    told = reply(before, SUMMED)
    assert told.log_fields["outcome"] == "degraded"
    assert told.answer == {
        "result_code": 1,
        "result": ["", []],
        "plugin_errors": {"u": ["first", "answered with 'vm-7', which is not the id of a VM"]},
    }
    assert before.unit_errors == {"u": ("first",)}


def test_scores_per_unit_lead_the_engine_to_the_same_sums():
    """Each function's own cost, not multiplied; a failed one is not there (contract 3.4)."""
    results = (
        CallResult("a", Outcome.OK, {"h1": 5, "h2": -1}),
        CallResult("b", Outcome.RAISED, message="no"),
        CallResult("c", Outcome.OK, {"h2": 4}),
    )
    factors = {"a": 3, "b": 7, "c": -2}
    calls = tuple(
        UnitCall(unit(name, C), {}, factor, len(factors)) for name, factor in factors.items()
    )
    execution = Execution(("h1", "h2"), cost_functions=results)
    answer, _ = aggregate.summed(calls, results)
    made = decision(ENGINE, C, answer, execution=execution, calls=calls)
    summed = reply(made, SUMMED).answer["result"]
    per_unit = reply(made, PER_UNIT).answer["result"]
    assert per_unit == [["h1", 5, "a"], ["h2", -1, "a"], ["h2", 4, "c"]]
    by_engine: dict = {}
    for host, cost, name in per_unit:
        by_engine[host] = by_engine.get(host, 0) + factors[name] * cost
    assert by_engine == dict(summed)


def unit(name: str, kind: Kind, properties: PropertySet = None) -> PolicyUnit:
    code = PluginCode(name, "/p", Analysis().modules)
    return PolicyUnit(name, kind, f"about {name}", code, "sha256:", Limits(1, 1, 1, 1), properties)


def test_the_engines_discover_has_three_structs_of_pairs_of_strings():
    """Never nil, never another key; ranges as regexes, no default values (contract 3.1)."""
    heat = PropertySet("Heat", (Property("ip", "[0-9.]+", "1.2.3.4"), Property("low", "{0-9}")))
    units = [unit("F", Kind.FILTER, heat), unit("F", Kind.COST_FUNCTION), unit("B", Kind.BALANCE)]
    assert methods.engine_discovery(units) == {
        "filters": {"F": ["about F", "ip=[0-9.]+;low=[0-9]"]},
        "scores": {"F": ["about F", ""]},
        "balance": {"B": ["about B", ""]},
    }
    assert methods.engine_discovery([]) == {"filters": {}, "scores": {}, "balance": {}}
