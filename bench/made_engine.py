"""An engine that tells of hosts and a VM: the one that the tests have, with a larger cluster."""

from __future__ import annotations

from pathlib import Path

from tests.support.rest_server import GIB, Host, RestServer, Vm


def made(folder: Path, hosts: int) -> RestServer:
    """Of so many hosts, each with room for the VM.

    Args:
        folder: gets its password file and its certificate.
    """
    return RestServer(
        folder,
        [Host(f"host-{number}", max_scheduling_memory=32 * GIB) for number in range(hosts)],
        [Vm("wiki", status="down")],
    )
