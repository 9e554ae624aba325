"""The statistics of hosts and VMs that came as ids: asked for where a plugin's code uses them."""

from __future__ import annotations

import pytest

from tests.support.rest_server import GIB, Host, RestServer, Vm, id_of

BUSY, IDLE = id_of("lynx"), id_of("puma")
IDS = [BUSY, IDLE]
# Without statistics it is the busy host that has more room.
HOSTS = [
    Host("lynx", max_scheduling_memory=60 * GIB, busy=98),
    Host("puma", max_scheduling_memory=50 * GIB, free_memory=50 * GIB, busy=2),
]

PLUGINS = {
    "_cpu": "def idle(entity):\n"
    "    told = {each.name: each.values[0].datum for each in entity.statistics or ()}\n"
    "    return told.get('cpu.current.idle')\n",
    "ByHelper": "from _cpu import idle\n"
    "def do_filter(hosts, vm, properties):\n"
    "    return [host for host in hosts if (idle(host) or 0) > 50]\n",
    "OfTheVm": "def do_filter(hosts, vm, properties):\n"
    "    return hosts[:1] if [each.values[0].datum for each in vm.statistics] == [75] else []\n",
    "ByItsWord": "uses_statistics = True\n"
    "def do_filter(hosts, vm, properties):\n"
    "    return [host for host in hosts if list(getattr(host, 'stat' + 'istics'))]\n",
    "NotByItsWord": "uses_statistics = False\n"
    "def do_filter(hosts, vm, properties):\n"
    "    return [host for host in hosts if list(host.statistics)]\n",
    "Without": "import statistics\n"
    "def do_filter(hosts, vm, properties):\n"
    "    return hosts[:1] if statistics.mean([1, 3]) == 2 else []\n",
    "Follows": "from ovirt_scheduler.plugin import engine_connection\n"
    "def do_filter(hosts, vm, properties):\n"
    "    follow = engine_connection().follow_link\n"
    "    idle = {host: follow(host.statistics)[-1].values[0].datum for host in hosts}\n"
    "    return [host for host in hosts if idle[host] == 98]\n",
    "First": "from ovirt_scheduler.plugin import HostSelector\n"
    "class First(HostSelector):\n"
    "    def candidates(self, hosts, vm, properties):\n"
    "        return hosts[:1]\n",
    "Unclear": "uses_statistics = 'yes'\ndef do_filter(hosts, vm, properties): return hosts\n",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    vms = [Vm("web", host="lynx", busy=75)]
    with RestServer(tmp_path_factory.mktemp("engine"), HOSTS, vms) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(start_daemon, engine):
    return start_daemon(PLUGINS, f"ssl = false\n{engine.conf(cache_seconds=0)}")


def asked_by(engine, call, *arguments):
    """The answer, and what was followed in the queries."""
    before = len(engine.queries)
    answer = call(*arguments)
    return answer, {query.follow for query in engine.queries[before:] if query.path}


def test_the_default_scheduler_sees_how_busy_hosts_are(daemon, engine):
    """Its answer on ids is that on documents."""
    policy = {"policy": "evenly_distribute"}
    documents = engine.hosts_document(follow=True), engine.vm_document("web")
    with daemon.proxy() as proxy:
        chosen = asked_by(engine, proxy.selectHost, "default", IDS, id_of("web"), policy)
        assert chosen == (IDLE, {"statistics"})
        assert proxy.selectHost("default", *documents, policy) == IDLE
        moved = asked_by(engine, proxy.loadBalance, "default", IDS, [id_of("web")], policy)
        assert moved == ({id_of("web"): [IDLE]}, {"statistics"})


@pytest.mark.parametrize(
    ("name", "kept", "followed"),
    [
        ("ByHelper", [IDLE], "statistics"),
        ("OfTheVm", [BUSY], "statistics"),
        ("ByItsWord", IDS, "statistics"),
        ("NotByItsWord", [], ""),
        ("Without", [BUSY], ""),
        ("Follows", [IDLE], "statistics"),
    ],
)
def test_statistics_are_asked_for_where_the_code_reads_them(daemon, engine, name, kept, followed):
    """In its helpers too; its own word counts more than what is found."""
    with daemon.proxy("/design") as proxy:
        answer = asked_by(engine, proxy.runFilters, [name], IDS, id_of("web"), {})
    assert answer[0] == kept
    assert followed in answer[1]


@pytest.mark.parametrize("name", ["ByHelper", "Follows"])
def test_what_a_schedulers_filters_read_is_asked_for(daemon, engine, name):
    """Statistics and a connection, where the scheduler itself wants neither."""
    with daemon.proxy() as proxy:
        calls = proxy.selectHost, "First", IDS, id_of("web")
        assert asked_by(engine, *calls, {}) == (BUSY, {""})
        answer, followed = asked_by(engine, *calls, {"filters": name})
    assert answer == IDLE
    assert "statistics" in followed


def test_an_own_word_that_is_none_is_refused(daemon):
    """With what to write."""
    assert "Unclear.py:1: uses_statistics is 'yes'; set it to True or False" in daemon.log
