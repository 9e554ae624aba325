"""Has the engine migrate VMs, for the clusters that the daemon looks after."""

from __future__ import annotations

from typing import Dict, Mapping

from ovirtsdk4 import Error, types

from ovirt_scheduler.plugin import Driver, engine_connection


class Migration(Driver):
    """Called by the daemon itself; whoever may call the daemon shall not move VMs."""

    name = "migration"
    topic = None

    def migrate(self, migrations: Mapping[str, str]) -> Dict[str, str]:
        """Begin migrations; what comes of them is for the caller to see.

        Args:
            migrations: id of a VM to the id of the host that it is to go to; where that is
                empty, the engine chooses.

        Returns:
            Why the engine does not migrate a VM, by its id; nothing of those that it took.
        """
        refused: Dict[str, str] = {}
        with engine_connection() as connection:
            vms = connection.system_service().vms_service()
            for vm, host in migrations.items():
                try:
                    vms.vm_service(vm).migrate(host=types.Host(id=host) if host else None)
                except Error as error:
                    refused[vm] = " ".join(str(error).split())
        return refused
