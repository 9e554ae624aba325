"""Decisions in plain values, as the history has them, written by hand."""

from __future__ import annotations

from ovirt_scheduler.history import ranking

WEB = {"id": "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01", "name": "web"}


def unit(name, kind="filter", outcome="ok", **more):
    return {"name": name, "kind": kind, "outcome": outcome, "mode": "live", **more}


def function(name, factor=1, **more):
    return unit(name, "cost function", factor=factor, **more)


def host(name, verdicts=(), costs=()):
    """Verdicts as ``unit: (verdict, reason)``, costs as ``(unit, factor, cost)``."""
    made = {"id": f"id-of-{name}", "name": name}
    if verdicts:
        made["verdicts"] = [
            {"unit": one, "verdict": verdict, **({"reason": why} if why else {})}
            for one, (verdict, why) in verdicts.items()
        ]
    if costs:
        made["costs"] = [
            {"unit": one, "factor": factor, "cost": cost, "weighted": factor * cost}
            for one, factor, cost in costs
        ]
    return made


def decision(method, units=(), hosts=(), answer=None, **more):
    made = {
        "id": "1f2e3d4c5b6a7988", "time": "2026-01-31T12:00:00.250Z", "milliseconds": 3.21,
        "caller": "127.0.0.1:40312", "method": method, "form": "engine",
        "units": list(units), "hosts": list(hosts), **more,
    }  # fmt: skip
    ranking.put_totals(made)
    return made if answer is None else {**made, "answer": answer}


def scored(factors, costs, **more):
    """A call of cost functions: factors by unit, and a tuple of costs for each host."""
    units = [function(name, factor) for name, factor in factors.items()]
    hosts = [
        host(name, costs=[(one, factor, cost) for (one, factor), cost in zip(factors.items(), each) if cost is not None])
        for name, each in costs.items()
    ]  # fmt: skip
    weighted = by_hand(factors, {f"id-of-{name}": each for name, each in costs.items()}, factors)
    for one in hosts:
        for each in one.get("costs", ()):
            each["weighted"] = weighted[one["id"]][each["unit"]]
    return decision("runCostFunctions", units, hosts, [], vm=WEB, **more)


def by_hand(factors, costs, counted):
    """By host, what each of the functions that count adds to its total (contract 3.6).

    Args:
        costs: by host, of all functions; None where one left it out.
    """
    by_host = {
        key: {name: cost for name, cost in zip(factors, each) if name in counted and cost is not None}
        for key, each in costs.items()
    }  # fmt: skip
    largest = dict.fromkeys(factors, 0)
    for of_host in by_host.values():
        for name, cost in of_host.items():
            largest[name] = max(largest[name], abs(cost))
    weights = {name: max(1, abs(factor)) for name, factor in factors.items()}
    overflows = sum(weights[name] * most for name, most in largest.items()) > 10**9
    limits = {
        name: 10**9 // (len(counted) * weight) if overflows else largest[name]
        for name, weight in weights.items()
    }
    return {
        key: {
            name: factors[name] * max(-limits[name], min(limits[name], cost))
            for name, cost in of_host.items()
        }
        for key, of_host in by_host.items()
    }


PASSED, NOT_ASKED = ("passed", ""), ("never asked", "")
FILTERED = decision(
    "runFilters",
    [
        unit("MaxVms"),
        unit("Broken", outcome="raised", message="ZeroDivisionError: division by zero"),
        unit("Memory"),
    ],
    [
        host("lynx", {"MaxVms": ("removed", "runs 12 VMs, maximum_vm_count is 10"), "Broken": NOT_ASKED, "Memory": NOT_ASKED}),
        host("puma", {"MaxVms": PASSED, "Broken": ("failed", "ZeroDivisionError: division by zero"), "Memory": PASSED}),
        host("serval", {"MaxVms": PASSED, "Broken": ("failed", ""), "Memory": ("removed", "")}),
        host("ocelot", {"MaxVms": PASSED, "Broken": ("failed", ""), "Memory": PASSED}),
        host("bobcat", {"MaxVms": ("removed", "runs 11 VMs, maximum_vm_count is 10"), "Broken": NOT_ASKED, "Memory": NOT_ASKED}),
    ],
    ["id-of-puma", "id-of-ocelot"],
    vm=WEB,
    properties={"maximum_vm_count": "10"},
)  # fmt: skip
SCORED = scored({"EvenVms": 2, "Memory": 1}, {"puma": (4, 6), "lynx": (3, 7), "ocelot": (9, 1)})


def text(told):
    return [line.text for line in told]
