"""What requests for policy units and those for drivers are decided with alike."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Protocol

from ovirt_scheduler.catalogue.snapshot import CatalogueSource
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.history import recording
from ovirt_scheduler.history.record import AnyDecision
from ovirt_scheduler.model.drivers import Subjects
from ovirt_scheduler.model.plugins import NOT_NAMED, EngineAccess, NoEngine
from ovirt_scheduler.model.requests import Hosts
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.tasks import EngineReplies, Role, Sought
from ovirt_scheduler.model.units import Kind, UnitCall
from ovirt_scheduler.processes.executor import Executor, Job

_log = logging.getLogger(__name__)


class EngineData(Protocol):
    """What is asked of an engine; ``engine.inventory.Inventory`` says what each comes to."""

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:
        """The documents of hosts and VMs."""

    def access(self, deadline: float) -> EngineAccess:
        """What plugins may reach it with."""


@dataclass(eq=False)
class Service:
    """Answers requests. Safe to use from many threads.

    Attributes:
        registry: the policy units and the drivers.
        executor: runs them.
        request_timeout: seconds that one request may take, waiting included.
        inventory: tells what the engine knows of ids; None where no engine is configured.
        shadows: keeps what is decided, after calls of the units in shadow; None: nothing is kept.
    """

    registry: CatalogueSource
    executor: Executor
    request_timeout: float
    inventory: Optional[EngineData] = None
    shadows: Optional[Shadows] = None

    def _with_engine(
        self, job: Job, known: Optional[EngineReplies] = None
    ) -> tuple[Job, tuple[str, ...]]:
        """Add to a job what the engine knows of its ids, and the access that plugins need.

        Args:
            known: what it told of them a moment ago; it is not asked again.

        Returns:
            The job, and what is wrong. If the engine gives no answer within the job's deadline,
            the log says so once and the job goes on without one.
        """
        if self.inventory is None:
            return job, ()
        plugins = [call.unit.plugin for call in job.calls]
        by_ids = all(call.unit.class_name is not None for call in job.calls)  # they get no more
        if job.method is not None:
            plugins.append(job.method.plugin)
            by_ids = False
        job = job._replace(engine=NOT_NAMED)
        try:
            if not by_ids:
                statistics = any(plugin.wants_statistics for plugin in plugins)
                sought = _sought(job)._replace(statistics=statistics)
                replies = known or self.inventory.look_up(sought, job.deadline)
                job = job._replace(replies=replies)
            if any(plugin.wants_engine for plugin in plugins):
                job = job._replace(engine=self.inventory.access(job.deadline))
        except EngineUnavailable as error:
            _log.warning(
                "the engine's REST API gives no answer: %(reason)s", {"reason": str(error)}
            )
            message = f"the engine's REST API gives no answer: {error}"
            return job._replace(engine=NoEngine(message)), (message,)
        return job, ()

    def _keep(
        self,
        decision: AnyDecision,
        job: Job,
        asked: Optional[Mapping[str, object]],
        shadows: Sequence[UnitCall] = (),
        left: Hosts = (),
    ) -> None:
        """Keep a decision, after calls of the units in shadow.

        Args:
            job: with the subjects that came with the request.
            asked: of a driver, beside these; None: what the decision was made on is not recorded.
            left: the hosts that cost functions and balances in shadow are asked about.
        """
        if self.shadows is None:
            return
        inputs = None if asked is None else recording.inputs(job.subjects, job.replies, asked)
        jobs = [
            Job(
                Subjects(job.subjects.hosts if call.unit.kind is Kind.FILTER else left,
                         vm=job.subjects.vm),
                job.deadline, (call,), strict=False, packs=decision.execution.packs,
            )
            for call in shadows
        ]  # fmt: skip
        self.shadows.call(decision, inputs, jobs, self._with_engine)


def _sought(job: Job) -> Sought:
    """The ids that the engine is asked about: what came as a document is known."""
    hosts, vms, vm = job.subjects.hosts, job.subjects.vms, job.subjects.vm
    vms = vms if isinstance(vms, tuple) else ()
    return Sought(
        hosts if isinstance(hosts, tuple) and Role.HOSTS not in job.packs else (),
        vm if isinstance(vm, str) and vm not in vms else None,
        vms,
    )


def unit_errors(
    left_out: Mapping[str, tuple[str, ...]], results: Sequence[CallResult]
) -> dict[str, tuple[str, ...]]:
    """What is wrong with each unit, by its name.

    Args:
        left_out: what was wrong before the calls.
        results: of the calls.
    """
    errors = dict(left_out)
    for result in results:
        if result.problems:
            errors[result.unit] = errors.get(result.unit, ()) + result.problems
    return errors
