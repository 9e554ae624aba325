"""Who may read which page: the setting ``pages``, and the name that a browser asked for."""

from __future__ import annotations

import re
from collections.abc import Collection

from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.security.addresses import is_loopback

# An IPv6 address in brackets, or a name, whose last dot does not matter; and a port.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w-][\w.-]*?)\.?)(?::[0-9]*)?", re.IGNORECASE)


class Access:
    """Who may read what.

    Args:
        pages: as scheduler.conf says.
        names: host names and addresses by which the daemon is known: those of the listener and of
            its certificate. A page that another site's name leads to here is refused, since a
            browser would let that site read it (DNS rebinding).
    """

    def __init__(self, pages: Pages, names: Collection[str]) -> None:
        self.pages = pages
        self._names = frozenset(name.lower() for name in names)

    def may_read(self, peer: str, everything: bool) -> bool:
        """Whether a client may read.

        Args:
            peer: its address.
            everything: more than ``/metrics``.
        """
        if self.pages is Pages.CALLERS:
            return True
        if self.pages is Pages.OFF or (everything and self.pages is Pages.HEALTH):
            return False
        return is_loopback(peer)

    def is_ours(self, host: str, local: str) -> bool:
        """Whether the ``Host`` of a request names this daemon.

        Args:
            local: the daemon's address, as the client reached it.
        """
        found = _HOST.fullmatch(host)
        name = (found[1] or found[2]).lower() if found else ""
        return bool(name) and (name in self._names or name == local or is_loopback(name))
