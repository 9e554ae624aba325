"""The base classes for drivers and whole schedulers.

::

    Driver                          publishes its methods under a topic
     |
     +-- HostSelector               \\
     +-- LoadBalancer                |
     +-- TimerInvokedScheduler       |  each may be implemented alone
     +-- VmStatusChanged             |
     +-- HostStatusChanged          /
          |
          +-- Scheduler             all five

A plugin's file with a subclass of one of these is a driver plugin; with one of the five a
scheduler plugin. The methods here return answers that change nothing. Each call makes a new class
and a new object: keep elsewhere what the next call has to know.

Hosts and VMs are ``ovirtsdk4.types`` entities. A method may return ids instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Optional, Union

from ovirtsdk4 import types

from ovirt_scheduler.model.affinity import NO_RULES, PlacedVms

Hosts = Sequence[types.Host]
Vms = Sequence[types.Vm]
Properties = Mapping[str, str]
HostOrId = Union[types.Host, str]
VmOrId = Union[types.Vm, str]

# VMs to migrate, each with the hosts it may go to, the best first.
MigrationAnswer = Mapping[VmOrId, Sequence[HostOrId]]


class Driver:
    """Publishes its public methods under a topic, for whoever schedules something.

    Attributes:
        name: the name that callers use; by default the name of the class.
        topic: the topic of its methods; None publishes nothing.
        policies: the values that its property ``policy`` may have; empty if it has none.
        version: any text; by default made from the file's checksum.
        written_for: the oVirt version for which it was written, as ``4.5``; None: any.
        properties_validation: its properties, ``key=regex;key2=regex2``; those of a conf file
            replace them (contract 5.8).
        default_values: their defaults, in the same order, with ``;`` between.
    """

    name: ClassVar[Optional[str]] = None
    topic: ClassVar[Optional[str]] = None
    policies: ClassVar[Sequence[str]] = ()
    version: ClassVar[Optional[str]] = None
    written_for: ClassVar[Optional[str]] = None
    properties_validation: ClassVar[str] = ""
    default_values: ClassVar[str] = ""


class SchedulerPart(Driver):
    """What the five interfaces of a scheduler share.

    Attributes:
        destinations: VM id to the ids of the hosts that it may be migrated to, each with the
            weighted sum of the cluster's cost functions; lower is better. A VM with no hosts has
            to stay where it is. A VM that is not in it has not been asked about yet: if an answer
            moves it to a host that is not allowed, the method is called again.
        planned: VM id to the id of the host that it goes to by a migration that is under way, or
            that was planned just before this call. The VM is still on its former host, and will use
            both; it is not to be migrated.
        rules: the cluster's affinity rules, with where the VMs of groups run, or will after what is
            planned. A method may move VMs in it to plan on; the daemon keeps no change.
        averages: where a balancing goes by averages, host or VM id to the processors that it keeps
            busy and the bytes of memory that it uses, on average; else empty.
    """

    topic = "compute"
    destinations: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    planned: Mapping[str, str] = MappingProxyType({})
    rules: PlacedVms = NO_RULES
    averages: Mapping[str, tuple[float, int]] = MappingProxyType({})


class HostSelector(SchedulerPart):
    """Chooses the host for a VM. A subclass defines ``candidates``, or only ``select_host``.

    Attributes:
        costs: host id to the weighted sum of the cost functions that the caller named; lower
            is better. A host that a function leaves out costs 0 for it.
        selected: ids of the hosts of the last selection, the best first.
        coming: host id to what VMs will use there that were selected within the last minute, and do
            not run yet: a dict of VM id to processors and bytes of memory.
    """

    costs: Mapping[str, int] = MappingProxyType({})
    selected: tuple[str, ...] = ()
    coming: Mapping[str, Mapping[str, tuple[int, int]]] = MappingProxyType({})

    def candidates(self, hosts: Hosts, vm: types.Vm, properties: Properties) -> Sequence[HostOrId]:
        """The hosts that the VM may be started on, the best first.

        Args:
            hosts: those that the caller's filters accepted.
        """
        host = self.select_host(hosts, vm, properties)
        return () if host is None else (host,)

    def select_host(self, hosts: Hosts, vm: types.Vm, properties: Properties) -> Optional[HostOrId]:
        """The host to start the VM on; None if there is none."""
        return next(iter(self.candidates(hosts, vm, properties)), None)

    def has_any_hosts(self, hosts: Hosts, vm: types.Vm, properties: Properties) -> bool:
        """Whether there is a host for the VM."""
        return self.select_host(hosts, vm, properties) is not None

    def get_selected_hosts(self) -> tuple[str, ...]:
        """The hosts of the last selection, the best first; the daemon remembers them."""
        return self.selected


class LoadBalancer(SchedulerPart):
    """Moves VMs between hosts that run."""

    def load_balance(self, hosts: Hosts, vms: Vms, properties: Properties) -> MigrationAnswer:
        """What to migrate now.

        Args:
            vms: all of the cluster; ``vm.host.id`` is the host that one runs on.
        """
        return {}


class TimerInvokedScheduler(SchedulerPart):
    """Is called again and again, at each ``timer_interval`` of a cluster."""

    def on_timer_invoked(self, hosts: Hosts, vms: Vms, properties: Properties) -> MigrationAnswer:
        """What to migrate now, if anything."""
        return {}


class VmStatusChanged(SchedulerPart):
    """Is called when the status of a VM has changed."""

    def on_vm_status_changed(
        self,
        vm: types.Vm,
        old_status: str,
        new_status: str,
        hosts: Hosts,
        vms: Vms,
        properties: Properties,
    ) -> MigrationAnswer:
        """What to migrate now, if anything.

        Args:
            old_status, new_status: in the engine's words, such as ``up`` (``VmStatus``).
        """
        return {}


class HostStatusChanged(SchedulerPart):
    """Is called when the status of a host has changed."""

    def on_host_status_changed(
        self,
        host: types.Host,
        old_status: str,
        new_status: str,
        hosts: Hosts,
        vms: Vms,
        properties: Properties,
    ) -> MigrationAnswer:
        """What to migrate now, if anything.

        Args:
            old_status, new_status: in the engine's words, such as ``maintenance``
                (``HostStatus``).
        """
        return {}


class Scheduler(
    HostSelector, LoadBalancer, TimerInvokedScheduler, VmStatusChanged, HostStatusChanged
):
    """A whole scheduler."""
