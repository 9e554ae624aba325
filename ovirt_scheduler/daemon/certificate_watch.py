"""Warns of a certificate that clients refuse, or soon will, and makes the next one.

It looks at the start and once a day.

The next one is not used yet: callers have to trust it first. An administrator switches to it
when they do (``ovirt-scheduler cert renew --switch``).
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Callable

from ovirt_scheduler.daemon import certificate_report
from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.settings.config import Settings

_log = logging.getLogger(__name__)

_DAY = 86400.0  # seconds


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
        for each in certificate_report.report(settings, self._state):
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
