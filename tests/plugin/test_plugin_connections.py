"""Which way a plugin's requests take to the engine."""

from __future__ import annotations

import pytest

from ovirt_scheduler import plugin
from ovirt_scheduler.model.plugins import EngineAccess
from tests.support.http_proxy import HttpProxy
from tests.support.rest_server import PASSWORD, USER, Host, RestServer, id_of

IDS = [id_of("lynx")]

ASKS_BY_VERSION_3 = """\
from ovirtsdk.api import API


class version3:
    def do_filter(self, hosts_ids, vm_id, args_map):
        api = API(url="{url}", username="{user}", password="{password}", ca_file={ca_file!r})
        print([host.id for host in api.hosts.list()])
        api.disconnect()
"""


@pytest.fixture
def proxy():
    with HttpProxy() as started:
        yield started


def ask(engine, proxy, monkeypatch):
    """Ask the engine as a plugin does in a call."""
    engine.tokens.append("good")
    ca_file = None if engine.ca_file is None else str(engine.ca_file)
    access = EngineAccess(engine.url, ca_file, "good", proxy=proxy)
    monkeypatch.setattr(plugin, "_provided", [access])
    with plugin.engine_connection() as connection:
        assert connection.test(raise_exception=True)


@pytest.mark.parametrize("tls", [True, False])
def test_the_environments_proxy_sees_nothing(tmp_path, monkeypatch, proxy, tls):
    for name, url in proxy.environment.items():
        monkeypatch.setenv(name, url)
    with RestServer(tmp_path, [Host("lynx")], tls=tls) as engine:
        ask(engine, "", monkeypatch)
    assert proxy.requests == []


def test_the_proxy_of_the_settings_is_used(tmp_path, monkeypatch, proxy):
    monkeypatch.setenv("no_proxy", "*")
    with RestServer(tmp_path, [Host("lynx")]) as engine:
        ask(engine, proxy.url, monkeypatch)
        assert proxy.requests == [f"CONNECT localhost:{engine.port} HTTP/1.1"]


def test_the_proxy_of_the_daemons_environment_does_not_reach_plugins(start_daemon, tmp_path, proxy):
    """With a login of their own, too."""
    with RestServer(tmp_path, [Host("lynx")], tls=False) as engine:
        login = {"url": engine.url, "user": USER, "password": PASSWORD, "ca_file": None}
        environment = ["env", *(f"{name}={url}" for name, url in proxy.environment.items())]
        daemon = start_daemon(
            {"version3": ASKS_BY_VERSION_3.format(**login)}, "ssl = false", before=environment
        )
        answer = daemon.engine.runFilters(["version3"], IDS, id_of("web"), {})
    assert answer == {"result_code": 0, "result": IDS}
    assert proxy.requests == []
