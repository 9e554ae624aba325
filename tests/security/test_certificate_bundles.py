"""Callers trust a certificate and the next one, in one file and whichever comes first."""

from __future__ import annotations

import contextlib
import csv
import datetime
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.certificates import CertificateFiles
from tests.support.twins import HAPROXY
from tests.support.waiting import LONG, wait_until

PEM = serialization.Encoding.PEM
_CONF = """
global
    stats socket {folder}/stats mode 600
defaults
    mode tcp
    timeout connect 5s
    timeout client 5s
    timeout server 5s
listen schedulers
    bind {folder}/front
    option tcp-check
    default-server check inter 100ms check-ssl ssl verify required ca-file {bundle}
"""


def of_former_version(folder: Path) -> CertificateFiles:
    """A pair as it was made until each certificate got a subject of its own."""
    like = x509.load_pem_x509_certificate(
        certificates.ensure(folder / "like").certificate.read_bytes()
    )
    subject = x509.Name(like.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3652))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )  # fmt: skip
    for extension in like.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    files = CertificateFiles(folder / "former.crt", folder / "former.key")
    files.certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(PEM))
    files.key.write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@pytest.fixture(params=["former version", "this version"])
def pairs(request: pytest.FixtureRequest, tmp_path: Path) -> list[CertificateFiles]:
    """The one in use, and the next one."""
    if request.param == "former version":
        first = of_former_version(tmp_path)
    else:
        first = certificates.ensure(tmp_path / "certificate")
    return [first, certificates.ensure(tmp_path / "certificate-next")]


@pytest.fixture(params=["in use first", "next first"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path, pairs: list[CertificateFiles]) -> Path:
    order = pairs if request.param == "in use first" else pairs[::-1]
    file = tmp_path / "bundle.pem"
    file.write_text("".join(each.certificate.read_text() for each in order))
    return file


@contextlib.contextmanager
def serving(pair: CertificateFiles) -> Iterator[int]:
    """A server that does no more than handshakes; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    channel, _ = listener.accept()
                    with channel, contextlib.suppress(OSError):
                        channel.settimeout(LONG)
                        with context.wrap_socket(channel, server_side=True) as secured:
                            secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LONG)


def test_a_caller_trusts_both(pairs, bundle):
    trust = ssl.create_default_context(cafile=str(bundle))
    for pair in pairs:
        served = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
        with contextlib.ExitStack() as stack:
            address = "127.0.0.1", stack.enter_context(serving(pair))
            channel = stack.enter_context(socket.create_connection(address))
            secured = trust.wrap_socket(channel, server_hostname="localhost")
            stack.enter_context(secured)
            assert secured.getpeercert(binary_form=True) == served


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_verifies_both(pairs, bundle):
    for pair in pairs:
        done = subprocess.run(
            ["openssl", "verify", "-CAfile", bundle, pair.certificate],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not here: apt-get install haproxy")
def test_haproxy_finds_both_daemons_well(tmp_path_factory, pairs, bundle):
    """With the line of the manual that has it verify their certificates."""
    folder = tmp_path_factory.mktemp("haproxy")  # short: the names of its sockets are longer
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(serving(pair)) for pair in pairs]
        servers = "".join(f"    server s{port} 127.0.0.1:{port}\n" for port in ports)
        conf = folder / "haproxy.cfg"
        conf.write_text(_CONF.format(folder=folder, bundle=bundle) + servers)
        haproxy = subprocess.Popen([HAPROXY, "-db", "-f", conf], stderr=subprocess.DEVNULL)
        stack.callback(haproxy.wait, LONG)
        stack.callback(haproxy.terminate)
        wait_until((folder / "stats").exists)

        def checks() -> list[str]:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(str(folder / "stats"))
                asking.sendall(b"show stat\n")
                with asking.makefile() as answer:
                    rows = [row for row in csv.DictReader(answer) if row["svname"][0] == "s"]
            return [row["check_status"].strip("* ") for row in rows]  # *: the next one runs

        known = wait_until(checks, suits=lambda each: len(each) == 2 and "INI" not in each)
        assert known == ["L6OK", "L6OK"]
