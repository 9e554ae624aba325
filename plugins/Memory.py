"""The configured sample of the design page: memory as filter, cost and balance in one file.

Property ``threshold``: the share of a host's memory, in percent, that VMs may have taken.
``server_ip`` is the machine that measures heat on the design page; it is not used here. The
balance asks the engine for VMs: scheduler.conf needs an [engine] section.
"""

from _known import known
from _vms import movable_vms

from ovirt_scheduler.plugin import engine_connection

MEMORY = "its memory"


def do_filter(hosts, vm, properties):
    """Keep the hosts that have no more of their memory taken than the threshold."""
    threshold = threshold_of(properties)
    return [host for host, taken in known(hosts, taken_percent, MEMORY) if taken <= threshold]


def do_score(hosts, vm, properties):
    """Cost: the percentage of the host's memory that is taken; lower is better."""
    return known(hosts, taken_percent, MEMORY)


def do_balance(hosts, properties):
    """Move the smallest VM of the fullest host above the threshold to hosts that stay below it."""
    threshold = threshold_of(properties)
    taken = dict(known(hosts, taken_percent, MEMORY))
    fullest = max(taken, key=taken.get)
    if taken[fullest] <= threshold:
        return None
    with engine_connection() as connection:
        movable = movable_vms(connection, fullest)
    if not movable:
        return None
    vm = movable[0]
    targets = [host for host in taken if taken_percent(host, vm.memory) <= threshold]
    return (vm, targets) if targets else None


def threshold_of(properties):
    return int(properties.get("threshold") or 70)


def taken_percent(host, more=0):
    """The share of memory that no other VM can have, in percent; None if that is not known.

    more: as though so many bytes more were taken.
    """
    if not host.memory or host.max_scheduling_memory is None:
        return None
    return 100 * (host.memory - host.max_scheduling_memory + more) / host.memory
