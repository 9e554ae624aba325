"""What a plugin may import, and what the daemon hands to it."""

from __future__ import annotations

import json

import pytest
from ovirtsdk4 import AuthError

from ovirt_scheduler import plugin
from ovirt_scheduler.model.plugins import EngineAccess, NoEngine
from ovirt_scheduler.plugin import EngineUnavailable, engine_connection
from tests.support.command import script
from tests.support.rest_server import GIB, PASSWORD, Host, RestServer, Vm, id_of

NAMES = ["lynx", "puma"]

SHOWS = '''\
"""Writes down all that it is given."""

import copy, enum, json, pathlib


def do_filter(hosts, vm, properties):
    pathlib.Path(properties["seen"]).write_text(json.dumps(plain([hosts, vm])))
    return hosts


def plain(thing):
    if isinstance(thing, (list, tuple)):
        return [plain(part) for part in thing]
    if hasattr(thing, "__dict__") and not isinstance(thing, enum.Enum):
        return {name: plain(part) for name, part in vars(copy.copy(thing)).items() if part is not None}
    return str(thing)
'''
ASKS = '''\
"""Keeps the hosts whose name the engine knows."""

from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    with engine_connection() as connection:
        connection.close()
    connection = engine_connection()
    names = {host.name for host in connection.system_service().hosts_service().list()}
    return [host for host in hosts if host.name in names]
'''
SEARCHES_MEMORY = '''\
"""Keeps all hosts if what it looks for is in the memory of its process or in its environment."""

import re

from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    needle = re.compile(properties["pattern"].encode())
    engine_connection()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.read().splitlines():
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                start, end = (int(place, 16) for place in span.split("-"))
                memory.seek(start)
                if needle.search(memory.read(end - start)):
                    return hosts
    return []
'''
KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts\n"
HIDES = """\
from ovirt_scheduler import plugin


def do_filter(hosts, vm, properties):
    getattr(plugin, "engine" + "_connection")()
    return hosts
"""
CLASS_UNIT = """\
class by_ids:
    def do_filter(self, hosts_ids, vm_id, args_map):
        return hosts_ids
"""


@pytest.fixture
def engine(tmp_path):
    with RestServer(tmp_path, [Host(name) for name in NAMES], [Vm("web", host="lynx")]) as server:
        yield server


@pytest.fixture
def provided(engine):
    """The engine's connection is there, as in a call."""
    engine.tokens.append("good")
    plugin.provide(EngineAccess(engine.url, str(engine.ca_file), "good"))
    yield engine
    plugin.provide(NoEngine("the test is over"))


def test_a_plugin_can_be_tested_without_a_daemon():
    """It can be imported anywhere, and says why there is no connection."""
    code = "from ovirt_scheduler.plugin import engine_connection; engine_connection()"
    ended = script(code)
    assert ended.stderr.splitlines()[-1] == (
        "ovirt_scheduler.errors.EngineUnavailable: no connection to the engine: "
        "the daemon gives a connection to its calls of a policy unit alone"
    )


def test_a_connection_is_logged_in(provided):
    """It needs neither a name nor a password."""
    hosts = engine_connection().system_service().hosts_service().list()
    assert [host.name for host in hosts] == NAMES
    assert provided.logins == 0


def test_closing_a_connection_ends_no_login(provided):
    """Other calls use the same token: close() and with are harmless."""
    with engine_connection() as connection:
        connection.test(raise_exception=True)
    connection = engine_connection()
    connection.close()
    engine_connection().close(logout=True)
    assert engine_connection().test()
    assert (provided.tokens, provided.logouts) == (["good"], 0)


def test_a_token_that_expired_is_said_and_leads_to_no_login(provided):
    """The SDK would log in as a user without a name."""
    provided.expire_tokens()
    with pytest.raises(AuthError, match="no longer takes the token of the daemon's login"):
        engine_connection().system_service().get()
    assert (provided.logins, provided.refused) == (0, 0)


def test_why_there_is_no_connection_is_said():
    """By the exception that a plugin may catch."""
    plugin.provide(NoEngine("https://engine: HTTP 500"))
    with pytest.raises(EngineUnavailable, match=r"^no connection .*: https://engine: HTTP 500$"):
        engine_connection()


# From here on with a daemon, as an administrator starts it.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Plugins that tell what they see of the engine."""
    plugins = tmp_path_factory.mktemp("plugins")
    sources = {
        "Shows": SHOWS, "Asks": ASKS, "SearchesMemory": SEARCHES_MEMORY, "ByIds": CLASS_UNIT,
        "Hides": HIDES,
    }  # fmt: skip
    sources.update({f"Filter{number}": "from _keeps import do_filter\n" for number in range(10)})
    sources["_keeps"] = KEEPS
    for name, source in sources.items():
        (plugins / f"{name}.py").write_text(source)
    return plugins


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    hosts = [Host(name, memory=(64 + place) * GIB) for place, name in enumerate(NAMES)]
    vms = [Vm("web", host="lynx"), Vm("mail", host="puma")]
    with RestServer(tmp_path_factory.mktemp("engine"), hosts, vms) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(start_daemon, folder, cluster):
    return start_daemon(folder, f"request_timeout = 20\nplugin_timeout = 10\n{cluster.conf()}")


@pytest.fixture
def design(daemon):
    with daemon.proxy("/design") as proxy:
        yield proxy


def seen_by(proxy, path, hosts, vm):
    """What the plugin Shows was given."""
    proxy.runFilters(["Shows"], hosts, vm, {"seen": str(path)})
    return json.loads(path.read_text())


def test_ids_give_the_same_entities_as_documents(cluster, design, tmp_path):
    """The engine's own words, whoever brought them (contract 5.2)."""
    by_ids = seen_by(design, tmp_path / "ids", cluster.ids(), id_of("web"))
    documents = cluster.hosts_document(), cluster.vm_document("web")
    assert by_ids == seen_by(design, tmp_path / "documents", *documents)
    hosts, vm = by_ids
    assert [host["_name"] for host in hosts] == NAMES
    assert hosts[0]["_summary"]["_total"] == "1"
    assert vm["_os"]["_type"] == "rhel_9x64"


def test_ten_filters_cause_one_query_for_hosts(cluster, design):
    """And one for the VM (contract 5.2)."""
    before = len(cluster.asked("hosts")), len(cluster.asked("vms"))
    filters = [f"Filter{number}" for number in range(10)]
    ids = [*cluster.ids(), id_of("a host of another cluster")]
    assert design.runFilters(filters, ids, id_of("mail"), {}) == ids
    assert (len(cluster.asked("hosts")), len(cluster.asked("vms"))) == (
        before[0] + 1,
        before[1] + 1,
    )


def test_documents_and_class_units_cause_no_query(cluster, design):
    """Class units get ids (contract 5.3)."""
    before = len(cluster.queries)
    fresh = [id_of("one"), id_of("two")]
    assert design.runFilters(["by_ids"], fresh, id_of("three"), {}) == fresh
    documents = cluster.hosts_document(), cluster.vm_document("web")
    assert design.runFilters(["Filter1"], *documents, {}) == cluster.ids()
    assert len(cluster.queries) == before


def test_a_plugin_reaches_the_engine_with_the_daemons_login(cluster, design):
    """However many calls and connections there are."""
    strangers = cluster.hosts_document().replace("puma", "cougar")
    for _ in range(2):
        assert design.runFilters(["Asks"], strangers, id_of("web"), {}) == cluster.ids(["lynx"])
    assert (cluster.logins, cluster.logouts, cluster.refused) == (1, 0, 0)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("tok[e]n-1-[0-9a-f]{8}", True), (PASSWORD[:8] + r"[+]" + PASSWORD[8:16], False)],
)
def test_the_password_is_nowhere_in_a_plugins_process(cluster, design, pattern, found):
    """The token is; so it has been looked for in the right places."""
    kept = design.runFilters(["SearchesMemory"], cluster.ids(), id_of("web"), {"pattern": pattern})
    assert kept == (cluster.ids() if found else [])


def test_a_silent_engine_is_told_once_and_the_call_goes_on(start_daemon, engine, tmp_path):
    """With entities that hold their id and nothing else (contract 5.2)."""
    sources = {"Shows": SHOWS, "Keeps": KEEPS, "ByIds": CLASS_UNIT, "Asks": ASKS}
    daemon = start_daemon(sources, f"request_timeout = 4\nplugin_timeout = 2\n{engine.conf()}")
    engine.answering.clear()
    properties = {"seen": str(tmp_path / "seen")}
    with daemon.proxy("/engine") as proxy:
        for _ in range(2):
            filters = ["Shows", "Keeps", "by_ids"]
            answer = proxy.runFilters(filters, engine.ids(), id_of("web"), properties)
            assert answer["result"] == engine.ids()
            (message,) = answer["errors"]
            assert "REST API gives no answer" in message
            assert f"{engine.url}/hosts: " in message
            hosts, vm = json.loads((tmp_path / "seen").read_text())
            assert hosts == [{"_id": host} for host in engine.ids()]
            assert vm == {"_id": id_of("web")}
        answer = proxy.runFilters(["Asks"], engine.ids(), id_of("web"), {})
        (message,) = answer["plugin_errors"]["Asks"]
        assert message.startswith("EngineUnavailable: no connection to the engine: ")
        assert f"{engine.url}/hosts: " in message
    assert len(engine.queries) == 1


def test_a_daemon_that_stops_logs_out(start_daemon, engine):
    """The engine is not left with a login that nobody uses."""
    daemon = start_daemon({"Keeps": KEEPS}, engine.conf())
    daemon.design.runFilters(["Keeps"], engine.ids(), id_of("web"), {})
    assert len(engine.tokens) == 1
    assert daemon.stop() == 0
    assert engine.tokens == []


def test_a_connection_that_nobody_could_foresee_is_told_so(cluster, daemon):
    """The daemon asks for a login only where a file names what gives a connection."""
    documents = cluster.hosts_document(), cluster.vm_document("web")
    answer = daemon.engine.runFilters(["Hides"], *documents, {})
    (message,) = answer["plugin_errors"]["Hides"]
    assert "neither the plugin's file nor its helpers name engine_connection" in message


def test_without_an_engine_section_a_plugin_is_told_so(start_daemon):
    """And nothing else is different."""
    daemon = start_daemon({"Asks": ASKS, "Keeps": KEEPS})
    answer = daemon.engine.runFilters(["Asks", "Keeps"], [id_of("lynx")], id_of("web"), {})
    (message,) = answer["plugin_errors"]["Asks"]
    assert "scheduler.conf has no [engine] section" in message
    assert answer["result"] == [id_of("lynx")]
