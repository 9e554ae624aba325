"""A cluster of 12 hosts, three filters and three cost functions of which one fails: asked why.

What has to be told is computed here from what the plugins below say, without the package.
"""

from __future__ import annotations

import json

import pytest

from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from tests.support.command import run
from tests.support.waiting import wait_until

VM = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"
VM_DOCUMENT = f'<vm id="{VM}"><name>web</name></vm>'

# Each host's name, with the VMs that it runs and the percentage of its memory that is taken.
CLUSTER = {
    "bobcat": (3, 40), "caracal": (12, 20), "cheetah": (9, 35), "cougar": (4, 81), "jaguar": (5, 60),
    "leopard": (11, 95), "lion": (2, 70), "lynx": (10, 10), "margay": (6, 50), "ocelot": (1, 76),
    "puma": (7, 30), "serval": (8, 45),
}  # fmt: skip
ID = {name: f"00000000-0000-4000-8000-0000000000{n:02}" for n, name in enumerate(CLUSTER)}
FACTORS = {"EvenVms": 3, "FreeMemory": 1, "Broken": 7}

HELPER = """
def vms(host):
    return host.summary.active


def taken(host):
    return round(100 * (1 - host.max_scheduling_memory / host.memory))
"""
FILTERS = {
    # at most 9 VMs, at most 75 % of the memory, no host whose name begins with j
    "MaxVms": """
from _facts import vms
from ovirt_scheduler.plugin import reason

def do_filter(hosts, vm, properties):
    most = int(properties["most"])
    for host in hosts:
        if vms(host) <= most:
            yield host
        else:
            reason(host, f"runs {vms(host)} VMs, at most {most} may")
""",
    "RoomyMemory": """
from _facts import taken
from ovirt_scheduler.plugin import reason

def do_filter(hosts, vm, properties):
    for host in hosts:
        if taken(host) > 75:
            reason(host, f"{taken(host)} % of its memory are taken")
    return [host for host in hosts if taken(host) <= 75]
""",
    "NoJ": """
def do_filter(hosts, vm, properties):
    return [host for host in hosts if not host.name.startswith("j")]
""",
}
FUNCTIONS = {
    "EvenVms": """
from _facts import vms

def do_score(hosts, vm, properties):
    return {host.id: vms(host) for host in hosts}
""",
    "FreeMemory": """
from _facts import taken

def do_score(hosts, vm, properties):
    return [(host, taken(host)) for host in hosts]
""",
    "Broken": """
def do_score(hosts, vm, properties):
    return hosts[0].no_such_attribute
""",
}

LEFT = [
    name for name, (vms, taken) in CLUSTER.items() if vms <= 9 and taken <= 75 and name[0] != "j"
]
SCORED = [name for name in LEFT if name != "margay"]  # which the engine's own filters removed
TOTALS = {name: 3 * CLUSTER[name][0] + CLUSTER[name][1] for name in SCORED}
BY_VMS = sorted(SCORED, key=lambda name: CLUSTER[name][0])
BY_MEMORY = sorted(SCORED, key=lambda name: CLUSTER[name][1])
BEST_FIRST = sorted(SCORED, key=lambda name: TOTALS[name])


FILTERED = f"12 hosts: {len(LEFT)} left, 3 removed by MaxVms, 2 by RoomyMemory, 1 by NoJ"


def document(names):
    hosts = "".join(
        f'<host id="{ID[name]}"><name>{name}</name><memory>{100 << 20}</memory>'
        f"<max_scheduling_memory>{(100 - CLUSTER[name][1]) << 20}</max_scheduling_memory>"
        f"<summary><active>{CLUSTER[name][0]}</active></summary></host>"
        for name in names
    )
    return f"<hosts>{hosts}</hosts>"


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """A daemon that an engine has asked to place the VM web."""
    texts = {"_facts": HELPER, **FILTERS, **FUNCTIONS}
    running = start_daemon(texts, "pages = loopback")  # it tells over XML-RPC, too
    with running.proxy("/engine") as engine:
        filtered = engine.runFilters([*FILTERS], document(CLUSTER), VM_DOCUMENT, {"most": "9"})
        assert filtered["result"] == [ID[name] for name in LEFT]
        costs = engine.runCostFunctions(
            [*map(list, FACTORS.items())], document(SCORED), VM_DOCUMENT, {}
        )
        totals = dict.fromkeys(map(ID.get, TOTALS), 0)
        for key, cost, unit in costs["result"]:
            totals[key] += FACTORS[unit] * cost
        assert totals == {ID[name]: total for name, total in TOTALS.items()}
    file = running.state / FILE
    wait_until(lambda: file.exists() and len(RecordReader(file).decisions(Query())) == 2)
    return running


def command(daemon, *arguments):
    return run(daemon.state.parent, *arguments)


def decisions(daemon, *arguments):
    return json.loads(command(daemon, "decisions", "-o", "json", *arguments)[1])


def fates(lines):
    """Each host, with what is told of it; hosts of which the same is told share a line."""
    found = {name: [] for name in CLUSTER}
    for line in lines:
        names, colon, told = line.strip().partition(": ")
        if colon and set(names.split(", ")) <= set(CLUSTER):
            for name in names.split(", "):
                found[name].append(told)
    return found


def ordinal(place):
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(place, f"{place}th")


def told_of_costs(name):
    """The line that a host has to have: its place, its sum, its place without each function."""
    vms, taken = CLUSTER[name]
    place = BEST_FIRST.index(name) + 1
    line = (
        f"{ordinal(place)} of {len(SCORED)}, cost {TOTALS[name]} = "
        f"EvenVms 3 × {vms} + FreeMemory 1 × {taken}"
    )
    for without, order in (("EvenVms", BY_MEMORY), ("FreeMemory", BY_VMS)):
        other = order.index(name) + 1
        if other != place:
            line += f"; without {without} it would be {ordinal(other)}"
    return line


def told_of_removal(name):
    vms, taken = CLUSTER[name]
    if vms > 9:
        return f"removed by MaxVms: runs {vms} VMs, at most 9 may"
    if taken > 75:
        return f"removed by RoomyMemory: {taken} % of its memory are taken"
    return "removed by NoJ"


def test_why_a_vm_is_where_it_is(daemon):
    """Both calls as one story: each removal, each sum, each place without a unit."""
    status, out, err = command(daemon, "why", "web")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(f"  runFilters for VM web: {FILTERED}")
    told = fates(lines)
    for name in CLUSTER:
        if name not in LEFT:
            assert told.pop(name) == [told_of_removal(name)]
    own = "left by our filters, but the engine asked for no costs: its own filters removed it"
    passed = "passed MaxVms, RoomyMemory and NoJ"
    assert told.pop("margay") == [passed, own]
    assert told == {name: [passed, told_of_costs(name)] for name in SCORED}
    assert any(line.startswith("  Broken raised an error, and added nothing: ") for line in lines)
    best = BEST_FIRST[0]
    for unit, other in (("EvenVms", BY_MEMORY[0]), ("FreeMemory", BY_VMS[0])):
        said = f"  {unit} was decisive: without it {other} would be best" in lines
        assert said == (other != best)


def test_why_the_vm_is_not_on_a_host(daemon):
    """Of that host alone, by its name or its id; of one that was not asked about, too."""
    status, out, _ = command(daemon, "why", VM, "--host", "ocelot")
    assert status == 0
    told = fates(out.splitlines())
    assert told.pop("ocelot") == ["passed MaxVms", told_of_removal("ocelot")]
    assert not any(told.values())
    told = fates(command(daemon, "why", "web", "--host", ID["lion"])[1].splitlines())
    assert told["lion"] == ["passed MaxVms, RoomyMemory and NoJ", told_of_costs("lion")]
    status, out, _ = command(daemon, "why", "web", "--host", "serwal")
    assert status == 0
    assert "  serwal: not among the hosts that were asked about: " in out
    assert "; did you mean serval?\n" in out


def test_why_of_one_decision(daemon):
    """By its id, which decisions lists."""
    asked = ("decisions", "--vm", "web", "--method", "runFilters", "-o", "names")
    (filtered,) = command(daemon, *asked)[1].split()
    status, out, _ = command(daemon, "why", "--decision", filtered)
    assert status == 0
    assert f"  decision {filtered}, " in out
    assert fates(out.splitlines())["leopard"] == [told_of_removal("leopard")]
    assert "runCostFunctions" not in out


def test_why_as_json_gives_the_structs(daemon):
    """Oldest first, as the story goes; each number as computed by hand (contract 8.1)."""
    filtered, scored = json.loads(command(daemon, "why", "web", "-o", "json")[1])
    assert (filtered["vm"], scored["vm"]) == ({"id": VM, "name": "web"},) * 2
    verdicts = {host["name"]: [each["verdict"] for each in host["verdicts"]] for host in filtered["hosts"]}  # fmt: skip
    assert verdicts["caracal"] == ["removed", "never asked", "never asked"]
    assert verdicts["jaguar"] == ["passed", "passed", "removed"]
    assert filtered["answer"] == [ID[name] for name in LEFT]
    by_name = {host["name"]: host for host in scored["hosts"]}
    assert {name: host["total"] for name, host in by_name.items()} == TOTALS
    assert sorted(by_name, key=lambda name: by_name[name]["rank"]) == BEST_FIRST
    assert by_name["lion"]["costs"][0]["weighted"] == 3 * CLUSTER["lion"][0]
    outcomes = {unit["name"]: unit["outcome"] for unit in scored["units"]}
    assert outcomes == {"EvenVms": "ok", "FreeMemory": "ok", "Broken": "raised"}
    best = BEST_FIRST[0]
    decisive = [unit for unit, order in (("EvenVms", BY_MEMORY), ("FreeMemory", BY_VMS)) if order[0] != best]  # fmt: skip
    assert scored["decisive"] == decisive


def test_the_daemon_is_asked_where_its_folder_cannot_be_read(daemon, tmp_path):
    """And tells the same."""
    asked = ("--url", daemon.url, "--ca", str(daemon.certificate))
    for arguments in (("why", "web"), ("why", "web", "-o", "json"), ("decisions", "--vm", "web")):
        assert run(tmp_path, *arguments, *asked) == command(daemon, *arguments)
    for query in (("--since", "1h", "--unit", "EvenVms"), ("--outcome", "raised")):
        listed = ("decisions", *query, "-o", "names")
        assert run(tmp_path, *listed, *asked)[1] == command(daemon, *listed)[1] != ""
    (number,) = command(daemon, "decisions", "--vm", "web", "--unit", "NoJ", "-o", "names")[
        1
    ].split()
    one = ("why", "--decision", number)
    assert run(tmp_path, *one, *asked) == command(daemon, *one)
    status, _, err = run(tmp_path, "why", "--decision", "0" * 16, *asked)
    assert (status, "is recorded; ovirt-scheduler decisions lists" in err) == (1, True)
