"""Where VMs of a simulated cluster may go, and in which words hosts refuse them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Callable, Optional

from ovirt_scheduler.clusters.placing import Choices
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.workbench.simulated_cluster import SimulatedCluster, SimulatedHost, SimulatedVm

_PLURAL = {
    "has": "have", "is": "are", "does": "do", "goes": "go", "reboots": "reboot",
    "refused": "refused",
}  # fmt: skip


def refusal_words(refusals: Iterable[str]) -> list[str]:
    """How many hosts each refusal holds for: ``2 hosts have too few processors``."""
    words = []
    for refusal, number in sorted(Counter(filter(None, refusals)).items()):
        verb, space, rest = refusal.partition(" ")
        if verb not in _PLURAL:  # a sentence about the rule
            words.append(f"{count_of(number, 'host')}: {refusal}")
        else:
            verb = verb if number == 1 else _PLURAL[verb]
            words.append(f"{count_of(number, 'host')} {verb}{space}{rest}")
    return words


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
        answer, why = self._ask(machine, hosts) if hosts else Choices((), "")
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
