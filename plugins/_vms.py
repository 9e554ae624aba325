"""Queries about a host's VMs, for several samples. A file whose name starts with _ is a helper."""

from ovirtsdk4.types import VmAffinity

VM_COUNT = "the number of its VMs"


def vm_count(host):
    """The VMs on the host, in any state; None if that is not known."""
    return host.summary and host.summary.total


def vms_of(connection, host):
    """The VMs that run on the host, asked of the engine."""
    if host.name is None:
        raise LookupError(f"the name of host {host.id} is not known: the engine did not tell")
    vms = connection.system_service().vms_service().list(search=f"host={host.name} and status=up")
    return [vm for vm in vms if vm.host is not None and vm.host.id == host.id]


def movable_vms(connection, host):
    """Those of the host's VMs that may be migrated without asking anybody, smallest first."""
    vms = [vm for vm in vms_of(connection, host) if vm.memory and is_movable(vm)]
    return sorted(vms, key=lambda vm: (vm.memory, vm.id))


def is_movable(vm):
    """Whether it is neither pinned to its host nor migrated only by hand; True if not told."""
    policy = vm.placement_policy
    return policy is None or policy.affinity in (None, VmAffinity.MIGRATABLE)
