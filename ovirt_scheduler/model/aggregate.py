"""Combines the answers of single units (contract 4.1 to 4.4 and 3.6).

Pure arithmetic on ids and numbers. While calls run, it says which hosts the next filter gets;
afterwards it adds up the costs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.units import OnFailure, UnitCall

ALL_FILTERS_FAILED = "all filters failed"

# The engine adds 32-bit numbers; twice this still fits (contract 3.6).
_SUM_BOUND = 10**9


def narrow(left: tuple[str, ...], result: CallResult, on_failure: OnFailure) -> tuple[str, ...]:
    """The hosts that are left after one more filter (contract 4.1, 4.2)."""
    if result.ok:
        kept: tuple[str, ...] = result.value  # some of those left, in their order
        return kept
    return () if on_failure is OnFailure.REJECT else left


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
    """The largest cost of one function of a call, so that no sum overflows (contract 3.6)."""
    return _SUM_BOUND // (functions * max(1, abs(factor)))


def bounded_costs(call: UnitCall, result: CallResult) -> Mapping[str, int]:
    """The costs of one function, each held within its bound; none where it failed."""
    costs: Mapping[str, int] = result.value if result.ok else {}
    limit = bound(call.factor, call.functions)
    if max(map(abs, costs.values()), default=0) <= limit:
        return costs
    return {host: max(-limit, min(limit, cost)) for host, cost in costs.items()}


def summed(
    calls: Sequence[UnitCall], results: Sequence[CallResult]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The weighted sum of the costs, each held within its bound (contract 3.6).

    Args:
        calls: of the functions, with their factors.
        results: of these calls, in the same order.

    Returns:
        Host to the sum of factor times cost, without a host that nobody scored; and the errors.
    """
    total: dict[str, int] = {}
    errors: list[str] = []
    for call, result in zip(calls, results):
        costs = bounded_costs(call, result)
        if result.ok and costs is not result.value:
            limit = bound(call.factor, call.functions)
            errors.append(f"{call.unit.name}: a cost beyond {limit} either way was held there")
        for host, cost in costs.items():
            total[host] = total.get(host, 0) + call.factor * cost
    return total, tuple(errors)
