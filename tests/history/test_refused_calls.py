"""Calls that are refused have records, too: of what they asked for, and why they got no answer."""

from __future__ import annotations

from pathlib import Path
from xmlrpc.client import Fault

import pytest

from ovirt_scheduler.history import explanation, outcomes, refused_calls
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.jobs import RefusedCall
from ovirt_scheduler.model.requests import AnswerForm, Caller
from tests.support.daemon import Daemon, StartDaemon
from tests.support.pages import get
from tests.support.waiting import LONG, wait_until

HOSTS = ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"]
DOCUMENT = "".join(f"<host id='{each}'><name>h{each[0]}</name></host>" for each in HOSTS)
ALL = "def do_filter(hosts, vm, properties):\n    return hosts\n"


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    """With a filter that is not there, and is to reject all hosts then."""
    confs: Path = tmp_path_factory.mktemp("confs")
    (confs / "Guard.conf").write_text("on_failure = reject\n")
    (confs / "All.conf").write_text("customProperties = level={1-9}\ndefaultValues = 1\n")
    return start_daemon({"All": ALL}, f"ssl = false\nplugins_conf_path = {confs}\npages = loopback")


def record_of(daemon: Daemon, **query: str) -> Record:
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    return wait_until(lambda: reader.decisions(Query(**query)))[0]


@pytest.mark.parametrize(
    ("method", "parameters", "fault", "units"),
    [
        ("runFilters", (["Nobody"], HOSTS, {}), 101, ["Nobody"]),
        ("runFilters", (["All", "All"], HOSTS, {}), -32602, ["All"]),
        ("runFilters", (["All"], HOSTS, {"level": "10"}), 103, ["All"]),
        ("runFilters", (["All"], "<hosts", {}), 102, ["All"]),
        ("runCostFunctions", ([["Nobody", 3]], HOSTS, {}), 101, ["Nobody"]),
        ("selectHost", ("nobody", HOSTS, {"filters": "All"}), 101, ["All", "nobody"]),
        ("hasAnyHosts", ("default", HOSTS, {"policy": "x"}), 103, ["default"]),
    ],
)
def test_a_call_that_ends_in_a_fault_has_a_record(daemon, method, parameters, fault, units):
    """With the ids that it was about, as far as it gave ids."""
    named, hosts, properties = parameters
    vm = f"{method} {fault} {units}"
    with pytest.raises(Fault) as refused:
        getattr(daemon.design, method)(named, hosts, vm, properties)
    record = record_of(daemon, vm=vm)
    assert (refused.value.faultCode, record["fault"]) == (fault, fault)
    assert record["errors"] == [refused.value.faultString]
    assert [unit["name"] for unit in record["units"]] == units
    assert {unit["outcome"] for unit in record["units"]} == {"not asked"}
    assert [host["id"] for host in record["hosts"]] == (HOSTS if hosts == HOSTS else [])
    assert record.get("properties", {}) == properties
    assert "answer" not in record
    (first, *_) = explanation.lines(record)
    assert f": refused with fault {fault}: " in first.text


def test_so_has_one_with_a_parameter_too_few(daemon: Daemon):
    with pytest.raises(Fault):
        daemon.design.loadBalance("default", ["one", "two"])
    record = record_of(daemon, host="two")
    assert (record["method"], record["fault"]) == ("loadBalance", -32602)


def test_so_has_one_whose_answer_tells_that_there_is_no_such_scheduler(daemon: Daemon):
    """In the engine form that is no fault."""
    with daemon.proxy("/engine") as proxy:
        answer = proxy.selectHost("nobody", HOSTS, "of an engine", {})
    record = record_of(daemon, vm="of an engine")
    assert record["errors"] == answer["plugin_errors"]["nobody"]
    assert (record["form"], record["fault"]) == ("engine", 101)


@pytest.mark.parametrize("documents", [True, False])
def test_one_that_a_missing_filter_rejected_says_what_it_was_about(daemon, documents):
    """And who removed the hosts."""
    vm = f"rejected {documents}"
    hosts, of_vm = (f"<hosts>{DOCUMENT}</hosts>", f"<vm id='{vm}'/>") if documents else (HOSTS, vm)
    with daemon.proxy("/engine") as proxy:
        answer = proxy.runFilters(["All", "Guard"], hosts, of_vm, {})
    assert answer["result"] == []
    record = record_of(daemon, vm=vm)
    assert [host["id"] for host in record["hosts"]] == HOSTS
    assert [host.get("name") for host in record["hosts"]] == (
        ["h1", "h2"] if documents else [None, None]
    )
    verdicts = {each["unit"]: each["verdict"] for each in record["hosts"][0]["verdicts"]}
    assert verdicts == {"All": "never asked", "Guard": "removed"}
    assert outcomes.outcome(record) == "2 hosts: none left, 2 removed by Guard"
    assert "2 hosts: 0 left, 2 removed by Guard" in daemon.log


def test_requests_that_were_refused_are_counted(daemon: Daemon):
    for _ in range(3):
        with pytest.raises(Fault):
            daemon.design.runLoadBalancing("Nobody", HOSTS, {})
    counted = 'requests_total{form="design",method="runLoadBalancing",outcome="fault"} 3.0'
    wait_until(lambda: counted in get(daemon.url, "/metrics").body)


@pytest.mark.parametrize(
    "arguments",
    [
        {"filters": "All", "hosts": [1, "h"], "vm": 5, "properties": {"a": 1, "b": "2"}},
        {"cost_functions": [["A"], ["B", "--5"], ["C", 2**40], 7], "properties": []},
        {"cost_functions": {"A": -2}, "hosts": "<hosts/>", "vm": "<vm/>"},
        {"scheduler": 3, "properties": {"cost_functions": "A=x;;=;B = 4"}},
    ],
)
def test_whatever_the_parameters_are_a_record_is_made(arguments):
    """They come from callers, and were not read."""
    caller = Caller("0" * 16, AnswerForm.DESIGN, "a test")
    record = refused_calls.record(RefusedCall(caller, "selectHost", arguments, -32602, "oh", 0.1))
    assert refused_calls.size(record) > 0
    assert all(isinstance(unit.get("factor", 1), int) for unit in record["units"])
    assert [*explanation.lines(record)]
