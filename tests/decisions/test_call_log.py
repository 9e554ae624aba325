"""What the log tells of decisions, as a running daemon writes it."""

from __future__ import annotations

import http.client
import logging
import re
import time
import xmlrpc.client
from random import Random
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from ovirt_scheduler.decisions.call_log import (
    Failures,
    HourlyTexts,
    _failures,
    log_call,
    log_left_out,
)
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from ovirt_scheduler.model.results import CallOutcome, CallResult
from tests.support.daemon import Daemon, StartDaemon
from tests.support.waiting import LONG, wait_until

HOSTS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "1234"]

WEB = "99999999-aaaa-bbbb-cccc-999999999999"

FIRST = """
def do_filter(hosts, vm, properties):
    return hosts[1:]
"""
NONE = """
def do_filter(hosts, vm, properties):
    return []
"""
SLOW = """
import time

def do_filter(hosts, vm, properties):
    time.sleep(0.2)
    return hosts
"""
FAILS = """
import pathlib

def do_filter(hosts, vm, properties):
    if not pathlib.Path({mended!r}).exists():
        raise OSError("no such thing")
    return hosts
"""


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    folder = tmp_path_factory.mktemp("logged")
    fails = FAILS.format(mended=str(folder / "mended"))
    texts = {"First": FIRST, "None_": NONE, "Slow": SLOW, "Fails": fails}
    confs = {"First": "customProperties = password=[a-z]+;size=[a-z]+\n"}
    return start_daemon(texts, "ssl = false\nengine_reasons = true", confs=confs, folder=folder)


def logged(daemon: Daemon, pattern: str) -> str:
    found = wait_until(lambda: re.search(pattern, daemon.log), lambda: daemon.log)
    return str(found.group(0))


def test_the_requests_line_says_who_removed_how_many(daemon: Daemon):
    """With the VM's name and id; of a selection the host that was chosen."""
    hosts = "".join(f"<host id='{each}'><name>h{each[0]}</name></host>" for each in HOSTS)
    vm = f"<vm id='{WEB}'><name>web</name></vm>"
    with daemon.proxy() as proxy:
        proxy.runFilters(["First", "None_"], f"<hosts>{hosts}</hosts>", vm, {})
        chosen = proxy.selectHost("default", f"<hosts>{hosts}</hosts>", vm, {"filters": "First"})
    about = rf"VM web \({WEB}\), 4 hosts: "
    assert logged(daemon, rf"{about}0 left, 1 removed by First, 3 by None_; [0-9.]+ ms")
    words = rf"{about}3 left, 1 removed by First; chosen h\d \({chosen}\); [0-9.]+ ms"
    assert logged(daemon, words)


def test_an_answer_has_the_id_of_its_decision(daemon: Daemon):
    """In a header: by it the log and the history know the decision (contract 8.4)."""
    connection = http.client.HTTPConnection(urlsplit(daemon.url).netloc, timeout=LONG)
    body = xmlrpc.client.dumps((["First"], HOSTS, "by its id", {}), "runFilters")
    connection.request("POST", "/design", body)
    answer = connection.getresponse()
    assert answer.read()
    connection.close()
    reader = RecordReader(daemon.state / FILE, LONG)
    (record,) = wait_until(lambda: reader.decisions(Query(vm="by its id")))
    assert record["id"] == answer.headers["X-Request-Id"]
    assert f" request {record['id']} runFilters, " in daemon.log


def test_milliseconds_are_those_that_a_request_took(daemon: Daemon):
    """In the log and in the history: no fewer than the plugin's, no more than the caller waited."""
    began = time.monotonic()
    daemon.design.runFilters(["Slow"], HOSTS, "slow", {})
    waited = (time.monotonic() - began) * 1000
    line = logged(daemon, r"VM slow, 4 hosts: .* ms")
    reader = RecordReader(daemon.state / FILE, LONG)
    (record,) = wait_until(lambda: reader.decisions(Query(vm="slow")))
    told = (line.split()[-2], record["milliseconds"], record["units"][0]["milliseconds"])
    assert all(200 <= float(each) <= waited for each in told), told


def test_the_engine_is_told_who_removed_the_hosts(daemon: Daemon):
    """Its own message names all external filters together."""
    with daemon.proxy("/engine") as proxy:
        answer = proxy.runFilters(["First", "None_"], HOSTS, "told of", {})
        assert "errors" not in proxy.runFilters(["First"], HOSTS, "vm", {})
        chosen = proxy.selectHost("default", HOSTS, "vm", {"filters": "None_"})
        failed = proxy.selectHost("default", HOSTS, "vm", {"policy": "all"})
    assert answer["result"] == []
    assert answer["errors"] == ["4 hosts: 0 left, 1 removed by First, 3 by None_"]
    reader = RecordReader(daemon.state / FILE, LONG)
    records = wait_until(lambda: reader.decisions(Query(vm="told of")))
    assert [record["errors"] for record in records] == [answer["errors"]]
    assert chosen["errors"] == ["4 hosts: 0 left, 4 removed by None_; chosen none"]
    assert list(failed) == ["result_code", "result", "plugin_errors"]  # which say why


def test_equal_failures_are_folded(daemon: Daemon):
    """The first in full, the 10th in a line, and one when the unit works again."""
    with daemon.proxy() as proxy:
        for _ in range(12):
            proxy.runFilters(["Fails"], HOSTS, "vm", {})
        (daemon.state.parent / "mended").touch()
        proxy.runFilters(["Fails"], HOSTS, "vm", {})
    logged(daemon, r"filter Fails works again; calls that failed since [0-9-]{10} \S+: 12\n")
    assert len(re.findall(r"filter Fails raised after", daemon.log)) == 1
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"  # as at the beginning of a line
    tenth = rf"filter Fails raised again, 10 times since {moment}: OSError: no such thing"
    assert len(re.findall(tenth, daemon.log)) == 1
    assert len(re.findall(r"filter Fails raised", daemon.log)) == 2


def test_no_line_has_the_value_of_a_property(daemon: Daemon):
    """However often it is refused; and no record has that of a password."""
    with daemon.proxy("/engine") as proxy:
        for letter in "ABCDEFGHIJ":
            answer = proxy.runFilters(["First"], HOSTS, "vm", {"password": f"Secret{letter}"})
    logged(daemon, r"filter First refused again, 10 times since .*: a property's value is not all")
    (told,) = answer["plugin_errors"]["First"]
    assert told == (
        "filter First: property password: the value is not allowed; give what matches [a-z]+"
    )
    with daemon.proxy("/engine") as proxy:
        told = proxy.runFilters(["First"], HOSTS, "vm", {"size": "Large"})["plugin_errors"]["First"]
    assert "'Large' is not allowed" in told[0]
    assert len(re.findall(r"filter First refused", daemon.log)) == 2
    assert "Secret" not in daemon.log
    assert "Large" not in daemon.log


def test_of_equal_failures_fewer_and_fewer_are_told():
    """The first, the 10th, the 100th and each thousandth; numbers tell none apart (contract 8.6)."""
    results = (CallResult("u", CallOutcome.RAISED, message=f"after {n} ms") for n in range(3000))
    failures = Failures()
    told = [failures.add("filter", result) for result in results]
    assert [each.times for each in told if each is not None] == [1, 10, 100, 1000, 2000, 3000]


@pytest.mark.parametrize(
    "message",
    [
        "KeyError: '{uuid}'",
        "no host {uuid} (of <Host object at 0x{hex}>)",
        "RequestError: job {hex} failed",
        "VM web-{number} on {uuid}, {uuid}: no",
    ],
)
def test_failures_that_name_an_id_are_equal(message):
    """A unit that fails for each host would fill the log with its tracebacks."""
    chance, failures = Random(7), Failures()
    for count in range(1, 41):
        uuid = UUID(int=chance.getrandbits(128))
        text = message.format(uuid=uuid, hex=f"{chance.getrandbits(60):x}", number=count)
        told = failures.add("filter", CallResult("u", CallOutcome.RAISED, message=text))
        assert (told and told.times) == (count if count in (1, 10) else None)


def test_failures_in_other_words_are_not_equal():
    failures = Failures()
    for message in ("no face is added", "no decade is added", "no face is added to 1", "faded"):
        assert (
            failures.add("filter", CallResult("u", CallOutcome.RAISED, message=message)).times == 1
        )


def test_all_failures_are_counted_at_recovery_in_however_many_ways_a_unit_failed():
    failures = Failures()
    ways = [f"no {chr(97 + way)}" for way in range(20)]
    for message in 3 * ways:
        failures.add("filter", CallResult("u", CallOutcome.RAISED, message=message))
    assert failures.over("filter", "u").times == 60
    assert failures.over("filter", "u") is None


def test_a_unit_works_again_once_and_fails_anew_after_that(caplog):
    """Each round by itself, and each kind and unit."""
    caplog.set_level(logging.INFO)
    good = CallResult("twice", CallOutcome.OK, value=[])
    bad = CallResult("twice", CallOutcome.RAISED, message="no")
    for times in (2, 1):
        for _ in range(times):
            log_call("r", "filter", bad)
        log_call("r", "cost function", bad)
        log_call("r", "filter", bad._replace(unit="other"))
        for _ in range(3):
            log_call("r", "filter", good)
        told = [message for message in caplog.messages if "twice works again" in message]
        assert [message.rpartition(" ")[2] for message in told] == [str(times)]
        shown = [message for message in caplog.messages if "filter twice raised after" in message]
        assert len(shown) == 1
        caplog.clear()
    assert _failures.over("cost function", "twice").times == 2
    assert _failures.over("filter", "other").times == 2
    assert _failures.over("filter", "twice") is None


def test_hosts_are_named_and_failures_about_others_are_equal_all_the_same(caplog):
    names = dict(zip(HOSTS, ("lynx", "puma", "ocelot")))
    for host in names:
        bad = CallResult("odd", CallOutcome.RAISED, message=f"no {host}")
        log_call("r", "filter", bad, names)
        note = CallResult("noted", CallOutcome.OK, value=[], notes=(f"not {host}",))
        log_call("r", "filter", note, names)
    assert [message.rpartition(": ")[2] for message in caplog.messages] == [
        f"no lynx ({HOSTS[0]})",
        f"not lynx ({HOSTS[0]})",
    ]


def test_a_unit_that_is_left_out_of_each_call_is_told_once_an_hour_and_counted(caplog, monkeypatch):
    """An engine names what its policy has, in each of its calls."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    for _ in range(3):
        log_left_out("r", "filter", {"Memroy": ["there is none"], "Quite": ["there is none"]})
    told = ["r filter Memroy: there is none", "r filter Quite: there is none"]
    assert caplog.messages == told
    now += 3601
    log_left_out("r", "filter", {"Memroy": ["there is none"]})
    assert (
        re.sub("since .*:", "since:", caplog.messages[-1]) == f"{told[0]}; the same since: 2 times"
    )
    caplog.clear()
    now += 3601
    log_left_out("r", "filter", {"Memroy": ["there is none"]})
    assert caplog.messages == told[:1]


def test_an_answer_that_is_put_right_each_time_is_told_once_an_hour(caplog):
    """Also if it names other hosts and numbers."""
    for cost in (1000, 2000):
        note = f"the cost {cost} of host {HOSTS[cost // 1000]} was cut to 500"
        log_call("r", "cost function", CallResult("cut", CallOutcome.OK, value=[], notes=(note,)))
    assert len(caplog.messages) == 1


def test_of_names_that_callers_make_up_no_more_than_so_many_are_remembered():
    texts = HourlyTexts()
    for number in range(1001):
        assert texts.add("filter", f"made up {number}", "no") is not None
    assert len(texts._texts) == 1
