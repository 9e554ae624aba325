"""What ``ssl = true`` adds to the daemon: a TLS context, and a watch over its certificates.

Loaded only then: OpenSSL and cryptography take 10 MB, and plain HTTP does without.

A thread looks at the start and once a day, and warns of a certificate that clients refuse, or soon
will. ``ovirt-scheduler cert renew`` makes the next one.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Callable

from ovirt_scheduler.daemon.certificate_report import report
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.log.handlers import say
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.security.certificates import Description
from ovirt_scheduler.security.clients import Clients
from ovirt_scheduler.server.http.tls import TlsContext, tls_context
from ovirt_scheduler.settings.table import Settings

_log = logging.getLogger(__name__)

_DAY = 86400.0  # seconds


def context(settings: Settings, state: Path) -> tuple[TlsContext, Description]:
    """The TLS context, and its certificate: that of the settings, or one that is made here."""
    certificate, key = settings.ssl_certificate, settings.ssl_key
    if certificate is None or key is None:
        certificate, key = certificates.ensure(state / "certificate", settings.listening_address)
        for file, problem_of in ((certificate, trust.tampering), (key, trust.exposure)):
            problem = problem_of(file.absolute())
            if problem:
                raise ConfigError(problem, str(file))
    described = certificates.describe(certificate)
    if certificate != settings.ssl_certificate:
        found = described.fingerprint
        say(f"the certificate is self-signed: {certificate}, SHA-256 {found}")
    admitted = None
    if settings.ssl_client_ca is not None:
        admitted = Clients(settings.ssl_client_ca, settings.ssl_allowed_clients)
    return tls_context(certificate, key, admitted), described


class CertificateWatch:
    """A thread that checks the certificates that the daemon uses.

    Args:
        state: the state folder.
        settings: returns the settings in force.
        pause: seconds between two checks.
    """

    def __init__(self, state: Path, settings: Callable[[], Settings], pause: float = _DAY) -> None:
        self._state = state
        self._settings = settings
        self._pause = pause
        self._due = threading.Event()
        self._ended = False

    def start(self) -> None:
        """Start the thread, which checks at once."""
        threading.Thread(target=self._watch, name="certificates", daemon=True).start()

    def check_now(self) -> None:
        """Have the thread check now, as settings or files have changed."""
        self._due.set()

    def stop(self) -> None:
        """Have the thread end; nobody waits for it."""
        self._ended = True
        self._due.set()

    def _watch(self) -> None:
        while not self._ended:
            try:
                self._check()
            except Exception:  # noqa: BLE001  the next check may do
                _log.exception("the certificates could not be looked at; it is tried again")
            self._due.wait(self._pause)
            self._due.clear()

    def _check(self) -> None:
        for each in report(self._settings(), self._state):
            if each.problem:
                reason = f"{each.path}: {each.problem}"
                _log.warning("certificate: %(reason)s", {"reason": reason, "file": str(each.path)})
