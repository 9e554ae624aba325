"""Checks that the daemon can use the files that scheduler.conf names, and listen where it says."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ssl
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.command import arguments
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import AddressUnavailable, ConfigError, EngineUnavailable
from ovirt_scheduler.security import certificates
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.settings.config import EngineSettings, Settings

_ENGINE_SECONDS = 20.0  # for all that is asked of the engine
_SECONDS = 5.0  # for an answer of who has the port
_MOST_BYTES = 1 << 16  # of its answer
_REQUEST = xmlrpc.client.dumps((), "system.listMethods").encode()
_METHOD = b"<string>selectHost</string>"  # a method that the old proxy does not have


def problems(settings: Settings, inventory: Optional[Inventory] = None) -> Iterator[str]:
    """A sentence for each file that the daemon cannot use. Changes nothing.

    Its own certificates are left to ``certificate_report``, plugins to the loader.

    Args:
        inventory: logs in to the engine, unless a file of ``[engine]`` has a problem already.
    """
    if settings.log_file is not None:
        reason = arguments.unwritable(settings.log_file)
        if reason:
            yield f"{settings.log_file}: {reason}; mend log_file"
    if settings.engine is not None:
        wrong = list(_engine_problems(settings.engine))
        yield from wrong
        if inventory is not None and not wrong:
            try:
                inventory.access(time.monotonic() + _ENGINE_SECONDS)
            except EngineUnavailable as error:
                yield f"[engine] {error}"


def _engine_problems(engine: EngineSettings) -> Iterator[str]:
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
    problem: Optional[str] = None

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
    host, port, *_ = place.target
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if settings.ssl:
        # Nothing is checked: we send the other side no secret, and trust no answer.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    try:
        with contextlib.closing(connection):
            connection.connect()
            if isinstance(connection.sock, ssl.SSLSocket):
                presented = connection.sock.getpeercert(binary_form=True) or b""
                if hashlib.sha256(presented).hexdigest() == _sha256(certificate):
                    return True  # if clients need a certificate, it answers us nothing
            connection.request("POST", "/", _REQUEST, {"Content-Type": "text/xml"})
            return _METHOD in connection.getresponse().read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return False


def _sha256(certificate: Path) -> str:
    try:
        return certificates.describe(certificate).fingerprint.replace(":", "").lower()
    except ConfigError:
        return ""
