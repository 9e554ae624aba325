"""The samples in plugins/, run by a daemon that reaches an engine (contract 5.6, 5.7)."""

from __future__ import annotations

import pytest

from tests.support.daemon import refusal
from tests.support.paths import PROJECT
from tests.support.rest_server import GIB, Host, RestServer, Vm, id_of
from tests.support.samples import CONF, VM, three_hosts, vms_on
from tests.support.waiting import wait_until

MIB = 2**20


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with RestServer(tmp_path_factory.mktemp("engine")) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(start_daemon, engine):
    conf = f"{CONF}\npages = loopback\n{engine.conf(cache_seconds=0)}"
    return start_daemon(PROJECT / "plugins", conf)


class Cluster:
    """Calls with names where the daemon has ids; hosts and VM go as documents, or as ids."""

    def __init__(self, engine, proxy):
        self._engine = engine
        self._proxy = proxy

    def have(self, hosts, vms=()):
        self._engine.hosts = list(hosts)
        self._engine.vms = [*vms, VM]
        return self

    def filtered(self, name, properties=None, by_ids=False):
        hosts, vm = self._asked(by_ids)
        return self._names(self._proxy.runFilters([name], hosts, vm, properties or {}))

    def costs(self, name, by_ids=False):
        costs = self._proxy.runCostFunctions([[name, 1]], *self._asked(by_ids), {})
        return dict(zip(self._names(costs), costs.values()))

    def moves(self, name, properties=None, by_ids=False):
        """The VM's name and its hosts', or None."""
        hosts, _ = self._asked(by_ids)
        moves = self._proxy.runLoadBalancing(name, hosts, properties or {})
        if not moves:
            return None
        ((vm, targets),) = moves.items()
        (name,) = [known.name for known in self._engine.vms if known.id == vm]
        return name, self._names(targets)

    def _asked(self, by_ids):
        if by_ids:
            return self._engine.ids(), VM.id
        return self._engine.hosts_document(), self._engine.vm_document(VM.name)

    def _names(self, ids):
        names = {host.id: host.name for host in self._engine.hosts}
        return [names[host] for host in ids]


@pytest.fixture
def cluster(engine, daemon):
    with daemon.proxy() as proxy:
        yield Cluster(engine, proxy)


def test_the_samples_are_what_the_contract_names(daemon):
    """With their properties, none refused, and the helper no plugin (contract 5.6).

    Whoever follows the README has a plugin of their own beside them.
    """
    found = daemon.engine.discover()
    assert {"MaxVms", "Memory"} <= {*found["filters"]}
    assert {"EvenVms", "KsmScore", "Memory"} <= {*found["scores"]}
    assert {"HostMemoryBalance", "Memory", "VmBalance"} <= {*found["balance"]}
    assert "_vms" not in {*found["filters"], *found["scores"], *found["balance"]}
    assert found["filters"]["MaxVms"][1] == "maximum_vm_count=[0-9]*"
    properties = "minimum_host_memoryMB=[0-9]*;safe_selection=True|False"
    assert found["balance"]["HostMemoryBalance"][1].rstrip(";") == properties
    assert "ERROR" not in daemon.log


@pytest.mark.parametrize("by_ids", [True, False])
@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({"maximum_vm_count": "3"}, ["lynx", "puma"]),
        ({"maximum_vm_count": "2"}, ["lynx"]),
        ({"maximum_vm_count": "0"}, []),
        ({"maximum_vm_count": ""}, ["lynx", "puma", "tiger"]),
        ({}, ["lynx", "puma", "tiger"]),
    ],
)
def test_max_vms_keeps_hosts_below_the_maximum(cluster, properties, kept, by_ids):
    """A host that runs as many already gets no further one; 10 unless given."""
    cluster.have(*three_hosts(1, 2, 9))
    assert cluster.filtered("MaxVms", properties, by_ids) == kept


def test_max_vms_allows_ten_unless_told(cluster):
    """The default of its conf file."""
    assert cluster.have(*three_hosts(9, 10, 11)).filtered("MaxVms") == ["lynx"]


@pytest.mark.parametrize("by_ids", [True, False])
def test_even_vms_costs_what_a_host_runs(cluster, by_ids):
    """The emptiest host is the best."""
    costs = cluster.have(*three_hosts(4, 0, 2)).costs("EvenVms", by_ids)
    assert costs == {"lynx": 4, "puma": 0, "tiger": 2}


@pytest.mark.parametrize("by_ids", [True, False])
def test_ksm_score_prefers_hosts_with_the_same_operating_system(cluster, by_ids):
    """The more of its VMs run it, the less a host costs; the VM itself does not count."""
    hosts, _ = three_hosts(0, 0, 0)
    alike, other = {"os": VM.os}, {"os": "windows_2022"}
    vms = [
        *vms_on("lynx", 1, **alike),
        *vms_on("puma", 3, **alike),
        *vms_on("tiger", 5, **other),
        Vm("down", host="tiger", status="paused", **alike),
    ]
    assert cluster.have(hosts, vms).costs("KsmScore", by_ids) == {"lynx": 2, "puma": 0, "tiger": 3}


def test_ksm_score_counts_the_vm_itself_nowhere(cluster, engine):
    """Else it would always be best where it is."""
    cluster.have(*three_hosts(0, 0))
    engine.vms[-1] = Vm(VM.name, host="lynx", os=VM.os)
    assert cluster.costs("KsmScore") == {"lynx": 0, "puma": 0}


@pytest.mark.parametrize("by_ids", [True, False])
@pytest.mark.parametrize(
    ("counts", "properties", "move"),
    [
        ((5, 1, 3), {}, ("lynx-0", ["puma"])),
        ((1, 5, 1), {}, ("puma-0", ["lynx", "tiger"])),
        ((4, 1, 3), {}, None),
        ((4, 1, 3), {"maximum_vm_difference": "2"}, ("lynx-0", ["puma"])),
        ((5, 1, 3), {"maximum_vm_difference": "4"}, None),
        ((2, 2, 2), {"maximum_vm_difference": "1"}, None),
    ],
)
def test_vm_balance_evens_out_what_differs_too_much(cluster, counts, properties, move, by_ids):
    """By more than the property says, from the fullest to the emptiest."""
    cluster.have(*three_hosts(*counts))
    assert cluster.moves("VmBalance", properties, by_ids) == move


def test_vm_balance_says_what_it_moves_and_why(cluster, daemon):
    """In the daemon's log; and why nothing, where nothing may be moved."""
    assert cluster.have(*three_hosts(6, 1)).moves("VmBalance")
    assert "moving lynx-0, the smallest of lynx: lynx runs 6 VMs, puma 1" in daemon.log
    pinned = vms_on("lynx", 7, affinity="pinned")
    assert cluster.have([Host("lynx"), Host("puma")], pinned).moves("VmBalance") is None
    assert "lynx runs 7 VMs, puma 0, but none of lynx's may be moved" in daemon.log


def test_vm_balance_leaves_hosts_alone_that_are_not_up(cluster):
    """A host in maintenance runs nothing, and takes nothing."""
    hosts, vms = three_hosts(5, 0, 3)
    hosts[1].status = "maintenance"
    assert cluster.have(hosts, vms).moves("VmBalance") is None


SHORT, ROOMY = 100 * MIB, 2000 * MIB


def memory_hosts(**free):
    """Hosts with so many MiB free; None: their statistics do not tell."""
    return [Host(name, free_memory=mib if mib is None else mib * MIB) for name, mib in free.items()]


def memory_vms(*sizes, host="lynx"):
    """VMs named by their size in MiB."""
    return [Vm(f"{size}", host=host, memory=size * MIB) for size in sizes]


@pytest.mark.parametrize(
    ("free", "sizes", "properties", "move"),
    [
        # safe: the smallest
        ({"lynx": 100, "puma": 2000, "tiger": 3000}, (900, 50, 450), {}, ("50", ["puma", "tiger"])),
        ({"lynx": 100, "puma": 2000}, (900, 50), {"safe_selection": "True"}, ("50", ["puma"])),
        # not safe: the smallest that is larger than the 400 MiB that the host lacks
        ({"lynx": 100, "puma": 2000}, (900, 50, 450), {"safe_selection": "False"}, ("450", ["puma"])),
        ({"lynx": 100, "puma": 2000}, (900, 400), {"safe_selection": "False"}, ("900", ["puma"])),
        # not safe, none is larger: the largest
        ({"lynx": 100, "puma": 2000}, (50, 400, 300), {"safe_selection": "False"}, ("400", ["puma"])),
        # never larger than what the roomiest candidate can take over the minimum
        ({"lynx": 100, "puma": 1000, "tiger": 1500}, (1000,), {}, ("1000", ["tiger"])),
        ({"lynx": 100, "puma": 1000, "tiger": 1500}, (1001,), {}, None),
        ({"lynx": 100, "puma": 1500}, (600, 1001), {"safe_selection": "False"}, ("600", ["puma"])),
        # a host at the minimum is relieved and takes nothing
        ({"lynx": 500, "puma": 2000}, (50,), {}, ("50", ["puma"])),
        ({"lynx": 100, "puma": 500}, (50,), {}, None),
        ({"lynx": 501, "puma": 2000}, (50,), {}, None),
        # of several the one with the least
        ({"puma": 101, "lynx": 100, "tiger": 2000}, (50,), {}, ("50", ["tiger"])),
        ({"puma": 99, "lynx": 100, "tiger": 2000}, (50,), {}, None),
        # free memory that is not known or not positive
        ({"lynx": 100, "puma": 0, "tiger": 2000}, (50,), {}, ("50", ["tiger"])),
        ({"lynx": 100, "puma": -5, "tiger": None, "lion": 2000}, (50,), {}, ("50", ["lion"])),
        ({"lynx": 0, "puma": 2000}, (50,), {}, None),
        ({"lynx": 100, "puma": None}, (50,), {}, None),
        # another minimum
        ({"lynx": 100, "puma": 2000}, (50,), {"minimum_host_memoryMB": "99"}, None),
        ({"lynx": 501, "puma": 2000}, (50,), {"minimum_host_memoryMB": "501"}, ("50", ["puma"])),
        ({"lynx": 100, "puma": 2000}, (50,), {"minimum_host_memoryMB": ""}, ("50", ["puma"])),
        ({"lynx": 501, "puma": 2000}, (50,), {"minimum_host_memoryMB": ""}, None),
        # nothing to move
        ({"lynx": 100, "puma": 2000}, (), {}, None),
    ],
)  # fmt: skip
def test_host_memory_balance_follows_its_rules(cluster, free, sizes, properties, move):
    """Each rule of contract 5.7 at its boundary."""
    cluster.have(memory_hosts(**free), memory_vms(*sizes))
    assert cluster.moves("HostMemoryBalance", properties) == move


def test_host_memory_balance_works_on_ids_too(cluster):
    """The daemon gets the documents (contract 5.2)."""
    cluster.have(memory_hosts(lynx=100, puma=2000), memory_vms(50))
    assert cluster.moves("HostMemoryBalance", by_ids=True) == ("50", ["puma"])


@pytest.mark.parametrize(("most", "targets"), [(300, ["tiger"]), (400, ["puma", "tiger"])])
def test_a_candidate_takes_at_most_its_max_scheduling_memory(cluster, most, targets):
    """However much is free on it (contract 5.7)."""
    hosts = memory_hosts(lynx=100, puma=5000, tiger=900)
    hosts[1].max_scheduling_memory = most * MIB
    assert cluster.have(hosts, memory_vms(400)).moves("HostMemoryBalance") == ("400", targets)
    hosts[2].max_scheduling_memory = 100 * MIB
    expected = ("400", ["puma"]) if most >= 400 else None
    assert cluster.have(hosts, memory_vms(400)).moves("HostMemoryBalance") == expected


def test_a_candidate_that_tells_no_max_scheduling_memory_takes_what_is_free(cluster):
    """Older engines do not write it."""
    hosts = memory_hosts(lynx=100, puma=2000)
    hosts[1].max_scheduling_memory = None
    assert cluster.have(hosts, memory_vms(400)).moves("HostMemoryBalance") == ("400", ["puma"])


@pytest.mark.parametrize("name", ["HostMemoryBalance", "VmBalance", "Memory"])
@pytest.mark.parametrize(
    "what",
    [
        {"affinity": "pinned"},
        {"affinity": "user_migratable"},
        {"status": "paused"},
        {"status": "migrating"},
    ],
)
def test_a_vm_that_may_not_be_migrated_is_never_chosen(cluster, name, what):
    """However well it would fit; another one is (contract 5.7)."""
    hosts = [
        Host("lynx", free_memory=SHORT, max_scheduling_memory=GIB),
        Host("puma", free_memory=ROOMY),
    ]
    fixed = vms_on("lynx", 5, memory=10 * MIB, **what)
    assert cluster.have(hosts, fixed).moves(name) is None
    cluster.have(hosts, [*fixed, Vm("free", host="lynx", memory=20 * MIB)])
    assert cluster.moves(name) == ("free", ["puma"])


def test_a_vm_of_another_host_is_never_chosen(cluster):
    """The engine's search knows names whatever their case."""
    hosts = [*memory_hosts(lynx=100, puma=2000), Host("LYNX", free_memory=ROOMY)]
    vms = [*memory_vms(50), *memory_vms(10, host="LYNX"), *memory_vms(20, host="puma")]
    assert cluster.have(hosts, vms).moves("HostMemoryBalance") == ("50", ["puma", "LYNX"])


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("HostMemoryBalance", {"safe_selection": "yes"}),
        ("HostMemoryBalance", {"minimum_host_memoryMB": "-1"}),
        ("VmBalance", {"maximum_vm_difference": "0"}),
    ],
)
def test_properties_are_checked(cluster, name, properties):
    """By the conf file of the sample."""
    said = refusal(103, cluster.have(memory_hosts(lynx=100)).moves, name, properties)
    assert all(each in said for each in properties)


def taken(**percent):
    """Hosts of 100 GiB of which so much is taken."""
    return [
        Host(name, memory=100 * GIB, max_scheduling_memory=(100 - taken) * GIB)
        for name, taken in percent.items()
    ]


@pytest.mark.parametrize("by_ids", [True, False])
def test_memory_filters_and_costs_by_what_is_taken(cluster, by_ids):
    """At the threshold a host is still kept; the cost is the percentage."""
    cluster.have(taken(lynx=70, puma=71, tiger=5))
    assert cluster.filtered("Memory", by_ids=by_ids) == ["lynx", "tiger"]
    assert cluster.filtered("Memory", {"threshold": "71"}, by_ids) == ["lynx", "puma", "tiger"]
    assert cluster.costs("Memory", by_ids) == {"lynx": 70, "puma": 71, "tiger": 5}


@pytest.mark.parametrize(
    ("percent", "move"),
    [
        ({"lynx": 71, "puma": 68, "tiger": 69}, ("small", ["puma"])),
        ({"lynx": 80, "puma": 75, "tiger": 10}, ("small", ["tiger"])),
        ({"lynx": 70, "puma": 10}, None),
        ({"lynx": 90, "puma": 69}, None),
    ],
)
def test_memory_relieves_the_host_furthest_beyond_the_threshold(cluster, percent, move):
    """Of its smallest VM, to hosts that stay within it."""
    vms = [Vm("large", host="lynx", memory=4 * GIB), Vm("small", host="lynx", memory=2 * GIB)]
    assert cluster.have(taken(**percent), vms).moves("Memory") == move


INSTALLING = f"""\
<hosts>
<host id="{id_of("new")}"><name>new</name><status>installing</status><memory>0</memory>
<max_scheduling_memory>0</max_scheduling_memory><cpu><topology/></cpu></host>
<host id="{id_of("well")}"><name>well</name><status>up</status><memory>{64 * GIB}</memory>
<max_scheduling_memory>{48 * GIB}</max_scheduling_memory><summary><total>3</total></summary></host>
</hosts>"""


@pytest.mark.parametrize(
    ("method", "name", "result"),
    [
        ("runFilters", "MaxVms", [id_of("well")]),
        ("runFilters", "Memory", [id_of("well")]),
        ("runCostFunctions", "EvenVms", [[id_of("well"), 3, "EvenVms"]]),
        ("runCostFunctions", "Memory", [[id_of("well"), 25, "Memory"]]),
        ("runLoadBalancing", "VmBalance", ["", []]),
        ("runLoadBalancing", "Memory", ["", []]),
    ],
)
def test_a_host_that_is_being_installed_is_left_out_with_a_reason(daemon, method, name, result):
    """Its memory and the number of its VMs are not known; the others are judged all the same."""
    arguments = {
        "runFilters": ([name], INSTALLING, VM.id, {}),
        "runCostFunctions": ([[name, 1]], INSTALLING, VM.id, {}),
        "runLoadBalancing": (name, INSTALLING, {}),
    }[method]
    with daemon.proxy("/engine") as proxy:
        answer = getattr(proxy, method)(*arguments)
    assert answer == {"result_code": 0, "result": result}
    with daemon.proxy("/design") as proxy:
        (newest, *_) = wait_until(
            lambda: proxy.decisions({"unit": name, "method": method, "host": "new"})
        )
        (new,) = [host for host in proxy.decision(newest["id"])["hosts"] if host["name"] == "new"]
    if method == "runFilters":
        (verdict,) = new["verdicts"]
        assert verdict["verdict"] == "removed"
        assert verdict["reason"].endswith(" not known")


@pytest.mark.parametrize("form", ["/design", "/engine"])
def test_both_forms_show_the_same_move(engine, daemon, form):
    """A struct, or the VM and its hosts (contract 2.4, 3.5)."""
    Cluster(engine, None).have(memory_hosts(lynx=100, puma=2000), memory_vms(50))
    with daemon.proxy(form) as proxy:
        answer = proxy.runLoadBalancing("HostMemoryBalance", engine.ids(), {})
    vm, hosts = id_of("50"), [id_of("puma")]
    assert answer == (
        {vm: hosts} if form == "/design" else {"result_code": 0, "result": [vm, hosts]}
    )
