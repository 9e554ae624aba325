"""What the manual says of units of the old proxy that are now treated otherwise."""

from __future__ import annotations

from xmlrpc.client import Fault

import pytest

from tests.support.paths import PROJECT

HOSTS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "12345"]
H1, *_, H4, H5 = HOSTS
STRANGER = "99999999-1111-2222-3333-999999999999"

UNITS = f"""
from _helper import imported

class greatest:
    def do_filter(self, hosts, vm, args):
        print(sorted(hosts)[-2:])

class lower_half:
    '''About the class.'''
    def do_filter(self, hosts, vm, args):
        print(sorted(hosts)[:(len(hosts) + 1) // 2])

class twice:
    def do_score(self, hosts, vm, args):
        print([(hosts[0], 1), (hosts[0], 10), ("{STRANGER}", 5)])

class in_two_files:
    def do_filter(self, hosts, vm, args):
        print(hosts)
"""
HELPER = """
class imported:
    def do_filter(self, hosts, vm, args):
        print(hosts)
"""
OTHER = "class in_two_files:\n    def do_filter(self, hosts, vm, args): print([])\n"


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon({"units": UNITS, "_helper": HELPER, "units2": OTHER}, "ssl = false")


@pytest.fixture
def engine(daemon):
    with daemon.proxy("/engine") as proxy:
        yield proxy


def test_every_difference_tested_here_is_in_the_manual():
    page = (PROJECT / "docs" / "migrating.md").read_text("utf-8")
    for difference in (
        "every filter gets all hosts",
        "a function named twice in one call counts twice",
        "a host that comes twice in a cost function's answer",
        "hosts in an answer that were not given",
        "properties and factors may be numbers, arrays and fractions",
        "only the method's docstring is the description",
        "a class that a file imports is a unit of it, too",
        "of classes of the same name in two files one is used",
    ):
        assert f"| {difference}" in page


def test_a_filter_that_judges_a_host_by_the_others_depends_on_their_order(engine):
    """Of all hosts both together accept none."""
    answers = [
        engine.runFilters(filters, HOSTS, "vm", {})["result"]
        for filters in (["greatest", "lower_half"], ["lower_half", "greatest"])
    ]
    assert answers == [[H4], HOSTS[1:3]]


def test_of_what_comes_twice_in_costs_one_counts_and_strangers_are_dropped(engine):
    answer = engine.runCostFunctions([["twice", 3], ["twice", 4]], HOSTS, "vm", {})
    assert answer["result"] == [[H1, 10, "twice"]]
    assert len(answer["plugin_errors"]["twice"]) == 2


@pytest.mark.parametrize(
    ("hosts", "factor", "properties"),
    [
        ([H1, H1], 1, {}),
        (HOSTS, 1.5, {}),
        (HOSTS, [1], {}),
        (HOSTS, 1, {"a": 1}),
        (HOSTS, 1, {"a": ["b"]}),
        (HOSTS, 1, {"a": 0.5}),
    ],
)
def test_what_no_engine_sends_is_a_fault(engine, hosts, factor, properties):
    with pytest.raises(Fault) as fault:
        engine.runCostFunctions([["twice", factor]], hosts, "vm", properties)
    assert fault.value.faultCode == -32602


def test_units_are_the_classes_that_a_plugins_file_defines(daemon, engine):
    """Described by the class where the method says nothing; each name is of one file."""
    filters = engine.discover()["filters"]
    assert sorted(filters) == ["greatest", "in_two_files", "lower_half"]
    assert filters["lower_half"] == ["About the class.", ""]
    assert "in_two_files" in daemon.log
    assert engine.runFilters(["in_two_files"], HOSTS, "vm", {})["result"] == HOSTS
