"""What the daemon has to know of affinity groups and labels, from their states (sdk_entities.py).

``clusters.reader_reports`` checks it, and makes groups of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.processes.documents.packing import EntityState

RuleFlags = Optional[list[bool]]  # positive, enforcing; None: it is not enabled
_LONGEST_NAME = 255  # characters


_MOST = 20_000  # groups or labels of one document


def groups(entities: Sequence[EntityState]) -> dict[str, list[object]]:
    """The groups by id.

    Raises:
        UnreadableDocument: there are too many.
    """
    _check_number(entities)
    return {group.get("_id") or "": _group(group) for group in entities}


def labels(entities: Sequence[EntityState]) -> dict[str, list[object]]:
    """The labels by id: name, whether one is a group of its own, and its members' ids.

    Raises:
        UnreadableDocument: there are too many.
    """
    _check_number(entities)
    return {
        label.get("_id") or "": [
            _name(label), label.get("_has_implicit_affinity_group", False),
            _ids(label, "_vms"), _ids(label, "_hosts"),
        ]
        for label in entities
    }  # fmt: skip


def _check_number(entities: Sequence[EntityState]) -> None:
    if len(entities) > _MOST:
        raise UnreadableDocument(f"it tells of more than {_MOST:,} affinity groups or labels")


def _group(group: EntityState) -> list[object]:
    """The group's name, priority, rules of VMs and of hosts, and its members' ids.

    A group without a rule of VMs is written as engines before 4.3 write one: positive or negative.
    """
    rule_of_vms = _rule(group.get("_vms_rule"))
    if "_vms_rule" not in group and "_positive" in group:
        rule_of_vms = [group["_positive"], group.get("_enforcing", False)]
    members = ("_vms", "_hosts", "_vm_labels", "_host_labels")
    return [
        _name(group), group.get("_priority", 1.0), rule_of_vms, _rule(group.get("_hosts_rule")),
        *(_ids(group, kind) for kind in members),
    ]  # fmt: skip


def _name(state: EntityState) -> str:
    return str(state.get("_name") or state.get("_id") or "")[:_LONGEST_NAME]


def _rule(rule: Optional[EntityState]) -> RuleFlags:
    if rule is None or not rule.get("_enabled", False):
        return None
    return [rule.get("_positive", False), rule.get("_enforcing", False)]


def _ids(state: EntityState, kind: str) -> list[str]:
    """The ids of members that have one; a list's state has its form and its link first."""
    return [member["_id"] for member in state.get(kind, ())[2:] if member.get("_id")]
