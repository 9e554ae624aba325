"""What the samples in plugins/ are asked about: a VM, hosts that run others, their conf files."""

from __future__ import annotations

from tests.support.paths import PROJECT
from tests.support.rest_server import GIB, Host, Vm

CONF = f"plugins_conf_path = {PROJECT / 'etc' / 'plugins'}"
VM = Vm("new", os="rhel_9x64", memory=GIB)


def vms_on(host, count, **what):
    """VMs of a host, the first the smallest."""
    return [
        Vm(f"{host}-{number}", **{"host": host, "memory": (number + 1) * GIB, **what})
        for number in range(count)
    ]


def three_hosts(*counts):
    """lynx, puma and tiger with so many VMs."""
    names = ["lynx", "puma", "tiger"][: len(counts)]
    vms = [vm for name, count in zip(names, counts) for vm in vms_on(name, count)]
    return [Host(name) for name in names], vms
