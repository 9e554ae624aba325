"""Ranks the hosts of a decision by their costs, also as they would rank without one of the units.

A decision has its factors and raw costs, so this is exact: without a unit each sum is made anew,
with costs clamped as in a call without it (contract 3.6). A decision is a ``Record``.

Of a selection the rank is the scheduler's order. What it would be without a unit is told only if
that order is one of costs; and of hosts whose costs would become equal nothing is told, because
the scheduler's own preference would decide between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, Optional

from ovirt_scheduler.history.record import OK, REMOVED, Cost, Host, Record, UnitRecord
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.units import Kind

# Host id to the sum of its costs. Of equal ones the first is the best, unless the scheduler's own
# preference decides between them.
CostTotals = Mapping[str, int]

_SELECTIONS = ("selectHost", "candidates", "hasAnyHosts")


class Winner(NamedTuple):
    """The host that would be the best by other totals.

    Attributes:
        host: its id; None if the scheduler's own preference would decide between several.
        is_another: whether it is another host than in the decision; False also if that is not
            known.
    """

    host: Optional[str]
    is_another: bool


def units_of(decision: Record, kind: Kind, mode: str = "live") -> list[UnitRecord]:
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
    """Add to each host with costs their sum; and to each that the decision puts in order its rank.

    In a selection a host that no function scored costs 0 (contract 4.4), and the order is that of
    the answer.
    """
    functions = {unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)}
    hosts = remaining_hosts(decision) if functions else ()
    costs_nothing = is_selection(decision) and _has_answered(decision)
    for host in hosts:
        shares = [cost["weighted"] for cost in scores(host) if cost["unit"] in functions]
        if shares or costs_nothing:
            host["total"] = sum(shares)
    answer = decision.get("answer")
    order: Sequence[str] = by_cost(decision)
    if is_selection(decision) and answer is not None:
        order = answer if isinstance(answer, list) else ()
    ranks = {host: place for place, host in enumerate(order, 1)}
    for host in decision["hosts"]:
        host.pop("rank", None)
        if host["id"] in ranks:
            host["rank"] = ranks[host["id"]]


def is_selection(decision: Record) -> bool:
    """Whether a scheduler was asked for hosts, or for whether there is one."""
    return decision.get("method") in _SELECTIONS


def _has_answered(decision: Record) -> bool:
    """Whether a cost function has answered, with costs or without."""
    functions = units_of(decision, Kind.COST_FUNCTION)
    return any(unit.get("outcome", OK) == OK for unit in functions)


def remaining_hosts(decision: Record) -> Iterator[Host]:
    """The hosts that no filter removed."""
    filters = {unit["name"] for unit in units_of(decision, Kind.FILTER)}
    for host in decision.get("hosts", ()):
        if not any(
            verdict.get("verdict") == REMOVED and verdict["unit"] in filters
            for verdict in host.get("verdicts", ())
        ):
            yield host


def scores(host: Host) -> list[Cost]:
    """The costs of a host, without the reasons of functions that left it out."""
    return [cost for cost in host.get("costs", ()) if "cost" in cost]


def has_no_effect(decision: Record, unit: UnitRecord) -> bool:
    """Whether a unit scored all hosts that were left, and each cost was cut to the same bound."""
    if unit.get("kind") != Kind.COST_FUNCTION.label:
        return False
    bounds = (
        next((cost.get("held") for cost in scores(host) if cost["unit"] == unit["name"]), None)
        for host in remaining_hosts(decision)
    )
    bound = next(bounds, None)
    return bound is not None and all(other == bound for other in bounds)


def by_cost(decision: Record) -> list[str]:
    """The ids of the hosts with a total, the lowest first; of equal ones the first given."""
    totals = {host["id"]: host["total"] for host in decision["hosts"] if "total" in host}
    return sorted(totals, key=totals.__getitem__)


def places(decision: Record) -> dict[str, int]:
    """Host id to place, from 1. Hosts that cost the same share one, except of a selection."""
    hosts = [host for host in decision["hosts"] if "rank" in host]
    if is_selection(decision):
        return {host["id"]: host["rank"] for host in hosts}
    return places_by(decision, {host["id"]: host.get("total", 0) for host in hosts})


def places_by(decision: Record, totals: CostTotals) -> dict[str, int]:
    """The places by other totals, as ``places`` has them; without hosts whose place is not sure."""
    in_order = [*enumerate(sorted(totals, key=totals.__getitem__), 1)]
    if is_selection(decision):
        hidden = unsure(decision, totals)
        return {host: place for place, host in in_order if host not in hidden}
    first: dict[int, int] = {}
    return {host: first.setdefault(totals[host], place) for place, host in in_order}


def ranked(decision: Record) -> list[str]:
    """The ids of the hosts with a rank, the best first."""
    hosts = (host for host in decision["hosts"] if "rank" in host)
    return [host["id"] for host in sorted(hosts, key=itemgetter("rank"))]


def best(decision: Record) -> Optional[str]:
    """The id of the host that ranks first; None if none has a rank."""
    return next((host["id"] for host in decision["hosts"] if host.get("rank") == 1), None)


def bests(decision: Record) -> list[str]:
    """The ids of the hosts that none is better than: several if they cost the same.

    Of a selection only the first is.
    """
    order = ranked(decision)
    if is_selection(decision):
        return order[:1]
    totals = {host["id"]: host.get("total") for host in decision["hosts"]}
    return [host for host in order if totals[host] == totals[order[0]]]


def without_each(decision: Record) -> dict[str, CostTotals]:
    """Each cost function that scored a host, with the totals without it.

    Without the only one that scored, all hosts are equal: they rank in the order given.
    """
    names = [unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)]
    shares = _Shares(decision, names)
    totals_of: dict[str, CostTotals] = {}
    for name in names:
        if name in shares.reaches:
            totals = shares.totals(without=name) or dict.fromkeys(shares.costs, 0)
            totals_of[name] = _of_ranked(decision, totals)
    return totals_of if _goes_by_cost(decision) else {}


def with_shadows(decision: Record) -> dict[str, CostTotals]:
    """Each cost function in shadow that scored a host, with the totals that it would have made.

    Its costs count with the request's factor, or 1.
    """
    live = {unit["name"] for unit in units_of(decision, Kind.COST_FUNCTION)}
    totals_of: dict[str, CostTotals] = {}
    for name in shadows(decision, Kind.COST_FUNCTION):
        shares = _Shares(decision, {*live, name})
        if name in shares.reaches:
            totals_of[name] = _of_ranked(decision, shares.totals())
    return totals_of if _goes_by_cost(decision) else {}


def _of_ranked(decision: Record, totals: CostTotals) -> CostTotals:
    """Of a selection the totals of the hosts that the scheduler accepted, in its order."""
    if not is_selection(decision):
        return totals
    return {host: totals.get(host, 0) for host in ranked(decision)}


def _goes_by_cost(decision: Record) -> bool:
    """Whether a scheduler has put some hosts in the order of their costs; True without one."""
    if not is_selection(decision):
        return True
    totals = {host["id"]: host.get("total", 0) for host in decision["hosts"]}
    order = [totals[host] for host in ranked(decision)]
    return bool(order) and order == sorted(order)


def unsure(decision: Record, totals: CostTotals) -> frozenset[str]:
    """The hosts of a selection whose rank by other totals is not sure.

    Hosts that cost the same keep their order. It is not known which of those that only come to
    cost the same the scheduler prefers.
    """
    if not is_selection(decision):
        return frozenset()
    before = {host["id"]: host.get("total", 0) for host in decision["hosts"]}
    equal_now = Counter(totals.values())
    equal_then = Counter((total, before[host]) for host, total in totals.items())
    return frozenset(
        host for host, total in totals.items() if equal_then[total, before[host]] < equal_now[total]
    )


def winner(decision: Record, totals: CostTotals) -> Winner:
    """The host that would be the best by other totals."""
    first, other = best(decision), min(totals, key=totals.__getitem__)
    if other not in unsure(decision, totals):
        return Winner(other, other != first)
    return Winner(None, first is not None and totals[first] > totals[other])


def bests_by(decision: Record, totals: CostTotals) -> list[str]:
    """The hosts that none would be better than by other totals; none if that is not known."""
    first = winner(decision, totals).host
    if first is None or is_selection(decision):
        return [] if first is None else [first]
    return [host for host, total in totals.items() if total == totals[first]]


def instead(decision: Record, totals: CostTotals) -> Optional[list[str]]:
    """The hosts that would be the best by other totals, where none of them is one of the best now.

    None: one is, or that is not known. It is empty if the scheduler's own preference would decide.
    """
    if not winner(decision, totals).is_another:
        return None
    others = bests_by(decision, totals)
    return others if {*bests(decision)}.isdisjoint(others) else None


def decisive(decision: Record) -> dict[str, list[str]]:
    """The cost functions without which others would be the best, each with these (``instead``)."""
    others = {name: instead(decision, totals) for name, totals in without_each(decision).items()}
    return {name: hosts for name, hosts in others.items() if hosts is not None}


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
            for cost in scores(host):
                name = cost["unit"]
                if name in names:
                    self._factors[name] = int(cost.get("factor", 1))
                    of_host[name] = int(cost["cost"])
                    by_function.setdefault(name, []).append(of_host[name])
        self.reaches = {
            name: aggregate.reach(self._factors[name], costs) for name, costs in by_function.items()
        }

    def totals(self, without: str = "") -> CostTotals:
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
