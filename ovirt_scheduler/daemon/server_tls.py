"""What ``ssl = true`` adds to the daemon: a TLS context, and warnings of its certificates.

Loaded only then: OpenSSL and cryptography take 10 MB, and plain HTTP does without.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ovirt_scheduler.daemon.certificate_report import report
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.log.handlers import print_line
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.security.certificates import Description
from ovirt_scheduler.security.tls_clients import Clients
from ovirt_scheduler.server.http.tls import TlsContext, tls_context
from ovirt_scheduler.settings.table import Settings

_log = logging.getLogger(__name__)


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
        fingerprint = described.fingerprint
        print_line(f"the certificate is self-signed: {certificate}, SHA-256 {fingerprint}")
    admitted = None
    if settings.ssl_client_ca is not None:
        admitted = Clients(settings.ssl_client_ca, settings.ssl_allowed_clients)
    return tls_context(certificate, key, admitted), described


def warn(settings: Settings, state: Path, used: Description) -> None:
    """Warn of each certificate that clients refuse, or soon will, and of one that is not used yet.

    Args:
        used: the server's certificate, as it was when the settings were read.
    """
    for entry in report(settings, state):
        problem = entry.problem
        if entry.setting == "ssl_certificate" and entry.described not in (None, used):
            problem = "was replaced, and callers still get the former one: reload the daemon"
        if problem:
            reason = f"{entry.path}: {problem}"
            _log.warning("certificate: %(reason)s", {"reason": reason, "file": str(entry.path)})
