"""What a step of an installation is, and what it plans.

A step is asked for its plan when those before it are done. It looks at the machine, and changes
nothing. A dry run shows the plans and carries none out; a second run finds nothing to do.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.record import Record


def nothing() -> None:
    """Note nothing in the record."""


class Plan(NamedTuple):
    """What a step is going to do.

    ``note`` comes before ``act``, so that what was begun can be undone whenever it breaks off; on
    removal it comes after. The record is saved after each of them.
    """

    words: str  # what is to be done ("make the folder ..."), or why nothing is
    act: Optional[Callable[[], object]] = None  # does it
    left: bool = False  # whether the administrator has to do it
    removes: str = ""  # what is gone when it is done: the machine's name of a file or folder
    note: Callable[[], object] = nothing  # writes into the record what ``act`` does


@dataclass
class Step(abc.ABC):
    """One thing that is so when the machine is set up."""

    machine: Machine
    record: Record

    @abc.abstractmethod
    def plan(self) -> Plan:
        """Plan how to make it so."""

    @abc.abstractmethod
    def plan_removal(self) -> Plan:
        """Plan how to undo what was made so."""
