"""The server's certificate: made once, trusted by clients, checked before use."""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import shutil
import socket
import ssl
import stat
from pathlib import Path
from typing import Any, Optional

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.certificates import CertificateFiles, check, describe, ensure
from tests.support.command import executed
from tests.support.waiting import LONG

PEM = serialization.Encoding.PEM
NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)


def private_key_pem(key: Any, password: Optional[bytes] = None, *, old_form: bool = False) -> bytes:
    form = serialization.PrivateFormat
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(PEM, form.TraditionalOpenSSL if old_form else form.PKCS8, encryption)


def certificate_pem(key: Any, begins: datetime.datetime, ends: datetime.datetime) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
        .public_bytes(PEM)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure(tmp_path_factory.mktemp("made") / "tls")


@pytest.fixture
def pair(tmp_path: Path) -> CertificateFiles:
    """A pair as an administrator would bring it, free to be changed."""
    key = ec.generate_private_key(ec.SECP256R1())
    files = CertificateFiles(tmp_path / "server.crt", tmp_path / "server.key")
    files.certificate.write_bytes(certificate_pem(key, NOW - DAY, NOW + DAY))
    files.key.write_bytes(private_key_pem(key))
    return files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_key_is_its_owners_alone(tmp_path: Path) -> None:
    """Folders are made 0700 and the key 0600, whatever the umask."""
    before = os.umask(0)
    try:
        files = ensure(tmp_path / "state" / "tls")
    finally:
        os.umask(before)
    assert mode(files.key.parent) == 0o700
    assert mode(files.key.parent.parent) == 0o700
    assert mode(files.key) == 0o600
    assert not mode(files.certificate) & 0o022


def test_the_key_is_never_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode is 0600 when the key's first byte is written."""
    modes = {}

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        modes[path.name] = stat.S_IMODE(os.fstat(descriptor).st_mode)

    monkeypatch.setattr(os, "fsync", fsync)
    ensure(tmp_path / "tls")
    assert modes[".key.pem.new"] == 0o600


def test_a_pair_is_made_once(tmp_path: Path) -> None:
    """A second start gets the same certificate."""
    files = ensure(tmp_path / "tls")
    before = files.certificate.read_bytes(), files.key.read_bytes()
    assert ensure(tmp_path / "tls") == files
    assert (files.certificate.read_bytes(), files.key.read_bytes()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["tls"]


@pytest.mark.parametrize("lost", ["certificate.pem", "key.pem"])
def test_half_a_pair_is_not_replaced(tmp_path: Path, lost: str) -> None:
    """A lost file is told; what is left of the pair stays."""
    folder = tmp_path / "tls"
    ensure(folder)
    (folder / lost).unlink()
    with pytest.raises(ConfigError, match="missing") as caught:
        ensure(folder)
    assert caught.value.file == str(folder / lost)
    assert len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file in the way is the administrator's to mend."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="ssl_certificate") as caught:
        ensure(tmp_path / "file" / "tls")
    assert caught.value.file == str(tmp_path / "file" / "tls")


def make_at_once(folder: Path, barrier: Any, answers: Any) -> None:
    barrier.wait(LONG)
    answers.put(describe(ensure(folder).certificate).fingerprint)


def test_processes_that_start_at_once_share_one_pair(tmp_path: Path) -> None:
    """Each of several starters gets the same matching pair."""
    context = multiprocessing.get_context("forkserver")
    barrier, answers = context.Barrier(4), context.Queue()
    starters = [
        context.Process(target=make_at_once, args=(tmp_path / "tls", barrier, answers))
        for _ in range(4)
    ]
    for starter in starters:
        starter.start()
    got = {answers.get(timeout=LONG) for _ in starters}
    for starter in starters:
        starter.join(LONG)
    assert len(got) == 1
    check(*ensure(tmp_path / "tls"))
    assert [path.name for path in tmp_path.iterdir()] == ["tls"]


def test_the_certificate_names_this_machine(made: CertificateFiles) -> None:
    """The names and addresses by which an engine may call are in it."""
    certificate = load(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", socket.gethostname()} <= set(names.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "::1"}
    (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value in (socket.getfqdn(), socket.gethostname())
    assert certificate.issuer == certificate.subject


def test_a_switch_that_fails_leaves_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may go after it was checked: another switch has moved it."""
    folder, following = tmp_path / "tls", certificates.next_to(tmp_path / "tls")
    used = ensure(folder).certificate.read_bytes()
    ensure(following)

    def check_and_lose(*files: Path) -> None:
        check(*files)
        shutil.rmtree(following)

    monkeypatch.setattr(certificates, "check", check_and_lose)
    with pytest.raises(FileNotFoundError):
        certificates.switch(folder)
    assert (folder / "certificate.pem").read_bytes() == used


def test_the_certificate_signs_no_other(made: CertificateFiles) -> None:
    """It is a server's certificate and no authority."""
    extensions = load(made.certificate).extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [usage.dotted_string for usage in usages] == ["1.3.6.1.5.5.7.3.1"]


def test_the_certificate_holds_ten_years(made: CertificateFiles) -> None:
    """It is valid from a little before now until ten years on."""
    text = ssl._ssl._test_decode_cert(str(made.certificate))
    begins = ssl.cert_time_to_seconds(text["notBefore"])
    ends = ssl.cert_time_to_seconds(text["notAfter"])
    assert begins < NOW.timestamp()
    assert ends - begins == pytest.approx(3652 * 86400, abs=2 * 3600)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.5", "192.0.2.5"),
        ("2001:DB8:0::5", "2001:db8::5"),
        ("fe80::1%eth0", "fe80::1"),
        ("Scheduler.example.com", "scheduler.example.com"),
    ],
)
def test_where_the_server_listens_is_a_name_of_its_certificate(
    tmp_path: Path, address: str, name: str
) -> None:
    """As certificates write it; one that was made for localhost is not for there."""
    described = describe(ensure(tmp_path / "tls", address).certificate)
    assert name in described.names
    assert "localhost" in described.names
    assert described.is_for(address)
    elsewhere = describe(ensure(tmp_path / "other").certificate)
    assert not elsewhere.is_for(address)
    assert elsewhere.is_for("0.0.0.0")
    assert len(set(elsewhere.names)) == len(elsewhere.names)


@pytest.mark.parametrize("name", ["a" * 70 + ".example", "bad name", "ünicode", ""])
def test_an_odd_host_name_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A name that is too long for a common name, or no host name, leaves localhost."""
    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    subject = load(ensure(tmp_path / "tls").certificate).subject
    (common_name,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == "localhost"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_trusts_the_certificate(made: CertificateFiles) -> None:
    """openssl verify takes it for a server's, strictly read."""
    purposes = ["-x509_strict", "-purpose", "sslserver", "-verify_hostname", "localhost"]
    verified = executed(
        "openssl", "verify", "-CAfile", made.certificate, *purposes, made.certificate
    )
    assert (verified.returncode, verified.stdout) == (0, f"{made.certificate}: OK\n")


def mistake_in(certificate: Path, key: Path) -> str:
    """What a check says of two files; empty where a server can use them."""
    try:
        check(certificate, key)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("old_form", [True, False])
@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_an_administrators_pair_passes_the_check(tmp_path: Path, kind: str, old_form: bool) -> None:
    """RSA and elliptic curves, PKCS 8 or the older form, in one file or in two."""
    key: Any = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if kind == "rsa"
        else ec.generate_private_key(ec.SECP384R1())
    )
    certificate = certificate_pem(key, NOW - DAY, NOW + DAY)
    (tmp_path / "both").write_bytes(certificate + private_key_pem(key, old_form=old_form))
    assert mistake_in(tmp_path / "both", tmp_path / "both") == ""


def test_a_chain_passes_the_check(pair: CertificateFiles, made: CertificateFiles) -> None:
    """Certificates after the server's own, and text between them, are fine."""
    chain = (
        b"server\n" + pair.certificate.read_bytes() + b"\nissuer\n" + made.certificate.read_bytes()
    )
    pair.certificate.write_bytes(chain)
    assert mistake_in(*pair) == ""


def test_the_first_certificate_of_a_chain_is_the_servers(
    pair: CertificateFiles, made: CertificateFiles
) -> None:
    """A chain in the wrong order does not fit the key."""
    pair.certificate.write_bytes(made.certificate.read_bytes() + pair.certificate.read_bytes())
    with pytest.raises(ConfigError, match="not the key of the first certificate"):
        check(*pair)


@pytest.mark.parametrize("wrong", ["certificate", "key"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
        (lambda path: path.write_bytes(b""), "holds no PEM"),
        (lambda path: path.write_bytes(b"\x30\x82\x01\x00"), "holds no PEM"),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "holds no PEM"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"M", b"A")), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"M", b"*")), "damaged"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    pair: CertificateFiles, wrong: str, damage: Any, says: str
) -> None:
    """The error names the file that is wrong and says what is wrong with it."""
    path = getattr(pair, wrong)
    damage(path)
    with pytest.raises(ConfigError, match=says) as caught:
        check(*pair)
    assert caught.value.file == str(path)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_a_certificate_with_any_wrong_byte_is_read_or_told(pair: CertificateFiles) -> None:
    """Some load, and raise errors of many kinds when their names or their key are read."""
    good = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
    mistakes = set()
    for place in range(len(good)):
        damaged = bytearray(good)
        damaged[place] ^= 0x2A
        pair.certificate.write_text(ssl.DER_cert_to_PEM_cert(damaged))
        mistakes.add(mistake_in(*pair))
        with contextlib.suppress(ConfigError):
            describe(pair.certificate)
    unreadable = f"{pair.certificate}: holds a certificate that cannot be read; is it damaged?"
    assert {"", unreadable} <= mistakes  # such as in the serial number, and in a length


def test_a_file_that_is_far_too_long_is_not_read(tmp_path: Path) -> None:
    """Another one was named by mistake."""
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ConfigError, match="cannot be read: it is longer than 16 MiB"):
        describe(tmp_path / "disk.img")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(pair: CertificateFiles) -> None:
    """A key that belongs to somebody else is told as such."""
    pair.key.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        check(*pair)


def test_swapped_files_are_recognised(pair: CertificateFiles) -> None:
    """Key and certificate the wrong way round are told apart from rubbish."""
    with pytest.raises(ConfigError, match="swapped"):
        check(pair.key, pair.certificate)
    with pytest.raises(ConfigError, match="swapped"):
        check(pair.certificate, pair.certificate)


def test_a_key_of_another_certificate_is_refused(
    pair: CertificateFiles, made: CertificateFiles
) -> None:
    """The error names the key and the certificate."""
    with pytest.raises(ConfigError, match=str(pair.certificate)) as caught:
        check(pair.certificate, made.key)
    assert caught.value.file == str(made.key)


@pytest.mark.parametrize("old_form", [True, False])
def test_an_encrypted_key_is_refused(pair: CertificateFiles, old_form: bool) -> None:
    """Nobody is asked for a passphrase; the error says how to write the key without one."""
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(private_key_pem(key, b"secret", old_form=old_form))
    with pytest.raises(ConfigError, match="openssl pkey -in") as caught:
        check(*pair)
    assert caught.value.file == str(pair.key)
