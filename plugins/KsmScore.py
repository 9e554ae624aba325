"""Same operating system together, so that the kernel's same-page merging (KSM) saves memory.

It asks the engine's REST API for the hosts' VMs: scheduler.conf needs an [engine] section.
"""

from _known import known
from _vms import vms_of

from ovirt_scheduler.plugin import engine_connection


def do_score(hosts, vm, properties):
    """Cost: how many fewer VMs of the same operating system the host runs than the best host."""
    if vm.os is None or vm.os.type is None:
        raise LookupError(
            f"the operating system of VM {vm.id} is not known: the engine did not tell"
        )
    with engine_connection() as connection:
        named = [host for host, _ in known(hosts, lambda host: host.name, "its name")]
        alike = {host.id: len(vms_alike(connection, host, vm)) for host in named}
    most = max(alike.values())
    return {host: most - count for host, count in alike.items()}


def vms_alike(connection, host, vm):
    """The host's VMs with the same operating system, except the VM itself."""
    return [
        other
        for other in vms_of(connection, host)
        if other.id != vm.id and other.os is not None and other.os.type == vm.os.type
    ]
