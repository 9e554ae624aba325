"""``ovirt-scheduler cert renew``: the certificate that is to follow, and the switch to it."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

from ovirt_scheduler import manual
from ovirt_scheduler.command.setup import engine
from ovirt_scheduler.command.setup import record as install_record
from ovirt_scheduler.command.setup.machine import Machine, Owner, acting_as
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report
from ovirt_scheduler.errors import BadInput, BadUsage, ConfigError, NotOverwritten, StepFailed
from ovirt_scheduler.security import certificates
from ovirt_scheduler.settings.config import Settings

_RELOAD = "systemctl reload ovirt-scheduler"


def prepare(settings: Settings, state: Path) -> Shown:
    """Make the next pair where there is none; tell who has to trust it.

    Raises:
        BadUsage: the certificate is not one of those that are made here.
        BadInput: there is none yet.
        ConfigError: it cannot be made.
    """
    folder = _folder(settings, state)
    with acting_as(owner(state)):
        files = certificates.ensure(certificates.next_to(folder))
    report = certificate_report.inspect("next", *files, certificate_report.DAYS, made=True)
    trust = list(_trust(files.certificate))
    text = (
        f"{report.text()}\nIt is not used yet. Before it is, whoever calls the daemon has to trust "
        "it, beside the one in use:\n"
    )
    text += "".join(f"- {line}\n" for line in trust)
    text += "Then: ovirt-scheduler cert renew --switch\n"
    return Shown(text, {**report.fields(), "trust": trust})


def switch(settings: Settings, state: Path) -> Shown:
    """Put the next pair in the place of the one in use.

    Raises:
        BadUsage, BadInput: as for ``prepare``; or there is no next one.
        NotOverwritten: it cannot be put there.
    """
    folder = _folder(settings, state)
    following = certificates.next_to(folder)
    if not following.exists():
        raise BadInput(f"{following}: there is none: ovirt-scheduler cert renew makes it")
    try:
        with acting_as(owner(state)):
            former = certificates.switch(folder)
    except OSError as error:
        raise NotOverwritten(f"{error.filename}: {error.strerror}") from None
    used = certificates.files_in(folder).certificate
    steps: List[str] = [f"{_RELOAD} has the daemon use it from now on"]
    if _stores():
        steps.append("ovirt-scheduler setup --engine has the engine trust it under its usual name")
    text = f"{used} is the new one; the former pair lies in {former}.\nNext:\n"
    return Shown(
        text + "".join(f"- {step}\n" for step in steps),
        {"path": str(used), "former": str(former), "next": steps},
    )


def owner(state: Path) -> Owner:
    """Whom the state folder belongs to, and so the files in it: the daemon's user, not root."""
    try:
        found = state.stat()
    except OSError:
        return Owner(0, 0)
    return Owner(found.st_uid, found.st_gid)


def _folder(settings: Settings, state: Path) -> Path:
    if not settings.ssl:
        raise BadInput("there is no certificate: ssl = false in scheduler.conf")
    if settings.ssl_certificate is not None:
        raise BadUsage(
            f"{settings.ssl_certificate} was not made here: have whoever issued it renew it, put "
            f"the new pair in its place, then {_RELOAD}"
        )
    folder = state / "certificate"
    try:
        there = certificates.files_in(folder).certificate.exists()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", str(folder)) from None
    if not there:
        raise BadInput(
            f"{folder}: there is none yet: ovirt-scheduler cert make, or serve, makes it"
        )
    return folder


def _trust(file: Path) -> Iterator[str]:
    """Who has to trust the file, and by what."""
    for store in _stores():
        java = engine.Java(Path("keytool"), Path(store))
        command = engine.keytool(java, "-importcert", "-next")
        words = " ".join([*command, "-noprompt", "-file", str(file)])
        yield f"the engine of this machine: {words}; then systemctl restart ovirt-engine"
    yield (
        "an engine that was set up by hand, if it calls over TLS: the same for its Java's trust "
        f"store, as {manual.page('engine.md')} has it"
    )
    yield f"whoever has a copy of the one in use (--ca, --cacert): {file}, too"


def _stores() -> List[str]:
    """The trust stores that setup gave the certificate in use, as far as this user may know."""
    try:
        record = install_record.load(Machine(Path("/"), live=True))
    except StepFailed:
        return []
    return [] if record is None else record.trust_stores
