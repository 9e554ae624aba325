"""The states of hosts and VMs, as a reader of documents saw them.

A reader has read documents from outside, so it is not trusted: each value is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional, TypeVar

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.cluster_state import HostState, VmState
from ovirt_scheduler.processes.protocol.packed_answers import MISSHAPEN, amount, text

REPORT = "resource_use:states"  # the function of ``processes.documents`` that says them

State = TypeVar("State", HostState, VmState)


def unpack_hosts(states: Any) -> dict[str, HostState]:
    """The state of each host by id.

    Args:
        states: what the reader of one document sent.

    Raises:
        UnreadableDocument: it has not the shape.
    """
    return _unpack(states, _OF_A_HOST, HostState)


def unpack_vms(states: Any) -> dict[str, VmState]:
    """The state of each VM by id, as ``unpack_hosts`` does it.

    Raises:
        UnreadableDocument: it has not the shape.
    """
    return _unpack(states, _OF_A_VM, VmState)


def _unpack(
    states: Any, fields: Mapping[str, Callable[[object], object]], state: Callable[..., State]
) -> dict[str, State]:
    by_id: dict[str, State] = {}
    try:
        for key, values in states.items():
            if not _FEWEST <= len(values) <= len(fields):
                raise ValueError(f"{len(values)} values")
            checked = {name: check(value) for (name, check), value in zip(fields.items(), values)}
            by_id[text(key)] = state(**checked)
    except MISSHAPEN as error:
        raise UnreadableDocument(f"not the states of hosts or VMs: {error!r:.200}") from None
    return by_id


def _text_or_none(value: object) -> Optional[str]:
    return None if value is None else text(value)


# The values of a host and of a VM in a reader's order, and how each is checked. The amounts are
# there as far as they are known.
_FEWEST = 3
_OF_A_HOST: Mapping[str, Callable[[object], object]] = {
    "name": text, "status": text, "cluster": _text_or_none, "processors": amount,
    "busy_processors": amount, "memory": amount, "used_memory": amount,
}  # fmt: skip
_OF_A_VM: Mapping[str, Callable[[object], object]] = {
    "name": text, "status": text, "cluster": _text_or_none, "host": _text_or_none,
    "origin": text, "processors": amount, "memory": amount, "busy_processors": amount,
}  # fmt: skip
