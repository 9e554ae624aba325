"""Made hosts and VMs of a cluster, and the default scheduler that is asked about them."""

from __future__ import annotations

import runpy
from pathlib import Path

from ovirtsdk4 import types

import ovirt_scheduler

GIB = 2**30
FILE = Path(ovirt_scheduler.__file__).parent / "plugin" / "schedulers" / "default.py"
DefaultScheduler = runpy.run_path(str(FILE))["DefaultScheduler"]


def properties(policy, **others):
    names = [item.partition("=")[0] for item in DefaultScheduler.properties_validation.split(";")]
    defaults = dict(zip(names, DefaultScheduler.default_values.split(";")))
    return {**defaults, "policy": policy, **others}


def statistic(name, datum):
    return types.Statistic(name=name, values=[types.Value(datum=datum)])


def host(name, memory=64, used=0.0, busy=0.0, status="up", processors=16, idle=None, **fields):
    """A host of so many GiB, a part of them used, its processors busy by so many percent."""
    told = [] if idle is None else [statistic("cpu.current.idle", idle)]
    return types.Host(
        id=name,
        status=types.HostStatus(status),
        memory=memory * GIB,
        max_scheduling_memory=int(memory * (1 - used)) * GIB,
        cpu=types.Cpu(topology=types.CpuTopology(sockets=1, cores=processors, threads=1)),
        statistics=[
            statistic("memory.used", int(memory * used * GIB)),
            statistic("cpu.current.user", busy),
            statistic("cpu.current.system", 0),
            *told,
        ],
        **fields,
    )


def vm(name, on=None, memory=4, processors=1, affinity="migratable", status="up", **fields):
    fields.setdefault("placement_policy", types.VmPlacementPolicy(types.VmAffinity(affinity)))
    return types.Vm(
        id=name,
        host=on and types.Host(id=on),
        status=types.VmStatus(status),
        memory=memory * GIB,
        cpu=types.Cpu(topology=types.CpuTopology(sockets=1, cores=processors, threads=1)),
        **fields,
    )


def pinned(name, on, *hosts, affinity="pinned", **fields):
    policy = types.VmPlacementPolicy(
        types.VmAffinity(affinity), hosts=[types.Host(id=named) for named in hosts]
    )
    return vm(name, on, placement_policy=policy, **fields)


def available(priority=1):
    return types.HighAvailability(enabled=True, priority=priority)


def is_free(found):
    return found.placement_policy.affinity is types.VmAffinity.MIGRATABLE


def target_ids(migrations):
    """The ids of the VMs that are moved, each with those of the hosts it may go to."""
    return {moved.id: [target.id for target in targets] for moved, targets in migrations.items()}
