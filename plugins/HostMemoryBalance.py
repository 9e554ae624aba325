"""Host memory balance: relieves the host that is shortest of free memory.

Properties: ``minimum_host_memoryMB``, the free memory (in MiB) that each host should have more
of; ``safe_selection``: True moves the smallest VM, False one that is large enough to bring the
host above the minimum, if there is one.

Free memory and VMs are asked of the engine: scheduler.conf needs an [engine] section.
"""

from _vms import movable_vms
from ovirtsdk4 import Error

from ovirt_scheduler.plugin import engine_connection

MIB = 2**20


def do_balance(hosts, properties):
    """Move a VM from the host with the least free memory to those above the minimum."""
    minimum = int(properties.get("minimum_host_memoryMB") or 500) * MIB
    safe = properties.get("safe_selection", "True") == "True"  # a word: "False" is false
    with engine_connection() as connection:
        free = {host: free_memory(connection, host) for host in hosts}
        room = {host: room_on(host, free[host] - minimum) for host in hosts if free[host] > minimum}
        short = [host for host in hosts if 0 < free[host] <= minimum]
        if not room or not short:
            return None
        relieved = min(short, key=free.get)
        movable = movable_vms(connection, relieved)
    vms = [vm for vm in movable if vm.memory <= max(room.values())]
    if not vms:
        return None
    vm = vms[0] if safe else large_enough(vms, minimum - free[relieved])
    return vm, [host for host in room if vm.memory <= room[host]]


def large_enough(vms, lacking):
    """The smallest VM that is larger than the memory that the host lacks, else the largest."""
    return next((vm for vm in vms if vm.memory > lacking), vms[-1])


def room_on(host, over_minimum):
    """Bytes that a VM may have on the host: free over the minimum, and the engine agrees."""
    most = host.max_scheduling_memory
    return over_minimum if most is None else min(over_minimum, most)


def free_memory(connection, host):
    """Bytes that are free on the host; 0 if its statistics do not say."""
    service = connection.system_service().hosts_service().host_service(host.id)
    try:
        statistics = service.statistics_service().list()
    except Error as error:
        if error.code is None:  # nobody answered: that is no host without statistics
            raise
        return 0
    for item in statistics:
        if item.name == "memory.free" and item.values:
            return item.values[0].datum or 0
    return 0
