"""The affinity rules of a cluster: where its VMs may run, and which rules are broken. Pure.

The meaning of each rule is the engine's (``bll/scheduling``: its filters and weights of affinity,
and its enforcer). A rule that is enforcing is hard: a host that breaks it is refused. Any other is
soft: a host that breaks it costs something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

Placement = Mapping[str, str]  # VM id to the id of the host that it runs on
Penalty = tuple[int, tuple[float, ...]]


class Rule(NamedTuple):
    """An enabled rule of a group.

    Attributes:
        positive: of VMs: they run on one host; of hosts: the VMs run on one of them. Else: no two
            of the VMs run on one host; none of them runs on one of the hosts.
        enforcing: whether it is hard.
    """

    positive: bool
    enforcing: bool


class AffinityGroup(NamedTuple):
    """An affinity group, with the members of its labels among its own.

    Attributes:
        vms, hosts: ids.
        vm_rule, host_rule: None for a rule that is not enabled.
        priority: a soft rule of VMs with more is broken later.
    """

    name: str
    vms: frozenset[str]
    hosts: frozenset[str] = frozenset()
    vm_rule: Optional[Rule] = None
    host_rule: Optional[Rule] = None
    priority: float = 1.0

    @property
    def is_unit(self) -> bool:
        """Whether its VMs have to move together."""
        return self.vm_rule == Rule(positive=True, enforcing=True) and len(self.vms) > 1

    def ties(self, vm: str) -> bool:
        """Whether others have to move with the VM."""
        return self.is_unit and vm in self.vms


class BrokenRule(NamedTuple):
    """A rule that a placement breaks.

    Attributes:
        units: what could move so that it holds: VMs that move together, the best choice first.
    """

    group: AffinityGroup
    is_of_hosts: bool
    enforcing: bool
    units: tuple[tuple[str, ...], ...]


class AffinityRules:
    """The groups of a cluster, found by their VMs.

    Attributes:
        groups: all of them.
        conflicts: pairs of names of hard groups that no placement of their VMs satisfies.
    """

    def __init__(self, groups: Iterable[AffinityGroup] = ()) -> None:
        self.groups = tuple(groups)
        self._numbers: dict[str, list[int]] = {}
        for number, group in enumerate(self.groups):
            for vm in group.vms:
                self._numbers.setdefault(vm, []).append(number)
        self._company = _companies(self.groups)
        self._contradicted: dict[str, tuple[str, str]] = {}
        self.conflicts: tuple[tuple[str, str], ...] = tuple(dict.fromkeys(self._contradictions()))

    def numbers_of(self, vm: str) -> Sequence[int]:
        """The places in ``groups`` of the groups that the VM is a member of."""
        return self._numbers.get(vm, ())

    def company_of(self, vm: str) -> frozenset[str]:
        """The VMs that hard positive groups tie to this one, itself among them."""
        return self._company.get(vm, frozenset((vm,)))

    @property
    def vms(self) -> Collection[str]:
        """The members of all groups."""
        return self._numbers.keys()

    def contradiction_of(self, vm: str) -> Optional[tuple[str, str]]:
        """The names of two of its hard groups that contradict each other, so that it stays."""
        return self._contradicted.get(vm)

    def about(self, vm: str) -> AffinityRules:
        """The groups of a VM, and those of the VMs that it belongs together with."""
        numbers = {n for other in self.company_of(vm) for n in self.numbers_of(other)}
        return AffinityRules(self.groups[number] for number in sorted(numbers))

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from self._contradictions_of_hosts()
        yield from self._contradictions_of_vms()

    def _contradictions_of_hosts(self) -> Iterator[tuple[str, str]]:
        """Groups of hosts that leave a VM, or VMs that belong together, no host."""
        for company in dict.fromkeys(map(self.company_of, sorted(self._numbers))):
            numbers = sorted({number for vm in company for number in self.numbers_of(vm)})
            rules = [(self.groups[n], self.groups[n].host_rule) for n in numbers]
            hard = [(group, rule) for group, rule in rules if rule and rule.enforcing]
            first: Optional[AffinityGroup] = None
            hosts: frozenset[str] = frozenset()
            # Negative groups alone may leave other hosts, so the positive ones are first.
            for group, rule in sorted(hard, key=lambda pair: not pair[1].positive):
                if first is None:
                    if not rule.positive:
                        break
                    first, hosts = group, group.hosts
                    continue
                hosts = hosts & group.hosts if rule.positive else hosts - group.hosts
                if not hosts:
                    yield self._note_contradiction(company, first.name, group.name)
                    break

    def _contradictions_of_vms(self) -> Iterator[tuple[str, str]]:
        """Groups that keep VMs apart which others tie together."""
        for group in self.groups:
            rule = group.vm_rule
            if rule is None or rule.positive or not rule.enforcing:
                continue
            member_of: dict[frozenset[str], str] = {}
            for vm in sorted(group.vms):
                company = self._company.get(vm)
                if company is None or member_of.setdefault(company, vm) == vm:
                    continue
                yield self._note_contradiction(company, group.name, self._positive_group_of(vm))

    def _note_contradiction(self, company: frozenset[str], *names: str) -> tuple[str, str]:
        first, second = names
        self._contradicted.update(dict.fromkeys(company, (first, second)))
        return first, second

    def _positive_group_of(self, vm: str) -> str:
        """The name of a hard positive group of VMs that the VM is a member of."""
        return next(
            group.name
            for group in (self.groups[number] for number in self.numbers_of(vm))
            if group.is_unit
        )


def _companies(groups: Sequence[AffinityGroup]) -> dict[str, frozenset[str]]:
    """For each VM of a hard positive group, the VMs that such groups tie to it, in closure."""
    leaders: dict[str, str] = {}

    def leader_of(vm: str) -> str:
        while leaders.setdefault(vm, vm) != vm:
            leaders[vm] = leaders[leaders[vm]]
            vm = leaders[vm]
        return vm

    for group in groups:
        if group.is_unit:
            first, *others = group.vms
            for vm in others:
                leaders[leader_of(vm)] = leader_of(first)
    members: dict[str, set[str]] = {}
    for vm in [*leaders]:
        members.setdefault(leader_of(vm), set()).add(vm)
    companies = {leader: frozenset(company) for leader, company in members.items()}
    return {vm: companies[leader_of(vm)] for vm in leaders}


class PlacedVms:
    """VMs on their hosts under rules; a plan moves them and asks again.

    Args:
        placement: of the VMs that run, or are to; of others than members it is left out.
    """

    def __init__(self, rules: AffinityRules, placement: Placement) -> None:
        self.rules = rules
        self._hosts = {vm: placement[vm] for vm in rules.vms if vm in placement}
        # How many members of each group each host runs.
        self._counts: list[Counter[str]] = [Counter() for _ in rules.groups]
        self._members_on: dict[str, set[str]] = {}  # by host
        for vm, host in self._hosts.items():
            self._members_on.setdefault(host, set()).add(vm)
            for number in rules.numbers_of(vm):
                self._counts[number][host] += 1

    def move(self, vm: str, host: Optional[str]) -> None:
        """Move a VM to a host, or stop it; it need not have run."""
        if vm not in self.rules.vms:
            return
        former = self._hosts.pop(vm, None)
        if former is not None:
            self._members_on[former].discard(vm)
        if host is not None:
            self._hosts[vm] = host
            self._members_on.setdefault(host, set()).add(vm)
        for number in self.rules.numbers_of(vm):
            counts = self._counts[number]
            if former is not None:
                counts[former] -= 1
                if not counts[former]:
                    del counts[former]
            if host is not None:
                counts[host] += 1

    def about(self, vm: str) -> PlacedVms:
        """The rules of one VM alone, to be planned with by itself."""
        return PlacedVms(self.rules.about(vm), self._hosts)

    def plain(self) -> object:
        """All of it in plain values, for JSON."""
        groups = [
            {**group._asdict(), "vms": sorted(group.vms), "hosts": sorted(group.hosts)}
            for group in self.rules.groups
        ]
        return {"groups": groups, "placement": self._hosts}

    @classmethod
    def of_plain(cls, plain: Any) -> PlacedVms:
        """Read what ``plain`` gave, back from JSON."""
        groups = []
        for values in plain["groups"]:
            rules = {
                key: None if values[key] is None else Rule(*values[key])
                for key in ("vm_rule", "host_rule")
            }
            members = {key: frozenset(values[key]) for key in ("vms", "hosts")}
            groups.append(AffinityGroup(**{**values, **members, **rules}))
        return cls(AffinityRules(groups), plain["placement"])

    def host_of(self, vm: str) -> Optional[str]:
        """The host of a member of a group, if it runs."""
        return self._hosts.get(vm)

    def unit_of(self, vm: str) -> tuple[str, ...]:
        """The VMs that have to move with this one: those tied to it on its host; itself first."""
        members = self._members_on.get(self._hosts.get(vm, ""), set())
        return vm, *sorted((self.rules.company_of(vm) & members) - {vm})

    def acceptable(self, unit: Collection[str], hosts: Iterable[str]) -> list[str]:
        """The hosts to which these VMs may move together by the hard rules, in the order given."""
        return [host for host, refusal in self.refusals(unit, hosts).items() if not refusal]

    def refusals(self, unit: Collection[str], hosts: Iterable[str]) -> dict[str, str]:
        """Why hard rules keep these VMs from moving to each host together; empty: they may."""
        contradictions = filter(None, map(self.rules.contradiction_of, unit))
        if contradiction := next(contradictions, None):
            words = "its affinity groups {} and {} contradict each other".format(*contradiction)
            return dict.fromkeys(hosts, words)
        bounds = self._bounds(unit)
        return {
            host: next((words for place, is_for, words in bounds if (host in place) != is_for), "")
            for host in hosts
        }

    def _bounds(self, unit: Collection[str]) -> list[tuple[Collection[str], bool, str]]:
        """The hosts that a unit has to be on, or (False) not to be on, each with why."""
        bounds: list[tuple[Collection[str], bool, str]] = []
        companions: set[str] = set()  # hosts that run what the unit belongs together with
        of_companions = ""
        for number, members in self._members(unit).items():
            group, words = self.rules.groups[number], "the affinity group {} keeps it"
            words = words.format(group.name)
            if group.host_rule is not None and group.host_rule.enforcing:
                is_for = group.host_rule.positive
                words_of_hosts = "on other hosts" if is_for else "off this host"
                bounds.append((group.hosts, is_for, f"{words} {words_of_hosts}"))
            if group.vm_rule is None or not group.vm_rule.enforcing:
                continue
            others = self._hosts_of_others(number, members)
            if not group.vm_rule.positive:
                bounds.append((others, False, f"{words} apart from a VM there"))
                if len(members) > 1:  # on no host
                    bounds.append(((), True, f"{words} apart from what moves with it"))
            elif others:
                companions |= others
                of_companions = of_companions or f"{words} with VMs on another host"
        return [*bounds, (companions, True, of_companions)] if companions else bounds

    def penalty(self, unit: Collection[str], host: str) -> Penalty:
        """What soft rules these VMs would break on a host; less is better.

        Returns:
            How many rules of hosts; the priorities of the rules of VMs, the highest first.
        """
        return self.penalties(unit, (host,))[host]

    def penalties(self, unit: Collection[str], hosts: Iterable[str]) -> dict[str, Penalty]:
        """The penalty of each host."""
        of_hosts: list[tuple[Collection[str], bool]] = []
        of_vms: list[tuple[Collection[str], bool, float]] = []
        for number, members in self._members(unit).items():
            group = self.rules.groups[number]
            if group.host_rule is not None and not group.host_rule.enforcing:
                of_hosts.append((group.hosts, group.host_rule.positive))
            if group.vm_rule is not None and not group.vm_rule.enforcing:
                others: Collection[str] = self._hosts_of_others(number, members)
                if group.vm_rule.positive and not others:
                    continue
                if not group.vm_rule.positive and len(members) > 1:
                    of_vms.append(((), True, group.priority))  # broken on any host
                else:
                    of_vms.append((others, group.vm_rule.positive, group.priority))
        penalties: dict[str, Penalty] = {}
        for host in hosts:
            priorities = [
                priority for place, is_for, priority in of_vms if (host in place) != is_for
            ]
            number_of_hosts = sum((host in place) != is_for for place, is_for in of_hosts)
            penalties[host] = number_of_hosts, tuple(sorted(priorities, reverse=True))
        return penalties

    def broken(self) -> list[BrokenRule]:
        """The rules that are broken now, in the order in which the engine's enforcer mends them.

        Hard rules of hosts come first, then hard ones of VMs, then soft ones of each.
        """
        broken = [*self._broken_rules_of_hosts(), *self._broken_rules_of_vms()]
        return sorted(broken, key=lambda rule: (not rule.enforcing, not rule.is_of_hosts))

    def _broken_rules_of_hosts(self) -> Iterator[BrokenRule]:
        for number, group in enumerate(self.rules.groups):
            rule = group.host_rule
            if rule is None or all(
                (h in group.hosts) == rule.positive for h in self._counts[number]
            ):
                continue
            wrong = sorted(
                vm
                for vm in group.vms
                if vm in self._hosts and (self._hosts[vm] in group.hosts) != rule.positive
            )
            yield BrokenRule(group, True, rule.enforcing, self._units_of(wrong))

    def _broken_rules_of_vms(self) -> Iterator[BrokenRule]:
        for number, group in enumerate(self.rules.groups):
            rule, counts = group.vm_rule, self._counts[number]
            if rule is None:
                continue
            if rule.positive:
                # The smaller parts join the largest.
                parts = sorted(counts, key=lambda host: (counts[host], host))[:-1]
            else:
                parts = sorted(host for host, count in counts.items() if count > 1)
            if not parts:
                continue
            by_host: dict[str, list[str]] = {}
            for vm in sorted(group.vms):
                if self._hosts.get(vm) in parts:
                    by_host.setdefault(self._hosts[vm], []).append(vm)
            if rule.positive and rule.enforcing:
                members = [by_host[host][0] for host in parts]
            else:
                members = [vm for host in parts for vm in by_host[host]]
            units = self._units_of(members)
            yield BrokenRule(group, False, rule.enforcing, units)

    def _units_of(self, vms: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """What has to move with these VMs; VMs that move with one before them are not repeated."""
        units: list[tuple[str, ...]] = []
        covered: set[str] = set()
        for vm in vms:
            if vm not in covered:
                units.append(self.unit_of(vm))
                covered.update(units[-1])
        return tuple(units)

    def _members(self, unit: Collection[str]) -> dict[int, list[str]]:
        """The VMs of a unit by the numbers of their groups."""
        members: dict[int, list[str]] = {}
        for vm in unit:
            for number in self.rules.numbers_of(vm):
                members.setdefault(number, []).append(vm)
        return members

    def _hosts_of_others(self, number: int, members: Sequence[str]) -> set[str]:
        """The hosts that run members of a group other than these."""
        counts = self._counts[number]
        own = Counter(self._hosts[vm] for vm in members if vm in self._hosts)
        return {host for host, count in counts.items() if count > own[host]}


NO_RULES = PlacedVms(AffinityRules(), {})
