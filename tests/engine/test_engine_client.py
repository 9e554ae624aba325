"""Which way the daemon's requests take to the engine."""

from __future__ import annotations

import time

import pytest

from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.model.tasks import Sought
from tests.support.http_proxy import HttpProxy
from tests.support.rest_server import Host, RestServer, id_of


@pytest.fixture
def proxy():
    with HttpProxy() as started:
        yield started


def look_up(engine, proxy=None):
    asking = Inventory(engine.settings(proxy=proxy))
    try:
        replies = asking.look_up(Sought((id_of("lynx"),)), time.monotonic() + 20)
        assert [reply.asked for reply in replies.hosts] == [(id_of("lynx"),)]
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
