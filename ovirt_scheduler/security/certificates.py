"""The server's certificate and key: made on the first start, checked before use.

The certificate is self-signed and no CA. So an administrator who puts it in the engine's trust
store trusts only this server, and nothing that its key might sign.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import trust
from ovirt_scheduler.security.addresses import url_host
from ovirt_scheduler.security.atomic_file import read_whole, sync_folder, write_whole

_VALID_FOR = datetime.timedelta(days=3652)  # ten years
_CLOCK_SKEW = datetime.timedelta(hours=1)
MOST_BYTES = 16 << 20  # of a file; one of all authorities has about one MiB
_AS_OWNER = "run this with sudo, or as its owner"

# What cryptography raises of a certificate that it does not read; OpenSSL may verify it.
UNREADABLE = (
    ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    KeyError,  # cryptography 36 to 43, of a name in a text of another kind
)  # fmt: skip

_PUBLIC_FORM = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)


class CertificateFiles(NamedTuple):
    """The paths of a certificate and of its key."""

    certificate: Path
    key: Path


class Description(NamedTuple):
    """The facts about a certificate that ``cert show`` and the log show."""

    subject: str  # its distinguished name (RFC 4514)
    names: tuple[str, ...]  # for which it is valid: DNS names, then addresses
    begins: datetime.datetime
    ends: datetime.datetime
    fingerprint: str  # SHA-256, as keytool and openssl show it: ``AB:CD:…``

    @property
    def days_left(self) -> int:
        """Whole days until it expires; negative if it has."""
        return (self.ends - datetime.datetime.now(datetime.timezone.utc)).days

    def is_for(self, address: str) -> bool:
        """Whether the names have the one with which callers reach a listening address."""
        if url_host(address) == "localhost":  # or another of this machine's names
            return True
        return _as_written(address) in map(str.lower, self.names)


def files_in(folder: Path) -> CertificateFiles:
    """The paths of the two files that ``ensure`` makes in a folder."""
    return CertificateFiles(folder / "certificate.pem", folder / "key.pem")


def ensure(folder: Path, address: str = "localhost") -> CertificateFiles:
    """Make a certificate and its key in a folder, unless they are there.

    If the folder is gone and the next one is there, a switch was interrupted: it is completed.

    The folder is made under another name and renamed. So a process that starts at the same time
    finds both files or none.

    Args:
        folder: for only these two files. It is made with mode 0700, like the folders above it.
        address: where the server listens; a new certificate has it among its names.

    Raises:
        ConfigError: the folder cannot be made, or lacks one of the files.
    """
    files = files_in(folder)
    try:
        if not folder.exists():
            with contextlib.suppress(FileNotFoundError):
                next_to(folder).rename(folder)
        if not any(file.exists() for file in files):
            _make(folder, address)
        missing = [file for file in files if not file.exists()]
    except OSError as error:
        mend = "mend that"
        if isinstance(error, PermissionError):
            mend = f"{_AS_OWNER}, or set STATE_DIRECTORY to a folder of that user's"
        raise ConfigError(
            f"a certificate cannot be made here{_for_user(error)}; {mend}, or name ssl_certificate "
            "and ssl_key in scheduler.conf",
            str(folder),
        ) from None
    if missing:
        problem = f"is missing beside its counterpart; put it back, or remove {folder} for new ones"
        raise ConfigError(problem, str(missing[0]))
    return files


def next_to(folder: Path) -> Path:
    """The folder of the next certificate and key, which ``ensure`` makes like the first ones."""
    return folder.with_name(f"{folder.name}-next")


def switch(folder: Path) -> Path:
    """Replace the certificate and key in a folder by the next ones.

    Returns:
        The folder that has the former ones now; earlier ones in it are gone.

    Raises:
        ConfigError: there are no next ones, or they do not belong together.
        OSError: a folder cannot be renamed; nothing has changed then.
    """
    following, former = next_to(folder), folder.with_name(f"{folder.name}-former")
    check(*files_in(following))
    shutil.rmtree(former, ignore_errors=True)
    folder.rename(former)
    try:
        following.rename(folder)
    except OSError:
        if not folder.exists():  # else a daemon that started just now has done it
            former.rename(folder)
            raise
    sync_folder(folder.parent)
    return former


def check(certificate: Path, key: Path) -> None:
    """Check that a server can use two PEM files. Never asks for a passphrase.

    Args:
        certificate: the server's certificate, and its chain after it, if any.
        key: the private key; it may be in the same file.

    Raises:
        ConfigError: a server cannot use them; with the file, and what to do.
    """
    with _naming_file(certificate):
        public_half = _read_chain(certificate)[0].public_key().public_bytes(*_PUBLIC_FORM)
    if public_half != _read_public_half(key):
        raise ConfigError(f"is not the key of the first certificate in {certificate}", str(key))


def describe(certificate: Path) -> Description:
    """Describe a file's first certificate.

    Raises:
        ConfigError: the file holds no certificate, or cannot be read.
    """
    with _naming_file(certificate):
        leaf = _read_chain(certificate)[0]
        names: tuple[str, ...] = ()
        with contextlib.suppress(x509.ExtensionNotFound):
            of_class = leaf.extensions.get_extension_for_class
            alternatives = of_class(x509.SubjectAlternativeName).value
            addresses = map(str, alternatives.get_values_for_type(x509.IPAddress))
            names = (*alternatives.get_values_for_type(x509.DNSName), *addresses)
        return Description(
            leaf.subject.rfc4514_string(),
            names,
            *_validity(leaf),
            leaf.fingerprint(hashes.SHA256()).hex(":").upper(),
        )


def pem(certificate: Path) -> str:
    """The certificates of a file as PEM, without its key or other contents.

    Raises:
        ConfigError: the file holds no certificate, or cannot be read.
    """
    encoding = serialization.Encoding.PEM
    return b"".join(each.public_bytes(encoding) for each in _read_chain(certificate)).decode()


def _make(folder: Path, address: str) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))  # mode 0700
    try:
        private_key = ec.generate_private_key(ec.SECP256R1())
        pem = serialization.Encoding.PEM
        key = private_key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_whole(draft / "key.pem", key)
        certificate = _self_signed(private_key, address).public_bytes(pem)
        write_whole(draft / "certificate.pem", certificate, 0o644)
        try:
            draft.rename(folder)  # onto nothing or an empty folder only
        except OSError:
            if not files_in(folder).key.exists():  # made by another process meanwhile
                raise
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _self_signed(private_key: ec.EllipticCurvePrivateKey, address: str) -> x509.Certificate:
    names = _host_names()
    alternatives = [*names, "127.0.0.1", "::1"]
    if url_host(address) != "localhost":
        alternatives.append(_as_written(address))
    alternative_names = map(_general_name, dict.fromkeys(alternatives))
    common_name = next((name for name in names if len(name) <= 64), "localhost")
    # Of two certificates with one subject OpenSSL would take either for the other's issuer, and
    # trust one of them at most: callers could not trust the next one beside this.
    own = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, secrets.token_hex(8))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name), own])
    now = datetime.datetime.now(datetime.timezone.utc)
    # No key usage: OpenSSL 1.1 takes a self-signed certificate for one only where the usage
    # has certificate signing or is missing, and signing is for a CA alone.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(private_key.public_key()), critical=False
        )
        .sign(private_key, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _as_written(address: str) -> str:
    """An address, without its interface, or a host name as a certificate has it."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return address.lower()


def _host_names() -> list[str]:
    """The machine's full name, its short one, and localhost; the first is the common name."""
    names = [socket.getfqdn(), socket.gethostname(), "localhost"]
    return list(dict.fromkeys(name for name in names if _HOST_NAME.fullmatch(name)))


def _read_chain(path: Path) -> list[x509.Certificate]:
    data = _read(path)
    blocks = [found.group() for found in _CERTIFICATE.finditer(data)]
    if not blocks:
        but = " but a private key: name the certificate's file (or are the two swapped?)"
        raise ConfigError(f"holds no PEM certificate{but if _KEY.search(data) else ''}", str(path))
    with _naming_file(path):
        return [x509.load_pem_x509_certificate(block) for block in blocks]


@contextlib.contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Name the file in the error on a certificate that cannot be read."""
    try:
        yield
    except UNREADABLE:
        problem = "holds a certificate that cannot be read; is it damaged?"
        raise ConfigError(problem, str(path)) from None


def _read_public_half(path: Path) -> bytes:
    """Read a private key, and give its public key as DER."""
    data = _read(path)
    match = _KEY.search(data)
    if match is None:
        but = " but a certificate; are ssl_certificate and ssl_key swapped?"
        problem = f"holds no PEM private key{but if _CERTIFICATE.search(data) else ''}"
        raise ConfigError(problem, str(path))
    try:
        private_key = serialization.load_pem_private_key(match.group(), password=None)
    except TypeError:
        raise ConfigError(
            "is encrypted, and nobody is there to type the passphrase when the daemon starts; "
            f"write the key without one: openssl pkey -in {path} -out NEW",
            str(path),
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        problem = "holds a private key that cannot be read; is it damaged?"
        raise ConfigError(problem, str(path)) from None
    return private_key.public_key().public_bytes(*_PUBLIC_FORM)


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, MOST_BYTES)
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> ConfigError:
    """The error of a file that cannot be read, with what to do where its owner could read it."""
    mend = f"; {_AS_OWNER}" if isinstance(error, PermissionError) else ""
    return ConfigError(f"cannot be read{_for_user(error)}{mend}", str(path))


def _for_user(error: OSError) -> str:
    """Why not and, if it is for the rights, who has none."""
    user = f" by user {trust.user_name(os.geteuid())}" if isinstance(error, PermissionError) else ""
    return f"{user}: {error.strerror}"


def _validity(certificate: x509.Certificate) -> tuple[datetime.datetime, datetime.datetime]:
    if hasattr(certificate, "not_valid_after_utc"):
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc
    # cryptography before 42 gives the same without its time zone
    begins, ends = certificate.not_valid_before, certificate.not_valid_after
    utc = datetime.timezone.utc
    return begins.replace(tzinfo=utc), ends.replace(tzinfo=utc)
