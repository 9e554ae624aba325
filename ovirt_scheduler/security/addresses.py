"""Whether an address is this machine's own, and how this machine reaches one."""

from __future__ import annotations

import ipaddress

# Listening addresses to which localhost leads.
_LOCALHOST = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104  nothing is bound here


def is_loopback(host: str) -> bool:
    """Whether it is ``localhost`` or a loopback address; no other name is looked up.

    An IPv4 address may be written as IPv6 has it: ``::ffff:127.0.0.1``.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def url_host(address: str) -> str:
    """The host of a URL with which this machine reaches a listening address."""
    if address in _LOCALHOST:
        return "localhost"
    return f"[{address}]" if ":" in address else address
