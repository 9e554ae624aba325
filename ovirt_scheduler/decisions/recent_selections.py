"""The VMs that a host was selected for just now, and that do not run yet.

The engine's documents do not show them. So ``selectHost`` would send all VMs that are started
together to the host that had most room before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ovirt_scheduler.model.drivers import Coming
from ovirt_scheduler.processes.protocol.packed_answers import MISSHAPEN, amount, text

_SECONDS = 60.0  # in which a VM is started
_MOST = 10_000  # VMs


class RecentSelections:
    """The selections of the last minute. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By VM: when it was selected, and its host; what it will use there: processors, memory.
        self._selected: dict[str, tuple[float, str, int, int]] = {}

    def add(self, vm_sizes: Any, hosts: Sequence[str]) -> None:
        """Remember a selection.

        Args:
            vm_sizes: as a reader read it in the VM's document (``documents.amounts``), unchecked.
            hosts: the best first; none if there is none.
        """
        with contextlib.suppress(*MISSHAPEN):  # then it does not count
            for vm, (name, host, processors, memory) in vm_sizes.items():
                key = text(vm) or text(name)  # one yet to be made has no id
                self._add(key, bool(host), (amount(processors), amount(memory)), hosts)

    def _add(self, vm: str, runs: bool, use: tuple[int, int], hosts: Sequence[str]) -> None:
        with self._lock:
            self._selected.pop(vm, None)
            if hosts and not runs and len(self._selected) < _MOST:
                self._selected[vm] = time.monotonic(), hosts[0], *use

    def forget(self, vms: Iterable[str]) -> None:
        """Forget VMs that run."""
        with self._lock:
            for vm in self._selected.keys() & set(vms):
                del self._selected[vm]

    def coming(self) -> Coming:
        """What they will use, by their hosts."""
        coming: dict[str, dict[str, tuple[int, int]]] = {}
        with self._lock:
            oldest = time.monotonic() - _SECONDS
            self._selected = {
                vm: entry for vm, entry in self._selected.items() if entry[0] > oldest
            }
            for vm, (_, host, *use) in self._selected.items():
                coming.setdefault(host, {})[vm] = use[0], use[1]
        return coming
