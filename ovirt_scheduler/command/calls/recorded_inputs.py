"""The hosts, VMs and properties of a recorded decision, for ``try --decision``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Optional
from xml.etree import ElementTree

from ovirt_scheduler.command.calls.input_files import NO_VM, CommandInputs
from ovirt_scheduler.errors import NotRecorded
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.tasks import Role


def recorded_inputs(reader: RecordReader, decision: str) -> CommandInputs:
    """What a decision was about.

    Args:
        decision: its id.

    Raises:
        NotRecorded: it is not kept, or without its documents; what to do instead.
        HistoryUnreadable: the history cannot be read.
    """
    number = reader.number_of(decision)
    recorded = None if number is None else reader.recording(number)
    if recorded is None:
        raise NotRecorded(
            f"decision {decision!r:.40} is not recorded with its documents; set record = true in "
            "scheduler.conf, or save a cluster: ovirt-scheduler snapshot CLUSTER -f FILE"
        )
    record = recorded.record
    documents: dict[Role, list[bytes]] = {}
    for role, _, place in recorded.documents:
        documents.setdefault(role, []).append(reader.document(place))
    ids = tuple(host["id"] for host in record["hosts"])
    (vm, *_) = documents.get(Role.VM) or [b""]
    return CommandInputs(
        _joined(documents.get(Role.HOSTS, ()), ids) or ids,
        vm.decode() or record.get("vm", {}).get("id") or NO_VM,
        record.get("properties", {}),
        _joined(documents.get(Role.VMS, ())) or (),
    )


def _joined(documents: Sequence[bytes], ids: Optional[Collection[str]] = None) -> str:
    """One document made from several; empty if there is none.

    Args:
        ids: of the elements to keep; None: all.
    """
    roots = [ElementTree.fromstring(each) for each in documents]  # noqa: S314  of our own state
    if not roots:
        return ""
    joined = ElementTree.Element(roots[0].tag)
    joined.extend(
        element for root in roots for element in root if ids is None or element.get("id") in ids
    )
    return ElementTree.tostring(joined, encoding="unicode")
