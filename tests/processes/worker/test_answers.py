"""What a plugin's function may return, and what is said of everything else."""

from __future__ import annotations

import ast
from collections import OrderedDict

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import Function, Returns
from ovirt_scheduler.processes.worker.answers import (
    BadAnswer,
    Yielded,
    accepted_hosts,
    costs,
    migration,
    read_printed,
)

HOST = types.Host(id="h1")
VM = types.Vm(id="v1")


def what_is_lost(returned):
    yield "h2"
    return returned


@pytest.mark.parametrize(
    ("returned", "hosts"),
    [
        ([HOST, "h2"], ("h1", "h2")),
        ((HOST,), ("h1",)),
        ({"h2": True}, ("h2",)),
        ((host for host in ["h2"]), ("h2",)),
        (filter(None, [HOST]), ("h1",)),
        (Yielded(what_is_lost([])), ("h2",)),  # nothing is lost
        ([], ()),
    ],
)
def test_a_filter_returns_entities_or_ids(returned, hosts):
    """In whatever can be gone through (contract 5.2)."""
    assert accepted_hosts(returned) == hosts


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            Yielded(what_is_lost([HOST])),
            "has a yield, so that what it returns besides is lost; in place of 'return hosts'",
        ),
        (None, "returned nothing; expected the hosts to keep"),
        ("h1", "returned 'h1'; expected the hosts to keep"),
        (b"h1", "returned b'h1'; expected the hosts to keep"),
        (True, "returned True; expected the hosts to keep"),
        (HOST, "returned one Host; expected the hosts to keep"),
        ("h" * 100, "returned 'h{78}\u2026; expected the hosts to keep"),
        ([None], "returned None, which is neither an entity with an id nor an id"),
        ([3], "returned 3, which is neither an entity with an id nor an id"),
        ([["h1"]], r"returned \['h1'\], which is neither an entity with an id nor an id"),
        ([types.Host(name="n")], "which is neither an entity with an id nor an id"),
        ([""], "returned '', which cannot be an id"),
        (["\0"], r"returned '\\x00', which cannot be an id"),
        (["\ud800"], r"returned '\\ud800', which cannot be an id"),
    ],
)
def test_anything_else_from_a_filter_is_refused_with_what_was_expected(returned, message):
    """A single string is not a list of its letters."""
    with pytest.raises(BadAnswer, match=message):
        accepted_hosts(returned)


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ([(HOST, 1), ["h2", 2.5]], {"h1": 1, "h2": 2}),
        ({"h1": -3}, {"h1": -3}),
        (OrderedDict(h1=0), {"h1": 0}),
        (zip([HOST], [7]), {"h1": 7}),
        ([("h1", 1), ("h1", 2)], {"h1": 2}),
        ([], {}),
        ({"h1": 10**30, "h2": -(10**30)}, {"h1": 10**18, "h2": -(10**18)}),
    ],
)
def test_a_cost_function_returns_pairs_or_a_dict(returned, found):
    """Costs are whole, and no larger than what counts by far (contract 5.2)."""
    assert costs(returned) == found


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"returned nothing; expected \(host, cost\) pairs or a dict of them"),
        (5, r"returned 5; expected \(host, cost\) pairs or a dict of them"),
        (["h1"], r"returned 'h1' among the costs; expected \(host, cost\) pairs"),
        ([("h1",)], r"returned \('h1',\) among the costs"),
        ([("h1", 1, 2)], r"returned \('h1', 1, 2\) among the costs"),
        ([(1, "h1")], "returned 1, which is neither an entity with an id nor an id"),
        ({"h1": None}, "returned a bad cost for host h1: None is not a finite number"),
        ({"h1": "5"}, "returned a bad cost for host h1: '5' is not a finite number"),
        ({"h1": float("nan")}, "returned a bad cost for host h1: nan is not a finite number"),
    ],
)
def test_anything_else_from_a_cost_function_is_refused_with_what_was_expected(returned, message):
    """The sentence names the host whose cost it is."""
    with pytest.raises(BadAnswer, match=message):
        costs(returned)


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ((VM, [HOST, "h2"]), Migration("v1", ("h1", "h2"))),
        (["v1", ("h1",)], Migration("v1", ("h1",))),
        ({"v1": [HOST]}, Migration("v1", ("h1",))),
        (("v1", []), Migration("v1", ())),
        (None, None),
        ([], None),
        ({}, None),
        (("", []), None),
        ((None, None), None),
    ],
)
def test_a_balance_returns_a_vm_with_its_hosts_or_nothing(returned, found):
    """Nothing to do may be said in several ways (contract 2.4, 3.5, 5.2)."""
    assert migration(returned) == found


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("v1", "returned 'v1'; expected a VM and the hosts it may go to, or None"),
        (7, "returned 7; expected a VM"),
        (["v1"], r"returned \['v1'\]; expected a VM"),
        (("v1", ["h1"], 3), r"returned \('v1', \['h1'\], 3\); expected a VM"),
        ({"v1": [], "v2": []}, r"returned \{'v1': \[\], 'v2': \[\]\}; expected a VM"),
        (("v1", None), r"returned \('v1', None\); expected a VM"),
        (("v1", "h1"), "returned 'h1'; expected a VM"),
        ((3, ["h1"]), "returned 3, which is neither an entity with an id nor an id"),
    ],
)
def test_anything_else_from_a_balance_is_refused_with_what_was_expected(returned, message):
    """Two migrations at once are none."""
    with pytest.raises(BadAnswer, match=message):
        migration(returned)


@pytest.mark.parametrize("read", [accepted_hosts, costs, migration])
def test_a_message_holds_no_more_than_the_beginning_of_a_long_answer(read):
    """However much was returned."""
    with pytest.raises(BadAnswer) as caught:
        read("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "printed",
    [
        "['a']", "['a', 'b b', 'c, \u00e9']", "[]", "['a','b']", "['a' 'b']", "[\"it's\", 'a']",
        "['a\\x62']", "['a', ]", "('a', 'b')", "['', 'a']", "['a\tb']", "['a', 'b'] + ['c']",
        "['a\nb']", "['a'']",
    ],
)  # fmt: skip
def test_what_a_filter_prints_is_read_as_python_reads_it(printed):
    """A plain list of ids is read by a shorter way, to the same end."""
    filtered = Function("Unit", "filter", "do_filter", Returns.HOSTS)
    try:
        wanted = accepted_hosts(ast.literal_eval(printed))
    except (BadAnswer, ValueError, SyntaxError):
        with pytest.raises(BadAnswer):
            read_printed(filtered, printed, "")
    else:
        assert read_printed(filtered, printed, "") == wanted
