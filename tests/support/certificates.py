"""Certificates made for a test: of a server that ends some day, and of clients."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ovirt_scheduler.security import certificates

DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM


def write_pair(folder, days, names=("scheduler.example.org",), begins=-400, subject="scheduler"):
    """A certificate that begins and ends so many days from now, and its key."""
    now = datetime.datetime.now(datetime.timezone.utc)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + days * DAY + datetime.timedelta(hours=1))
    )
    if names:
        alternative = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(alternative, critical=False)
    folder.mkdir(exist_ok=True)
    files = certificates.files_in(folder)
    files.certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(PEM))
    files.key.write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.key.chmod(0o600)
    return files


class Pair(NamedTuple):
    """A certificate that lasts from yesterday to tomorrow, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, folder: Path, name: str, *chain: Pair) -> Path:
        private = serialization.PrivateFormat.PKCS8
        text = self.key.private_bytes(PEM, private, serialization.NoEncryption())
        for pair in (self, *chain):
            text += pair.certificate.public_bytes(PEM)
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_bytes(text)
        return path


def made(
    names: Sequence[str],
    issuer: Optional[Pair] = None,
    authority: bool = False,
    usage: Optional[x509.ObjectIdentifier] = ExtendedKeyUsageOID.CLIENT_AUTH,
    begins: int = -1,
    ends: int = 1,
    constraints: bool = True,
) -> Pair:
    """A certificate with these common names, below ``O=Example``; times in days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example")]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    subject = x509.Name(attributes)
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + ends * DAY)
    )
    if constraints:
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
    if not authority and usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)
