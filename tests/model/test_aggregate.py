"""What the answers of single units make together: narrowing, costs and their sums."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import Kind, OnFailure, PolicyUnit, UnitCall

GIVEN = ("a", "b", "c")
IGNORE, REJECT = OnFailure.IGNORE, OnFailure.REJECT
FAILED = CallResult("unit", CallOutcome.RAISED, message="ValueError: no")


def kept(*hosts: str) -> CallResult:
    return CallResult("unit", CallOutcome.OK, hosts)


@pytest.mark.parametrize(
    ("result", "on_failure", "left"),
    [
        (kept("b", "c"), IGNORE, ("b", "c")),
        (kept(), IGNORE, ()),
        (FAILED, IGNORE, GIVEN),
        (FAILED, REJECT, ()),
        (kept("a"), REJECT, ("a",)),
    ],
)
def test_a_failed_filter_is_left_out_unless_it_rejects(result, on_failure, left):
    """A filter that rejects everything is not one that failed (contract 4.2)."""
    assert aggregate.narrow(GIVEN, result, on_failure) == left


@pytest.mark.parametrize(
    ("results", "asked", "expected"),
    [
        ([], 0, False),
        ([kept("a"), FAILED], 2, False),
        ([FAILED, FAILED], 2, True),
        ([FAILED], 2, False),  # it rejected all hosts, and the second one did not run
    ],
)
def test_that_all_filters_failed_is_told_if_all_of_them_ran(results, asked, expected):
    """Else there was one that said which hosts to keep (contract 4.2)."""
    code, limits = PluginCode("plugin", "/", ()), Limits(1, 1, 1, 1)
    unit = PolicyUnit("unit", Kind.FILTER, "", code, "", limits)
    assert aggregate.have_all_failed(results, [UnitCall(unit, {})] * asked) is expected


@pytest.mark.parametrize(
    ("cost", "whole"),
    [
        (7, 7),
        (True, 1),
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-0.5, 0),
        (-1.5, -2),
        (10**30, 10**30),
        (Decimal("3.5"), 4),
        (Fraction(5, 2), 2),
    ],
)
def test_a_cost_is_rounded_half_to_even(cost, whole):
    """Whatever kind of number it is (contract 3.6)."""
    rounded = aggregate.whole_cost(cost)
    assert (rounded, type(rounded)) == (whole, int)


@pytest.mark.parametrize(
    "cost",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        Fraction(10**400),
        Decimal("NaN"),
        None,
        "5",
        b"5",
        bytearray(b"5"),
        1j,
        [1],
    ],
)
def test_what_is_no_finite_number_is_no_cost(cost):
    """A text that reads like a number is none either."""
    with pytest.raises(ValueError, match="is not a finite number"):
        aggregate.whole_cost(cost)


@pytest.mark.parametrize(
    ("factor", "functions", "bound"),
    [(1, 1, 10**9), (0, 1, 10**9), (-3, 1, 333333333), (3, 2, 166666666), (-(2**31), 1, 0)],
)
def test_the_bound_follows_from_factor_and_functions(factor, functions, bound):
    """A billion, divided by functions times factor, rounded down (contract 3.6)."""
    assert aggregate.bound(factor, functions) == bound


def summed(functions, hosts=()):
    """The sum of what functions answered about hosts: pairs of a factor and costs."""
    unit = PolicyUnit(
        "unit", Kind.COST_FUNCTION, "", PluginCode("unit", "/", ()), "", Limits(1, 1, 1, 1)
    )
    calls = [UnitCall(unit, {}, factor, len(functions)) for factor, _ in functions]
    return aggregate.summed(
        calls, [CallResult("unit", CallOutcome.OK, costs) for _, costs in functions], hosts
    )


@pytest.mark.parametrize("factor", [1, -1, 2, -7, 0, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("functions", [1, 2, 3, 40])
def test_no_sum_of_clamped_costs_leaves_the_engines_32_bits(factor, functions):
    """The worst case on both sides: every function at its bound, of the same sign."""
    extremes = {"best": -(10**18), "worst": 10**18}
    total, errors = summed([(factor, extremes)] * functions)
    assert sum("cut to it" in error for error in errors) == functions
    assert all(abs(value) <= 10**9 for value in total.values())


@pytest.mark.parametrize(
    "functions",
    [
        [(1, {"low": -(10**9), "high": 10**9})],
        [(10**6, {"a": 900, "b": 600}), (1, {"a": 10**8, "b": -(10**8)})],
        [(-(10**6), {"a": 999, "b": 0}), (10**6, {"b": 1}), (1, {})],
    ],
)
def test_costs_are_not_clamped_where_no_sum_can_overflow(functions):
    total, errors = summed(functions)
    hosts = {host for _, costs in functions for host in costs}
    expected = {
        host: sum(factor * costs.get(host, 0) for factor, costs in functions) for host in hosts
    }
    assert (total, errors) == (expected, ())


def test_a_unit_whose_costs_are_clamped_is_told_with_its_factor():
    total, errors = summed([(10**6, {"a": 900, "b": 400}), (1, {"a": 10**8 + 1})])
    assert total == {"a": 600_000_001, "b": 400_000_000}
    told = (
        "unit: costs of 1 host are beyond 500 either way and were cut to it; divide them, such as "
        "bytes by 2**30, or make the factor 1000000 smaller"
    )
    assert errors == (told,)


def test_a_unit_whose_costs_are_all_clamped_to_the_same_bound_has_no_effect():
    functions = [(1, {"a": -(2**34), "b": -(2**36)})]
    total, errors = summed(functions, ("a", "b"))
    assert total == {"a": -(10**9), "b": -(10**9)}
    told = (
        "unit has no effect: each cost is beyond 1000000000 either way and was cut to it; divide "
        "them, such as bytes by 2**30"
    )
    assert errors == (told,)


def test_a_unit_that_leaves_a_host_out_has_an_effect_though_its_costs_are_all_clamped():
    _, (error,) = summed([(1, {"a": -(2**34), "b": -(2**36)})], ("a", "b", "c"))
    assert error.startswith("unit: costs of 2 hosts are beyond 1000000000 either way and were cut")


def test_a_unit_whose_costs_are_all_clamped_on_both_sides_has_an_effect():
    total, errors = summed([(10**6, {"a": 1200, "b": -1600})])
    assert total == {"a": 10**9, "b": -(10**9)}
    assert errors[0].startswith("unit: costs of 2 hosts are beyond 1000 either way and were cut")


def test_a_factor_that_ranks_overflow_with_is_told():
    told = (
        "unit: the factor -1000001 is beyond 1000000 either way: an engine that ranks multiplies "
        "ranks by it in 32 bits; make it smaller"
    )
    assert summed([(10**6, {"a": 1}), (-(10**6) - 1, {"a": 1})]) == ({"a": -1}, (told,))


def test_a_factor_of_0_leaves_costs_that_fit_32_bits():
    """The engine may be sent the costs themselves."""
    unit = PolicyUnit(
        "unit", Kind.COST_FUNCTION, "", PluginCode("unit", "/", ()), "", Limits(1, 1, 1, 1)
    )
    answered = CallResult("unit", CallOutcome.OK, {"a": 10**10})
    assert aggregate.clamped_costs([(UnitCall(unit, {}, 0), answered)]) == ({"a": 10**9},)


def test_sums_weigh_each_function_and_leave_out_unscored_hosts():
    """A host that one function scored is there, one that none did is not (contract 4.4)."""
    total, _ = summed([(10, {"a": 1, "b": 2}), (-1, {"b": 5}), (3, {})])
    assert total == {"a": 10, "b": 15}
