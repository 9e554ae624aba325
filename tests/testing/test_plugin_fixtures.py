"""The fixtures for authors of plugins: what they make, what they run, how a failure reads."""

from __future__ import annotations

import sys

import pytest
from ovirtsdk4 import types

from tests.support.command import executed
from tests.support.paths import PROJECT

GIB = 2**30

UNITS = """
def do_filter(hosts, vm, properties):
    print("seen", len(hosts))
    return [host for host in hosts if host.max_scheduling_memory >= vm.memory]


def do_score(hosts, vm, properties):
    return {host.id: int(properties["each"]) * host.summary.active for host in hosts}


def do_balance(hosts, properties):
    return None
"""
ASKS = '''
from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    """Keep the hosts with a tag that are of the cluster Gold, if it has a VM that is up."""
    engine = engine_connection()
    system = engine.system_service()
    if not system.vms_service().list(search="host=lynx and status=up"):
        return []
    assert hosts[0].cluster.name is None and not hosts[0].tags
    return [
        host for host in hosts
        if [tag.name for tag in engine.follow_link(host.tags)] == ["fast"]
        and engine.follow_link(host.cluster).name == "Gold"
    ]


def do_score(hosts, vm, properties):
    service = engine_connection().system_service().hosts_service()
    labels = {}
    for host in hosts:
        found = service.host_service(host.id).affinity_labels_service().list()
        labels[host] = len(found)
    return labels


def do_balance(hosts, properties):
    vms = engine_connection().system_service().vms_service().list(search="tag=web*")
    return (vms[0], hosts[1:]) if vms else None
'''
STATISTICS = """
def do_score(hosts, vm, properties):
    return {
        host.id: statistic.values[0].datum
        for host in hosts for statistic in host.statistics if statistic.name == "memory.free"
    }
"""
SCHEDULER = """
from ovirt_scheduler.plugin import Driver, Scheduler


class First(Scheduler):
    policies = ("up", "down")

    def candidates(self, hosts, vm, properties):
        found = sorted(hosts, key=lambda host: self.costs.get(host.id, 0))
        return found if properties["policy"] == "up" else found[::-1]

    def load_balance(self, hosts, vms, properties):
        return {vm: hosts[1:] for vm in vms if vm.host.id == hosts[0].id}

    def on_host_status_changed(self, host, old_status, new_status, hosts, vms, properties):
        return {vm: [] for vm in vms if (old_status, new_status) == ("up", "maintenance")}


class Times(Driver):
    topic = "times"

    def add(self, one, other=1):
        return {"sum": one + other}
"""


@pytest.fixture
def plugin(tmp_path):
    def write(text, name="Mine"):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    return write


def test_units_are_run_on_made_hosts(
    plugin, make_host, make_vm, run_filter, run_score, run_balance, capsys
):
    """By name, with properties, and what they print is the test's output."""
    path = plugin(UNITS)
    hosts = [make_host("lynx", running=3), make_host("puma", memory=GIB)]
    assert run_filter(path, hosts, make_vm(memory=2 * GIB)) == ["lynx"]
    assert capsys.readouterr().out == "seen 2\n"
    assert run_score(path, hosts, properties={"each": 2}) == {"lynx": 6, "puma": 0}
    assert run_balance(path, hosts) is None


def test_the_engine_has_what_documents_have_not(
    plugin, make_host, make_vm, make_cluster, run_filter, run_score, run_balance
):
    """Tags, affinity labels, names of clusters and other VMs are asked of it."""
    path, gold = plugin(ASKS), make_cluster("Gold")
    lynx = make_host("lynx", tags=["fast"], cluster=gold, affinity_labels=["a", "b"])
    hosts = [lynx, make_host("puma", tags=["fast"]), make_host("ocelot", cluster=gold)]
    web = make_vm("web", host=lynx, tags=["webserver"])
    assert run_filter(path, hosts, vms=[web]) == ["lynx"]
    assert run_filter(path, hosts) == []
    assert run_score(path, hosts) == {"lynx": 2, "puma": 0, "ocelot": 0}
    assert run_balance(path, hosts, vms=[web]) == ("web", ["puma", "ocelot"])


def test_the_vm_to_start_may_be_among_those_of_the_cluster(plugin, make_host, make_vm, run_score):
    """The engine has it once."""
    path = plugin(
        "from ovirt_scheduler.plugin import engine_connection\n\n"
        "def do_score(hosts, vm, properties):\n"
        "    vms = engine_connection().system_service().vms_service().list()\n"
        "    return {host.id: len(vms) for host in hosts}\n"
    )
    hosts, web = [make_host("lynx")], make_vm("web")
    assert run_score(path, hosts, web, vms=[web]) == {"lynx": 1}
    assert run_score(path, hosts, vms=[web]) == {"lynx": 2}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("vms_service().list(search='fqdn=x')", "cannot search for 'fqdn=x'; it takes NAME=VALUE of name"),
        ("disks_service().list()", r"has hosts, vms, clusters, .* no disks \(GET .*/disks\)"),
        ("vms_service().vm_service('x').get()", "has nothing at vms/x"),
        ("vms_service().list(query={'page': '1'})", "knows search, follow and max, and not page"),
        ("hosts_service().list(follow='hooks')", "cannot follow hooks there; it follows tags"),
        ("vms_service().add(__import__('ovirtsdk4').types.Vm())", "changes nothing"),
    ],
)  # fmt: skip
def test_what_the_fake_engine_does_not_know_is_told(
    plugin, make_host, make_vm, run_filter, asked, told
):
    """In the failure of the test, with the plugin's line."""
    path = plugin(ASKS.replace('vms_service().list(search="host=lynx and status=up")', asked))
    with pytest.raises(AssertionError, match=told):
        run_filter(path, [make_host()], vms=[make_vm("web")])


GROUPS = """
from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    clusters = engine_connection().system_service().clusters_service()
    groups = clusters.cluster_service(vm.cluster.id).affinity_groups_service().list()
    kept = {host.id for group in groups for host in group.hosts}
    return [host for host in hosts if host.id in kept]
"""


def test_affinity_groups_are_those_of_the_fake_cluster(
    plugin, make_host, make_vm, make_cluster, run_filter
):
    """None, unless it is made with some."""
    lynx, puma = make_host("lynx"), make_host("puma")
    gold = make_cluster(
        "Gold", affinity_groups=[types.AffinityGroup(id="g", name="pair", hosts=[lynx])]
    )
    path = plugin(GROUPS)
    assert run_filter(path, [lynx, puma], make_vm(cluster=gold)) == ["lynx"]
    assert run_filter(path, [lynx, puma], make_vm()) == []


def test_a_saved_cluster_is_what_was_saved(saved_cluster, run_balance, run_score):
    """Samples that ask the engine decide as on the cluster itself."""
    hosts, vms = saved_cluster(PROJECT / "demo" / "cluster.xml")
    assert ([host.name for host in hosts], len(vms)) == (["lynx", "puma", "serval", "ocelot"], 23)
    memory = run_balance(PROJECT / "plugins" / "HostMemoryBalance.py", hosts, vms=vms)
    assert memory == ("ntp", ["lynx", "puma", "ocelot"])
    costs = run_score(PROJECT / "plugins" / "KsmScore.py", hosts, vms[-1], vms=vms)
    assert costs == {"lynx": 0, "puma": 2, "serval": 0, "ocelot": 2}


def test_statistics_come_where_the_plugin_reads_them(plugin, make_host, run_score):
    """In the document, as the daemon asks the engine for them then."""
    hosts = [make_host("lynx", statistics={"memory.free": 7, "memory.used": 1})]
    assert run_score(plugin(STATISTICS), hosts) == {"lynx": 7}


def test_schedulers_and_topics_are_called(plugin, make_host, make_vm, run_scheduler, run_topic):
    """Selections, migrations, hooks, costs and filters before; a topic's own values."""
    path, units = plugin(SCHEDULER), plugin(UNITS, "Units")
    lynx, puma = hosts = [make_host("lynx", running=3), make_host("puma")]
    vms = [make_vm("web", host=lynx), make_vm("mail", host=puma)]
    costs = {"cost_functions": {units: 2}, "properties": {"each": 1}}
    assert run_scheduler(path, "candidates", hosts, **costs) == ["puma", "lynx"]
    assert run_scheduler(path, "candidates", hosts, properties={"policy": "down"}) == [
        "puma",
        "lynx",
    ]
    large = make_vm(memory=100 * GIB)
    assert run_scheduler(path, "select_host", hosts, vm=large, filters=[units]) == []
    assert run_scheduler(path, "has_any_hosts", hosts) is True
    assert run_scheduler(path, "load_balance", hosts, vms) == {"web": ["puma"]}
    changed = {"host": lynx, "old_status": "up", "new_status": "maintenance"}
    assert run_scheduler(path, "on_host_status_changed", hosts, vms, **changed) == {
        "web": [],
        "mail": [],
    }
    assert run_topic(path, "add", one=2, other=3) == {"sum": 5}
    with pytest.raises(AssertionError, match="has no driver with a method ad"):
        run_topic(path, "ad")


def test_a_failure_reads_as_the_plugins_own(tmp_path):
    """The message, the plugin's traceback and what it printed; none of our frames."""
    (tmp_path / "Falls.py").write_text(
        "def do_filter(hosts, vm, properties):\n    print('begun')\n    return 1 / 0\n"
    )
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n\n"
        "def test_it(make_host, run_filter):\n"
        "    run_filter(Path(__file__).parent / 'Falls.py', [make_host()])\n"
    )
    shown = pytest_of(tmp_path, "test_it.py")
    assert "filter Falls raised: ZeroDivisionError: division by zero (Falls.py:3)" in shown
    assert f'File "{tmp_path}/Falls.py", line 3, in do_filter' in shown
    assert "Captured stdout call" in shown
    assert "\nbegun\n" in shown
    assert "testing/runs.py" not in shown


def test_mistakes_of_a_test_are_told(plugin, make_host, run_filter, run_balance):
    """No such file, no such unit, a file that does not load, a value that is refused."""
    path = plugin("def do_filter(hosts, vm, properties):\n    return hosts\n")
    with pytest.raises(AssertionError, match=r"no such file; did you mean .*Mine\.py"):
        run_filter(path.with_name("mine.py"), [make_host()])
    with pytest.raises(AssertionError, match="has no balance"):
        run_balance(path, [make_host()])
    with pytest.raises(AssertionError, match="has no filter Other; it has Mine"):
        run_filter(path, [make_host()], unit="Other")
    with pytest.raises(TypeError, match="a balance is about no single VM"):
        run_balance(path, [make_host()], types.Vm(name="web"))
    with pytest.raises(TypeError, match="memroy"):
        make_host(memroy=1)
    with pytest.raises(ValueError, match="2 hosts are host: name each differently"):
        run_filter(path, [make_host(running=1), make_host(running=2)])
    path.with_suffix(".conf").write_text('customProperties = "most={0-9}"\n')
    with pytest.raises(AssertionError, match="property most: '10' is not allowed"):
        run_filter(path, [make_host()], properties={"most": 10})
    path.write_text("x = (\n")
    with pytest.raises(AssertionError, match=r"Mine\.py:1: syntax error"):
        run_filter(path, [make_host()])


def test_who_uses_no_fixture_pays_for_none(tmp_path):
    """The SDK is not loaded, nor what starts processes."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    assert 'ovirt_scheduler.testing' in sys.modules\n"
        "    heavy = {'ovirtsdk4', 'lxml', 'ovirt_scheduler.processes', 'cryptography'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    assert "1 passed" in pytest_of(tmp_path, "test_it.py")


def pytest_of(folder, *arguments):
    command = [
        sys.executable, "-m", "pytest", "-p", "ovirt_scheduler.testing", "-p", "no:cacheprovider",
    ]  # fmt: skip
    ended = executed(
        *command, *arguments, cwd=folder, env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"}
    )
    return ended.stdout + ended.stderr


def test_a_users_own_fixtures_of_short_names_hide_none_of_ours(tmp_path):
    """They may be called ``_made`` and ``_runs``."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef _made():\n    return None\n\n"
        "@pytest.fixture\ndef _runs():\n    return None\n"
    )
    (tmp_path / "Mine.py").write_text("def do_filter(hosts, vm, properties):\n    return hosts\n")
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n\ndef test_it(make_host, run_filter):\n"
        "    assert run_filter(Path('Mine.py').resolve(), [make_host()]) == ['host']\n"
    )
    assert "1 passed" in pytest_of(tmp_path, "test_it.py")
