"""Ranks the hosts of a decision by their costs, also as they would rank without one of the units.

A decision has its factors and raw costs, so this is exact: without a unit each sum is made anew,
with its own bound (contract 3.6). A decision is the struct of contract 8.1.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from operator import itemgetter
from typing import Optional

from ovirt_scheduler.history.record import Cost, Record, Unit
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.units import Kind

Totals = Mapping[str, int]  # host id to the sum of its costs, in the order given


def units_of(decision: Record, kind: Kind, mode: str = "live") -> list[Unit]:
    """The units of a kind that counted, or those in shadow, in the order asked for."""
    return [
        unit
        for unit in decision.get("units", ())
        if unit.get("kind") == kind.words and unit.get("mode", "live") == mode
    ]


def shadows(decision: Record, kind: Kind) -> set[str]:
    """The names of the units of a kind in shadow, which count for nothing."""
    return {unit["name"] for unit in units_of(decision, kind, "shadow")}


def put_totals(decision: Record) -> None:
    """Add to each host with costs their sum, and its rank."""
    functions = {unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)}
    totals = {}
    for host in decision["hosts"] if functions else ():
        counted = [c["weighted"] for c in host.get("costs", ()) if c["unit"] in functions]
        if counted:
            totals[host["id"]] = sum(counted)
    ranks = places(totals)
    for host in decision["hosts"] if totals else ():
        if host["id"] in totals:
            host["total"], host["rank"] = totals[host["id"]], ranks[host["id"]]


def places(totals: Totals) -> dict[str, int]:
    """Host id to rank, from 1; equal totals rank in the order in which the hosts were given."""
    return {host: place for place, host in enumerate(sorted(totals, key=totals.__getitem__), 1)}


def lowest(totals: Totals) -> str:
    """The host that ranks first."""
    return min(totals, key=totals.__getitem__)


def ranked(decision: Record) -> list[str]:
    """The ids of the hosts with a rank, the best first."""
    hosts = (host for host in decision["hosts"] if "rank" in host)
    return [host["id"] for host in sorted(hosts, key=itemgetter("rank"))]


def best(decision: Record) -> Optional[str]:
    """The id of the host with the lowest total; None if no host was scored."""
    return next((host["id"] for host in decision["hosts"] if host.get("rank") == 1), None)


def without_each(decision: Record) -> dict[str, Totals]:
    """Each cost function that scored a host, with the totals without it.

    Without the only one that scored, all hosts are equal: they rank in the order given.
    """
    names = [unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)]
    # A call of fewer functions bounds each cost further out: more of a cost that was held counts.
    shares = _shares(decision, len(names) - 1, names)
    sums = {host: sum(of_host.values()) for host, of_host in shares.items()}
    scored = {name for of_host in shares.values() for name in of_host}
    found: dict[str, Totals] = {}
    for name in names:
        if name in scored:
            totals = {
                host: sums[host] - of_host.get(name, 0)
                for host, of_host in shares.items()
                if len(of_host) > (name in of_host)
            }
            found[name] = totals or dict.fromkeys(shares, 0)
    return found


def with_shadows(decision: Record) -> dict[str, Totals]:
    """Each cost function in shadow that scored a host, with the totals that it would have made.

    Its costs count with the request's factor, or 1.
    """
    live = {unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)}
    found: dict[str, Totals] = {}
    for name in shadows(decision, Kind.COST_FUNCTION):
        shares = _shares(decision, len(live) + 1, {*live, name})
        if any(name in of_host for of_host in shares.values()):
            found[name] = {
                host: sum(of_host.values()) for host, of_host in shares.items() if of_host
            }
    return found


def decisive(decision: Record) -> dict[str, str]:
    """The cost functions without which another host would be the best, each with that host."""
    first = best(decision)
    others = {name: lowest(totals) for name, totals in without_each(decision).items()}
    return {name: other for name, other in others.items() if other != first}


def _shares(decision: Record, functions: int, counted: Container[str]) -> dict[str, dict[str, int]]:
    """Host to the share of each of these cost functions in its total, in a call of so many."""
    limits = {
        unit["name"]: aggregate.bound(int(unit.get("factor", 1)), max(1, functions))
        for unit in decision.get("units", ())
        if unit.get("kind") == Kind.COST_FUNCTION.words
    }
    return {
        host["id"]: {
            cost["unit"]: _weighted(cost, limits[cost["unit"]])
            for cost in host.get("costs", ())
            if cost["unit"] in counted
        }
        for host in decision.get("hosts", ())
    }


def _weighted(cost: Cost, limit: int) -> int:
    return int(cost.get("factor", 1)) * max(-limit, min(limit, int(cost["cost"])))
