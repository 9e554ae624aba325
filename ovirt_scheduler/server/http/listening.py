"""The socket that the daemon listens on: its addresses, and why it cannot be opened."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.errors import AddressUnavailable, ConfigError

_log = logging.getLogger(__name__)

_FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
_LISTENS = "0A"  # the state of a socket in the kernel's tables

# Where a machine does not know the name; as elsewhere, the one that a JVM would take comes first.
_LOOPBACK = ("127.0.0.1", "::1")


class SocketAddress(NamedTuple):
    """An address with its port, as ``bind`` and ``connect`` of its family take it."""

    family: socket.AddressFamily
    target: tuple[Any, ...]


def resolve(address: str, port: int) -> list[SocketAddress]:
    """The socket addresses that an address stands for; the best first.

    Raises:
        AddressUnavailable: the name cannot be looked up now.
        ConfigError: there is no such name.
    """
    try:
        addresses = _resolved(address, port)
    except (OSError, UnicodeError) as error:
        if address == "localhost":
            return [place for name in _LOOPBACK for place in _resolved(name, port)]
        later = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        kind = AddressUnavailable if later else ConfigError
        raise kind(f"listening_address {address!r} is not known here: {error}") from None
    return sorted(addresses, key=lambda place: place.target[0] != _LOOPBACK[0])


def bound(address: str, port: int) -> socket.socket:
    """A socket that is bound there, and does not listen yet.

    Raises:
        AddressUnavailable: the port is taken, or the machine does not have the address now.
        ConfigError: it cannot be opened.
    """
    try:
        return _bound(resolve(address, port)[0])
    except OSError as error:
        raise refusal(address, port, error) from None


def handed_over(
    environ: MutableMapping[str, str], address: str, port: int
) -> Optional[socket.socket]:
    """The listening socket that whoever started this process handed over (sd_listen_fds(3)).

    systemd keeps it while the daemon restarts, so that no caller is refused meanwhile. Each socket
    that is not the one wanted is closed, and the log says so.

    Args:
        environ: its LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES are taken out.
        address, port: where to listen, as scheduler.conf says.

    Raises:
        AddressUnavailable, ConfigError: as ``resolve``.
    """
    environ.pop("LISTEN_FDNAMES", "")
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    if pid != str(os.getpid()) or not count.isdecimal() or len(count) > 3:
        return None
    expected = [place.target[:2] for place in resolve(address, port)]
    matching = None
    for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)):
        listener = _listening(descriptor)
        if listener is None:
            continue
        at = listener.getsockname()
        if matching is None and (at[:2] in expected or (port == 0 and at[0] in dict(expected))):
            matching = listener
            continue
        listener.close()
        _log.warning(
            "a listening socket that was handed over is closed: it is at %(address)s, which is not "
            "what scheduler.conf says",
            {"address": f"{at[0]} port {at[1]}"},
        )
    return matching


def _listening(descriptor: int) -> Optional[socket.socket]:
    """The socket of a descriptor; None, and the descriptor is closed, where none listens there."""
    try:
        os.set_inheritable(descriptor, False)
        listener = socket.socket(fileno=descriptor)
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if listens and listener.family in (socket.AF_INET, socket.AF_INET6):
            return listener
        listener.close()
    except OSError:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return None


def known_as(host: str) -> str:
    """``localhost`` as a number if this machine does not know the name."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        return _LOOPBACK[0] if host == "localhost" else host
    return host


def _resolved(address: str, port: int) -> list[SocketAddress]:
    infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [SocketAddress(family, target) for family, _, _, _, target in infos]


def _bound(place: SocketAddress) -> socket.socket:
    listener = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place.target)
    except BaseException:
        listener.close()
        raise
    return listener


def refusal(address: str, port: int, error: OSError) -> ConfigError:
    """Why nobody can listen there."""
    process = _listener_on(port) if error.errno == errno.EADDRINUSE else ""
    reasons = {
        errno.EADDRINUSE: f"another program, or daemon, has it{process}; end that, or mend "
        "listening_port",
        errno.EACCES: "the port is for root alone; choose a listening_port from 1024 up",
        errno.EADDRNOTAVAIL: "the address is not this machine's; mend listening_address",
    }
    reason = reasons.get(error.errno or 0, str(error))
    later = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    kind = AddressUnavailable if later else ConfigError
    return kind(
        f"cannot listen on port {port} of {address}: {reason} (scheduler.conf, or --config FILE)"
    )


def _listener_on(port: int) -> str:
    """The process that listens on a port, as far as this user may see: `` (process 17, nginx)``."""
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in map(str.split, _lines(Path("/proc/net", table)))
        if fields[1].endswith(f":{port:04X}") and fields[3] == _LISTENS
    }
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if any(str(link.readlink())[8:-1] in inodes for link in (process / "fd").iterdir()):
                return f" (process {process.name}, {(process / 'comm').read_text('utf-8').strip()})"
    return ""


def _lines(path: Path) -> list[str]:
    """The lines of a table of the kernel; none where there is no such table."""
    with contextlib.suppress(OSError):
        return path.read_text("ascii").splitlines()
    return []
