"""A cluster's section of scheduler.conf with other keys, for a policy that is only tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from ovirt_scheduler.errors import BadUsage, ConfigError
from ovirt_scheduler.model.drivers import POLICY
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import ClusterSettings

_KEYS = frozenset(each.name for each in fields(ClusterSettings) if each.metadata)


def changed_section(
    section: ClusterSettings, changes: Mapping[str, str], words: str
) -> ClusterSettings:
    """A cluster's section with other keys.

    Args:
        changes: of its keys, as they would stand in the file. An empty one has its default, which
            for filters and cost functions is none.
        words: the option that has the changes.

    Raises:
        BadUsage: a change that no section may have.
    """
    lines = ["[clusters]", f"[[{section.name}]]"]
    for key, value in changes.items():
        if value or key not in _KEYS:
            lines.append(f"{key} = {_quoted(value)}")
    try:
        text = "\n".join(lines).encode("utf-8", "surrogateescape")
        (changed,) = scheduler_conf.clusters(text, Path(words))
    except ConfigError as error:
        problems = "; ".join(mistake.message for mistake in error.mistakes)
        raise BadUsage(f"{words}: {problems}") from None
    values = {key: getattr(changed, key) for key in changes}
    properties = dict((changed if "properties" in changes else section).properties)
    policy = (changed if "policy" in changes else section).policy
    if policy is None:
        properties.pop(POLICY, None)
    else:
        properties[POLICY] = policy
    values["properties"] = properties
    file = " with ".join(filter(None, (section.file, words if changes else "")))
    values["changed"] = section.changed | changes.keys()
    return replace(section, file=file, lines={}, **values)  # the text has no lines of a file


def used_policy(section: ClusterSettings) -> dict[str, str]:
    """What says when VMs are migrated under a section: the keys with their values, in order."""
    if section.balance:
        return {"balance": section.balance.name}
    if section.scheduler == "default":
        return {POLICY: section.properties.get(POLICY, "none")}
    policy = section.properties.get(POLICY)
    return {"scheduler": section.scheduler, **({POLICY: policy} if policy else {})}


def _quoted(value: str) -> str:
    return f"'{value}'" if '"' in value else f'"{value}"'
