"""Checks that the daemon can use the files that scheduler.conf names, and listen where it says."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import ssl
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ovirt_scheduler.command import arguments
from ovirt_scheduler.errors import AddressUnavailable, ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.settings.config import EngineSettings, Settings

_SECONDS = 5.0  # for an answer of who has the port
_MOST_BYTES = 1 << 16  # of its answer
_REQUEST = xmlrpc.client.dumps((), "system.listMethods").encode()
_METHOD = b"<string>selectHost</string>"  # a method that the old proxy does not have


def problems(settings: Settings) -> Iterator[str]:
    """A sentence for each file that the daemon cannot use. Changes nothing.

    Its own certificates are left to ``certificate_report``, plugins to the loader.
    """
    if settings.log_file is not None:
        reason = arguments.unwritable(settings.log_file)
        if reason:
            yield f"{settings.log_file}: {reason}; mend log_file"
    if settings.engine is not None:
        yield from engine_problems(settings.engine)


def engine_problems(engine: EngineSettings) -> Iterator[str]:
    """A sentence for each file of ``[engine]`` that the daemon cannot use. Changes nothing."""
    try:
        engine.password()
    except ConfigError as error:
        yield f"{error}; mend password_file"
    if engine.ca_file is not None:
        try:
            certificates.describe(engine.ca_file)
        except ConfigError as error:
            yield f"{error}; mend ca_file"


class ListeningReport(NamedTuple):
    """Whether the daemon could listen at an address."""

    address: str
    port: int
    daemon: bool = False  # whether a daemon listens there already
    problem: str = ""

    def fields(self) -> dict[str, object]:
        """The report for JSON."""
        return {**self._asdict(), "problem": self.problem or None}

    def line(self) -> str:
        """The report for people."""
        what = self.problem or ("the daemon listens" if self.daemon else "free")
        return f"port {self.port} of {self.address}: {what}\n"


def listening_report(settings: Settings, certificate: Path) -> ListeningReport:
    """Bind the address for a moment, as the daemon does. Nobody can connect meanwhile.

    Args:
        settings: for the address.
        certificate: of the daemon; it need not exist.
    """
    address, port = settings.listening_address, settings.listening_port
    try:
        listening.bound(address, port).close()
    except AddressUnavailable as error:
        with contextlib.suppress(ConfigError):
            if any(
                _is_daemon(each, settings, certificate) for each in listening.places(address, port)
            ):
                return ListeningReport(address, port, daemon=True)
        return ListeningReport(address, port, problem=str(error))
    except ConfigError as error:
        return ListeningReport(address, port, problem=str(error))
    return ListeningReport(address, port)


def _is_daemon(place: listening.Place, settings: Settings, certificate: Path) -> bool:
    """Whether a daemon listens there: it has our certificate's key, or lists our methods."""
    try:
        with contextlib.ExitStack() as stack:
            connected = stack.enter_context(socket.socket(place.family, socket.SOCK_STREAM))
            connected.settimeout(_SECONDS)
            connected.connect(place.target)
            if settings.ssl:
                wrapped = stack.enter_context(_unchecked().wrap_socket(connected))
                presented = wrapped.getpeercert(binary_form=True) or b""
                if hashlib.sha256(presented).hexdigest() == _sha256(certificate):
                    return True  # if clients need a certificate, it answers us nothing
                connected = wrapped
            connection = http.client.HTTPConnection("localhost")
            connection.sock = connected
            connection.request("POST", "/", _REQUEST, {"Content-Type": "text/xml"})
            return _METHOD in connection.getresponse().read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return False


def _unchecked() -> ssl.SSLContext:
    """A context without checks: we send the other side no secret, and trust no answer."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _sha256(certificate: Path) -> str:
    try:
        return certificates.describe(certificate).fingerprint.replace(":", "").lower()
    except ConfigError:
        return ""
