"""Questions about a cluster, which stays as it is: can hosts be emptied, and what if one fails?

The answers are those of the policy of its section, placed by ``clusters.placing``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from ovirt_scheduler.clusters.placing import MOST_TRIES, Choices, Order, Placed, Placing
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.model.affinity import AffinityRules, PlacedVms
from ovirt_scheduler.model.cluster_state import status_words
from ovirt_scheduler.model.losses import Loss
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench.simulated_cluster import (
    UP,
    SimulatedCluster,
    SimulatedHost,
    SimulatedVm,
)
from ovirt_scheduler.workbench.simulated_policy import SimulatedPolicy, refusal_words
from ovirt_scheduler.workbench.simulated_rules import read_rules
from ovirt_scheduler.workbench.snapshot import Snapshot

BLOCKS, BREAKS, WAITS = "blocks", "breaks", "waits for you"
_CAN_GIVE = (UP, "preparing_for_maintenance")  # VMs away, by migration
_TRIES_IN_ALL = 10_000  # in which VMs are asked about again, over all hosts that are lost
_MOST_MORE = 1000  # VMs of a kind that fit on one host, as far as they are counted


class Leaving(NamedTuple):
    """What becomes of a VM when its host is emptied.

    Attributes:
        hosts: names of the hosts that can take it now.
        target: the name of the host that the policy places it on; empty: none.
        obstacle: ``blocks``, ``breaks`` and a rule, or ``waits for you``; empty: nothing.
        remedy: what to do about that.
    """

    vm: str
    memory: float  # bytes; 0: not known
    hosts: tuple[str, ...]
    target: str
    why: str
    obstacle: str = ""
    remedy: str = ""


class Questions:
    """Answers questions about one saved cluster; used by one thread.

    Args:
        offers: as for ``SimulatedPlaces``.
        tell: called with the progress, again and again.

    Attributes:
        reserves: whether the cluster's ``ha_reservation`` is on; None: not known.

    Raises:
        BadInput: the snapshot cannot be simulated.
        ConfigError: the settings name what does not exist.
    """

    def __init__(
        self,
        runtime: Runtime,
        snapshot: Snapshot,
        settings: ClusterSettings,
        offers: Callable[[str], Optional[Collection[str]]] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.cluster = SimulatedCluster(snapshot)
        rules = AffinityRules()
        if settings.affinity:
            rules = read_rules(runtime.executor, snapshot)
        # It knows no rules: an engine that empties a host does not ask all of them.
        self._policy = SimulatedPolicy(runtime, settings, self.cluster, AffinityRules())
        self._places = SimulatedPlaces(self.cluster, self._ask_policy, self._offered)
        self._offers, self._is_now = offers, True
        running = {vm.id: vm.host.id for vm in self.cluster.vms.values() if vm.host}
        # There is a search for each host that is lost.
        tries = min(MOST_TRIES, _TRIES_IN_ALL // len(self.cluster.hosts))
        self._placing = Placing(self._places, PlacedVms(rules, running), tries=tries)
        self._tell, self._doing, self._placements = tell, "", 0
        texts = (cluster.findtext("ha_reservation") for cluster in snapshot.elements("clusters"))
        reserves = next(texts, None)
        self.reserves = None if reserves is None else reserves == "true"
        self._copies: list[SimulatedVm] = []  # of the kind that is asked about
        # By a host and the VMs on it: how many more VMs of the kind that is asked about fit.
        self._room: dict[tuple[str, frozenset[str]], int] = {}

    @property
    def problems(self) -> Mapping[str, int]:
        """The failures of plugins, without which the answers are, and how often."""
        return self._policy.problems

    @property
    def up(self) -> Sequence[SimulatedHost]:
        """The hosts that are up."""
        return [host for host in self.cluster.hosts.values() if host.status == UP]

    @property
    def counts_at_most(self) -> Optional[int]:
        """How many VMs were counted on a host that may take more of them; None: all were."""
        return _MOST_MORE if _MOST_MORE in self._room.values() else None

    def close(self) -> None:
        """End what answers plugins that ask the engine."""
        self.cluster.close()

    def empty(self, host: SimulatedHost) -> tuple[Sequence[Leaving], Optional[Loss]]:
        """Empty a host, which then is in maintenance.

        Returns:
            Its VMs, the largest first; and what the loss of the fullest other host does then.
        """
        self._doing = f"emptying {host.name}"
        can_give = host.status in _CAN_GIVE
        away = "" if can_give else f"runs on a host that {status_words(host.status)}"
        staying = {vm: away or vm.why_stays for vm in host.vms.values() if away or vm.why_stays}
        vms = [vm for vm in host.vms.values() if vm not in staying]
        host.set("status", "preparing_for_maintenance")
        hosts_of = {vm.id: self._hosts_now(vm, host) for vm in vms}
        self._placing.may_break = True
        placed = self._placing.place([vm.id for vm in vms], source=host.id)
        self._placing.may_break = self._is_now = False
        leaving = [self._leaving(vm, hosts_of[vm.id], placed) for vm in vms]
        leaving += [
            Leaving(vm.name, vm.memory, (), "", f"it {why}", WAITS, vm.remedy)
            for vm, why in staying.items()
        ]
        host.set("status", "maintenance")
        fullest = max(self.up, key=_load, default=None)
        loss = None if fullest is None else self.lose(fullest)
        return sorted(leaving, key=lambda vm: -vm.memory), loss

    def order(self) -> Order:
        """An order in which hosts that are up can be emptied, by their ids.

        A host that has too little room elsewhere in any order is left out of it: no order has it.
        """
        self._doing = "an order of all hosts"
        self._placing.may_break, self._placing.tries = True, MOST_TRIES
        never = {host.id: why for host in self.up if (why := self._why_never(host))}
        hosts = [host.id for host in self.up if host.id not in never]
        order = self._placing.empty_in_turn(hosts)
        return order._replace(never=never)

    def _why_never(self, host: SimulatedHost) -> str:
        """Why a host can be emptied in no order, for memory alone; empty: perhaps it can."""
        others = [other for other in self.up if other is not host]
        rooms = [max(other.room, other.vm_memory) for other in others]
        leaving = [vm for vm in host.vms.values() if not vm.why_stays]
        for vm in leaving:
            if vm.memory > max(rooms, default=0):
                return f"{vm.name} needs {_gib(vm.memory)}, and no other host has room for it"
        needed = sum(vm.memory for vm in leaving) + sum(other.vm_memory for other in others)
        if leaving and needed > sum(rooms):
            return (
                f"the other hosts together have room for {_gib(sum(rooms))} of VMs, and would have "
                f"{_gib(needed)}"
            )
        return ""

    def lose(self, host: Optional[SimulatedHost], more_of: Optional[SimulatedVm] = None) -> Loss:
        """What the loss of a host does; None: no host is lost.

        Args:
            more_of: the kind of VM of which is told how many more fit.
        """
        self._doing = f"the loss of {host.name}" if host else "no loss"
        self._places.lost_host, vms = host, dict(host.vms) if host else {}
        if host:
            host.set("status", "non_responsive")
        key, name = (host.id, host.name) if host else ("", "")
        with self._placing.lost(key, name, vms) as loss:
            more = None if more_of is None else self._more(more_of)
        if host:
            host.set("status", UP)
        return loss._replace(more=more)

    def _offered(self, vm: str) -> Optional[Collection[str]]:
        """The hosts that the engine would migrate a VM to now; None: it does not say."""
        hosts, here = self._offers(vm) if self._is_now else None, self.cluster.vms[vm].host
        # Its filters ask the rules of VMs, which it does not ask when it empties a host.
        is_ruled_out = not {*(hosts or ())}.difference((here.id,) if here else ())
        return None if is_ruled_out and self._placing.hard_rules(vm) else hosts

    def _ask_policy(self, vm: SimulatedVm, hosts: Iterable[str]) -> Choices:
        """The hosts on which the policy places a VM, and why not on others."""
        self._placements += 1
        self._tell(f"{self._doing}: {vm.name}, placement {self._placements}")
        return self._policy.choices(vm, hosts)

    def _hosts_now(self, vm: SimulatedVm, host: SimulatedHost) -> tuple[str, ...]:
        hosts = self._places.choices(vm.id, lambda some: some).hosts
        return tuple(self.cluster.hosts[key].name for key in hosts if key != host.id)

    def _leaving(self, vm: SimulatedVm, hosts: tuple[str, ...], placed: Placed) -> Leaving:
        target, rules = placed.targets[vm.id], self._placing.hard_rules(vm.id)
        name = self.cluster.hosts[target].name if target else ""
        obstacle = remedy = ""
        if target is None:
            change = f", or change {rules}" if rules else ""
            obstacle, remedy = BLOCKS, f"make room on another host{change}, or shut it down"
        elif vm.id in placed.breaking:
            obstacle = f"{BREAKS} {rules}"
            remedy = "the engine goes on, and mends it when it can; nothing is to be done"
        return Leaving(vm.name, vm.memory, hosts, name, placed.whys[vm.id], obstacle, remedy)

    def _more(self, kind: SimulatedVm) -> int:
        """How many more VMs of a kind fit, each host by itself."""
        keys = {host: (host.id, frozenset(host.vms)) for host in self.up}
        unknown = [host for host, key in keys.items() if key not in self._room]
        least = dict.fromkeys(unknown, 0)
        most = {host: self._most_by_room(kind, host) for host in unknown}
        probes = dict(most)  # most often the memory is the limit, and this the answer
        while open_hosts := [host for host in unknown if least[host] < most[host]]:
            accepted = self._takes(kind, {host: probes[host] for host in open_hosts})
            for host in open_hosts:
                if host.id in accepted:
                    least[host] = probes[host]
                else:
                    most[host] = probes[host] - 1
                probes[host] = (least[host] + most[host] + 1) // 2
        self._room.update((keys[host], least[host]) for host in unknown)
        return sum(self._room[key] for key in keys.values())

    def _takes(self, kind: SimulatedVm, numbers: Mapping[SimulatedHost, int]) -> Collection[str]:
        """The ids of the hosts that take so many VMs of a kind."""
        hosts = [host for host, number in numbers.items() for _ in range(number - 1)]
        while len(self._copies) < len(hosts):
            name = f"copy {len(self._copies) + 1}"
            copy = self.cluster.add(name, int(kind.memory), kind.processors, kind.load)
            self._copies.append(copy)
        running = [*zip(self._copies, hosts)]
        for copy, host in running:
            self.cluster.vms[copy.id] = copy
            self.cluster.place(copy, host)
        accepted = self._policy.choices(kind, [host.id for host in numbers]).hosts
        for copy, _ in running:
            self.cluster.remove(copy)
            del self.cluster.vms[copy.id]
        return accepted

    @staticmethod
    def _most_by_room(kind: SimulatedVm, host: SimulatedHost) -> int:
        if host.refusal(kind):
            return 0
        if not kind.memory or host.free_memory > _MOST_MORE * kind.memory:
            return _MOST_MORE
        return int(host.free_memory // kind.memory)


class SimulatedPlaces:
    """The hosts of a simulated cluster as places of VMs (``clusters.placing``).

    Args:
        ask: returns the hosts on which a policy places a VM, of those that an engine allows.
        offers: returns the hosts that an engine would migrate a VM to; None: it does not say.

    Attributes:
        lost_host: takes no VM, of which no word is said.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        ask: Callable[[SimulatedVm, Sequence[str]], Choices],
        offers: Callable[[str], Optional[Collection[str]]] = lambda _: None,
    ) -> None:
        self.lost_host: Optional[SimulatedHost] = None
        self._cluster = cluster
        self._ask = ask
        self._offers = offers

    def choices(self, vm: str, allow: Callable[[Sequence[str]], Sequence[str]]) -> Choices:
        """As ``Places`` has it."""
        machine, offered = self._cluster.vms[vm], self._offers(vm)
        hidden = machine.host, self.lost_host
        others = (host for host in self._cluster.hosts.values() if host not in hidden)
        refusals = {host.id: host.refusal(machine) for host in others}
        for host in refusals.keys() - (refusals if offered is None else offered):
            refusals[host] = refusals[host] or "refused by the engine's filters"
        hosts = allow([host for host, refusal in refusals.items() if not refusal])
        nobody = Choices((), "" if refusals else "there is no other host")
        answer, why = self._ask(machine, hosts) if hosts else nobody
        words = refusal_words(refusals.values())
        return Choices(answer, "; ".join(filter(None, (why, *words))))

    def move(self, vm: str, host: Optional[str]) -> None:
        """As ``Places`` has it."""
        if host is None:
            self._cluster.remove(self._cluster.vms[vm])
        else:
            self._cluster.place(self._cluster.vms[vm], self._cluster.hosts[host])

    def size(self, vm: str) -> float:
        """Its bytes of memory."""
        return self._cluster.vms[vm].memory

    def leaving(self, host: str) -> Sequence[str]:
        """As ``Places`` has it."""
        vms = self._cluster.hosts[host].vms
        return [key for key, vm in vms.items() if not vm.why_stays]


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.4g} GiB"


def _load(host: SimulatedHost) -> float:
    return sum(vm.memory for vm in host.vms.values())
