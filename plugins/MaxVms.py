"""Filter by VM count: keeps the hosts that run few enough VMs.

Property ``maximum_vm_count``: a host that runs so many VMs gets no further one.
"""

from _known import known
from _vms import VM_COUNT, vm_count

from ovirt_scheduler.plugin import reason


def do_filter(hosts, vm, properties):
    """Keep the hosts that run fewer VMs than maximum_vm_count (10 unless given)."""
    maximum = int(properties.get("maximum_vm_count") or 10)
    for host, count in known(hosts, vm_count, VM_COUNT):
        if count < maximum:
            yield host
        else:
            reason(host, f"runs {count} VMs, maximum_vm_count is {maximum}")
