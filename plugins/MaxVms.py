"""Filter by VM count: keeps the hosts that run few enough VMs.

Property ``maximum_vm_count``: a host that runs so many VMs gets no further one.
"""

from _vms import vm_count


def do_filter(hosts, vm, properties):
    """Keep the hosts that run fewer VMs than maximum_vm_count (10 unless given)."""
    maximum = int(properties.get("maximum_vm_count") or 10)
    return [host for host in hosts if vm_count(host) < maximum]
