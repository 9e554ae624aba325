"""VM balance: takes a VM from the host with the most VMs to those with the fewest.

Property ``maximum_vm_difference``: how many VMs more one host may run than another. Which VMs a
host runs, the engine's REST API tells: scheduler.conf needs an [engine] section. What is
moved, and why, is printed, so it is in the daemon's log.
"""

from _known import known
from _vms import VM_COUNT, movable_vms, vm_count
from ovirtsdk4.types import HostStatus

from ovirt_scheduler.plugin import engine_connection


def do_balance(hosts, properties):
    """Move the smallest VM of the fullest host if that runs too many VMs more than another."""
    allowed = int(properties.get("maximum_vm_difference") or 3)
    up = [host for host in hosts if host.status in (None, HostStatus.UP)]
    count = dict(known(up, vm_count, VM_COUNT)) if up else {}
    if not count or max(count.values()) - min(count.values()) <= allowed:
        return None
    fullest = max(count, key=count.get)
    targets = [host for host in count if count[host] == min(count.values())]
    with engine_connection() as connection:
        movable = movable_vms(connection, fullest)
    names = ", ".join(host.name for host in targets)
    why = f"{fullest.name} runs {count[fullest]} VMs, {names} {count[targets[0]]}"
    if not movable:
        print(f"{why}, but none of {fullest.name}'s may be moved")
        return None
    print(f"moving {movable[0].name}, the smallest of {fullest.name}: {why}")
    return movable[0], targets
