"""What requests for policy units and those for drivers are decided with alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_scheduler.catalogue.snapshot import CatalogueSource
from ovirt_scheduler.decisions.engine_data import EngineData
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.processes.executor import Executor


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
