"""Has the engine migrate VMs, for the clusters that the daemon looks after."""

from __future__ import annotations

from ovirtsdk4 import types

from ovirt_scheduler.plugin import Driver, engine_connection


class Migration(Driver):
    """Called by the daemon itself; whoever may call the daemon shall not move VMs."""

    name = "migration"
    topic = None

    def migrate(self, vm: str, host: str) -> bool:
        """Begin a migration; what comes of it is for the caller to see.

        Args:
            vm, host: ids.
        """
        with engine_connection() as connection:
            vms = connection.system_service().vms_service()
            vms.vm_service(vm).migrate(host=types.Host(id=host))
        return True
