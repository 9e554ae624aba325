"""The record of what ``ovirt-scheduler setup`` did on a machine, so that it can be undone.

Only root may write where it lies. It is not in the state folder: that belongs to the user as whom
plugins run, and a plugin could have ``--remove`` delete any file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Optional

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.model import records

FILE = "/var/lib/ovirt-scheduler-setup.json"


@dataclass
class Record:
    """What setup did. Paths are the machine's names, checksums as ``checksum`` gives them."""

    files: dict[str, list[str]] = field(default_factory=dict)  # path: checksums of what was written
    found: list[str] = field(default_factory=list)  # those of the files that existed, as shipped
    folders: list[str] = field(default_factory=list)  # that were made
    conf_keys: dict[str, str] = field(default_factory=dict)  # that were set in scheduler.conf
    links: dict[str, str] = field(default_factory=dict)  # to what each leads
    user: bool = False  # it was made
    certificate: Optional[str] = None  # the checksum of the one that was made
    enabled: bool = False  # the unit was
    old_proxy: bool = False  # its unit was disabled
    trust_stores: list[str] = field(default_factory=list)  # into which the certificate was put
    engine_config: dict[str, str] = field(default_factory=dict)  # key to its former value

    def note(self, **fields: object) -> None:
        """Set some of the fields."""
        vars(self).update(fields)


def checksum(data: bytes) -> str:
    """The SHA-256 of a file's content, with its name before it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def add(values: list[str], value: str) -> None:
    """Add to one of the record's lists what is not in it yet."""
    if value not in values:
        values.append(value)


def load(machine: Machine) -> Optional[Record]:
    """Read the record of a machine, or give None if nothing was set up.

    Raises:
        StepFailed: it cannot be read, or is no record of setup's.
    """
    data = machine.read(FILE)
    try:
        return None if data is None else records.load(data, Record)
    except ValueError as error:
        raise StepFailed(
            f"{machine.path(FILE)}: is no record of setup's ({error}); remove it to have "
            "everything looked at afresh: what is there already stays"
        ) from None


def save(machine: Machine, record: Record) -> None:
    """Write the record, for people to read, too."""
    data = json.dumps(dataclasses.asdict(record), indent=1, sort_keys=True)
    machine.write(FILE, data.encode() + b"\n")
