"""What ``ovirt-scheduler setup`` did on a machine, so that it is not done twice and can be undone.

The record lies where root alone may write, and not in the state folder: plugins run as the user
whom that belongs to, and could have ``--remove`` delete what they like.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.model import records

FILE = "/var/lib/ovirt-scheduler-setup.json"


@dataclass
class Record:
    """Paths are the machine's own, checksums as ``checksum`` gives them."""

    files: Dict[str, List[str]] = field(default_factory=dict)  # path to the checksums of our texts
    found: List[str] = field(default_factory=list)  # of these, those that were there as shipped
    folders: List[str] = field(default_factory=list)  # that were made
    conf_keys: Dict[str, str] = field(default_factory=dict)  # that scheduler.conf was given
    links: Dict[str, str] = field(default_factory=dict)  # to what each leads
    user: bool = False  # made
    certificate: Optional[str] = None  # the checksum of the one that was made
    enabled: bool = False  # the unit
    old_proxy: bool = False  # its unit was disabled
    trust_stores: List[str] = field(default_factory=list)  # that were given the certificate
    engine_config: Dict[str, str] = field(default_factory=dict)  # key to its former value


def checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def load(machine: Machine) -> Optional[Record]:
    """Read the machine's record; None where nothing was set up.

    Raises:
        StepFailed: it cannot be read.
    """
    try:
        data = machine.read(FILE)
        return None if data is None else records.load(data, Record)
    except (OSError, ValueError) as error:
        raise StepFailed(
            f"{machine.path(FILE)}: cannot be read ({error}); remove it to have everything looked "
            "at afresh: what is there already stays"
        ) from None


def save(machine: Machine, record: Record) -> None:
    data = json.dumps(dataclasses.asdict(record), indent=1, sort_keys=True)
    machine.write(FILE, data.encode() + b"\n")


def forget(machine: Machine) -> None:
    machine.path(FILE).unlink()
