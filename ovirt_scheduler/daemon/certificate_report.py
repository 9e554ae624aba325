"""Reports on the daemon's certificates: names, days left, problems."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.certificates import CertificateFiles, Description
from ovirt_scheduler.settings.table import Settings

DAYS = 30  # fewer days left than this are a problem


class CertificateReport(NamedTuple):
    """The report on one certificate."""

    setting: str  # the key of scheduler.conf that names it
    path: Path
    described: Optional[Description] = None  # None if it cannot be used, or is not there yet
    problem: str = ""

    def fields(self) -> dict[str, object]:
        """The report as JSON has it."""
        cert = self.described
        return {
            "setting": self.setting,
            "path": str(self.path),
            "subject": cert and cert.subject,
            "names": cert and list(cert.names),
            "not_before": cert and cert.begins.isoformat(),
            "not_after": cert and cert.ends.isoformat(),
            "days_left": cert and cert.days_left,
            "sha256": cert and cert.fingerprint,
            "problem": self.problem or None,
        }

    def text(self) -> str:
        """The report in several lines, the problem last."""
        lines = [f"{self.setting}  {self.path}"]
        cert = self.described
        if cert is not None:
            lines += [
                f"  subject      {cert.subject}",
                f"  names        {', '.join(cert.names) or '(none)'}",
                f"  valid        {cert.begins:%Y-%m-%d} to {cert.ends:%Y-%m-%d}",
                f"  days left    {cert.days_left}",
                f"  SHA-256      {cert.fingerprint}",
            ]
        elif not self.problem:
            lines.append(
                "  there is none yet: ovirt-scheduler cert make, or the daemon's first start"
            )
        if self.problem:
            lines.append(f"  problem      {self.problem}")
        return "".join(f"{line}\n" for line in lines)

    def line(self) -> str:
        """The report in one line."""
        if self.described is None:
            if self.problem:
                return f"certificate {self.problem} ({self.setting})\n"
            return f"certificate {self.path}: made on first start\n"
        days = f"{count_of(self.described.days_left, 'day')} left"
        return f"certificate {self.path}: {self.problem or days}\n"


def server_files(settings: Settings, state: Path) -> CertificateFiles:
    """The paths of the certificate and key that the settings name, or else of the state folder."""
    if settings.ssl_certificate is None or settings.ssl_key is None:
        return certificates.files_in(state / "certificate")
    return CertificateFiles(settings.ssl_certificate, settings.ssl_key)


def report(settings: Settings, state: Path, days: int = DAYS) -> tuple[CertificateReport, ...]:
    """Report on every certificate that the daemon would use; nothing is changed.

    Args:
        state: the state folder.
        days: fewer days left than this are a problem.
    """
    if not settings.ssl:
        return ()
    files = server_files(settings, state)
    made_for = settings.listening_address if settings.ssl_certificate is None else None
    reports = [inspect("ssl_certificate", *files, days, made_for)]
    with contextlib.suppress(PermissionError):  # the state folder is closed, as the report says
        if made_for is not None and not files.certificate.parent.exists():
            reports = [CertificateReport("ssl_certificate", files.certificate)]  # not made yet
    if settings.ssl_client_ca is not None:
        reports.append(inspect("ssl_client_ca", settings.ssl_client_ca, None, days))
    return tuple(reports)


def inspect(
    setting: str, path: Path, key: Optional[Path], days: int, made_for: Optional[str] = None
) -> CertificateReport:
    """Report on one certificate.

    Args:
        setting: the key of scheduler.conf that names it.
        key: its private key; None if that is not the daemon's.
        days: fewer days left than this are a problem.
        made_for: the address that the daemon listens on, if the daemon made it; None: somebody
            else made it.
    """
    try:
        if key is not None:
            certificates.check(path, key)
        described = certificates.describe(path)
    except ConfigError as error:
        return CertificateReport(setting, path, None, str(error))
    return CertificateReport(setting, path, described, _problem(described, days, made_for))


def _problem(cert: Description, days: int, made_for: Optional[str]) -> str:
    """What is wrong with its days or names, and what to do; empty if nothing is."""
    mend = "put a new one there" if made_for is None else "ovirt-scheduler cert renew"
    if cert.begins > datetime.datetime.now(datetime.timezone.utc):
        return f"not valid before {cert.begins:%Y-%m-%d %H:%M} UTC; clients refuse it until then"
    if cert.days_left < 0:
        return f"expired on {cert.ends:%Y-%m-%d}; clients refuse it: {mend}"
    if made_for is not None and not cert.is_for(made_for):
        return f"not for {made_for}, where it is called; clients refuse it there: {mend}"
    if cert.days_left < days:
        return f"{count_of(cert.days_left, 'day')} left; {mend} before {cert.ends:%Y-%m-%d}"
    return ""
