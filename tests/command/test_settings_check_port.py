"""``ovirt-scheduler check`` on where the daemon is to listen, and on the engine it is to ask."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
from urllib.parse import urlsplit

import pytest

from ovirt_scheduler.errors import AddressUnavailable, ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.server.http import listening
from tests.support.command import spawned
from tests.support.daemon import reserved_port
from tests.support.rest_server import PASSWORD, RestServer

pytestmark = pytest.mark.long


def check(folder, conf, *arguments):
    """Exit status and output of ``check``."""
    file = folder / "checked.conf"
    file.write_text(conf, "utf-8")
    status, told, said = spawned(folder, "check", "--config", file, *arguments)
    assert said == ""
    return status, told


@contextlib.contextmanager
def taken(answer):
    """A port of somebody else's, who answers each connection so, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_free_port_is_told(tmp_path):
    """And taken by nobody afterwards."""
    with reserved_port() as port:
        status, told = check(tmp_path, f"listening_port = {port}\n")
        socket.create_server(("127.0.0.1", port)).close()
    assert status == 0, told
    assert f"port {port} of localhost: free\n" in told


@pytest.mark.parametrize("tls", ["true", "false"])
@pytest.mark.parametrize(
    "answer", [b"", b"\0\xff\n", b"HTTP/1.0 200 OK\r\n\r\n<string>discover</string>"]
)
def test_a_port_that_somebody_else_has_is_to_be_mended(tmp_path, tls, answer):
    """Whatever that says, and to whom it would speak TLS or not."""
    with taken(answer) as port:
        conf = f"listening_port = {port}\nssl = {tls}\n"
        status, told = check(tmp_path, conf)
        as_json = json.loads(check(tmp_path, conf, "-o", "json")[1])
    assert status == 1
    problem = f"cannot listen on port {port} of localhost: another program, or daemon, has it "
    problem += f"(process {os.getpid()}, "
    assert told.count(problem) == 1
    assert told.endswith("1 to mend\n")
    assert as_json["listening"]["problem"].startswith(problem)
    assert not as_json["ok"]


@pytest.mark.parametrize("settings", ["", "ssl = false\n"])
def test_the_daemon_is_found_where_it_listens(tmp_path, start_daemon, settings):
    """By its methods: whoever asks need not have its certificate."""
    port = urlsplit(start_daemon(settings=settings).url).port
    status, told = check(tmp_path, f"{settings}listening_port = {port}\n")
    assert status == 0, told
    assert f"port {port} of localhost: the daemon listens\n" in told


def test_a_daemon_that_asks_for_certificates_is_found(tmp_path, start_daemon):
    """By its own, which it shows before."""
    authority = certificates.ensure(tmp_path / "authority").certificate
    daemon = start_daemon(settings=f"ssl_client_ca = {authority}\n", folder=tmp_path)
    port = urlsplit(daemon.url).port
    conf = f"ssl_client_ca = {authority}\nlistening_port = {port}\n"
    status, told = check(tmp_path, conf)
    assert status == 0, told
    assert f"port {port} of localhost: the daemon listens\n" in told
    shutil.rmtree(daemon.state)
    assert check(tmp_path, conf)[0] == 1


@pytest.mark.parametrize(
    ("address", "kind"), [("192.0.2.1", AddressUnavailable), ("no name", ConfigError)]
)
def test_an_address_that_is_not_here_is_to_be_mended(address, kind):
    """One that may come yet is tried again, a name that nobody has is not."""
    with pytest.raises(ConfigError, match=address) as caught:
        listening.bound(address, 0)
    assert type(caught.value) is kind


def test_the_engine_is_asked(tmp_path):
    """It takes the login, or it is told what came instead, without the password."""
    conf = "listening_port = 0\n"
    with RestServer(tmp_path, []) as engine:
        status, told = check(tmp_path, conf + engine.conf())
        assert status == 0, told
        assert engine.logins == 1
        engine.password_file.write_text("wrong\n")
        status, told = check(tmp_path, conf + engine.conf())
    assert status == 1
    assert f"[engine] {engine.url.rpartition('/')[0]}/sso/oauth/token: " in told
    assert PASSWORD not in told
    assert "1 to mend" in told
