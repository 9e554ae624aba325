"""A step of an installation, and the record of what was done, so that it can be undone.

A step makes its plan when the steps before it are done. For that it looks at the machine, and
changes nothing. A dry run only shows the plans; a second run finds nothing to do.

Only root may write the folder of the record. That is not the state folder, which belongs to the
plugins' user: a plugin could make ``--remove`` delete any file.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.model.values import typed_json

FILE = "/var/lib/ovirt-scheduler-setup.json"


@dataclass
class SetupRecord:
    """What setup did. Paths are the machine's names, checksums as ``checksum`` gives them."""

    files: dict[str, list[str]] = field(default_factory=dict)  # path: checksums of what was written
    # Files that were there before, just as they are shipped.
    existing_files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # made by setup
    conf_keys: dict[str, str] = field(default_factory=dict)  # key to its value in scheduler.conf
    links: dict[str, str] = field(default_factory=dict)  # link to its target
    user: bool = False  # whether setup made the user
    certificate: Optional[str] = None  # the checksum of the certificate, if setup made it
    enabled: bool = False  # whether setup enabled the unit
    old_proxy: bool = False  # whether setup disabled the unit of the old proxy
    trust_stores: list[str] = field(default_factory=list)  # that have the certificate from setup
    engine_config: dict[str, str] = field(default_factory=dict)  # key to its former value


def checksum(data: bytes) -> str:
    """The SHA-256 of a file's content, with its name before it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def load(machine: Machine) -> SetupRecord:
    """Read the record of a machine, which is empty if nothing was set up.

    Raises:
        StepFailed: it cannot be read, or is no record of setup's.
    """
    data = machine.read(FILE)
    try:
        return SetupRecord() if data is None else typed_json.load(data, SetupRecord)
    except ValueError as error:
        raise StepFailed(
            f"{machine.path(FILE)}: is no record of setup's ({error}); remove it, and "
            "setup looks at everything again: files that are there already stay"
        ) from None


def save(machine: Machine, record: SetupRecord) -> None:
    """Write the record, for people to read, too."""
    data = json.dumps(dataclasses.asdict(record), indent=1, sort_keys=True)
    machine.write(FILE, data.encode() + b"\n")


class StepPlan(NamedTuple):
    """What a step is going to do, or why it does nothing.

    The record is written before ``act`` is called, so that a step that breaks off can be undone.
    A plan of a removal changes no record: a removal may be repeated.
    """

    words: str  # a sentence: what is to be done ("make the folder ..."), or why nothing is
    act: Optional[Callable[[], object]] = None  # carries the plan out
    by_hand: bool = False  # whether something of it is left to the administrator
    removes: str = ""  # the machine's name of the file or folder that is to be removed
    noted: Mapping[str, object] = {}  # fields of the record, with their values after ``act``


@dataclass
class SetupStep(abc.ABC):
    """One part of the state of a machine, which setup brings about and undoes."""

    machine: Machine
    record: SetupRecord

    @abc.abstractmethod
    def plan(self) -> StepPlan:
        """Plan how to bring that state about."""

    @abc.abstractmethod
    def plan_removal(self) -> StepPlan:
        """Plan how to undo it."""
