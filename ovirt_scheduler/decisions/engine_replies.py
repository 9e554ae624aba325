"""What the engine answers about the ids of a job, and the access to it that plugins need."""

from __future__ import annotations

import logging
from typing import Optional, Protocol

from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.jobs import Job
from ovirt_scheduler.model.plugins import NOT_NAMED, EngineAccess, NoEngine
from ovirt_scheduler.model.tasks import EngineReplies, Role, Sought

_log = logging.getLogger(__name__)


class EngineData(Protocol):
    """The queries to an engine; ``engine.inventory.Inventory`` describes them."""

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:
        """The documents of hosts and VMs."""

    def access(self, deadline: float) -> EngineAccess:
        """The access that plugins may have to it."""


def with_engine(
    job: Job, engine: EngineData, replies: Optional[EngineReplies] = None
) -> tuple[Job, tuple[str, ...]]:
    """Add the engine's replies about its ids to a job, and the access that plugins need.

    Args:
        replies: of a moment ago; the engine is not asked again.

    Returns:
        The job, and what is wrong. If the engine gives no answer within the job's deadline,
        the log says so once and the job goes on without one.
    """
    units, call = [call.unit for call in job.calls], job.request.driver_call
    plugins = [unit.plugin for unit in units]
    if call is not None:
        plugins.append(call.driver.plugin)
    # Units that are classes get ids, and no more.
    by_ids = call is None and all(unit.class_name is not None for unit in units)
    job = job._replace(engine=NOT_NAMED)
    try:
        if not by_ids:
            statistics = any(plugin.wants_statistics for plugin in plugins)
            sought = _sought(job)._replace(statistics=statistics)
            job = job._replace(replies=replies or engine.look_up(sought, job.deadline))
        if any(plugin.wants_engine for plugin in plugins):
            job = job._replace(engine=engine.access(job.deadline))
    except EngineUnavailable as error:
        _log.warning("the engine's REST API gives no answer: %(reason)s", {"reason": str(error)})
        message = f"the engine's REST API gives no answer: {error}"
        return job._replace(engine=NoEngine(message)), (message,)
    return job, ()


def _sought(job: Job) -> Sought:
    """The ids that the engine is asked about: what came as a document is known."""
    hosts, vms, vm = job.request.entities[:3]
    vms = vms if isinstance(vms, tuple) else ()
    return Sought(
        hosts if isinstance(hosts, tuple) and Role.HOSTS not in job.packs else (),
        vm if isinstance(vm, str) and vm not in vms else None,
        vms,
    )
