"""cert makes, shows and exports a certificate; one that ends is told, and the next one is switched to."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from tests.support.certificates import write_pair
from tests.support.command import run
from tests.support.paths import PROJECT
from tests.support.processes import for_all_users, open_folder
from tests.support.waiting import wait_until

ENDS = ("127.0.0.1", "localhost")

pytestmark = pytest.mark.usefixtures("one_executor")


def der(path):
    return ssl.PEM_cert_to_DER_cert(path.read_text("ascii"))


def served(daemon):
    """The certificate that the daemon shows."""
    port = int(daemon.url.rpartition(":")[2])
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


def test_a_certificate_that_ends_soon_is_told_and_renewed(tmp_path, start_daemon):
    """The daemon warns; only the commands, then a reload, have another one used."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    old = der(write_pair(state / "certificate", 12, names=ENDS).certificate)
    following = state / "certificate-next" / "certificate.pem"
    daemon = start_daemon(folder=tmp_path)
    told = f"certificate: {daemon.certificate}: 12 days left; ovirt-scheduler cert renew before"
    wait_until(lambda: daemon.log.count(f"WARNING {told}"), suits=lambda seen: seen == 1)
    assert served(daemon) == old

    status, out, err = run(tmp_path, "cert", "renew")
    assert (status, err) == (0, "")
    assert f"next  {following}\n" in out
    assert (
        f"users with a copy of the one in use (--ca, --cacert): give them {following}, too\n" in out
    )
    new = der(following)
    assert run(tmp_path, "cert", "renew")[0] == 0
    assert der(following) == new
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.log.count(told), suits=lambda seen: seen == 2)
    assert (served(daemon), der(daemon.certificate)) == (old, old)

    status, out, err = run(tmp_path, "cert", "renew", "--switch", "-o", "json")
    assert (status, err) == (0, "")
    former = json.loads(out)["former"]
    assert der(certificates.files_in(state / "certificate-former").certificate) == old
    assert former == str(state / "certificate-former")
    assert not following.exists()
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificates and plugins are read again" in daemon.log.rpartition(told)[2])
    wait_until(lambda: served(daemon), suits=lambda seen: seen == new)
    assert daemon.log.count(told) == 2
    # One that lasts is not told.
    assert "certificate: " not in daemon.log.rpartition(told)[2]


def test_a_certificate_for_another_place_is_told_and_the_next_one_is_for_this(
    tmp_path, start_daemon
):
    """Where the daemon listens has to be among the names; clients refuse another."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    write_pair(state / "certificate", 300, names=ENDS)
    daemon = start_daemon(PROJECT / "plugins", "listening_address = 127.0.0.2", folder=tmp_path)
    told = f"{daemon.certificate}: not for 127.0.0.2, where it is called; clients refuse it there"
    wait_until(lambda: f"{told}: ovirt-scheduler cert renew" in daemon.log)
    ask = ("discover", "--url", daemon.url, "--ca")
    status, _, err = run(tmp_path, *ask, str(daemon.certificate))
    assert status == 69
    assert "name one of its names in --url" in err
    for option in ((), ("--switch",)):
        conf = str(tmp_path / "scheduler.conf")
        assert run(tmp_path, "cert", "renew", *option, "--config", conf)[0] == 0
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificates and plugins are read again" in daemon.log)
    assert run(tmp_path, *ask, str(daemon.certificate))[0] == 0
    assert daemon.log.count(told) == 1


def test_a_next_certificate_for_another_place_makes_room(tmp_path):
    """One for this place stays, as somebody may trust it already."""
    (tmp_path / "state").mkdir(mode=0o700)
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_address = 127.0.0.2\n")
    for folder in ("certificate", "certificate-next"):
        write_pair(tmp_path / "state" / folder, 300, names=ENDS)
    made = []
    for _ in range(2):
        status, out, err = run(tmp_path, "cert", "renew", "--config", str(conf))
        assert (status, err) == (0, "")
        assert "127.0.0.2" in out
        made.append(der(tmp_path / "state" / "certificate-next" / "certificate.pem"))
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("renew",), 66, "there is none yet: ovirt-scheduler cert make"),
        (("show", "--switch"), 2, "--switch goes with renew"),
    ],
)
def test_what_cannot_be_renewed_is_told(tmp_path, words, status, told):
    """Without a certificate, or without sense."""
    ended = run(tmp_path, "cert", *words)
    assert ended[0] == status
    assert told in ended[2]


def test_one_that_somebody_issued_is_theirs_to_renew(tmp_path):
    """A self-signed one in its place would be trusted by nobody."""
    files = write_pair(tmp_path / "own", 12)
    conf = tmp_path / "s.conf"
    conf.write_text(f"ssl_certificate = {files.certificate}\nssl_key = {files.key}\n")
    status, _, err = run(tmp_path, "cert", "renew", "--config", str(conf))
    assert (status, f"{files.certificate} was not made here: have whoever issued" in err) == (
        2,
        True,
    )


def test_nothing_is_switched_to_that_is_not_whole(tmp_path):
    """None there, or a key that does not fit: what is used stays."""
    run(tmp_path, "cert", "make")
    folder = tmp_path / "state" / "certificate"
    used = der(folder / "certificate.pem")
    status, _, err = run(tmp_path, "cert", "renew", "--switch")
    assert (status, "there is none: ovirt-scheduler cert renew makes it" in err) == (66, True)
    run(tmp_path, "cert", "renew")
    other = certificates.ensure(tmp_path / "other").key
    (tmp_path / "state" / "certificate-next" / "key.pem").write_bytes(other.read_bytes())
    assert run(tmp_path, "cert", "renew", "--switch")[0] == 78
    assert der(folder / "certificate.pem") == used
    with pytest.raises(ConfigError):
        certificates.switch(folder)


def test_a_switch_that_fails_halfway_leaves_what_is_used_in_its_place(tmp_path, monkeypatch):
    """The folder of the next pair cannot be renamed when the former one has been."""
    folder = tmp_path / "certificate"
    following = certificates.next_to(folder)
    used, new = (der(certificates.ensure(each).certificate) for each in (folder, following))
    rename = Path.rename

    def refuse(self, target):
        if self == following:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        certificates.switch(folder)
    assert sorted(tmp_path.iterdir()) == [folder, following]
    monkeypatch.undo()
    assert der(certificates.files_in(folder).certificate) == used
    certificates.switch(folder)
    assert der(certificates.files_in(folder).certificate) == new


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_daemon_that_starts_amid_a_switch_uses_the_next_pair(tmp_path, monkeypatch, cut_off):
    """It makes none that nobody trusts: whether the switch goes on, or was killed there."""
    folder = tmp_path / "certificate"
    following = certificates.next_to(folder)
    _, new = (der(certificates.ensure(each).certificate) for each in (folder, following))
    rename = Path.rename

    def interrupted(self, target):
        rename(self, target)
        if self == folder:
            monkeypatch.undo()
            assert der(certificates.ensure(folder).certificate) == new
            if cut_off:
                raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        certificates.switch(folder)
    assert der(certificates.files_in(folder).certificate) == new
    assert not following.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away takes root")
def test_what_root_makes_belongs_to_the_daemons_user():
    """Else the daemon could not read its key."""
    with open_folder() as folder:
        state = folder / "state"
        state.mkdir(mode=0o700)
        os.chown(state, 12345, 12346)
        made_by_root = (
            "from ovirt_scheduler.command.cli import main\n"
            "for words in ('make', 'renew', 'renew --switch'):\n"
            "    assert main(['cert', *words.split()]) == 0\n"
        )
        command = [*for_all_users(), sys.executable, "-c", made_by_root]
        environ = {**os.environ, "STATE_DIRECTORY": str(state)}
        subprocess.run(command, cwd=PROJECT, env=environ, timeout=60, check=True)
        places = list(state.rglob("*"))
        assert len(places) == 6
        assert {(place.stat().st_uid, place.stat().st_gid) for place in places} == {(12345, 12346)}


def test_cert_makes_shows_and_checks(tmp_path):
    """Made once; shown with names, days and fingerprint; checked against --days."""
    status, out, _ = run(tmp_path, "cert", "check")
    assert status == 1
    assert "there is none yet" in out
    status, out, err = run(tmp_path, "cert", "make")
    assert (status, err) == (0, "")
    assert f"ssl_certificate  {tmp_path}/state/certificate/certificate.pem\n" in out
    assert run(tmp_path, "cert", "make")[1] == out  # the one that is there stays
    status, shown, _ = run(tmp_path, "cert", "show", "-o", "json")
    (fields,) = json.loads(shown)
    assert status == 0
    assert "localhost" in fields["names"]
    assert fields["days_left"] > 3600
    assert fields["sha256"] in out
    assert run(tmp_path, "cert", "check")[0] == 0
    status, out, _ = run(tmp_path, "cert", "check", "--days", "4000")
    assert status == 1
    assert "days left; ovirt-scheduler cert renew before" in out


def test_cert_export_gives_callers_what_they_are_to_trust(tmp_path):
    """The certificates of the file alone, which may hold the key as well."""
    status, out, err = run(tmp_path, "cert", "export")
    assert (status, out) == (66, "")
    assert "there is none yet: ovirt-scheduler cert make" in err
    run(tmp_path, "cert", "make")
    made = tmp_path / "state" / "certificate"
    certificate = (made / "certificate.pem").read_text()
    assert run(tmp_path, "cert", "export") == (0, certificate, "")
    both = tmp_path / "both.pem"
    both.write_text((made / "key.pem").read_text() + certificate)
    both.chmod(0o600)
    conf = tmp_path / "s.conf"
    conf.write_text(f"ssl_certificate = {both}\nssl_key = {both}\n")
    assert run(tmp_path, "cert", "export", "--config", str(conf)) == (0, certificate, "")
    conf.write_text("ssl = false\n")
    assert run(tmp_path, "cert", "export", "--config", str(conf))[0] == 78
