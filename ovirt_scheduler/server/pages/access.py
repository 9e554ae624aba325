"""Who may read which page: the setting ``pages``, and the name that a browser asked for."""

from __future__ import annotations

import re
from collections.abc import Collection

from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.security.addresses import is_loopback

# An IPv6 address in brackets, or a name, whose last dot does not matter; and a port.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w-][\w.-]*?)\.?)(?::[0-9]*)?", re.IGNORECASE)


def may_read(pages: Pages, peer: str, everything: bool = True) -> bool:
    """Whether a client at an address may read ``/metrics``, or everything.

    Args:
        pages: as scheduler.conf says.
    """
    if pages is Pages.CALLERS:
        return True
    if pages is Pages.OFF or (everything and pages is Pages.HEALTH):
        return False
    return is_loopback(peer)


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether the ``Host`` of a request names this daemon.

    A request under another site's name is refused, because a browser would let that site read the
    page (DNS rebinding).

    Args:
        names: host names and addresses by which the daemon is known. In one that
            begins with ``*.``, as a certificate may have it, the star stands for one label.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name, ours = (match[1] or match[2]).lower(), {each.lower() for each in names}
    return name in ours or f"*.{name.partition('.')[2]}" in ours or is_loopback(name)
