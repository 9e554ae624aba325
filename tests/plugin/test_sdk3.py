"""Plugins of the old proxy that import version 3 of the SDK, with no more than Python 3's changes."""

from __future__ import annotations

import re

import pytest

from tests.support.command import script
from tests.support.paths import PROJECT
from tests.support.rest_server import GIB, PASSWORD, USER, Host, Reply, RestServer, Vm, id_of

LYNX, PUMA, TIGER = (id_of(name) for name in ("lynx", "puma", "tiger"))
IDS = [LYNX, PUMA, TIGER]
WEB = id_of("web")

# What published plugins call, one in a class: their searches, getters and statistics.
CALLS = """\
import sys
from ovirtsdk.xml import params
from ovirtsdk.api import API


def connect():
    return API(url="https://ENGINE", username="admin@internal", password="of another time",
               persistent_auth=True, debug=False)


class alike:
    def do_score(self, hosts_ids, vm_id, args_map):
        connection = connect()
        vm = connection.vms.get(id=vm_id)
        scores = []
        for host in connection.hosts.list(query=" or ".join("id=%s" % u for u in hosts_ids)):
            vms = connection.vms.list("host=" + host.get_name())
            same = [v for v in vms if v.get_os().get_type() == vm.os.type_ and v.id != vm.id]
            scores.append((host.id, len(vms) - len(same)))
        connection.disconnect()
        print(scores)


class up:
    def do_filter(self, hosts_ids, vm_id, args_map):
        hosts = [connect().hosts.get(id=each) for each in hosts_ids]
        assert connect().hosts.get(name="lynx").get_id() == hosts_ids[0]
        assert connect().hosts.get(name="nobody") is connect().vms.get(id=hosts_ids[0]) is None
        up = [host for host in hosts if host.get_status().get_state() == "up"]
        assert [host.id for host in up] == [h.id for h in hosts if h.status.state == "up"]
        print([host.id for host in up])


class memory:
    def do_balance(self, hosts_ids, args_map):
        connection = connect()
        free = {}
        for host in connection.hosts.list():
            free[host] = host.statistics.get("memory.free").values.value[0].datum
            of_getters = host.get_statistics().get("memory.free").get_values().get_value()[0]
            assert of_getters.get_datum() == free[host]
        full = min(free, key=free.get)
        vms = sorted(connection.vms.list("host=" + full.name), key=lambda vm: vm.memory)
        vms = [vm for vm in vms if vm.placement_policy.affinity != "pinned"]
        print((vms[0].id, [host.id for host in free if host is not full]))


class sets:
    def do_filter(self, hosts_ids, vm_id, args_map):
        host = connect().hosts.get(id=hosts_ids[0])
        host.set_comment("as it is said here")
        print(hosts_ids if host.get_comment() == host.comment == "as it is said here" else [])
"""
MISUSES = {
    "vm.migrate()": "Vm.migrate of SDK 3 is not here; with SDK 4: ovirt_scheduler.plugin."
    f"engine_connection().service('vms/{WEB}').migrate(...)",
    "vm.delete()": f".service('vms/{WEB}').remove(...)",
    "vm.statistics.add(1)": "statistics.add of SDK 3 is not here; with SDK 4: it is a list",
    "vm.get_nonsense()": "Vm.get_nonsense of SDK 3 is not here; with SDK 4: see ovirtsdk4.types.Vm",
    "api.vms.add(1)": ".system_service().vms_service().add(...)",
    "api.nonsense.list()": "API.nonsense of SDK 3 is not here; with SDK 4: a service of ovirt_",
    "params.Action()": "NotHere: params.Action of SDK 3 is not here; with SDK 4: "
    "ovirtsdk4.types.Action",
    "params.VM()": "params.VM of SDK 3 is not here; with SDK 4: ovirtsdk4.types.Vm",
    "VM.status": "params.VM of SDK 3 is not here; with SDK 4: ovirtsdk4.types.Vm",
    "raise errors.DisconnectedError('x')": "errors.DisconnectedError of SDK 3 is not here; with "
    "SDK 4: ovirtsdk4.Error, or a class of it",
    "brokers.VMs(api)": "infrastructure.brokers of SDK 3 is not here; with SDK 4: ovirt_scheduler.",
    "api.vms.get()": "TypeError: vms.get: say id= or name=",
    "API('https://192.0.2.7')": "EngineUnavailable: API(url='https://192.0.2.7') is another engine "
    "than that of [engine] in scheduler.conf, ",
}
MISUSE = """\
from ovirtsdk.api import API
from ovirtsdk.infrastructure import brokers, errors
from ovirtsdk.infrastructure.errors import NoCertificatesError, RequestError
from ovirtsdk.xml import params
from ovirtsdk.xml.params import VM


class {name}:
    def do_filter(self, hosts_ids, vm_id, args_map):
        api = API("https://ENGINE")
        vm = api.vms.get(id=vm_id)
        try:
            {statement}
        except (NoCertificatesError, RequestError) as error:
            return "nothing of the engine"
        return hosts_ids
"""
FAILURES = """\
from ovirtsdk.api import API
from ovirtsdk.infrastructure.errors import ConnectionError, RequestError


class says_what_failed:
    def do_filter(self, hosts_ids, vm_id, args_map):
        api = API("https://127.0.0.1")
        for call in (lambda: api.hosts.list("name=x"), lambda: api.vms.get(id=vm_id)):
            try:
                print(call() is None and "no such VM")
            except RequestError as error:
                print(repr((error.status, error.reason, error.detail, str(error))))
        return hosts_ids


class searches:
    def do_filter(self, hosts_ids, vm_id, args_map):
        every = [*hosts_ids, *("%08d-0000-0000-0000-000000000000" % n for n in range(298))]
        query = " or ".join("id=%s" % each for each in every)
        hosts = API("https://127.0.0.1").hosts
        assert len(hosts.list(query=query, max=1)) == 1
        print([host.id for host in hosts.list(query=query)])
"""
WITHOUT = """\
import sys
{imports}

class {name}:
    def do_filter(self, hosts_ids, vm_id, args_map):
        return [host for host in hosts_ids if {condition} == ("ovirt_scheduler.plugin.sdk3" in sys.modules)]
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    hosts = [Host("lynx"), Host("puma", free_memory=GIB), Host("tiger", status="maintenance")]
    vms = [
        Vm("web", host="lynx"),
        Vm("mail", host="puma"),
        Vm("pinned", host="puma", affinity="pinned", memory=GIB // 2),
        Vm("win", host="puma", os="windows_2022", memory=2 * GIB),
    ]
    with RestServer(tmp_path_factory.mktemp("engine"), hosts, vms) as server:
        yield server


def published():
    """The plugin of the manual that keeps its SDK."""
    page = (PROJECT / "docs" / "migrating.md").read_text("utf-8")
    (text,) = re.findall(r"```python\n(# max_vms\.py\n.*?)```", page, re.DOTALL)
    return text.replace("engine.example.com", "localhost")


@pytest.fixture(scope="module")
def daemon(start_daemon, engine):
    texts = {"calls": CALLS, "max_vms": published(), "failures": FAILURES}
    for number, statement in enumerate(MISUSES):
        texts[f"misuse{number}"] = MISUSE.format(name=f"misuse{number}", statement=statement)
    texts["loads"] = WITHOUT.format(name="loads", imports="import ovirtsdk.api", condition=True)
    texts["loads_not"] = WITHOUT.format(name="loads_not", imports="", condition=False)
    texts = {name: text.replace("ENGINE", "127.0.0.1") for name, text in texts.items()}
    return start_daemon(texts, f"ssl = false\n{engine.conf()}")


@pytest.fixture
def proxy(daemon):
    with daemon.proxy("/engine") as proxy:
        yield proxy


@pytest.mark.parametrize(("most", "kept"), [("3", [LYNX, TIGER]), ("4", IDS), ("1", [TIGER])])
def test_the_plugin_of_the_manual_works(proxy, most, kept):
    """It counts what runs on each host."""
    answer = proxy.runFilters(["max_vms"], IDS, WEB, {"maximum_vm_count": most})
    assert answer == {"result_code": 0, "result": kept}


def test_published_calls_give_what_they_gave(proxy, engine):
    """With the daemon's login; the password of the file is of no use."""
    refused = engine.refused
    scored = proxy.runCostFunctions([["alike", 1]], IDS, WEB, {})
    assert scored == {
        "result_code": 0,
        "result": [[LYNX, 1, "alike"], [PUMA, 1, "alike"], [TIGER, 0, "alike"]],
    }
    assert proxy.runFilters(["up"], IDS, WEB, {}) == {"result_code": 0, "result": [LYNX, PUMA]}
    moved = proxy.runLoadBalancing("memory", IDS, {})
    assert moved == {"result_code": 0, "result": [id_of("mail"), [LYNX, TIGER]]}
    assert proxy.runFilters(["sets"], IDS, WEB, {}) == {"result_code": 0, "result": IDS}
    assert engine.logins
    assert engine.refused == refused


@pytest.mark.parametrize("statement", MISUSES)
def test_what_is_not_here_says_what_is(proxy, statement):
    """By the name of the call that does it with version 4."""
    name = f"misuse{[*MISUSES].index(statement)}"
    answer = proxy.runFilters([name], IDS, WEB, {})
    (message,) = answer["plugin_errors"][name]
    assert MISUSES[statement] in message


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(500, "text/html", "<html>"), "HTTP 500 Internal Server Error: The response content"),
        (Reply(404, "text/html", "<html>"), "HTTP 404 Not Found: The response content type"),
        (Reply(400, "application/xml", "<fault><reason>Failed</reason><detail>[no]</detail></fault>"),
         "HTTP 400 Bad Request: Failed: [no]"),
    ],
)  # fmt: skip
def test_an_error_names_the_status_of_http(proxy, daemon, engine, reply, told):
    """A page of somebody else is no VM that is not there, either."""
    engine.broken = reply
    try:
        proxy.runFilters(["says_what_failed"], IDS, WEB, {})
    finally:
        engine.broken = None
    printed = daemon.log.rpartition("says_what_failed printed to stdout")[2]
    assert printed.count(told) == 2
    assert printed.count(f"({reply.status}, '{told.split(': ')[0][9:]}'") == 2


def test_a_search_for_many_ids_is_sent_in_pieces(proxy, engine):
    """The web server before the engine takes 8 kB of URL."""
    before = len(engine.queries)
    answer = proxy.runFilters(["searches"], [PUMA, LYNX], WEB, {})
    assert answer == {"result_code": 0, "result": [PUMA, LYNX]}
    searches = [each.search for each in engine.queries[before:] if each.path == "hosts"]
    assert [search.count("id=") for search in searches] == [100, 100, 100, 100]


@pytest.mark.parametrize("name", ["loads", "loads_not"])
def test_it_is_loaded_by_plugins_that_import_it_alone(proxy, name):
    """And is there for them."""
    answer = proxy.runFilters([name], IDS, WEB, {})
    assert answer == {"result_code": 0, "result": IDS}


OWN_LOGIN = """\
from ovirtsdk.api import API
from ovirtsdk.infrastructure.errors import RequestError


class {name}:
    def do_filter(self, hosts_ids, vm_id, args_map):
        try:
            api = API(url={url!r}, username={user!r}, password={password!r}, ca_file={ca_file!r})
        except RequestError as error:
            raise ValueError("refused: %s" % error)
        print([host.id for host in api.hosts.list() if api.test()])
        api.disconnect()
"""


def test_without_an_engine_section_the_plugins_own_login_counts(start_daemon, engine):
    """With or without the path in the URL; a wrong password is the plugin's failure."""
    bare = engine.url.rpartition("/ovirt-engine")[0]
    logins = {"bare": (bare, PASSWORD), "whole": (engine.url, PASSWORD), "wrong": (bare, "wrong")}
    texts = {}
    for name, (url, password) in logins.items():
        login = {"url": url, "user": USER, "password": password, "ca_file": str(engine.ca_file)}
        texts[name] = OWN_LOGIN.format(name=name, **login)
    before = engine.logins, engine.logouts
    with start_daemon(texts, "ssl = false").proxy("/engine") as proxy:
        for name in ("bare", "whole"):
            answer = proxy.runFilters([name], IDS, WEB, {})
            assert answer == {"result_code": 0, "result": IDS}
        (message,) = proxy.runFilters(["wrong"], IDS, WEB, {})["plugin_errors"]["wrong"]
    assert "ValueError: refused: " in message
    assert "Cannot authenticate user" in message
    assert (engine.logins, engine.logouts) == (before[0] + 2, before[1] + 2)


def test_an_installed_sdk_comes_first(tmp_path):
    """Whoever has one keeps it."""
    package = tmp_path / "ovirtsdk"
    package.mkdir()
    (package / "__init__.py").write_text("whose = 'its own'\n")
    code = (
        "from ovirt_scheduler.processes.loading.modules import finder_of_sources\n"
        "finder_of_sources(()).install('/nowhere')\n"
        "import ovirtsdk; print(vars(ovirtsdk).get('whose', 'ours'))"
    )
    told = [script(code, env={"PYTHONPATH": path}).stdout for path in (str(tmp_path), "")]
    assert told == ["its own\n", "ours\n"]
