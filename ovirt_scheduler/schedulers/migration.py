"""Makes the engine migrate VMs, for the clusters that the daemon looks after."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ovirtsdk4 import AuthError, types

from ovirt_scheduler.model.values.text import one_line
from ovirt_scheduler.plugin import Driver, EngineUnavailable, engine_connection

_CURL = re.compile(r"\[\(<[^>]*>, \d+, '(.*)'\)\]")  # the SDK shows libcurl's error as a list


class Migration(Driver):
    """Migrates VMs for the daemon alone: no caller can have it move one."""

    name = "migration"
    topic = None

    def migrate(self, migrations: Mapping[str, str], mark: str) -> dict[str, dict[str, str]]:
        """Begin migrations; the caller has to follow them.

        Args:
            migrations: id of a VM to the id of the host that it is to go to; if that is
                empty, the engine chooses.
            mark: the correlation id of these migrations, which the engine's events show.

        Returns:
            Two dicts of VM id to a reason: ``refused``, those that the engine does not migrate or
            was not asked to, and ``unanswered``, those of which it is not known. The engine took
            the others.
        """
        refused: dict[str, str] = {}
        unanswered: dict[str, str] = {}
        try:
            connection = engine_connection()
        except EngineUnavailable as error:
            return {"refused": dict.fromkeys(migrations, str(error)), "unanswered": {}}
        vms = connection.system_service().vms_service()
        for vm, host in migrations.items():
            if unanswered:  # each would wait as long
                refused[vm] = "not asked, as the engine did not answer for another VM"
                continue
            try:
                target = types.Host(id=host) if host else None
                vms.vm_service(vm).migrate(host=target, query={"correlation_id": mark})
            except Exception as error:  # noqa: BLE001  the SDK reports torn answers in many ways
                reason = _CURL.sub(r"\1", one_line(str(error)))
                known = isinstance(error, AuthError) or getattr(error, "fault", None) is not None
                (refused if known else unanswered)[vm] = reason or type(error).__name__
        return {"refused": refused, "unanswered": unanswered}
