"""Ranks the hosts of a decision by their costs, also as they would rank without one of the units.

A decision has its factors and raw costs, so this is exact: without a unit each sum is made anew,
with costs clamped as in a call without it (contract 3.6). A decision is the struct of contract 8.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Optional

from ovirt_scheduler.history.record import Record, Unit
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.units import Kind

Totals = Mapping[str, int]  # host id to the sum of its costs, in the order given


def units_of(decision: Record, kind: Kind, mode: str = "live") -> list[Unit]:
    """The units of a kind that counted, or those in shadow, in the order asked for."""
    return [
        unit
        for unit in decision.get("units", ())
        if unit.get("kind") == kind.label and unit.get("mode", "live") == mode
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
    shares = _Shares(decision, names)
    found: dict[str, Totals] = {}
    for name in names:
        if name in shares.reaches:
            found[name] = shares.totals(without=name) or dict.fromkeys(shares.costs, 0)
    return found


def with_shadows(decision: Record) -> dict[str, Totals]:
    """Each cost function in shadow that scored a host, with the totals that it would have made.

    Its costs count with the request's factor, or 1.
    """
    live = {unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)}
    found: dict[str, Totals] = {}
    for name in shadows(decision, Kind.COST_FUNCTION):
        shares = _Shares(decision, {*live, name})
        if name in shares.reaches:
            found[name] = shares.totals()
    return found


def decisive(decision: Record) -> dict[str, str]:
    """The cost functions without which another host would be the best, each with that host."""
    first = best(decision)
    others = {name: lowest(totals) for name, totals in without_each(decision).items()}
    return {name: other for name, other in others.items() if other != first}


class _Shares:
    """What cost functions add to the totals of a decision's hosts.

    Args:
        names: of the functions that count.

    Attributes:
        costs: by host and function, as the function gave them.
        reaches: the most that each function that scored a host adds.
    """

    def __init__(self, decision: Record, names: Collection[str]) -> None:
        self._functions = len(names)
        self._factors: dict[str, int] = {}
        self._shares: dict[int, dict[str, tuple[int, dict[str, int]]]] = {}
        self.costs: dict[str, dict[str, int]] = {}
        by_function: dict[str, list[int]] = {}
        for host in decision.get("hosts", ()):
            of_host = self.costs.setdefault(host["id"], {})
            for cost in host.get("costs", ()):
                name = cost["unit"]
                if name in names:
                    self._factors[name] = int(cost.get("factor", 1))
                    of_host[name] = int(cost["cost"])
                    by_function.setdefault(name, []).append(of_host[name])
        self.reaches = {
            name: aggregate.reach(self._factors[name], costs) for name, costs in by_function.items()
        }

    def totals(self, without: str = "") -> Totals:
        """The hosts that were scored, with their sums; in a call without this function."""
        others = sum(self.reaches.values()) - self.reaches.get(without, 0)
        functions = self._functions - bool(without)
        shares = self._weighted(functions if others > aggregate.SUM_BOUND else 0)
        return {
            host: total - of_host.get(without, 0)
            for host, (total, of_host) in shares.items()
            if len(of_host) > (without in of_host)
        }

    def _weighted(self, clamped_for: int) -> dict[str, tuple[int, dict[str, int]]]:
        """Host to its total and to the share of each function in it.

        Args:
            clamped_for: so many functions; 0: no cost is clamped.
        """
        if clamped_for not in self._shares:
            limits = {
                name: aggregate.bound(factor, clamped_for) if clamped_for else self.reaches[name]
                for name, factor in self._factors.items()
            }
            self._shares[clamped_for] = {}
            for host, costs in self.costs.items():
                shares = {
                    name: self._factors[name] * max(-limits[name], min(limits[name], cost))
                    for name, cost in costs.items()
                }
                self._shares[clamped_for][host] = sum(shares.values()), shares
        return self._shares[clamped_for]
