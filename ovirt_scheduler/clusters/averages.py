"""Averages of the use of hosts and VMs over looks, so that a short peak moves no VM.

A change of a figure counts for 1 - 1/e, 63 %, after the time ``average``, however many looks there
were. A host's use has two parts that are averaged separately: its own, and that of its VMs. A VM
takes its average along, so a migration shows at once.

Averages begin with the first look, and for a host anew when it comes up. Pure: the time comes with
each call.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Optional

from ovirt_scheduler.clusters.migration_limits import ClusterUse
from ovirt_scheduler.model.cluster_state import ClusterState, VmState

_CPU, _MEMORY = "CPU", "memory"
_FigureKey = tuple[Optional[str], str]  # the id of a host or VM, and what of it


class UseAverages:
    """The averages of one cluster.

    Args:
        seconds: the time ``average``; 0: there are none.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._latest = -math.inf
        self._averages: dict[_FigureKey, float] = {}

    def averaged(self, state: ClusterState, now: float) -> ClusterState:
        """The cluster with averages in place of its figures, which count in them from now on.

        Args:
            now: seconds of any clock that is never set back.
        """
        if not self._seconds:
            return state
        use = ClusterUse(state)
        busy = {key: vm._replace(busy_processors=use.busy(vm)) for key, vm in state.vms.items()}
        persistence = math.exp((self._latest - now) / self._seconds)
        former, self._latest = self._averages, now
        self._averages = averages = {
            figure: value + persistence * (former.get(figure, value) - value)
            for figure, value in _figures(ClusterState(state.hosts, busy)).items()
        }
        vms = {key: vm._replace(busy_processors=averages[key, _CPU]) for key, vm in busy.items()}
        of_vms = _by_host(vms)

        def figure_of(key: str, what: str, latest: float, most: int) -> float:
            own = averages.get((key, what))
            return latest if own is None else min(max(0.0, own + of_vms[key, what]), most)

        hosts = {
            key: host._replace(
                busy_processors=figure_of(key, _CPU, host.busy_processors, host.processors),
                used_memory=int(figure_of(key, _MEMORY, host.used_memory, host.memory)),
            )
            for key, host in state.hosts.items()
        }
        return ClusterState(hosts, vms)


def as_values(state: ClusterState) -> dict[str, tuple[float, int]]:
    """By the id of a host or VM the processors that it keeps busy, and bytes, for schedulers."""
    values = {key: (host.busy_processors, host.used_memory) for key, host in state.hosts.items()}
    values.update((key, (vm.busy_processors or 0.0, vm.memory)) for key, vm in state.vms.items())
    return values


def _figures(state: ClusterState) -> dict[_FigureKey, float]:
    """What VMs keep busy, and what the hosts that are up use besides their VMs, if it is known."""
    figures: dict[_FigureKey, float] = {
        (key, _CPU): vm.busy_processors or 0.0 for key, vm in state.vms.items()
    }
    of_vms = _by_host(state.vms)
    for key, host in state.hosts.items():
        if host.is_up and host.processors:
            figures[key, _CPU] = host.busy_processors - of_vms[key, _CPU]
        if host.is_up and host.memory:
            figures[key, _MEMORY] = host.used_memory - of_vms[key, _MEMORY]
    return figures


def _by_host(vms: Mapping[str, VmState]) -> defaultdict[_FigureKey, float]:
    """What the VMs of each host keep busy, and their memory, together."""
    sums: defaultdict[_FigureKey, float] = defaultdict(float)
    for vm in vms.values():
        sums[vm.host, _CPU] += vm.busy_processors or 0.0
        sums[vm.host, _MEMORY] += vm.memory
    return sums
