"""Adds to a job what the engine knows of its ids, and the access that plugins need to ask more."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Optional, Protocol, TypeVar, cast

from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.decisions import Job
from ovirt_scheduler.model.drivers import DriverJob
from ovirt_scheduler.model.plugins import NOT_NAMED, EngineAccess, NoEngine, PluginCode
from ovirt_scheduler.model.tasks import EngineReplies, Role

_log = logging.getLogger(__name__)

AnyJob = TypeVar("AnyJob", Job, DriverJob)


class EngineData(Protocol):
    """What is asked of an engine; ``engine.inventory.Inventory`` says what each comes to."""

    def look_up(
        self,
        hosts: Sequence[str],
        vm: Optional[str],
        deadline: float,
        vms: Sequence[str] = (),
        statistics: bool = False,
    ) -> EngineReplies:
        """The documents of hosts and VMs."""

    def access(self, deadline: float) -> EngineAccess:
        """What plugins may reach it with."""


def add(
    job: AnyJob,
    inventory: Optional[EngineData],
    plugins: Sequence[PluginCode],
    hosts: Sequence[str],
    vm: Optional[str],
    vms: Sequence[str] = (),
    known: Optional[EngineReplies] = None,
) -> tuple[AnyJob, tuple[str, ...]]:
    """Ask the engine, within the job's deadline.

    Args:
        inventory: None where no engine is configured: the job stays as it is.
        plugins: those that the job calls.
        hosts, vm, vms: ids to ask about; where there are none, the engine is not asked about any.
        known: what it told of them a moment ago; it is not asked again.

    Returns:
        The job, and what is wrong. If the engine gives no answer, the log says so once and the
        job goes on without one.
    """
    if inventory is None:
        return job, ()
    job = job._replace(engine=NOT_NAMED)
    statistics = any(plugin.wants_statistics for plugin in plugins)
    try:
        if known is None:
            known = inventory.look_up(hosts, vm, job.deadline, vms, statistics)
        job = job._replace(replies=known)
        if any(plugin.wants_engine for plugin in plugins):
            job = job._replace(engine=inventory.access(job.deadline))
    except EngineUnavailable as error:
        _log.warning("the engine's REST API gives no answer: %(reason)s", {"reason": str(error)})
        message = f"the engine's REST API gives no answer: {error}"
        return job._replace(engine=NoEngine(message)), (message,)
    return job, ()


def add_for_units(
    job: Job, inventory: Optional[EngineData], known: Optional[EngineReplies] = None
) -> tuple[Job, tuple[str, ...]]:
    """As ``add``, for the policy units of a job; class units are called with ids alone."""
    units = [call.unit for call in job.calls]
    plugins = [unit.plugin for unit in units]
    if all(unit.class_name is not None for unit in units):
        return add(job, inventory, plugins, (), None)
    brought = Role.HOSTS in job.packs or not isinstance(job.hosts, tuple)
    vm = job.vm if isinstance(job.vm, str) else None
    hosts = () if brought else cast("tuple[str, ...]", job.hosts)
    return add(job, inventory, plugins, hosts, vm, known=known)
