"""The real daemon, started as an administrator starts it, called as a client calls it."""

from __future__ import annotations

import hashlib
import http.client
import os
import signal
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree
from xmlrpc.client import ServerProxy

import pytest

from tests.support.command import spawned
from tests.support.daemon import refusal
from tests.support.paths import PLUGINS, PROJECT, SHARED
from tests.support.processes import lives, offspring, processes_with
from tests.support.waiting import LONG, wait_until

IDS = ["host-1", "host-2", "host-3"]
HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
VM = (PROJECT / "demo" / "vm.xml").read_text("utf-8")
HOST_IDS = [host.get("id") for host in ElementTree.fromstring(HOSTS)]


CALLED = (
    "dies_by_signal", "exits_at_once", "exits_zero", "floods_stdout", "keeps_all", "keeps_first",
    "keeps_none", "leaves_a_child", "prints", "raises", "returns_a_number", "returns_nothing",
    "returns_strangers",
)  # fmt: skip
PACKS = [f"filter{number}" for number in range(5)]


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon(CALLED, "plugin_timeout = 5\nmax_request_size = 1 MiB")


@pytest.fixture(scope="module")
def plain(start_daemon):
    """One without TLS, whose folder of plugins a test may change."""
    files = {"keeps_first": "keeps_first", **dict.fromkeys(PACKS, "tells_its_packs")}
    texts = {name: (PLUGINS / f"{file}.py").read_text("utf-8") for name, file in files.items()}
    return start_daemon(texts, "ssl = false")


@pytest.fixture
def scheduler(daemon):
    with daemon.proxy() as proxy:
        yield proxy


def test_discover_lists_the_units_of_each_kind(scheduler):
    """The document has the three groups, units sorted by name (contract 2.1)."""
    groups = list(ElementTree.fromstring(scheduler.discover()))
    assert [group.tag for group in groups] == ["Filters", "CostFunctions", "Balances"]
    for group in groups:
        names = [unit.get("name") for unit in group]
        assert "keeps_all" in names
        assert names == sorted(names)
    assert scheduler.Discover() == scheduler.discover()


def test_filters_narrow_the_hosts(scheduler):
    """The hosts that every filter accepted, in the order given (contract 2.2)."""
    assert scheduler.runFilters(["keeps_all", "keeps_first"], IDS, "vm-1", {}) == IDS[:2]


def test_cost_functions_are_weighed_and_summed(scheduler):
    """Factor times cost, an array of pairs or a struct (contract 2.3)."""
    costs = {"host-1": 5, "host-2": 8, "host-3": 11}
    pairs = [["keeps_all", 3], ["returns_strangers", 1]]
    assert scheduler.runCostFunctions(pairs, IDS, "vm-1", {}) == costs
    assert scheduler.runCostFunctions(dict(pairs), IDS, "vm-1", {}) == costs


def test_a_balance_names_the_vm_and_its_hosts(scheduler):
    """VM id to host ids (contract 2.4)."""
    assert scheduler.runLoadBalancing("keeps_all", IDS, {"vm": "vm-7"}) == {"vm-7": IDS}


def test_documents_and_ids_give_the_same(scheduler):
    """Hosts and VM are documents or ids, each on its own (contract 1.4)."""
    for hosts in (HOSTS, HOST_IDS):
        for vm in (VM, "vm-1"):
            assert scheduler.runFilters(["keeps_first"], hosts, vm, {}) == HOST_IDS[:-1]


@pytest.mark.skipif(not SHARED.exists(), reason="the documents of real engines are not here")
def test_all_four_methods_take_every_real_version_4_document(scheduler):
    """What real engines write is read, over TLS, by the standard library's client."""
    documents = {path.name: path.read_text("utf-8") for path in (SHARED / "v4").glob("*.xml")}
    hosts = [name for name in documents if name.startswith("host")]
    vms = [name for name in documents if name.startswith("vm-")]
    assert hosts
    assert vms
    for host_name in hosts:
        root = ElementTree.fromstring(documents[host_name])
        ids = [host.get("id") for host in ([root] if root.tag == "host" else root)]
        assert scheduler.runLoadBalancing("keeps_all", documents[host_name], {"vm": "v"}) == {
            "v": ids
        }
        for vm_name in vms:
            arguments = (documents[host_name], documents[vm_name], {})
            assert scheduler.runFilters(["keeps_all"], *arguments) == ids
            assert sorted(scheduler.runCostFunctions([["keeps_all", 1]], *arguments)) == sorted(ids)
    for vm in ElementTree.fromstring(documents["vms.xml"]):
        text = ElementTree.tostring(vm, "unicode")
        assert scheduler.runFilters(["keeps_all"], IDS, text, {}) == IDS
    assert scheduler.discover().startswith("<PolicyUnits>")


def test_no_hosts_are_an_empty_answer_and_no_plugin_runs(daemon, scheduler):
    """Whether an empty array or an empty document; a plugin that ran would be in the log."""
    before = len(daemon.log)
    for hosts in ([], "<hosts/>"):
        assert scheduler.runFilters(["raises"], hosts, "vm-no-hosts", {}) == []
        assert scheduler.runCostFunctions([["raises", 1]], hosts, "vm-1", {}) == {}
        assert scheduler.runLoadBalancing("raises", hosts, {}) == {}
    ids = daemon.design.runFilters(["keeps_all"], IDS, "vm-1", {})
    assert ids == IDS
    assert "raises raised" not in daemon.log[before:]


@pytest.mark.parametrize(
    ("method", "arguments", "code", "words"),
    [
        ("runFilter", (), -32601, ["runFilter"]),
        ("_dispatch", ("discover",), -32601, ["_dispatch"]),
        ("discover", ("now",), -32602, ["discover takes no parameters, not 1"]),
        ("runFilters", ([], IDS, "vm"), -32602, ["takes 4 parameters", "filters, hosts, vm, properties", "not 3"]),
        ("runFilters", (["nobody"], IDS, "vm", {}), 101, ["no filter named 'nobody'"]),
        ("runFilters", (["nobody"], [], "vm", {}), 101, ["no filter named 'nobody'"]),
        ("runCostFunctions", ([["keeps_first", 1]], IDS, "vm", {}), 101, ["no cost function named 'keeps_first'; it is a filter"]),
        ("runLoadBalancing", ("keeps_none", IDS, {}), 101, ["no balance named 'keeps_none'; it is a filter"]),
        ("runFilters", (["keeps_all"], VM, "vm", {}), 102, ["hosts", "vm"]),
    ],
)  # fmt: skip
def test_a_callers_mistake_is_a_fault_that_says_what_is_wrong(
    scheduler, method, arguments, code, words
):
    """Code and sentence of contract 1.5; and the daemon goes on."""
    told = refusal(code, getattr(scheduler, method), *arguments)
    for word in words:
        assert word in told
    assert scheduler.runFilters(["keeps_all"], IDS, "vm-1", {}) == IDS


@pytest.mark.parametrize(
    ("name", "kept", "logged"),
    [
        ("raises", IDS, "filter raises raised after"),
        ("exits_zero", IDS, "do_filter returned nothing; expected the hosts to keep"),
        ("exits_at_once", IDS, "ended its process without an answer (exit status 0)"),
        ("returns_nothing", IDS, "filter returns_nothing bad answer"),
        ("returns_a_number", IDS, "do_filter returned 7; expected the hosts to keep"),
        ("returns_strangers", IDS, "(1 dropped: stranger)"),
        ("dies_by_signal", IDS, "died by SIGSEGV"),
        ("floods_stdout", IDS, "printed more than 1 MiB; the rest was cut"),
        ("prints", IDS, "filter prints printed to stdout:\n    by "),
    ],
)
def test_a_misbehaving_filter_is_left_out_and_told_in_the_log(
    daemon, scheduler, name, kept, logged
):
    """As though it had not been asked for (contract 4.2); the next filter still counts."""
    assert scheduler.runFilters([name], IDS, "vm-1", {}) == kept
    assert logged in daemon.log
    assert scheduler.runFilters([name, "keeps_first"], IDS, "vm-1", {}) == kept[:-1]


def test_a_failed_cost_function_adds_nothing_and_a_failed_balance_moves_nothing(scheduler):
    """A plugin's failure is never a fault (contract 1.5, 4.2)."""
    costs = scheduler.runCostFunctions([["raises", 9], ["keeps_all", 1]], IDS, "vm-1", {})
    assert costs == {"host-1": 0, "host-2": 1, "host-3": 2}
    assert scheduler.runCostFunctions([["raises", 9]], IDS, "vm-1", {}) == {}
    assert scheduler.runLoadBalancing("raises", IDS, {}) == {}


def test_five_filters_share_the_entities_of_one_reading(plain):
    """The memory that holds them is the same file in each of their processes."""
    assert plain.design.runFilters(PACKS, HOSTS, VM, {}) == HOST_IDS
    said = [line.split()[-1] for line in plain.log.splitlines() if " printed to " in line]
    assert len(said) == 5
    assert len(set(said)) == 1
    assert len(set(said[0].split(","))) == 2  # the hosts', the VM's


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_calls_under_way(start_daemon, tmp_path, number):
    """Exit status 0, the call answered, no process left, whichever thread gets the signal."""
    waits = (
        "import pathlib, time\n"
        "def do_filter(hosts, vm, properties):\n"
        "    pathlib.Path(properties['touch']).touch()\n"
        "    time.sleep(1)\n"
        "    return hosts[:1]\n"
    )
    daemon = start_daemon({"waits": waits})
    properties = {"touch": str(tmp_path / "t")}
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(daemon.design.runFilters, ["waits"], IDS, "vm", properties)
        wait_until((tmp_path / "t").exists)
        # The zygote, the plugin's process, and one that waits for a task.
        below = wait_until(lambda: len(offspring(daemon.pid)) >= 3 and offspring(daemon.pid))
        # The kernel gives it to any thread; the main one waits for it, and hears of it.
        its_threads = {int(each.name) for each in Path(f"/proc/{daemon.pid}/task").iterdir()}
        os.kill(min(its_threads - {daemon.pid}), number)
        assert daemon.process.wait(timeout=LONG) == 0
        assert call.result(LONG) == ["host-1"]
    assert [pid for pid in below if Path(f"/proc/{pid}").exists()] == []


def test_killed_it_leaves_no_process(start_daemon, marker):
    """kill -9 of the daemon: the zygote ends, and everything below it."""
    waits = (
        "import subprocess\n"
        "def do_filter(hosts, vm, properties):\n"
        "    subprocess.run(['setsid', 'sleep', properties['marker']])\n"
    )
    # Without TLS: the standard library leaves a socket open whose handshake the kill has cut off.
    daemon = start_daemon({"waits": waits}, "ssl = false")

    def call():
        with pytest.raises((OSError, http.client.HTTPException)), daemon.proxy() as proxy:
            proxy.runFilters(["waits"], IDS, "vm", {"marker": marker})

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: processes_with(marker))
    below = offspring(daemon.pid)
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
    thread.join()
    wait_until(lambda: not any(lives(pid) for pid in below))
    assert processes_with(marker) == []


def run_serve(tmp_path, settings):
    """Start a daemon that is expected to give up: exit status and standard error."""
    config = tmp_path / "scheduler.conf"
    config.write_text(settings, "utf-8")
    status, _, said = spawned(tmp_path, "serve", "--config", config)
    return status, said


def test_a_port_in_use_stops_the_start(tmp_path):
    """Exit status 75, as it may be free soon; the message names the port and the key."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, said = run_serve(tmp_path, f"listening_port = {port}\n")
    assert status == os.EX_TEMPFAIL
    assert str(port) in said
    assert "listening_port" in said
    assert "Traceback" not in said


def test_an_unknown_key_stops_the_start_and_names_the_nearest(tmp_path):
    """Exit status 78 with file, line and what was probably meant (contract 6)."""
    status, said = run_serve(tmp_path, "# a comment\nlistenning_port = 0\n")
    assert status == 78
    assert f"{tmp_path}/scheduler.conf:2: " in said
    assert "listening_port" in said


def test_the_certificate_is_made_and_told(daemon):
    """On first start: path and fingerprint in the log, the key for its owner alone."""
    key = daemon.certificate.with_name("key.pem")
    assert key.stat().st_mode & 0o777 == 0o600
    der = ssl.PEM_cert_to_DER_cert(daemon.certificate.read_text("ascii"))
    fingerprint = hashlib.sha256(der).hexdigest().upper()
    fingerprint = ":".join(fingerprint[place : place + 2] for place in range(0, 64, 2))
    assert f"self-signed: {daemon.certificate}, SHA-256 {fingerprint}" in daemon.log


def test_plain_http_where_the_administrator_says_so(plain):
    """ssl = false, and no certificate is made (contract 1.1)."""
    assert plain.url.startswith("http://localhost:")
    with ServerProxy(plain.url) as proxy:
        assert proxy.runFilters(["keeps_first"], IDS, "vm-1", {}) == IDS[:2]
    assert not plain.certificate.exists()


def test_a_plugin_that_is_dropped_in_is_called_without_a_restart(plain):
    """Discover sees it at once; so do the calls after it (contract 4.6)."""
    file = plain.plugins / "fresh.py"
    with plain.proxy() as proxy:
        assert "fresh" not in proxy.discover()
        file.write_text(
            'def do_filter(hosts, vm, properties):\n    "Fresh & new."\n    return hosts[-1:]\n'
        )
        assert 'description="Fresh &amp; new."' in proxy.discover()
        assert proxy.runFilters(["fresh"], IDS, "vm-1", {}) == IDS[-1:]
        file.write_text("def do_filter(hosts, vm, properties:\n")
        assert "fresh" in proxy.discover()
        assert proxy.runFilters(["fresh"], IDS, "vm-1", {}) == IDS[-1:]
    assert "fresh.py:1: syntax error" in plain.log
    assert "the last version that loaded stays in use" in plain.log
