"""Reports on the daemon's certificates: names, days left, problems.

A thread looks at the start and once a day. It warns of a certificate that clients refuse, or soon
will, and makes the next one. The next one is not used yet: callers have to trust it first. An
administrator switches to it when they do (``ovirt-scheduler cert renew --switch``).
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.certificates import CertificateFiles, Description
from ovirt_scheduler.settings.config import Settings

_log = logging.getLogger(__name__)

_DAY = 86400.0  # seconds
DAYS = 30  # fewer days left than this are a problem


class CertificateReport(NamedTuple):
    """The report on one certificate."""

    setting: str  # the key of scheduler.conf that names it
    path: Path
    described: Optional[Description] = None  # None if it cannot be used, or is not there yet
    problem: str = ""

    def fields(self) -> dict[str, object]:
        """The report as JSON has it."""
        found = self.described
        return {
            "setting": self.setting,
            "path": str(self.path),
            "subject": found and found.subject,
            "names": found and list(found.names),
            "not_before": found and found.begins.isoformat(),
            "not_after": found and found.ends.isoformat(),
            "days_left": found and found.days_left,
            "sha256": found and found.fingerprint,
            "problem": self.problem or None,
        }

    def text(self) -> str:
        """The report in several lines, the problem last."""
        lines = [f"{self.setting}  {self.path}"]
        found = self.described
        if found is not None:
            lines += [
                f"  subject      {found.subject}",
                f"  names        {', '.join(found.names) or '(none)'}",
                f"  valid        {found.begins:%Y-%m-%d} to {found.ends:%Y-%m-%d}",
                f"  days left    {found.days_left}",
                f"  SHA-256      {found.fingerprint}",
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
        days = f"{self.described.days_left} days left"
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
        made_for: where the daemon listens, which made it and can make the next one; None:
            somebody else made it.
    """
    try:
        if key is not None:
            certificates.check(path, key)
        described = certificates.describe(path)
    except ConfigError as error:
        return CertificateReport(setting, path, None, str(error))
    return CertificateReport(setting, path, described, _problem(described, days, made_for))


def _problem(found: Description, days: int, made_for: Optional[str]) -> str:
    """What is wrong with its days or names, and what to do; empty if nothing is."""
    mend = "put a new one there" if made_for is None else "ovirt-scheduler cert renew"
    if found.begins > datetime.datetime.now(datetime.timezone.utc):
        return f"not valid before {found.begins:%Y-%m-%d %H:%M} UTC; clients refuse it until then"
    if found.days_left < 0:
        return f"expired on {found.ends:%Y-%m-%d}; clients refuse it: {mend}"
    if made_for is not None and not found.is_for(made_for):
        return f"not for {made_for}, where it is called; clients refuse it there: {mend}"
    if found.days_left < days:
        return f"{found.days_left} days left; {mend} before {found.ends:%Y-%m-%d}"
    return ""


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
        settings = self._settings()
        for each in report(settings, self._state):
            if not each.problem:
                continue
            reason = f"{each.path}: {each.problem}"
            _log.warning("certificate: %(reason)s", {"reason": reason, "file": str(each.path)})
            made = each.setting == "ssl_certificate" and settings.ssl_certificate is None
            if made and each.described is not None:
                self._prepare(certificates.next_to(each.path.parent), settings.listening_address)

    def _prepare(self, folder: Path, address: str) -> None:
        if certificates.files_in(folder).certificate.exists():
            return
        try:
            made = certificates.ensure(folder, address).certificate
        except ConfigError as error:
            _log.warning("the next certificate cannot be made: %(reason)s", {"reason": str(error)})
        else:
            _log.info(
                "the next certificate is made: %(file)s; it is not used before ovirt-scheduler "
                "cert renew --switch",
                {"file": str(made)},
            )
