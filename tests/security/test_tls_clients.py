"""Who may call: client certificates against a real daemon, and what its log says of them."""

from __future__ import annotations

import re
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Optional
from xmlrpc.client import SafeTransport, ServerProxy

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL, crypto

from ovirt_scheduler.security.tls_clients import Clients, refusal
from tests.support.certificates import PEM, made
from tests.support.command import executed
from tests.support.daemon import Daemon
from tests.support.paths import PROJECT
from tests.support.waiting import LONG, wait_until

IDS = ["host-1", "host-2"]


ROOT = made(["root"], authority=True)
BRANCH = made(["branch"], ROOT, authority=True)
FOREIGN = made(["foreign root"], authority=True)
ENGINE = made(["engine"], ROOT)


class AskedOnce(SafeTransport):
    """The standard library's own asks again after a reset, and is refused again."""

    request = SafeTransport.single_request  # type: ignore[assignment]


def call(daemon: Daemon, certificate: Optional[Path], version: Optional[ssl.TLSVersion] = None):
    """One call with a client certificate."""
    trust = daemon.trust
    assert trust is not None
    if version:
        trust.minimum_version = trust.maximum_version = version
    if certificate:
        trust.load_cert_chain(certificate)
    with ServerProxy(daemon.url + "/design", AskedOnce(context=trust)) as proxy:
        return proxy.runFilters(["keeps_all"], IDS, "vm-1", {})


def logged(daemon: Daemon, words: str) -> list[str]:
    """The log's lines with these words, as soon as there is one."""
    return wait_until(
        lambda: [line for line in daemon.log.splitlines() if words in line], lambda: daemon.log
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    (folder / "ca.pem").write_bytes(ROOT.certificate.public_bytes(PEM))
    return folder


@pytest.fixture(scope="module")
def daemon(start_daemon, folder):
    """Lets in the engine by its subject name and others by their common name."""
    return start_daemon(
        settings=f"ssl_client_ca = {folder}/ca.pem\n"
        "ssl_allowed_clients = CN=engine,O=Example; engine; monitor; late; early; server"
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["engine", "monitor"])
def test_a_client_that_is_named_is_served(daemon, folder, name, version):
    """By subject name or by common name; the request's line in the log says who it was."""
    certificate = made([name], ROOT).write(folder, name)
    assert call(daemon, certificate, version) == IDS
    (line, *_) = logged(daemon, f" runFilters, design form, CN={name},O=Example at 127.0.0.1:")
    assert re.search(r"request \w+ .*: ok", line)


def test_a_chain_is_followed_to_the_authority(daemon, folder):
    """The client sends the certificates between."""
    assert call(daemon, made(["monitor"], BRANCH).write(folder, "below", BRANCH)) == IDS


def test_a_certificate_that_says_nothing_of_its_use_is_let_in(daemon, folder):
    """As RFC 5280 has it; what it says it is for must be clients."""
    silent = made(["monitor"], ROOT, usage=None).write(folder, "silent")
    assert call(daemon, silent) == IDS


NOT_LISTED = "it is not in ssl_allowed_clients"
REFUSED = {
    "stranger": (made(["stranger"], ROOT), NOT_LISTED, "BAD_CERTIFICATE"),
    "two names": (made(["engine", "stranger"], ROOT), NOT_LISTED, "BAD_CERTIFICATE"),
    "another's subject": (made(["CN=engine,O=Example"], ROOT), NOT_LISTED, "BAD_CERTIFICATE"),
    "late": (
        made(["late"], ROOT, begins=-3, ends=-1),
        "its certificate has expired",
        "CERTIFICATE_EXPIRED",
    ),
    "early": (
        made(["early"], ROOT, begins=1, ends=3),
        "its certificate is not valid yet",
        "BAD_CERTIFICATE",
    ),
    "server": (
        made(["server"], ROOT, usage=ExtendedKeyUsageOID.SERVER_AUTH),
        "its certificate is not for clients (extended key usage)",
        "UNSUPPORTED_CERTIFICATE",
    ),
    "forged": (
        made(["monitor"], ROOT._replace(key=FOREIGN.key)),
        "the signature of its certificate is wrong",
        "DECRYPT_ERROR",
    ),
    "foreign": (
        made(["monitor"], FOREIGN),
        "its certificate is signed by no authority in ssl_client_ca",
        "UNKNOWN_CA",
    ),
    "self-signed": (
        made(["monitor"]),
        "its certificate is signed by no authority in ssl_client_ca",
        "UNKNOWN_CA",
    ),
    "a client's": (
        made(["monitor"], ENGINE),
        "its certificate is signed by one that is no authority",
        "UNKNOWN_CA",
    ),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", REFUSED)
def test_a_client_that_may_not_call_is_refused_in_one_line(daemon, folder, which, version):
    """With its name and the reason, which the alert tells the client; the others are served."""
    pair, reason, alert = REFUSED[which]
    chain = {"foreign": (FOREIGN,), "a client's": (ENGINE,)}.get(which, ())
    certificate = pair.write(folder, "refused", *chain)
    before = daemon.log
    with pytest.raises(ssl.SSLError) as refused:
        call(daemon, certificate, version)
    assert refused.value.reason.endswith(f"_ALERT_{alert}")
    assert call(daemon, ENGINE.write(folder, "engine")) == IDS
    (line,) = wait_until(
        lambda: [each for each in daemon.log[len(before) :].splitlines() if "handshake" in each]
    )
    subject = pair.certificate.subject.rfc4514_string()
    assert line.endswith(f"no TLS handshake: client {subject} is refused: {reason}")


def test_a_client_without_a_certificate_is_refused(daemon):
    """Also in one line."""
    with pytest.raises(OSError):
        call(daemon, None)
    (line,) = logged(daemon, "did not return a certificate")
    assert "no TLS handshake" in line


def test_a_name_cannot_forge_a_line_of_the_log(daemon, folder):
    """Line ends and the like are written as numbers."""
    name = "evil\n2026-01-01 00:00:00 INFO forged"
    with pytest.raises(OSError):
        call(daemon, made([name], ROOT).write(folder, "forger"))
    (line,) = logged(daemon, "INFO forged")
    assert "client CN=evil\\0a2026-01-01 00:00:00 INFO forged,O=Example is refused" in line


def test_without_a_list_every_client_of_the_authority_is_served(start_daemon, folder):
    """An authority below another is one by itself, and its own certificates come alone."""
    (folder / "branch.pem").write_bytes(BRANCH.certificate.public_bytes(PEM))
    daemon = start_daemon(settings=f"ssl_client_ca = {folder}/branch.pem")
    assert call(daemon, made(["anybody"], BRANCH).write(folder, "anybody")) == IDS
    with pytest.raises(OSError):
        call(daemon, ENGINE.write(folder, "engine"))
    (line,) = logged(daemon, "is refused")
    assert "client CN=engine,O=Example is refused" in line


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_every_connection_is_verified_anew(daemon, folder, version):
    """No session is taken up again."""
    trust = daemon.trust
    trust.minimum_version = trust.maximum_version = version
    trust.load_cert_chain(ENGINE.write(folder, "engine"))
    port = int(daemon.url.rpartition(":")[2])
    session = None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=LONG) as plain,
            trust.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
        ):
            secure.sendall(b"GET /nowhere HTTP/1.1\r\n\r\n")
            assert secure.recv(20).startswith(b"HTTP/1.1 404")
            assert not secure.session_reused
            session = secure.session


def test_a_file_without_authorities_stops_the_start(start_daemon, folder):
    """And is named."""
    (folder / "empty.pem").touch()
    with pytest.raises(AssertionError, match=r"empty\.pem: holds no PEM certificate"):
        start_daemon(settings=f"ssl_client_ca = {folder}/empty.pem")


def blocks_of_the_manual() -> list[str]:
    """The indented blocks of docs/security.md's section on client certificates."""
    page = (PROJECT / "docs" / "security.md").read_text("utf-8")
    section = page.partition("\n## Client certificates\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks]


def test_the_manual_is_right(start_daemon, tmp_path):
    """Its commands make certificates, and its settings let them in; curl and openssl are served."""
    blocks = blocks_of_the_manual()
    commands = [block for block in blocks if block.startswith(("openssl ", "curl "))]
    (settings,) = [block for block in blocks if block.startswith("ssl_")]
    making = [command for command in commands if "18781" not in command]
    calling = [command for command in commands if "18781" in command]
    assert len(making) >= 2
    assert len(calling) == 2
    said = [run(command, tmp_path) for command in making]
    daemon = start_daemon(settings=settings.replace("/etc/ovirt/scheduler", str(tmp_path)))
    (tmp_path / "certificate.pem").write_bytes(daemon.certificate.read_bytes())
    port = daemon.url.rpartition(":")[2]
    answers = [run(command.replace("18781", port), tmp_path) for command in calling]
    assert any("CN=engine,O=Example" in text for text in said)
    assert any("<methodResponse>" in text for text in answers)
    assert any("TLSv1.3" in text for text in answers)
    logged(daemon, "CN=engine,O=Example at ")
    assert "is refused" not in daemon.log


def run(command: str, folder: Path) -> str:
    ended = executed("bash", "-euc", command, cwd=folder)
    assert ended.returncode == 0, command + ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_a_pyopenssl_that_does_not_name_the_flag_of_a_partial_chain(folder, monkeypatch):
    """Such as version 21 of Enterprise Linux 9: who an intermediate authority signed gets in."""
    monkeypatch.setattr(crypto, "X509StoreFlags", None)
    (folder / "branch.pem").write_bytes(BRANCH.certificate.public_bytes(PEM))
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    pair = made(["server"]).write(folder, "server")
    context.use_certificate_file(str(pair))
    context.use_privatekey_file(str(pair))
    Clients(folder / "branch.pem").admit(context)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    below = made(["below"], BRANCH)
    trust.load_cert_chain(below.write(folder, "below"))
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as threads:
        theirs.settimeout(LONG)
        server = SSL.Connection(context, ours)
        server.set_accept_state()
        accepted = threads.submit(server.do_handshake)
        with trust.wrap_socket(theirs):
            accepted.result(LONG)
    assert refusal(server) is None
    shown = server.get_peer_certificate()
    assert shown is not None
    assert shown.to_cryptography() == below.certificate
