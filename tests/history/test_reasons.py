"""What units and drivers say with ``reason``, on its way into the record."""

from __future__ import annotations

import pytest

from ovirt_scheduler.history import outcomes
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from tests.support.daemon import Daemon, StartDaemon, refusal
from tests.support.waiting import LONG, wait_until

LYNX, PUMA, OCELOT = HOSTS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "123"]

FILTERS: dict[str, str] = {
    "Yields": """
def do_filter(hosts, vm, properties):
    for host in hosts:
        if host.id[0] == "1":
            yield host
        else:
            reason(host, f"is {host.id[0]}")
""",
    "SaysTooMuch": """
def do_filter(hosts, vm, properties):
    for number in range(100_000):
        reason(hosts[0], "word " * 50)
        reason(f"stranger {number}", "x")
    reason(hosts[1], "a\\x1b[31m<b>\\x9b\\u202e\\nc\\x00")
    reason(hosts[2], 42)
    reason(None, "x")
    return []
""",
    "Ids": """
class Ids:
    def do_filter(self, hosts_ids, vm_id, args_map):
        reason(hosts_ids[0], "by its id")
        print(hosts_ids[1:])
""",
    "Stops": """
def do_filter(hosts, vm, properties):
    yield hosts[0]
    raise RuntimeError("half way")
""",
    "Dear": """
def do_score(hosts, vm, properties):
    reason(hosts[0], "uses 84 % of its memory")
    return {host.id: 3 for host in hosts}
""",
    "Relieves": """
def do_balance(hosts, properties):
    reason(hosts[0], "uses 84 % of its memory")
    reason(hosts[1], "uses 12 %")
    return "99999999-1111-2222-3333-999999999999", [hosts[1]]
""",
    "Both": """
def do_filter(hosts, vm, properties):
    return hosts
""",
    "Scheduler": """
from ovirt_scheduler.plugin import HostSelector

class Both(HostSelector):
    name = "Both"

    def candidates(self, hosts, vm, properties):
        reason(hosts[0], "is the first")
        return [hosts[0]]
""",
}


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon) -> Daemon:
    before = "from ovirt_scheduler.plugin import reason\n"
    texts = {name: before + text for name, text in FILTERS.items()}
    return start_daemon(texts, "ssl = false\npages = loopback")


def asked(daemon: Daemon, name: str) -> Record:
    """The record of a call of that filter alone."""
    daemon.design.runFilters([name], HOSTS, "vm", {})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    return wait_until(lambda: reader.decisions(Query(unit=name)))[0]


def reasons(record: Record) -> list[str]:
    return [host["verdicts"][0].get("reason", "") for host in record["hosts"]]


def test_a_filter_yields_hosts_and_says_why_of_the_others(daemon: Daemon):
    """A generator in the place of a list."""
    record = asked(daemon, "Yields")
    assert record["answer"] == [LYNX]
    assert reasons(record) == ["", "is 2", "is 3"]


def test_a_filter_that_stops_half_way_has_failed(daemon: Daemon):
    """What it yielded before does not count."""
    record = asked(daemon, "Stops")
    assert record["units"][0]["outcome"] == "raised"
    assert record["answer"] == HOSTS


def test_a_class_unit_says_why_of_an_id(daemon: Daemon):
    """Beside an answer that is printed."""
    record = asked(daemon, "Ids")
    assert record["answer"] == [PUMA, OCELOT]
    assert reasons(record) == ["by its id", "", ""]


def test_a_cost_has_its_reason(daemon: Daemon):
    """Beside the number."""
    daemon.design.runCostFunctions([["Dear", 1]], HOSTS, "vm", {})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    record = wait_until(lambda: reader.decisions(Query(unit="Dear")))[0]
    assert record["hosts"][0]["costs"][0]["reason"] == "uses 84 % of its memory"


def test_a_balance_removes_no_host(daemon: Daemon):
    """Its reason stands alone for a host that it does not name."""
    daemon.design.runLoadBalancing("Relieves", HOSTS, {})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    record = wait_until(lambda: reader.decisions(Query(unit="Relieves")))[0]
    assert [host.get("verdicts") for host in record["hosts"]] == [
        [{"unit": "Relieves", "reason": "uses 84 % of its memory"}],
        [{"unit": "Relieves", "verdict": "passed", "reason": "uses 12 %"}],
        None,
    ]
    assert outcomes.outcome(record).startswith("migrate VM 99999999")


def test_verdicts_stand_in_the_order_of_their_filters(daemon: Daemon):
    """Also beside a scheduler that has the name of one."""
    daemon.design.selectHost("Both", HOSTS, "vm", {"filters": "Both;Ids"})
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    record = wait_until(lambda: reader.decisions(Query(unit="Both")))[0]
    units = [verdict["unit"] for verdict in record["hosts"][0]["verdicts"]]
    assert units == ["Both", "Ids"]


def test_bad_reasons_are_cut_cleaned_or_noted(daemon: Daemon):
    """A million, too long ones, ones on strangers, no texts, and escape sequences: no call fails."""
    record = asked(daemon, "SaysTooMuch")
    assert record["answer"] == []
    first, second, third = reasons(record)
    assert first == " ".join(["word"] * 40)
    assert second == "a\ufffd[31m<b>\ufffd\ufffd c\ufffd"
    assert third == ""
    assert record["units"][0]["notes"] == [
        "gave reasons for hosts that it was not given (100001 dropped, the first for 'stranger 0')",
        "gave reasons that are no text (1 dropped)",
        "gave reasons of more than 200 characters for 1 host; the rest is dropped",
    ]


def test_the_default_scheduler_says_why(daemon: Daemon):
    """In the words that an administrator understands without the plugin's code."""
    hosts = "".join(f"<host id='{each}'><name>h{each[0]}</name></host>" for each in HOSTS)
    pinned = f"<placement_policy><hosts><host id='{PUMA}'/></hosts></placement_policy>"
    chosen = daemon.design.selectHost(
        "default", f"<hosts>{hosts}</hosts>", f"<vm>{pinned}</vm>", {}
    )
    assert chosen == PUMA
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    (record,) = wait_until(lambda: reader.decisions(Query(unit="default")))
    assert record["hosts"][0]["verdicts"] == [
        {"unit": "default", "verdict": "removed", "reason": "pinned to h2"}
    ]


def test_decisions_are_told_to_those_who_may_read_the_pages(start_daemon: StartDaemon):
    """Every user of the machine may call on loopback; pages = health tells none of them."""
    daemon = start_daemon({}, "ssl = false")
    with daemon.proxy() as proxy:
        assert "pages = loopback" in refusal(106, proxy.decisions, {})
        assert "pages = loopback" in refusal(106, proxy.decision, "0" * 16)


def test_a_decision_is_told_over_xml_rpc(daemon: Daemon):
    """By its id and by a query; nonsense is refused with what is meant."""
    record = asked(daemon, "Yields")
    with daemon.proxy() as proxy:
        assert proxy.decision(record["id"]) == record
        assert proxy.decision("0" * 16) == {}
        assert record in proxy.decisions({"unit": "Yields", "since": "2000-01-01T00:00:00Z"})
        (first, *_) = proxy.decisions({"unit": "Yields", "brief": True})
        assert first == {
            **{name: first[name] for name in ("id", "time", "milliseconds", "method", "vm")},
            "summary": outcomes.outcome(proxy.decision(first["id"])),
            "is_bad": False,
            "failures": [],
        }
        assert proxy.decisions({"host": "nowhere"}) == []
        assert record in proxy.decisions([])  # as PHP has an empty struct
        assert proxy.system.methodSignature("decisions") == [["array", "struct"]]
        assert "X-Request-Id" in proxy.system.methodHelp("decision")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"hots": "x"}, "query: there is no 'hots'; there are vm, host, unit"),
        ({"limit": 1001}, "query: limit: expected an int from 1 to 1000"),
        ({"since": "yesterday"}, "query: since: expected a time like 2026-01-31T12:00:00Z, not 'yesterday'"),
        ({"outcome": "bad"}, "query: outcome: expected one of ok, raised"),
        ({"brief": 1}, "query: brief: expected a boolean"),
        ({"vm": ""}, "query: vm: expected a text that is not empty"),
    ],
)  # fmt: skip
def test_a_query_with_nonsense_is_refused(daemon: Daemon, query, told):
    """With the member, and what it may be."""
    with daemon.proxy() as proxy:
        assert told in refusal(-32602, proxy.decisions, query)
