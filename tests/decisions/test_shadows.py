"""Units in shadow: a running daemon calls them after its answers, and never heeds them."""

from __future__ import annotations

import os
import socket
import struct
import threading
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Callable
from urllib.parse import urlsplit

import pytest

from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record, UnitRecord
from ovirt_scheduler.history.store import FILE, RecordReader
from tests.support.command import run
from tests.support.daemon import Daemon, StartDaemon
from tests.support.pages import get
from tests.support.served import post
from tests.support.waiting import LONG, wait_until

LYNX, PUMA, OCELOT = IDS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "123"]
NAMES = dict(zip(IDS, ("lynx", "puma", "ocelot")))
DOCUMENT = "<hosts>{}</hosts>".format(
    "".join(f"<host id='{each}'><name>{name}</name></host>" for each, name in NAMES.items())
)
VM = "44444444-aaaa-bbbb-cccc-444444444444"

PLUGINS = {
    "NotLynx": """
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.name != "lynx"]
""",
    "Waits": """
def do_filter(hosts, vm, properties):
    with open(properties["pipe"]) as pipe:
        pipe.readline()
    return hosts
""",
    "Even": """
def do_score(hosts, vm, properties):
    return [(host, place) for place, host in enumerate(hosts)]
""",
    "First": """
from ovirt_scheduler.plugin import Scheduler

class First(Scheduler):
    name = "first"

    def select_host(self, hosts, vm, properties):
        return hosts
""",
    # in shadow
    "New": """
from ovirt_scheduler.plugin import reason

def do_filter(hosts, vm, properties):
    if "pipe" in properties:
        open(properties["pipe"] + ".begun", "w").close()
        with open(properties["pipe"]) as pipe:
            pipe.readline()
    if properties["without"] == "everything":
        raise RuntimeError("there is nothing without everything")
    for host in hosts:
        if host.name == properties["without"]:
            reason(host, "it is the one")
        else:
            yield host
""",
    "Dear": """
def do_score(hosts, vm, properties):
    return {hosts[0]: 100}
""",
    "Away": f"""
def do_balance(hosts, properties):
    return {VM!r}, hosts[1:]
""",
}
SHADOW = "shadow = true\non_failure = reject\n"


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon) -> Daemon:
    """One that makes one call at a time."""
    confs = dict.fromkeys(("New", "Dear", "Away"), SHADOW)
    confs["New"] += "customProperties = without=[a-z]*\ndefaultValues = puma\n"
    settings = "max_parallel_calls = 1\npages = loopback\nssl = false"
    return start_daemon(PLUGINS, settings, confs=confs)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A pipe that a plugin waits for, and the end that a line is written to."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    yield path, end
    os.close(end)


def decided(daemon: Daemon, call: Callable[[], object], in_shadow: int = 1) -> Record:
    """The record of the one decision that a call leaves, with what units in shadow said of it."""
    before = {each["id"] for each in records(daemon)}
    call()
    return wait_until(
        lambda: [
            each
            for each in records(daemon)
            if each["id"] not in before and len(shadows_of(each)) == in_shadow
        ]
    )[0]


def shadows_of(record: Record) -> list[UnitRecord]:
    return [unit for unit in record["units"] if unit["mode"] == "shadow"]


def records(daemon: Daemon, **query: str) -> list[Record]:
    return RecordReader(daemon.state / FILE).decisions(Query(limit=100, **query))  # type: ignore[arg-type]


def told(record: Record) -> list[str]:
    return [line.text.strip() for line in explanation.lines(record)][2:]


def test_discover_does_not_name_it(daemon):
    """In neither form; nor is a name of it an unknown one."""
    with daemon.proxy() as scheduler, daemon.proxy("/engine") as engine:
        assert "New" not in scheduler.discover()
        found = engine.discover()
        assert [sorted(found[kind]) for kind in ("filters", "scores", "balance")] == [
            ["NotLynx", "Waits"], ["Even"], [],
        ]  # fmt: skip
        for call, answer in (
            (lambda: engine.runFilters(["New"], IDS, VM, {}), {"result_code": 0, "result": IDS}),
            (lambda: scheduler.runCostFunctions([["Dear", 2]], IDS, VM, {}), {}),
            (lambda: scheduler.runLoadBalancing("Away", IDS, {}), {}),
        ):
            answers = []
            decided(daemon, lambda call=call, answers=answers: answers.append(call()))
            assert answers == [answer]


def test_a_filter_is_called_with_its_defaults_and_removes_nothing(daemon):
    """On all hosts that were given, also on those that others removed."""
    with daemon.proxy() as scheduler:
        record = decided(
            daemon,
            lambda: (
                scheduler.runFilters(["NotLynx"], DOCUMENT, VM, {"without": "ocelot"}) == IDS[1:]
            ),
        )
    assert record["answer"] == [PUMA, OCELOT]
    assert [(unit["name"], unit["mode"], unit["outcome"]) for unit in record["units"]] == [
        ("NotLynx", "live", "ok"), ("New", "shadow", "ok"),
    ]  # fmt: skip
    assert told(record) == [
        "puma: New would have removed it, and only looks on (shadow): it is the one",
        "puma, ocelot: passed NotLynx",
        "lynx: removed by NotLynx",
    ]


def test_one_that_is_named_counts_as_not_named_and_has_the_requests_properties(daemon):
    """All hosts are the answer, as though no filter had been named."""
    with daemon.proxy() as scheduler:
        record = decided(
            daemon, lambda: scheduler.runFilters(["New"], DOCUMENT, VM, {"without": "lynx"})
        )
    assert record["answer"] == IDS
    assert told(record)[0].startswith("lynx: New would have removed it")


def test_one_that_fails_costs_no_host_and_no_word_in_the_answer(daemon):
    """Though its conf file says on_failure = reject; the log says it, with the mode."""
    asked = {"without": "everything"}
    with daemon.proxy("/engine") as engine:
        answers = []
        record = decided(
            daemon,
            lambda: answers.append(engine.runFilters(["New", "NotLynx"], DOCUMENT, VM, asked)),
        )
    assert answers == [{"result_code": 0, "result": [PUMA, OCELOT]}]
    shadow = record["units"][1]
    assert (shadow["mode"], shadow["outcome"]) == ("shadow", "raised")
    assert {host["verdicts"][1]["verdict"] for host in record["hosts"]} == {"failed"}
    assert any(
        line.startswith("New raised an error, which counts for nothing") for line in told(record)
    )
    wait_until(lambda: "filter in shadow New raised" in daemon.log)


def test_a_cost_function_adds_nothing_and_is_told_with_who_had_won(daemon):
    """With the factor 1 where it is not named."""
    with daemon.proxy() as scheduler:
        record = decided(
            daemon, lambda: scheduler.runCostFunctions([["Even", 5]], DOCUMENT, VM, {})
        )
    assert [host["total"] for host in record["hosts"]] == [0, 5, 10]
    assert record["answer"] == IDS
    assert told(record) == [
        "lynx: 1st of 3, cost 0 = Even 5 × 0",
        "lynx: Dear 1 × 100 would count, but looks on (shadow)",
        "puma: 2nd of 3, cost 5 = Even 5 × 1",
        "ocelot: 3rd of 3, cost 10 = Even 5 × 2",
        "with Dear, which looks on (shadow), puma would be best",
    ]
    counted = 'decisive_total{mode="shadow",unit="Dear"}'
    wait_until(lambda: counted in get(daemon.url, "/metrics").body)


def test_a_scheduler_is_asked_as_though_it_were_not_named(daemon):
    """A filter looks on at all hosts, a cost function at those that the filters left."""
    asked = {"filters": "NotLynx;New", "cost_functions": "Even=1;Dear=3", "without": "ocelot"}
    with daemon.proxy() as scheduler:
        record = decided(daemon, lambda: scheduler.selectHost("first", DOCUMENT, VM, asked), 2)
    assert [(unit["name"], unit["mode"]) for unit in record["units"]] == [
        ("NotLynx", "live"), ("Even", "live"), ("New", "shadow"), ("Dear", "shadow"),
        ("first", "live"),
    ]  # fmt: skip
    assert record["answer"] == [PUMA, OCELOT]
    assert told(record) == [
        "puma: 1st of 2, cost 0 = Even 1 × 0",
        "puma: Dear 3 × 100 would count, but looks on (shadow)",
        "ocelot: New would have removed it, and only looks on (shadow): it is the one",
        "ocelot: 2nd of 2, cost 1 = Even 1 × 1",
        "lynx: removed by NotLynx",
        "with Dear, which looks on (shadow), ocelot would be best",
    ]


def test_a_scheduler_that_names_no_unit_has_no_unit_look_on(daemon):
    """Nor has a hook, or a topic."""
    with daemon.proxy() as scheduler:
        record = decided(daemon, lambda: scheduler.selectHost("first", DOCUMENT, VM, {}), 0)
    assert [unit["name"] for unit in record["units"]] == ["first"]


def test_a_balance_is_told_and_migrates_nothing(daemon):
    """What it would migrate is a note on it."""
    with daemon.proxy() as scheduler:
        record = decided(daemon, lambda: scheduler.runLoadBalancing("Away", IDS, {}))
    assert "answer" not in record
    assert record["units"][0]["notes"] == [f"would migrate {VM} to {PUMA}, {OCELOT}"]


def test_one_that_hangs_holds_up_nobody(daemon, pipe):
    """Not even where there is one place; those that are too many are skipped, and counted.

    A decision for which no other unit was called is found by its VM, too.
    """
    path, end = pipe
    vm, count = "asked about by nobody else", 34
    with daemon.proxy() as scheduler:
        scheduler.runFilters(["New"], IDS, vm, {"pipe": path})
        wait_until(Path(f"{path}.begun").exists)
        for _ in range(count):
            assert scheduler.runFilters(["NotLynx"], IDS, vm, {}) == IDS
        os.write(end, b"go on\n")  # only now does the first one end
        wait_until(
            lambda: sum(len(shadows_of(each)) for each in records(daemon, vm=vm)) == 1 + count
        )
    skipped = [each["units"][-1] for each in records(daemon, vm=vm)]
    messages = {each["message"] for each in skipped if each["outcome"] == "not asked"}
    assert messages == {"in shadow, and too many decisions wait for theirs"}
    counted = get(daemon.url, "/metrics").body
    assert 'unit_calls_total{kind="filter",mode="shadow",outcome="not asked",unit="New"}' in counted
    assert 'hosts_removed_total{mode="shadow",unit="New"}' in counted


def test_a_caller_who_has_gone_costs_no_decision(daemon, pipe):
    """Nobody takes the answer after which units in shadow are called."""
    path, end = pipe
    body = xmlrpc.client.dumps((["Waits"], IDS, "of a gone caller", {"pipe": path}), "runFilters")
    address = urlsplit(daemon.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(post(body.encode()))
        wait_until(lambda: get(daemon.url, "/status.json").json["calls"]["running"])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.write(end, b"go on\n")
    wait_until(lambda: [*map(shadows_of, records(daemon, vm="of a gone caller"))] not in ([], [[]]))
    (record,) = records(daemon, vm="of a gone caller")
    assert [unit["mode"] for unit in record["units"]] == ["live", "shadow"]


def test_one_that_hangs_delays_no_record_and_loses_none_when_the_daemon_is_killed(
    start_daemon: StartDaemon, pipe
):
    """Records, metrics and why have what counted while it still hangs; what it says is lost."""
    path, _ = pipe
    plugins = {name: PLUGINS[name] for name in ("NotLynx", "New")}
    conf = f"{SHADOW}timeout = 60\ncustomProperties = without=[a-z]*\ndefaultValues = puma\n"
    daemon = start_daemon(plugins, "pages = loopback\nssl = false", confs={"New": conf})
    counted = 'unit_calls_total{{kind="filter",mode="live",outcome="ok",unit="NotLynx"}} {}'
    with daemon.proxy() as scheduler:
        for vm in ("first", "second"):
            scheduler.runFilters(["NotLynx", "New"], DOCUMENT, vm, {"pipe": path})
        wait_until(Path(f"{path}.begun").exists)
        both = wait_until(lambda: len(found := records(daemon)) == 2 and found)
        wait_until(lambda: counted.format(2) in get(daemon.url, "/metrics").body)
    daemon.process.kill()  # it still hangs: nobody has written into its pipe
    daemon.process.wait(LONG)
    assert [shadows_of(record) for record in both] == [[], []]
    assert records(daemon) == both
    assert told(both[0]) == ["puma, ocelot: passed NotLynx", "lynx: removed by NotLynx"]


def test_it_is_not_called_while_no_place_is_free(daemon, pipe):
    """The decision says so."""
    path, end = pipe
    with daemon.proxy() as scheduler, daemon.proxy() as other:
        live = threading.Thread(
            target=lambda: other.runFilters(["Waits"], IDS, VM, {"pipe": path}), daemon=True
        )
        live.start()
        wait_until(lambda: get(daemon.url, "/status.json").json["calls"]["running"])
        record = decided(daemon, lambda: scheduler.runFilters(["New"], IDS, VM, {}))
        os.write(end, b"go on\n")
        live.join(LONG)
    assert (record["units"][0]["outcome"], record["units"][0]["message"]) == (
        "not asked", "in shadow, and no place was free",
    )  # fmt: skip


def test_a_daemon_that_stops_calls_no_further_unit_in_shadow(
    start_daemon: StartDaemon, pipe, tmp_path: Path
):
    """Though requests go on for a while: their decisions say so."""
    path, end = pipe
    settings = "max_parallel_calls = 2\npages = loopback\nssl = false"
    names = ("NotLynx", "Waits", "New")
    plugins = {name: PLUGINS[name] for name in names}
    conf = f"{SHADOW}timeout = 60\n" + "customProperties = without=[a-z]*\ndefaultValues = puma\n"
    daemon = start_daemon(plugins, settings, confs={"New": conf})
    live_path = str(tmp_path / "live")
    os.mkfifo(live_path)
    live_end = os.open(live_path, os.O_RDWR)
    with daemon.proxy() as scheduler, daemon.proxy() as other:
        scheduler.runFilters(["New"], IDS, "first", {"pipe": path})
        wait_until(Path(f"{path}.begun").exists)
        scheduler.runFilters(["NotLynx"], IDS, "second", {})
        live = threading.Thread(
            target=lambda: other.runFilters(["Waits"], IDS, "live", {"pipe": live_path}),
            daemon=True,
        )
        live.start()
        wait_until(lambda: get(daemon.url, "/status.json").json["calls"]["running"])
        daemon.process.terminate()
        wait_until(lambda: "stopping on SIGTERM" in daemon.log)
        os.write(end, b"go on\n")
        wait_until(lambda: [*map(shadows_of, records(daemon, vm="second"))] != [[]])
        os.write(live_end, b"go on\n")
        live.join(LONG)
    assert daemon.process.wait(LONG) == 0
    os.close(live_end)
    of_shadow = {
        vm: record["units"][-1]
        for vm in ("first", "second", "live")
        for record in records(daemon, vm=vm)
    }
    assert of_shadow["first"]["outcome"] == "ok"
    for vm in ("second", "live"):
        assert of_shadow[vm]["message"] == "in shadow, and the daemon stops"


def test_check_and_status_say_that_it_is_in_shadow(daemon, tmp_path):
    """And discover's log line counts the others alone."""
    state = {unit["name"]: unit["state"] for unit in get(daemon.url, "/status.json").json["units"]}
    assert (state["Away"], state["NotLynx"]) == ("in shadow", "ok")
    assert "filter in shadow" in daemon.log
    conf = str(daemon.state.parent / "scheduler.conf")
    _, out, _ = run(tmp_path, "check", "--config", conf, "--plugins", str(daemon.plugins))
    assert "filter in shadow" in out
