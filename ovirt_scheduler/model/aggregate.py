"""Combines the answers of single units (contract 4.1 to 4.4 and 3.6).

Pure arithmetic on ids and numbers. While calls run, it says which hosts the next filter gets;
afterwards it adds up the costs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.units import OnFailure, UnitCall
from ovirt_scheduler.model.values.text import count_of

ALL_FILTERS_FAILED = "all filters failed"

# The engine adds 32-bit numbers; twice this still fits (contract 3.6).
SUM_BOUND = 10**9
_MOST_FACTOR = 10**6  # of a function; an engine multiplies it by the number of hosts


def narrow(
    remaining: tuple[str, ...], result: CallResult, on_failure: OnFailure
) -> tuple[str, ...]:
    """The hosts that remain after one more filter.

    All of them remain after one that failed, or none, as its ``on_failure`` says.
    """
    if result.ok:
        accepted: tuple[str, ...] = result.value  # some of those left, in their order
        return accepted
    return () if on_failure is OnFailure.REJECT else remaining


def have_all_failed(results: Sequence[CallResult], calls: Sequence[UnitCall]) -> bool:
    """Whether each of these filters ran and failed.

    Args:
        results: of those that ran.
        calls: of all filters asked for.
    """
    return 0 < len(results) == len(calls) and not any(result.ok for result in results)


def whole_cost(cost: object) -> int:
    """A plugin's cost as an integer, rounded half to even.

    Raises:
        ValueError: it is not a finite number.
    """
    if isinstance(cost, int):
        return int(cost)
    number = math.nan
    if not isinstance(cost, (str, bytes, bytearray)):  # float() would read their text
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(cost)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"{cost!r:.60} is not a finite number")
    return round(number)


def bound(factor: int, functions: int) -> int:
    """The largest cost of one function of a call whose costs are clamped (contract 3.6)."""
    return SUM_BOUND // (functions * max(1, abs(factor)))


def reach(factor: int, costs: Iterable[int]) -> int:
    """The most that a function's costs can add to a sum, in either direction.

    A factor of 0 counts as 1: the engine is sent the costs themselves, in 32 bits.
    """
    return max(1, abs(factor)) * max(map(abs, costs), default=0)


def clamped_costs(
    functions: Sequence[tuple[UnitCall, CallResult]],
) -> tuple[Mapping[str, int], ...]:
    """The costs of each function of a call as they count; none where it failed.

    They are as the function gave them, unless the sums could overflow (contract 3.6).
    """
    all_costs: list[Mapping[str, int]] = [each.value if each.ok else {} for _, each in functions]
    calls = [call for call, _ in functions]
    reaches = (reach(call.factor, costs.values()) for call, costs in zip(calls, all_costs))
    if sum(reaches) <= SUM_BOUND:
        return tuple(all_costs)
    return tuple(_clamped(call, costs) for call, costs in zip(calls, all_costs))


def _clamped(call: UnitCall, costs: Mapping[str, int]) -> Mapping[str, int]:
    limit = bound(call.factor, call.functions)
    return {host: max(-limit, min(limit, cost)) for host, cost in costs.items()}


def summed(
    calls: Sequence[UnitCall], results: Sequence[CallResult], hosts: Collection[str] = ()
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The weighted sum of the costs, as they count.

    Args:
        calls: of the functions, with their factors.
        results: of these calls, in the same order.
        hosts: the ids of those that were to be scored.

    Returns:
        Host to the sum of factor times cost, without a host that nobody scored; and the errors.
    """
    total: dict[str, int] = {}
    errors: list[str] = []
    functions = [*zip(calls, results)]
    for (call, result), costs in zip(functions, clamped_costs(functions)):
        errors += _remarks(call, result.value if result.ok else {}, costs, hosts)
        for host, cost in costs.items():
            total[host] = total.get(host, 0) + call.factor * cost
    return total, tuple(errors)


def _remarks(
    call: UnitCall, costs: Mapping[str, int], counted: Mapping[str, int], hosts: Collection[str]
) -> Iterator[str]:
    """What is to be said of a function: of its factor, and of costs that were clamped."""
    name, factor, limit = call.unit.name, call.factor, bound(call.factor, call.functions)
    if abs(factor) > _MOST_FACTOR:
        yield (
            f"{name}: the factor {factor} is beyond {_MOST_FACTOR} either way: an engine that "
            "ranks multiplies ranks by it in 32 bits; make it smaller"
        )
    cut = [host for host, cost in costs.items() if counted[host] != cost]
    if cut:
        which, was = f": costs of {count_of(len(cut), 'host')} are", "were"
        scored_all = all(host in costs for host in hosts)  # else it tells hosts apart by that
        if scored_all and len(cut) == len(costs) and len({*counted.values()}) == 1:
            which, was = " has no effect: each cost is", "was"
        smaller = f", or make the factor {factor} smaller" if abs(factor) > 1 else ""
        yield (
            f"{name}{which} beyond {limit} either way and {was} cut to it; divide them, such as "
            f"bytes by 2**30{smaller}"
        )
