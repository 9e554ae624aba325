"""The form that released engines parse, through a reader stricter than theirs (contract 3)."""

from __future__ import annotations

import http.client
import shutil
from xmlrpc.client import dumps, loads

import pytest

from tests.support import engine_reader
from tests.support.engine_reader import Forbidden
from tests.support.java_matches import FOR_JAVA_ALONE
from tests.support.paths import OLD_PLUGINS, PLUGINS, SHARED
from tests.support.waiting import LONG

H1, H2 = (f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "12")
HOSTS = [H1, H2]
VM = "33333333-3333-3333-3333-333333333333"

READERS = {
    "discover": engine_reader.discovery,
    "runFilters": engine_reader.filtered,
    "runCostFunctions": engine_reader.scored,
    "runLoadBalancing": engine_reader.balanced,
}


def send(daemon, path, body, headers=None):
    """One HTTP request: status and body of the answer."""
    connection = http.client.HTTPConnection(
        "localhost", int(daemon.url.rpartition(":")[2]), timeout=LONG
    )
    try:
        connection.request("POST", path, body, headers or {"Content-Type": "text/xml"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Engine:
    """Calls as the engine does, and reads the answers as strictly as can be."""

    def __init__(self, daemon, path="/engine", summed=False):
        self.daemon = daemon
        self.path = path
        self.summed = summed

    def __getattr__(self, method):
        def call(*arguments):
            body = dumps(arguments, method, allow_none=True).encode("utf-8")
            status, answer = send(self.daemon, self.path, body)
            assert status == 200
            if method == "runCostFunctions":
                return engine_reader.scored(answer, self.summed)
            return READERS[method](answer)

        return call


# What classes say of their properties: patterns that Python does not read as Java does, a key
# without a pattern, and one that comes twice.
AS_WRITTEN = [f"a={pattern};b=[0-9]+" for pattern in FOR_JAVA_ALONE]
AS_WRITTEN += ["a=;b=[0-9]+", "a=x;b=x;b=[0-9]+;"]


@pytest.fixture(scope="module")
def daemon(start_daemon, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    for name in ("keeps_all", "keeps_none", "raises", "returns_nothing", "returns_strangers"):
        shutil.copy(PLUGINS / f"{name}.py", folder)
    (folder / "many.py").write_text(
        "".join(
            f"class unit_{number}:\n    properties_validation = {text!r}\n"
            "    def do_filter(self, hosts_ids, vm_id, args_map):\n        return hosts_ids\n"
            for number, text in enumerate(AS_WRITTEN)
        ),
        "utf-8",
    )
    folders = f"{folder}:{OLD_PLUGINS}"
    return start_daemon(plugins=folders, settings="ssl = false\nroot_api = engine")


@pytest.fixture(scope="module")
def engine(daemon):
    return Engine(daemon)


@pytest.fixture(scope="module")
def summing(start_daemon, tmp_path_factory):
    settings = "ssl = false\nengine_scores = summed"
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copy(PLUGINS / "keeps_all.py", folder)
    daemon = start_daemon(plugins=f"{folder}:{OLD_PLUGINS}", settings=settings)
    return Engine(daemon, summed=True)


def test_discover_gives_each_unit_its_description_and_properties(engine):
    """Two strings, never nil, empty where there is none (contract 3.1)."""
    found = engine.discover()
    properties = "maximum_vm_count=[0-9]*;mode=a|b"
    assert found["filters"]["prints_a_literal"] == ["Described by the class.", properties]
    assert found["balance"]["prints_a_literal"] == ["Described by the method.", properties]
    assert found["filters"]["returns"] == ["", ""]
    assert found["filters"]["keeps_all"] == ["Keep every host.", ""]


def test_only_classes_of_the_module_are_units_and_they_may_inherit(engine):
    """An imported base class is no unit; what it defines is one of its subclass (contract 5.3)."""
    found = engine.discover()
    assert {"inherits"} == {
        name for name in found["filters"] if name in ("inherits", "from_helper")
    }
    assert engine.runFilters(["inherits"], HOSTS, VM, {})["result"] == [H1]
    costs = engine.runCostFunctions([["inherits", 2]], HOSTS, VM, {})["result"]
    assert costs == [[H1, 7, "inherits"]]


@pytest.mark.parametrize(
    "name",
    ["prints_a_literal", "returns", "returns_and_prints", "prints_twice", "prints_to_stderr_too",
     "prints_and_exits", "uses_a_helper", "tells_what_it_got"],
)  # fmt: skip
def test_what_a_class_unit_returns_or_prints_is_its_answer(engine, name):
    """The return value, or where that is None the literal that was printed (contract 5.3)."""
    assert engine.runFilters([name], HOSTS, VM, {}) == {"result_code": 0, "result": [H1]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prints_nothing", "do_filter returned nothing, and printed no answer"),
        ("prints_no_literal", f"do_filter returned nothing, and printed no answer: 'no host fits, {VM}'"),
        ("complains", "the engine does not answer"),
        ("fails", "KeyError: 'cluster' (answers.py:"),
        ("exits_with_3", "called sys.exit(3) (answers.py:"),
    ],
)  # fmt: skip
def test_a_class_unit_without_an_answer_fails_and_is_left_out(engine, name, message):
    """Its text on stderr is the message where there is some (contract 4.2, 5.3)."""
    answer = engine.runFilters([name, "returns"], HOSTS, VM, {})
    assert answer["result"] == [H1]
    (told,) = answer["plugin_errors"][name]
    assert told.startswith(message)


def test_output_and_reasons_that_are_cut_are_no_failure_in_the_engines_audit_log(engine):
    """The answer is the same without them; the log has it."""
    answer = engine.runFilters(["prints_much"], HOSTS, VM, {})
    assert answer == {"result_code": 0, "result": HOSTS}
    for remark in ("printed more than 1 MiB; the rest was cut", "gave reasons for hosts that it"):
        assert f"filter prints_much: {remark}" in engine.daemon.log


def test_printed_costs_and_migrations_count_too(engine):
    """Pairs and [vm, hosts] as literals."""
    costs = engine.runCostFunctions([["prints_a_literal", 3]], HOSTS, VM, {})["result"]
    assert costs == [[H1, 0, "prints_a_literal"], [H2, 10, "prints_a_literal"]]
    assert engine.runLoadBalancing("prints_a_literal", HOSTS, {"vm": VM})["result"] == [VM, HOSTS]


def test_when_every_filter_fails_all_hosts_are_the_answer(engine):
    """And the error says so (contract 4.2)."""
    answer = engine.runFilters(["fails", "complains"], HOSTS, VM, {})
    assert answer["result"] == HOSTS
    assert answer["errors"] == ["all filters failed"]
    assert set(answer["plugin_errors"]) == {"fails", "complains"}


def test_an_empty_answer_of_a_filter_means_that_no_host_is_fit(engine):
    """An empty array and no error (contract 3.3)."""
    assert engine.runFilters(["keeps_none"], HOSTS, VM, {}) == {"result_code": 0, "result": []}


def test_unknown_units_are_errors_and_the_others_still_run(engine):
    """For each kind (contract 4.3, 3.5)."""
    filters = engine.runFilters(["nobody", "returns"], HOSTS, VM, {})
    assert filters["result"] == [H1]
    costs = engine.runCostFunctions([["nobody", 1], ["inherits", 1]], HOSTS, VM, {})
    assert costs["result"] == [[H1, 7, "inherits"]]
    balance = engine.runLoadBalancing("nobody", HOSTS, {})
    assert balance["result"] == ["", []]
    for answer, kind in ((filters, "filter"), (costs, "cost function"), (balance, "balance")):
        (message,) = answer["plugin_errors"]["nobody"]
        assert message.startswith(f"there is no {kind} named 'nobody'")


PYTHON_2 = "; if this was Python 2's print (a, b), write return a, b, or print((a, b))"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prints_as_python_2", f'do_balance returned nothing, and printed no answer: "{VM} ['),
        ("prints_none_as_python_2", 'do_balance returned nothing, and printed no answer: "None ['),
        ("prints_words", "do_balance returned nothing, and printed no answer: 'looking at 2 hosts'"),
        ("prints_words_and_complains", "the engine does not answer"),
    ],
)  # fmt: skip
def test_a_balance_that_printed_what_cannot_be_read_has_failed(engine, name, message):
    """It may have been a migration: Python 2's way of printing a pair is named (contract 5.3)."""
    answer = engine.runLoadBalancing(name, HOSTS, {"vm": VM})
    assert answer["result"] == ["", []]
    (told,) = answer["plugin_errors"][name]
    assert told.startswith(message)
    assert told.endswith(PYTHON_2) == name.endswith("python_2")


@pytest.mark.parametrize(
    "name", ["prints_nothing", "prints_words_and_none", "prints_the_old_nothing", "returns_nothing"]
)
def test_a_balance_with_nothing_to_do_is_two_empty_values(engine, name):
    """Never an empty array, which stops the engine's balancing (contract 3.5)."""
    assert engine.runLoadBalancing(name, HOSTS, {}) == {"result_code": 0, "result": ["", []]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "RuntimeError: no balance (balances.py:"),
        ("complains", "the engine does not answer"),
        ("no_vm_id", "answered with 'vm-1', which is not the id of a VM"),
        ("returns_strangers", "answered with hosts that it was not given (1 dropped: stranger)"),
    ],
)
def test_a_failed_balance_is_two_empty_values_and_an_error(engine, name, message):
    """The same for ids that the engine could not parse (contract 3.5, 3.6)."""
    answer = engine.runLoadBalancing(name, HOSTS, {})
    assert answer["result"] == ["", []]
    (told,) = answer["plugin_errors"][name]
    assert told.startswith(message)


def test_any_host_is_passed_on_where_the_plugin_said_so(engine):
    """A VM with an empty array (contract 3.5)."""
    assert engine.runLoadBalancing("to_any_host", HOSTS, {"vm": VM})["result"] == [VM, []]


def test_an_engine_that_ranks_weighs_our_function_by_its_factor_beside_its_own(engine, summing):
    """With the sums of the old proxy, which have no unit's name, the factor is lost."""
    hosts = [*HOSTS, "44444444-4444-4444-4444-444444444444"]
    factors = {"prints_a_literal": 10, "the engine's own": 2}
    own = [[host, cost, "the engine's own"] for host, cost in zip(hosts, (300, 200, 100))]
    calls = [[["prints_a_literal", 10]], hosts, VM, {}]
    answers = [asked.runCostFunctions(*calls)["result"] for asked in (engine, summing)]
    best = [engine_reader.best_by_rank([*scores, *own], factors, hosts) for scores in answers]
    assert best == [H1, hosts[2]]


@pytest.mark.parametrize(
    ("wanted", "clamped"),
    [
        ([["huge", 1]], {"huge": 10**9}),
        ([["huge_negative", 3]], {"huge_negative": -(10**9 // 3)}),
        ([["huge", 1000], ["huge_negative", -7]], {"huge": 500_000, "huge_negative": -(10**9 // 14)}),
        ([["huge", 2**31 - 1]], {"huge": 0}),
        ([["just_too_large", 1]], {"just_too_large": 10**9}),
    ],
)  # fmt: skip
def test_huge_costs_are_clamped_so_that_no_sum_overflows(engine, summing, wanted, clamped):
    """The worst host stays the worst in 32 bits, and each unit is told once (contract 3.6)."""
    answer = summing.runCostFunctions(wanted, HOSTS, VM, {})
    total = sum(factor * clamped[name] for name, factor in wanted)
    assert dict(answer["result"])[H1] == total
    assert abs(total) < 2**31
    clampings = [message for message in answer["errors"] if "cut to it" in message]
    for (name, factor), message in zip(wanted, clampings):
        limit = abs(clamped[name])
        assert message.startswith(name)
        assert f" beyond {limit} either way " in message
        assert (f"factor {factor} smaller" in message) == (abs(factor) > 1)
    assert len(clampings) == len(wanted)
    own = {
        name: cost
        for host, cost, name in engine.runCostFunctions(wanted, HOSTS, VM, {})["result"]
        if host == H1
    }
    assert own == clamped


def test_a_unit_whose_clamped_costs_are_not_of_all_hosts_is_not_told_to_have_no_effect(engine):
    for hosts, words in ((HOSTS, ": costs of 1 host are"), ([H1], " has no effect: each cost is")):
        (message,) = engine.runCostFunctions([["huge_for_one", 1]], hosts, VM, {})["errors"]
        assert message.startswith(f"huge_for_one{words} beyond")


@pytest.mark.parametrize("properties", [{}, None, "", [], {"last": None}, {"other": "untouched"}])
def test_properties_may_be_nil_empty_or_have_nil_values(engine, properties):
    """All are an empty map; a nil value counts as not given (contract 3.7)."""
    assert engine.runFilters(["tells_what_it_got"], HOSTS, VM, properties)["result"] == [H1]


def test_the_same_request_means_the_same_in_both_forms(daemon, engine, summing):
    """Hosts, costs and balance are those of /design (contract 1.3)."""
    with daemon.proxy("/design") as design:
        arguments = (HOSTS, VM, {"vm": VM})
        assert design.runFilters(["prints_a_literal"], *arguments) == [H1]
        assert engine.runFilters(["prints_a_literal"], *arguments)["result"] == [H1]
        wanted = [["prints_a_literal", 3], ["huge", 5]]
        costs = summing.runCostFunctions(wanted, *arguments)["result"]
        assert design.runCostFunctions(wanted, *arguments) == dict(costs)
        migration = engine.runLoadBalancing("prints_a_literal", HOSTS, {"vm": VM})["result"]
        assert design.runLoadBalancing("prints_a_literal", HOSTS, {"vm": VM}) == {
            migration[0]: migration[1]
        }


def test_a_class_units_patterns_reach_the_engine_as_they_were_written(engine):
    """Those that only Java reads too: any value is taken here, and the log says so (3.1)."""
    found = engine.discover()["filters"]
    assert [found[f"unit_{number}"][1] for number in range(len(AS_WRITTEN))] == AS_WRITTEN
    for number in range(len(FOR_JAVA_ALONE)):
        assert f"property a of unit_{number} may have any value here" in engine.daemon.log
    anything = {"a": "whatever it is", "b": "7"}
    assert engine.runFilters(["unit_0"], HOSTS, VM, anything) == {"result_code": 0, "result": HOSTS}
    answer = engine.runFilters(["unit_0"], HOSTS, VM, {"b": "x"})
    assert answer["result"] == HOSTS
    assert "property b: 'x' is not allowed" in answer["plugin_errors"]["unit_0"][0]


def test_a_property_beyond_16_bits_arrives_as_the_engine_writes_it(daemon):
    """As two references, each to half of a character: a fault would keep all hosts."""
    face = "\U0001f600"
    call = dumps((["tells_what_it_got"], [f"a{face}", "b"], VM, {"last": face}), "runFilters")
    status, answer = send(daemon, "/engine", call.replace(face, "&#55357;&#56832;").encode("ascii"))
    assert status == 200
    assert loads(answer)[0] == ({"result_code": 0, "result": [f"a{face}"]},)


def test_hosts_that_were_not_given_are_dropped_and_told(engine):
    """In every kind of answer (contract 3.6)."""
    for answer in (
        engine.runFilters(["returns_strangers"], HOSTS, VM, {}),
        engine.runCostFunctions([["returns_strangers", 1]], HOSTS, VM, {}),
    ):
        (message,) = answer["plugin_errors"]["returns_strangers"]
        assert message == "answered with hosts that it was not given (1 dropped: stranger)"
        assert len(answer["result"]) == 2


@pytest.mark.parametrize("name", ["returns_names", "has_names_printed"])
def test_a_filter_that_answers_with_names_of_hosts_is_told_so_and_left_out(engine, name):
    """Where the names are known: no host would be fit, and nobody would know why."""
    hosts = "".join(
        f"<host id='{key}'><name>{word}</name></host>" for key, word in zip(HOSTS, ("lynx", "puma"))
    )
    answer = engine.runFilters([name, "returns"], f"<hosts>{hosts}</hosts>", VM, {})
    assert answer["result"] == [H1]
    told = "do_filter answered with names of hosts (puma); return the hosts, or their ids"
    assert answer["plugin_errors"] == {name: [told]}
    answer = engine.runFilters([name], HOSTS, VM, {})
    assert answer["result"] == []
    told = "answered with hosts that it was not given (1 dropped: puma)"
    assert answer["plugin_errors"] == {name: [told]}


def test_no_hosts_are_an_empty_answer(engine):
    """In each form of result."""
    assert engine.runFilters(["raises"], [], VM, {}) == {"result_code": 0, "result": []}
    assert engine.runCostFunctions([["raises", 1]], [], VM, {})["result"] == []
    assert engine.runLoadBalancing("prints_a_literal", [], {})["result"] == ["", []]


@pytest.mark.parametrize("path", ["/", "/RPC2"])
def test_root_api_decides_the_form_of_the_root(daemon, engine, path):
    """An engine that was set up for the old proxy calls the root (contract 1.3, 3.0)."""
    assert Engine(daemon, path).discover() == engine.discover()


@pytest.mark.skipif(not SHARED.exists(), reason="the raw calls of the engine are not here")
@pytest.mark.parametrize("method", READERS)
def test_the_raw_calls_of_the_engines_client_are_answered(daemon, method):
    """As Apache XML-RPC sends them: strings without a type, prefixed nil, keep-alive."""
    raw = (SHARED / "wire" / f"{method}.http").read_bytes()
    head, _, body = raw.partition(b"\r\n\r\n" if b"\r\n\r\n" in raw else b"\n\n")
    lines = head.decode("ascii").splitlines()
    headers = dict(line.split(": ", 1) for line in lines[1:])
    headers.pop("Content-Length")
    status, answer = send(daemon, lines[0].split()[1], body.rstrip(b"\n"), headers)
    assert status == 200
    READERS[method](answer)


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        ("discovery", {"filters": {}, "scores": {}}),
        ("discovery", {"filters": {}, "scores": {}, "balance": {}, "more": {}}),
        ("discovery", {"filters": {"a": ["one"]}, "scores": {}, "balance": {}}),
        ("discovery", {"filters": {"a": ["", "key"]}, "scores": {}, "balance": {}}),
        ("envelope", {"result_code": 0}),
        ("envelope", {"result_code": 0, "result": [], "errors": ["x"]}),
        ("envelope", {"result_code": 1, "result": []}),
        ("envelope", {"result_code": 1, "result": [], "errors": ["two\nlines"]}),
        ("filtered", {"result_code": 0, "result": ["host-1"]}),
        ("scored", {"result_code": 0, "result": [[H1, 1.5, "unit"]]}),
        ("scored", {"result_code": 0, "result": [[H1, 1]]}),
        ("balanced", {"result_code": 0, "result": []}),
        ("balanced", {"result_code": 0, "result": ["", [H1]]}),
    ],
)
def test_the_reader_of_these_tests_refuses_what_the_engine_would(reader, value):
    """A reader that accepts everything would show nothing."""
    body = dumps((value,), methodresponse=True).encode("utf-8")
    with pytest.raises(Forbidden):
        getattr(engine_reader, reader)(body)
