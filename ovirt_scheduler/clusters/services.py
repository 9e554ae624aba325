"""The services that all clusters share."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.clusters.plans import Plans
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.processes.executor import Executor


class ClusterServices(NamedTuple):
    """The services that the threads of all clusters share.

    Attributes:
        decisions: answers requests for schedulers and policy units.
        stopping: set when nothing more may begin.
    """

    plans: Plans
    memory: DriveMemory
    inventory: Inventory
    decisions: DecisionService
    executor: Executor
    stopping: threading.Event
