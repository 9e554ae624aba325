"""Detects whether a document may be of version 3 of the engine's REST representation.

A document without a sign has nothing of version 3. One with a sign is given to ``version3``, which
may find nothing, as version 4 can have the same sign.
"""

from __future__ import annotations

from collections.abc import Mapping

# What version 3 writes as an attribute and version 4 as an element of the same name.
ATTRIBUTES = frozenset(
    {
        *("major", "minor", "build", "revision", "full_version"),  # every kind of version
        *("sockets", "cores", "threads", "index", "socket", "vcpu", "cpu_set", "mode"),  # CPU
        *("type", "name", "value", "regexp", "enabled", "percent"),
        *("address", "netmask", "gateway"),
    }
)
# Elements where version 4 has none of that name. A word that was spelled otherwise is no sign, as
# no document of version 3 has only that.
_ELEMENTS = frozenset(
    {
        *("state", "storage_manager", "selinux", "vmpool", "guest_info", "timezone", "disks"),
        "host",  # in a <placement_policy>
    }
)


def is_sign(name: str, attributes: Mapping[str, str], is_known: bool) -> bool:
    """Whether an element may be of version 3.

    Args:
        is_known: version 4 has one of that name there.
    """
    return (
        (not is_known and name in _ELEMENTS)
        or "dev" in attributes
        or (name == "cpu" and "id" in attributes)
        or not ATTRIBUTES.isdisjoint(attributes)
    )
