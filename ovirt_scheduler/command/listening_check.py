"""Whether the daemon could listen where the settings say, or does so already."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import ssl
import xmlrpc.client
from pathlib import Path
from typing import Dict, NamedTuple

from ovirt_scheduler.errors import AddressUnavailable, ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.server.http.listening import Place
from ovirt_scheduler.settings.config import Settings

_SECONDS = 5.0  # for whoever has the port to say something
_MOST_BYTES = 1 << 16  # of its answer
_ASKED = xmlrpc.client.dumps((), "system.listMethods").encode()
_OURS = b"<string>selectHost</string>"  # a method that the old proxy does not have


class ListeningReport(NamedTuple):
    address: str
    port: int
    daemon: bool = False  # whether one of ours listens there
    problem: str = ""

    def fields(self) -> Dict[str, object]:
        """For JSON."""
        return {**self._asdict(), "problem": self.problem or None}

    def line(self) -> str:
        what = self.problem or ("the daemon listens" if self.daemon else "free")
        return f"port {self.port} of {self.address}: {what}\n"


def report(settings: Settings, certificate: Path) -> ListeningReport:
    """Bind the address as the daemon does, for a moment; nobody can connect meanwhile.

    Args:
        certificate: the daemon's, which may not be there.
    """
    address, port = settings.listening_address, settings.listening_port
    try:
        listening.bound(address, port).close()
    except AddressUnavailable as error:
        with contextlib.suppress(ConfigError):
            if any(
                _is_ours(each, settings, certificate) for each in listening.places(address, port)
            ):
                return ListeningReport(address, port, daemon=True)
        return ListeningReport(address, port, problem=str(error))
    except ConfigError as error:
        return ListeningReport(address, port, problem=str(error))
    return ListeningReport(address, port)


def _is_ours(place: Place, settings: Settings, certificate: Path) -> bool:
    """Whether a daemon of ours is there: it has our certificate's key, or tells our methods."""
    try:
        with contextlib.ExitStack() as open_ones:
            connected = open_ones.enter_context(socket.socket(place.family, socket.SOCK_STREAM))
            connected.settimeout(_SECONDS)
            connected.connect(place.target)
            if settings.ssl:
                wrapped = open_ones.enter_context(_unchecked().wrap_socket(connected))
                shown = wrapped.getpeercert(binary_form=True) or b""
                if hashlib.sha256(shown).hexdigest() == _sha256(certificate):
                    return True  # where clients need a certificate, it tells us nothing else
                connected = wrapped
            connection = http.client.HTTPConnection("localhost")
            connection.sock = connected
            connection.request("POST", "/", _ASKED, {"Content-Type": "text/xml"})
            return _OURS in connection.getresponse().read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return False


def _unchecked() -> ssl.SSLContext:
    """Nothing is told to whoever is there, and nothing that it says is believed."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _sha256(certificate: Path) -> str:
    try:
        return certificates.fingerprint(certificate).replace(":", "").lower()
    except ConfigError:
        return ""
