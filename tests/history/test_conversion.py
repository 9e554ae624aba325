"""The records of every kind of call, as a running daemon writes them."""

from __future__ import annotations

import tracemalloc

import pytest

from ovirt_scheduler.history import explanation, outcomes
from ovirt_scheduler.history.conversion import make_record
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.schema import pack
from ovirt_scheduler.model.jobs import Decision, Execution, Request, ShadowCall
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.units import Kind, PolicyUnit, UnitCall
from tests.support.command import run
from tests.support.daemon import Daemon, StartDaemon
from tests.support.driven import cluster
from tests.support.waiting import LONG, wait_until

LYNX, PUMA, OCELOT = HOSTS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "123"]
NAMES = dict(zip(HOSTS, ("lynx", "puma", "ocelot")))
WEB = "44444444-aaaa-bbbb-cccc-444444444444"
MAIL = "55555555-aaaa-bbbb-cccc-555555555555"

FILTER = """
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.name != "lynx"]
"""
SCORE = """
def do_score(hosts, vm, properties):
    return [(host, {costs!r}[host.name]) for host in hosts]
"""
NO_UUID = """
class NoUuid:
    def do_balance(self, hosts_ids, args_map):
        return "vm-1", hosts_ids[1:]
"""
ONLY_PUMA = """
from ovirt_scheduler.plugin import reason

def do_score(hosts, vm, properties):
    for host in hosts:
        if host.name == "puma":
            yield host, -2
        else:
            reason(host, "is not known")
"""
BALANCE = """
def do_balance(hosts, properties):
    return "44444444-aaaa-bbbb-cccc-444444444444", [hosts[1]]
"""
SCHEDULERS = """
from ovirt_scheduler.plugin import Driver, Scheduler

class Best(Scheduler):
    name = "best"

    def select_host(self, hosts, vm, properties):
        return sorted(hosts, key=lambda host: self.costs.get(host.id, 0))

    def load_balance(self, hosts, vms, properties):
        return {vms[0]: hosts[:2]}

class Worst(Scheduler):
    name = "worst"
    topic = None

    def candidates(self, hosts, vm, properties):
        return sorted(hosts, key=lambda host: -self.costs[host.id])[:2]

class Speaks(Driver):
    name = topic = "speaks"

    def repeat(self, word):
        return word
"""


def hosts_document(*ids: str) -> str:
    inside = "".join(f"<host id='{each}'><name>{NAMES[each]}</name></host>" for each in ids)
    return f"<hosts>{inside}</hosts>"


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon) -> Daemon:
    texts = {
        "NotLynx": FILTER,
        "Cold": SCORE.format(costs={"lynx": 1, "puma": 5, "ocelot": 3}),
        "Near": SCORE.format(costs={"lynx": 1, "puma": 2, "ocelot": 9}),
        "OnlyPuma": ONLY_PUMA,
        "NoUuid": NO_UUID,
        "Moves": BALANCE,
        "MovesMail": BALANCE.replace(WEB, MAIL),
        "schedulers": SCHEDULERS,
    }
    return start_daemon(texts, "ssl = false")


def records(daemon: Daemon, count: int = 1, **query: object) -> list[Record]:
    """What fits, the newest first, as soon as there are so many."""
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    wanted = Query(**query)  # type: ignore[arg-type]

    def look() -> list[Record]:
        found = reader.decisions(wanted)
        return found if len(found) >= count else []

    return wait_until(look)


def verdicts(record: Record) -> dict[str, list[str]]:
    return {
        host["name"]: [verdict["verdict"] for verdict in host.get("verdicts", ())]
        for host in record["hosts"]
    }


def test_a_selection_has_filters_costs_and_the_scheduler(daemon: Daemon):
    """With the names that the documents tell, and what each unit did."""
    vm = f"<vm id='{WEB}'><name>web</name></vm>"
    with daemon.proxy() as proxy:
        units = {"filters": "NotLynx", "cost_functions": "Cold=2;Near=1", "api_key": "hidden"}
        assert proxy.selectHost("best", hosts_document(*HOSTS), vm, units) == PUMA
    (record,) = records(daemon, method="selectHost")
    assert record["vm"] == {"id": WEB, "name": "web"}
    assert [(unit["name"], unit["kind"]) for unit in record["units"]] == [
        ("NotLynx", "filter"), ("Cold", "cost function"), ("Near", "cost function"),
        ("best", "scheduler"),
    ]  # fmt: skip
    assert all(unit["checksum"].startswith("sha256:") for unit in record["units"])
    assert verdicts(record) == {"lynx": ["removed"], "puma": ["passed"], "ocelot": ["passed"]}
    totals = {host["name"]: host.get("total") for host in record["hosts"]}
    assert totals == {"lynx": None, "puma": 12, "ocelot": 15}
    assert record["answer"] == [PUMA, OCELOT]
    assert [host.get("rank") for host in record["hosts"]] == [None, 1, 2]
    assert record["decisive"] == ["Near"]
    assert record["properties"]["api_key"] == "\u2026"


def test_the_ranks_of_a_selection_are_the_order_of_its_answer(daemon: Daemon):
    """Of hosts that a filter or the scheduler leaves out there is none, and no unit is decisive."""
    units = {"cost_functions": "Cold=2;OnlyPuma", "word": "ranks"}
    with daemon.proxy() as proxy:
        assert proxy.selectHost("worst", hosts_document(*HOSTS), WEB, units) == PUMA
    (record,) = records(daemon, method="selectHost", unit="worst")
    assert record["answer"] == [PUMA, OCELOT]
    ranks = {host["name"]: (host["total"], host.get("rank")) for host in record["hosts"]}
    assert ranks == {"lynx": (2, None), "puma": (8, 1), "ocelot": (6, 2)}
    assert record["decisive"] == []


@pytest.mark.parametrize("path", ["/design", "/engine"])
def test_a_migration_that_the_caller_is_not_told_is_no_answer_in_the_record(daemon: Daemon, path):
    """The engine has no VM whose id is no UUID; whoever calls in the design form may have one."""
    with daemon.proxy(path) as proxy:
        answer = proxy.runLoadBalancing("NoUuid", [LYNX, PUMA], {"path": path})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)

    def look() -> list[Record]:
        found = reader.decisions(Query(unit="NoUuid"))
        return [record for record in found if record["properties"] == {"path": path}]

    (record,) = wait_until(look)
    (unit,) = record["units"]
    if path == "/design":
        assert answer == {"vm-1": [PUMA]}
        assert record["answer"] == {"vm": "vm-1", "hosts": [PUMA]}
    else:
        assert answer["result"] == ["", []]
        assert answer["plugin_errors"]["NoUuid"] == [unit["message"]]
        assert unit["outcome"] == "bad answer"
        assert "answer" not in record
        assert outcomes.outcome(record) == "NoUuid failed"
        assert "balance NoUuid bad answer" in daemon.log


def test_a_host_that_no_function_scored_costs_nothing_in_a_selection(daemon: Daemon):
    """With the reason of the function that left it out."""
    with daemon.proxy() as proxy:
        hosts = hosts_document(*HOSTS)
        assert proxy.selectHost("best", hosts, "one", {"cost_functions": "OnlyPuma"}) == PUMA
    (record,) = records(daemon, vm="one")
    assert [(host["total"], host["rank"]) for host in record["hosts"]] == [(0, 2), (-2, 1), (0, 3)]
    assert record["hosts"][0]["costs"] == [{"unit": "OnlyPuma", "reason": "is not known"}]
    told = [line.text for line in explanation.lines(record)][2:]
    assert told == [
        "  puma: 1st of 3, cost -2 = OnlyPuma 1 × (-2)",
        "  lynx: 2nd of 3, cost 0: no cost function scored it",
        "  lynx, ocelot: OnlyPuma leaves it out: is not known",
        "  ocelot: 3rd of 3, cost 0: no cost function scored it",
    ]


@pytest.mark.parametrize("by", [WEB, "web", "lynx", LYNX], ids=["id", "name", "host", "host id"])
def test_decisions_are_found_by_id_and_by_name(daemon: Daemon, by: str):
    """Of VMs and of hosts."""
    vm = f"<vm id='{WEB}'><name>web</name></vm>"
    daemon.design.runFilters(["NotLynx"], hosts_document(LYNX), vm, {"asked": by})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    query = Query(host=by) if by in ("lynx", LYNX) else Query(vm=by)

    def asked() -> list[str]:
        return [each.get("properties", {}).get("asked", "") for each in reader.decisions(query)]

    assert by in wait_until(asked, suits=lambda seen: by in seen)


def test_what_was_recorded_by_ids_alone_is_found_by_name(daemon: Daemon):
    """Once a decision has told the name: a balance never tells that of its VM."""
    document = f"<vm id='{MAIL}'><name>mail</name></vm>"
    daemon.design.runFilters(["NotLynx"], hosts_document(*HOSTS), document, {})
    renamed = document.replace("mail", "post")
    daemon.design.runFilters(["NotLynx"], hosts_document(*HOSTS), renamed, {})
    daemon.design.runLoadBalancing("MovesMail", HOSTS, {"by": "ids"})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)

    def by_ids(**query: str) -> list[Record]:
        found = reader.decisions(Query(**query))  # type: ignore[arg-type]
        return [each for each in found if each.get("properties") == {"by": "ids"}]

    for query in ({"vm": "mail"}, {"host": "puma"}):
        (balance,) = wait_until(lambda query=query: by_ids(**query))
        assert balance["vm"] == {"id": MAIL}
    assert by_ids(vm="puma") == []
    names = [record["vm"].get("name") for record in reader.decisions(Query(vm="mail"))]
    assert names == [None, "mail"], "what had another name is not found"


def test_a_vm_that_is_yet_to_be_made_is_found_by_its_name(daemon: Daemon):
    """It has no id."""
    daemon.design.runFilters(["NotLynx"], hosts_document(*HOSTS), "<vm><name>new</name></vm>", {})
    (record,) = records(daemon, vm="new")
    assert record["vm"] == {"name": "new"}


def test_migrations_are_found_by_the_vms_that_they_move(daemon: Daemon):
    """Of a balance and of a scheduler."""
    with daemon.proxy() as proxy:
        proxy.runLoadBalancing("Moves", HOSTS, {})
        proxy.loadBalance("best", HOSTS, [WEB], {})
    (balance,) = records(daemon, vm=WEB, method="runLoadBalancing")
    assert balance["answer"] == {"vm": WEB, "hosts": [PUMA]}
    (record,) = records(daemon, vm=WEB, method="loadBalance")
    assert record["answer"] == {WEB: [LYNX, PUMA]}
    assert "vms" not in record


def test_migrations_are_told_by_the_names_of_their_vms(daemon: Daemon):
    """And found by them: whoever asks why a VM moved knows its name."""
    vms = f"<vms><vm id='{WEB}'><name>web</name></vm></vms>"
    daemon.design.loadBalance("best", hosts_document(*HOSTS), vms, {})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)

    def look() -> list[Record]:
        found = reader.decisions(Query(vm="web", method="loadBalance"))
        return [record for record in found if "vms" in record]

    (record,) = wait_until(look)
    assert record["vms"] == [{"id": WEB, "name": "web"}]
    assert outcomes.outcome(record) == "migrate VM web to lynx or puma"


def test_of_a_topic_neither_arguments_nor_the_answer_are_kept(daemon: Daemon):
    """Whatever they are, they are nobody else's."""
    assert daemon.design.schedule("speaks", "repeat", {"word": "s3cret"}) == "s3cret"
    (record,) = records(daemon, method="schedule")
    assert record["units"][0]["name"] == "speaks"
    assert "answer" not in record
    assert "s3cret" not in str(record)


def test_a_clusters_own_calls_are_kept(driven):
    """Hooks, timers and balancing, with the cluster's name and the engine's."""
    driven.start("dry-run", "[[Default]]\nscheduler = recorder\nload_balance_interval = 0.004")
    (record, *_) = records(driven.daemon, method="loadBalance")
    assert record["form"] == "daemon"
    assert record["cluster"] == "Default"
    assert [host["name"] for host in record["hosts"]] == ["lynx", "puma"]
    driven.engine.vms[0].status = "paused"
    (hook, *_) = records(driven.daemon, method="onVmStatusChanged", vm="web")
    assert hook["cluster"] == "Default"
    assert hook["id"] != record["id"]


def test_why_shows_a_migration_of_the_daemon_that_filters_came_after(driven):
    """The units are asked about a VM when the scheduler's answer names it."""
    text = "def do_filter(hosts, vm, properties):\n    return hosts\n"
    (driven.plugins / "All.py").write_text(text)
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster(filters="All"))
    records(driven.daemon, 2, method="loadBalance", vm="web")
    status, out, _ = run(driven.folder, "why", "web")
    assert status == 0
    assert "loadBalance of recorder of cluster Default: migrate VM web to puma" in out
    assert "runFilters for VM web of cluster Default" in out


def test_costs_of_a_function_in_shadow_are_as_they_would_count_beside_the_live_ones():
    """Those of the live ones are as they did count, without it."""
    code, limits = PluginCode("plugin", "/", ()), Limits(1, 1, 1, 1)
    live, shadow = (
        PolicyUnit(name, Kind.COST_FUNCTION, "", code, "", limits, shadow=name == "shadow")
        for name in ("live", "shadow")
    )
    answered = [CallResult(unit.name, CallOutcome.OK, {"h": 6 * 10**8}) for unit in (live, shadow)]
    wanted = {Kind.COST_FUNCTION: (RequestedUnit("live"),)}
    caller = Caller("r1", AnswerForm.DESIGN, "127.0.0.1:1")
    record = make_record(
        Decision(
            Request(caller, Entities(("h",), vm="vm"), {}, wanted),
            Execution(("h",), cost_functions=(answered[0],)),
            {"h": 6 * 10**8},
            calls=(UnitCall(live, {}),),
        ),
        [ShadowCall(UnitCall(shadow, {}, functions=2), answered[1])],
    )
    (host,) = record["hosts"]
    assert [cost["weighted"] for cost in host["costs"]] == [6 * 10**8, 5 * 10**8]
    assert host["total"] == 6 * 10**8


def filtered(hosts: tuple[str, ...], filters: int) -> Decision:
    """A decision of so many filters that accept all hosts."""
    wanted = tuple(RequestedUnit(f"filter-{number}") for number in range(filters))
    code, limits = PluginCode("filters", "/", ()), Limits(1, 1, 1, 1)
    units = [PolicyUnit(each.name, Kind.FILTER, "", code, "", limits) for each in wanted]
    return Decision(
        Request(
            Caller("id", AnswerForm.DESIGN, "peer"), Entities(hosts), {}, {Kind.FILTER: wanted}
        ),
        Execution(hosts, tuple(CallResult(each.name, CallOutcome.OK, hosts) for each in wanted)),
        hosts, calls=tuple(UnitCall(unit, {}) for unit in units),
    )  # fmt: skip


def test_a_record_of_many_filters_takes_little_for_each_host():
    """Its id and a reference: verdicts of its own would take 37 MB of 20 filters and 10,000 hosts."""
    hosts = tuple(f"host-{number}" for number in range(2000))
    decision = filtered(hosts, 20)
    tracemalloc.start()
    made = make_record(decision)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert verdicts({"hosts": [{"name": "", **made["hosts"][0]}]}) == {"": ["passed"] * 20}
    assert size < 400 * len(hosts)


def test_a_record_is_packed_without_a_list_of_all_hosts_for_each_host():
    """Such lists would make 10,000 hosts a hundred times as long as 1,000."""

    class Hosts(list[Record]):
        times_measured = 0

        def __len__(self) -> int:
            self.times_measured += 1
            return super().__len__()

    record = make_record(filtered(tuple(f"host-{number}" for number in range(100)), 5))
    record["hosts"] = hosts = Hosts(record["hosts"])
    pack(record)
    assert hosts.times_measured < 20
