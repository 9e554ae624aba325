"""``ovirt-scheduler cert``: makes, shows, exports and renews the daemon's certificate."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.setup import engine_steps, step
from ovirt_scheduler.command.setup.machine import Machine, Owner, acting_as
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import certificate_report
from ovirt_scheduler.daemon.certificate_report import DAYS
from ovirt_scheduler.errors import BadInput, BadUsage, ConfigError, NotOverwritten, StepFailed
from ovirt_scheduler.model import manual
from ovirt_scheduler.security import certificates, state_folder
from ovirt_scheduler.settings.table import Settings

_RELOAD = "systemctl reload ovirt-scheduler"
_NO_TLS = "there is no certificate: ssl = false in scheduler.conf"


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "cert", _run)
    command.add_argument("action", choices=("make", "show", "check", "export", "renew"))
    arguments.add_options(command, {
        "--days NUMBER": f"fewer days left than this are a problem (default: {DAYS})",
        "--switch": "with renew: put the next certificate in use",
    })  # fmt: skip
    command.set_defaults(days=DAYS)


def _run(options: argparse.Namespace) -> Shown:
    """Make, show, check, export or renew the daemon's certificate.

    make: make a self-signed certificate in the state folder, like the first start; an existing one
    stays.

    show: show its path, names, days left and fingerprint.

    check: the same, with exit status 1 if it cannot be used, or has fewer days left than --days.

    export: print the certificate in PEM, for callers to trust.

    renew: make the next one, and show who has to trust it first; with --switch the daemon uses it
    from its next reload on.

    examples:
      cert show
      cert check --days 60
      cert show -o json
      cert export
      cert renew
      cert renew --switch
    """
    settings, state = arguments.settings(options), arguments.state()
    if options.switch and options.action != "renew":
        raise BadUsage("--switch goes with renew")
    if options.action == "renew":
        return switch(settings, state) if options.switch else prepare(settings, state)
    if options.action == "export":
        if not settings.ssl:
            raise ConfigError(_NO_TLS)
        file = certificate_report.server_files(settings, state).certificate
        if settings.ssl_certificate is None:
            _expect(file)
        return Shown(certificates.pem(file))
    if options.action == "make":
        with _acting_as_owner(state):
            certificates.ensure(state / "certificate", settings.listening_address)
        settings = dataclasses.replace(settings, ssl=True, ssl_certificate=None, ssl_key=None)
    reports = certificate_report.report(settings, state, options.days)
    text = "".join(each.text() for each in reports) or f"{_NO_TLS}\n"
    # To show a certificate is well done even if the certificate is bad; to check it is not.
    well = options.action != "check" or all(each.described and not each.problem for each in reports)
    return Shown(text, [each.fields() for each in reports], well)


def prepare(settings: Settings, state: Path) -> Shown:
    """Make the next certificate, unless there is one; show who has to trust it.

    It replaces one that was made for another listening address.

    Raises:
        BadUsage: the certificate in use was not made here.
        BadInput: there is none in use yet.
        ConfigError: it cannot be made.
    """
    folder = _folder(settings, state)
    with _acting_as_owner(state):
        following = certificates.next_to(folder)
        file = certificates.files_in(following).certificate
        address = settings.listening_address
        if file.exists() and not certificates.describe(file).is_for(address):
            shutil.rmtree(following)  # it would be refused where the daemon listens by now
        files = certificates.ensure(following, address)
    report = certificate_report.inspect("next", *files, DAYS, address)
    trust = list(_trust(files.certificate))
    text = (
        f"{report.text()}\nIt is not used yet. First the daemon's callers have to trust it, beside "
        "the one in use:\n"
    )
    text += "".join(f"- {line}\n" for line in trust)
    text += "Then: ovirt-scheduler cert renew --switch\n"
    return Shown(text, {**report.fields(), "trust": trust})


def switch(settings: Settings, state: Path) -> Shown:
    """Put the next certificate and key instead of those in use.

    Raises:
        BadUsage, BadInput: as for ``prepare``; or there is no next one.
        NotOverwritten: it cannot be put there.
    """
    folder = _folder(settings, state)
    following = certificates.next_to(folder)
    if not following.exists():
        raise BadInput(f"{following}: there is none: ovirt-scheduler cert renew makes it")
    try:
        with _acting_as_owner(state):
            former = certificates.switch(folder)
    except OSError as error:
        raise NotOverwritten(f"{error.filename}: {error.strerror}") from None
    used = certificates.files_in(folder).certificate
    steps: list[str] = [f"{_RELOAD} has the daemon use it from now on"]
    if _stores():
        steps.append("ovirt-scheduler setup --engine has the engine trust it under its usual name")
    text = f"{used} is the new one; the former pair lies in {former}.\nNext:\n"
    return Shown(
        text + "".join(f"- {step}\n" for step in steps),
        {"path": str(used), "former": str(former), "next": steps},
    )


@contextlib.contextmanager
def _acting_as_owner(state: Path) -> Iterator[None]:
    """Act as the owner of the state folder: new files are the daemon's, not root's.

    Raises:
        ConfigError: others could change what is there.
    """
    owner = Owner(0, 0)
    with contextlib.suppress(OSError):
        status = state.stat()
        owner = Owner(status.st_uid, status.st_gid)
    with acting_as(owner):
        with contextlib.suppress(FileNotFoundError):
            state_folder.check(state.absolute())
        yield


def _folder(settings: Settings, state: Path) -> Path:
    """The folder of the certificate in use, if it was made here."""
    if not settings.ssl:
        raise ConfigError(_NO_TLS)
    if settings.ssl_certificate is not None:
        raise BadUsage(
            f"{settings.ssl_certificate} was not made here: have whoever issued it renew it, put "
            f"the new pair in its place, then {_RELOAD}"
        )
    folder = state / "certificate"
    _expect(certificates.files_in(folder).certificate)
    return folder


def _expect(file: Path) -> None:
    try:
        there = file.exists()
    except OSError as error:
        raise certificates.unreadable(file.parent, error) from None
    if not there:
        raise BadInput(f"{file}: there is none yet: ovirt-scheduler cert make, or serve, makes it")


def _trust(file: Path) -> Iterator[str]:
    """Who has to trust the file, and the command that does it."""
    for store in _stores():
        java = engine_steps.Java(Path("keytool"), Path(store))
        command = engine_steps.keytool(java, "-importcert", "-next")
        words = " ".join([*command, "-noprompt", "-file", str(file)])
        yield f"the engine of this machine: {words}; then systemctl restart ovirt-engine"
    yield (
        f"an engine that was set up by hand, if it calls over TLS: import {file} into the trust "
        f"store of its Java ({manual.page('engine.md')})"
    )
    yield f"users with a copy of the one in use (--ca, --cacert): give them {file}, too"


def _stores() -> list[str]:
    """The trust stores into which setup put it; none if its record cannot be read."""
    try:
        return step.load(Machine(Path("/"), live=True)).trust_stores
    except StepFailed:
        return []
