"""The rules of the cookbook and the table of attributes: what they say is so."""

from __future__ import annotations

import functools
import re

import pytest
from ovirtsdk4 import types

from ovirt_scheduler.processes.loading.entity_links import LINKS
from tests.support.command import run
from tests.support.paths import DOCUMENTS, PROJECT
from tests.support.sdk_reading import by_the_sdk

GIB = 2**30
BLOCK = re.compile(
    r"^```(?:python|ini)\n# (\w+\.(?:py|conf))\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
ATTRIBUTE = re.compile(
    r"^\| `(host|vm)\.([\w.]+)` \|.*\| (ids|document|statistics|query) \|$", re.MULTILINE
)


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """A folder with all of them."""
    folder = tmp_path_factory.mktemp("rules")
    for file, text in BLOCK.findall((PROJECT / "docs" / "cookbook.md").read_text("utf-8")):
        (folder / file).write_text(text, "utf-8")
    return folder


@pytest.fixture
def hosts(make_host):
    """Three in two racks, of which lynx has the licence."""
    return [
        make_host("lynx", running=2, tags=["rack-1", "licence-oracle"]),
        make_host("puma", running=1, tags=["rack-1"]),
        make_host("ocelot", tags=["rack-2"]),
    ]


@pytest.fixture
def service(make_vm, hosts):
    """web-2 is to start; web-1 runs on lynx, and so does a VM that only sounds like it."""
    lynx, puma, _ = hosts
    return make_vm("web-2"), [
        make_vm("web-1", host=lynx), make_vm("web-9"), make_vm("web-shop-1", host=puma),
    ]  # fmt: skip


def test_there_are_eleven_rules(rules):
    """Helpers are none; the table of the page names each."""
    text = (PROJECT / "docs" / "cookbook.md").read_text("utf-8")
    named = re.findall(r"^\|.*\| `(\w+)` \| (?:filter|cost function) \|", text, re.MULTILINE)
    assert len(named) == 11
    assert {path.stem for path in rules.glob("[!_]*.py")} == {*named}


def test_maintenance_window(rules, hosts, run_filter):
    """All day long, at no time, and for nobody unless said."""
    always = {"window_begin": "00:00", "window_end": "24:00"}
    never, named = {**always, "window_end": "00:00"}, {"window_hosts": "puma,ocelot"}
    assert run_filter(rules / "Window.py", hosts, properties={**always, **named}) == ["lynx"]
    assert len(run_filter(rules / "Window.py", hosts, properties={**never, **named})) == 3
    assert len(run_filter(rules / "Window.py", hosts, properties=always)) == 3


def test_licence_bound_hosts(rules, hosts, make_vm, run_filter):
    """A VM without such a tag runs anywhere, one whose licence no host has nowhere."""
    bound, free = make_vm("a", tags=["licence-oracle", "other"]), make_vm("b", tags=["other"])
    nowhere = make_vm("c", tags=["licence-oracle", "licence-sap"])
    assert run_filter(rules / "Licensed.py", hosts, bound) == ["lynx"]
    assert len(run_filter(rules / "Licensed.py", hosts, free)) == 3
    assert run_filter(rules / "Licensed.py", hosts, nowhere) == []


def test_dedicated_hosts(rules, make_host, make_vm, run_filter):
    """Both ways; a host and a VM with several tags need one in common."""
    tags = {"db": ["dedicated-db", "rack-1"], "both": ["dedicated-db", "dedicated-sap"]}
    hosts = [make_host(name, tags=tags.get(name, ["rack-1"])) for name in ("db", "both", "free")]
    for of_vm, fit in (
        (["dedicated-db"], ["db", "both"]), (["dedicated-sap", "other"], ["both"]),
        (["other"], ["free"]), (["dedicated-web"], []),
    ):  # fmt: skip
        assert run_filter(rules / "Dedicated.py", hosts, make_vm("vm", tags=of_vm)) == fit, of_vm


def test_dedicated_hosts_in_real_documents(rules, run_filter):
    """Their hosts have no element of tags, and so no host is dedicated."""
    hosts, (vm,) = (entities_of(DOCUMENTS / f"{kind}-v4.xml") for kind in ("hosts", "vm"))
    assert all(host.tags is None for host in hosts)
    assert run_filter(rules / "Dedicated.py", hosts, vm) == [host.name for host in hosts]


def test_keep_apart(rules, hosts, service, make_vm, run_filter):
    """From running VMs of the same service alone."""
    vm, vms = service
    assert run_filter(rules / "Apart.py", hosts, vm, vms=vms) == ["puma", "ocelot"]
    assert len(run_filter(rules / "Apart.py", hosts, make_vm("single"), vms=vms)) == 3


def test_keep_together(rules, hosts, service, run_score):
    """Where the service runs already."""
    vm, vms = service
    costs = run_score(rules / "Together.py", hosts, vm, vms=vms)
    assert costs == {"lynx": -1, "puma": 0, "ocelot": 0}


def test_numa(rules, make_host, make_vm, run_filter):
    """Two sockets of eight processors and 32 GiB are not one of sixteen and 64 GiB."""
    two = types.Cpu(topology=types.CpuTopology(sockets=2, cores=4, threads=2))
    old = types.Cpu(topology=types.CpuTopology(sockets=3, cores=3))  # without threads
    hosts = [make_host("one", processors=16), make_host("two", cpu=two)]
    for vm, fit in (
        (make_vm(processors=8, memory=32 * GIB), ["one", "two"]),
        (make_vm(processors=9), ["one"]),
        (make_vm(cpu=old), ["one"]),
        (make_vm(memory=33 * GIB), ["one"]),
    ):
        assert run_filter(rules / "OneNode.py", hosts, vm) == fit


def test_generation_of_processor(rules, make_host, run_score):
    """By the model's name; one that nobody knows is the oldest."""
    models = {
        "newest": "AMD EPYC 9354 32-Core Processor",
        "newest too": "INTEL(R) XEON(R) SILVER 4514Y",
        "newer": "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
        "old": "AMD EPYC 7502 32-Core Processor",
        "unknown": "Westmere",
    }
    hosts = [make_host(name, cpu=types.Cpu(name=model)) for name, model in models.items()]
    costs = run_score(rules / "Generation.py", hosts)
    assert costs == {"newest": 0, "newest too": 0, "newer": 1, "old": 2, "unknown": 3}


def test_spread_by_rack(rules, hosts, service, make_host, run_score):
    """A host in the same rack costs as the one on which the VM runs."""
    vm, vms = service
    costs = run_score(rules / "Racks.py", [*hosts, make_host("alone")], vm, vms=vms)
    assert costs == {"lynx": 1, "puma": 1, "ocelot": 0, "alone": 0}


def test_reserve_for_failover(rules, make_host, make_vm, run_filter):
    """Of 64 GiB, 16 stay free; a highly available VM may take them."""
    hosts = [make_host("roomy", max_scheduling_memory=20 * GIB),
             make_host("full", max_scheduling_memory=19 * GIB)]  # fmt: skip
    assert run_filter(rules / "Reserve.py", hosts, make_vm(memory=4 * GIB)) == ["roomy"]
    available = make_vm(high_availability=types.HighAvailability(enabled=True))
    assert run_filter(rules / "Reserve.py", hosts, available) == ["roomy", "full"]
    assert len(run_filter(rules / "Reserve.py", hosts, properties={"reserve": 10})) == 2


def test_pack_at_night(rules, make_host, run_score):
    """Night that lasts all day, and one that never comes."""
    hosts = [make_host("full", memory=128 * GIB, max_scheduling_memory=32 * GIB),
             make_host("empty and small", memory=16 * GIB)]  # fmt: skip
    always = {"night_begin": "00:00", "night_end": "24:00"}
    never = {"night_begin": "00:00", "night_end": "00:00"}
    rule = rules / "NightPacking.py"
    assert run_score(rule, hosts, properties=always) == {"full": 25, "empty and small": 100}
    assert run_score(rule, hosts, properties=never) == {"full": -25, "empty and small": -100}


def test_cost_by_power(rules, hosts, make_host, run_score):
    """Of empty hosts; one whose watts nobody said costs a lot."""
    costs = run_score(
        rules / "Power.py", [*hosts, make_host("other")], properties={"watts": "ocelot:200,lynx:9"}
    )
    assert costs == {"lynx": 0, "puma": 0, "ocelot": 200, "other": 500}


@pytest.fixture
def installing(make_host):
    """A host as the engine tells it while it is installed, and one that it tells less of."""
    nothing = {"memory": 0, "max_scheduling_memory": 0, "status": types.HostStatus.INSTALLING}
    return [
        make_host("new", cpu=types.Cpu(topology=types.CpuTopology()), **nothing),
        types.Host(id="5e2b1ab5-1d53-4b5c-9a05-6d3d8e2d0a4f", name="newer"),
    ]


@pytest.mark.parametrize("rule", ["OneNode", "Reserve"])
def test_a_filter_judges_the_others_beside_a_host_that_is_being_installed(
    rules, hosts, installing, make_vm, run_filter, rule
):
    vm = make_vm(cpu=types.Cpu(topology=types.CpuTopology(sockets=1, cores=1)))
    assert run_filter(rules / f"{rule}.py", [*installing, *hosts], vm) == ["lynx", "puma", "ocelot"]


def test_a_cost_function_scores_the_others_beside_a_host_that_is_being_installed(
    rules, hosts, installing, run_score
):
    costs = run_score(rules / "NightPacking.py", [*installing, *hosts])
    assert costs.keys() == {"lynx", "puma", "ocelot"}
    for rule in ("Generation", "Power"):
        assert len(run_score(rules / f"{rule}.py", [*installing, *hosts])) == 5


def test_the_free_memory_of_the_manual_counts_by_share(tmp_path, make_host, installing, run_score):
    """Else a host of 2 TiB gets every VM before one of 256 GiB."""
    for file, text in BLOCK.findall((PROJECT / "docs" / "plugins.md").read_text("utf-8")):
        (tmp_path / file).write_text(text, "utf-8")
    hosts = [
        make_host("large", memory=2048 * GIB, max_scheduling_memory=1024 * GIB),
        make_host("small", memory=256 * GIB, max_scheduling_memory=192 * GIB),
    ]
    costs = run_score(tmp_path / "FreeMemory.py", [*hosts, *installing])
    assert costs == {"large": -50, "small": -75}


def options_of_try():
    """Of each rule, as the table of the page gives them; words."""
    text = (PROJECT / "docs" / "cookbook.md").read_text("utf-8")
    rows = re.findall(r"^\|.*\| `(\w+)` \| (?:filter|cost function) \|.*?\|([^|]*)\|$", text, re.M)
    return {rule: options.strip(" `").split() for rule, options in rows}


@pytest.mark.long
@pytest.mark.parametrize("rule", options_of_try())
def test_each_rule_tells_the_hosts_of_the_demonstration_apart(rules, tmp_path, rule):
    """With the options of the table; Power needs a host without VMs."""
    options = options_of_try()[rule]
    words = ("try", str(rules / f"{rule}.py"), "--cluster", "demo/cluster.xml", *options)
    status, out, err = run(tmp_path, *words)
    assert (status, err) == (0, "")
    assert re.search(rf"^(filter|cost function) {rule}: ok", out, re.M)
    answers = re.findall(r"^\w+ +[0-9a-f-]{36} +(\S+)", out, re.M)
    assert (len(answers), len(set(answers)) > 1) == (4, rule != "Power"), out


@pytest.mark.parametrize("kind", ["host", "vm"])
def test_attributes_come_as_the_table_says(kind):
    """In the documents at hand; those of the demonstration are as an engine gives them."""
    table = ATTRIBUTE.findall((PROJECT / "docs" / "plugins.md").read_text("utf-8"))
    demonstrated = entities_of(PROJECT / "demo" / ("hosts.xml" if kind == "host" else "vm.xml"))
    (recorded,) = DOCUMENTS.glob(f"{kind}*-v4.xml")
    known = [*demonstrated, *entities_of(recorded)]
    rows = [(chain, comes) for of, chain, comes in table if of == kind]
    assert len(rows) > 15
    for chain, comes in rows:
        in_document = comes in ("ids", "document")
        entities = known if in_document else demonstrated
        found = [functools.reduce(step, chain.split("."), each) for each in entities]
        assert any(value not in (None, []) for value in found) == in_document, chain


def test_check_warns_of_links_that_the_table_has_and_of_no_rule(rules, tmp_path):
    """Nor of a sample, or of what ``new`` writes."""
    table = ATTRIBUTE.findall((PROJECT / "docs" / "plugins.md").read_text("utf-8"))
    assert {name for _, name, comes in table if comes == "query"} == {*LINKS}
    new = tmp_path / "new"
    run(tmp_path, "new", "New", "--filter", "--score", "--balance", "--folder", str(new))
    for folder in (rules, PROJECT / "plugins", new):
        _, out, _ = run(tmp_path, "check", "--plugins", str(folder))
        assert ("UNIT" in out, "a link alone" in out) == (True, False), out


def test_the_enumerations_of_the_table_are_the_sdks():
    """By name, as in HostStatus.UP."""
    text = (PROJECT / "docs" / "plugins.md").read_text("utf-8")
    named = re.findall(r"`(\w+(?:Status|Affinity))\.(\w+)`", text)
    assert len(named) > 5
    assert all(hasattr(getattr(types, name), member) for name, member in named)


def entities_of(path):
    return by_the_sdk(path.read_bytes())


def step(value, attribute):
    return None if value is None else getattr(value, attribute)
