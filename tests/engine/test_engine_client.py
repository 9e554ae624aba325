"""Which way the daemon's requests take to the engine, and what is told of its faults."""

from __future__ import annotations

import dataclasses
import html
import os
import signal
import socket
import threading
import time
from urllib.parse import quote_plus

import pytest

from ovirt_scheduler.engine.client import EngineClient
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.tasks import Sought
from tests.support.http_proxy import HttpProxy
from tests.support.rest_server import PASSWORD, Host, Reply, RestServer, Vm, id_of
from tests.support.waiting import LONG


@pytest.fixture
def proxy():
    with HttpProxy() as started:
        yield started


@pytest.fixture
def engine(tmp_path):
    with RestServer(tmp_path, [Host("lynx")], [Vm("web", host="lynx")]) as started:
        yield started


def look_up(engine, proxy=None):
    asking = Inventory(engine.settings(proxy=proxy))
    try:
        replies = asking.look_up(Sought((id_of("lynx"),)), time.monotonic() + 20)
        assert [reply.ids for reply in replies.hosts] == [(id_of("lynx"),)]
        assert asking.access(time.monotonic() + 20).proxy == (proxy or "")
        assert engine.logins == 1
    finally:
        asking.close()


@pytest.mark.parametrize("tls", [True, False])
def test_the_environments_proxy_sees_nothing(tmp_path, monkeypatch, proxy, tls):
    """By plain HTTP it would read the password."""
    for name, url in proxy.environment.items():
        monkeypatch.setenv(name, url)
    with RestServer(tmp_path, [Host("lynx")], tls=tls) as engine:
        look_up(engine)
    assert proxy.requests == []


def test_the_proxy_of_the_settings_is_used_whatever_the_environment_excepts(
    tmp_path, monkeypatch, proxy
):
    monkeypatch.setenv("no_proxy", "*")
    with RestServer(tmp_path, [Host("lynx")]) as engine:
        look_up(engine, proxy.url)
        assert set(proxy.requests) == {f"CONNECT localhost:{engine.port} HTTP/1.1"}


def test_a_fault_is_repeated_without_the_secrets_that_were_ever_used(engine):
    """By another client than the one that used them, too."""
    used = Inventory(engine.settings())
    former = used.access(time.monotonic() + 20).token
    engine.expire_tokens()
    used.look_up(Sought(vm=id_of("web")), time.monotonic() + 20)
    secrets = [former, *engine.tokens, PASSWORD, quote_plus(PASSWORD)]
    assert len(set(secrets)) == 4
    words = html.escape(", ".join(secrets))
    fault = f"<fault><reason>not {words}!</reason></fault>"
    for kind, told in (("application/xml", "not …, …, …, …!"), (f"text/{former}", "with text/…; ")):
        engine.broken = Reply(400, kind, fault)
        with pytest.raises(EngineUnavailable, match=told):
            Inventory(engine.settings()).look_up(Sought(vm=id_of("web")), time.monotonic() + 20)


def test_ctrl_c_ends_the_wait_for_an_engine_that_does_not_answer(engine):
    """Though libcurl itself waits on."""
    ended, waited = threading.Event(), []
    with socket.create_server(("localhost", 0)) as silent:

        def interrupt() -> None:
            connection, _ = silent.accept()
            with connection:
                os.kill(os.getpid(), signal.SIGINT)
                waited.append(ended.wait(LONG))

        helper = threading.Thread(target=interrupt)
        helper.start()
        url = f"http://localhost:{silent.getsockname()[1]}/ovirt-engine/api"
        asking = EngineClient(dataclasses.replace(engine.settings(), url=url))
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                asking.access(time.monotonic() + 2 * LONG)
        finally:
            ended.set()
            signal.signal(signal.SIGINT, former)
            helper.join()
            asking.close()
    assert waited == [True]
