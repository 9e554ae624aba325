"""Even VM distribution: the more VMs a host runs, the more it costs."""

from _known import known
from _vms import VM_COUNT, vm_count


def do_score(hosts, vm, properties):
    """Cost: how many VMs the host runs; 0 is best."""
    return known(hosts, vm_count, VM_COUNT)
