"""What one call may ask of the daemon, and what it leaves to the others (contract 4.2a)."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.daemon import refusal
from tests.support.waiting import wait_until

MOST = 256  # policy units that one call names
IDS = ["host-1", "host-2", "host-3"]
BAD_PARAMETERS = -32602

HELPERS = """import mmap, os, sys, time

def waits(hosts, args):
    if "until" in args:
        open(args["until"] + ".begun", "w").close()
        while not os.path.exists(args["until"]):
            time.sleep(0.01)
    return [(host, 1) for host in hosts]

def prints(hosts):
    sys.stdout.write("o" * (1 << 20))
    sys.stderr.write("e" * (1 << 20))
    return [(host, 1) for host in hosts]

class shares:
    def do_filter(self, hosts, vm, args):
        size = int(args["size"])
        held = mmap.mmap(-1, size)
        if "file" in args:
            descriptor = os.memfd_create("shared")
            os.ftruncate(descriptor, size)
            held.close()
            held = mmap.mmap(descriptor, size)
        return hosts[:1]

class good:
    def do_filter(self, hosts, vm, args):
        return hosts
    def do_score(self, hosts, vm, args):
        return [(host, int(args.get("cost", 1))) for host in hosts]
"""
UNIT = "class {name}:\n    def do_score(self, hosts, vm, args):\n        return {does}\n"
WAITING = [f"waits{number}" for number in range(MOST)]
PRINTING = [f"prints{number}" for number in range(64)]


@pytest.fixture(scope="module")
def daemon(start_daemon):
    units = [UNIT.format(name=name, does="waits(hosts, args)") for name in WAITING]
    units += [UNIT.format(name=name, does="prints(hosts)") for name in PRINTING]
    text = "\n".join([HELPERS, *units])
    return start_daemon({"many": text}, "max_parallel_calls = 4\nplugin_timeout = 60")


def test_a_good_call_is_answered_beside_the_largest_that_is_allowed(daemon, tmp_path):
    """It does not wait for one of the other's units to end: none does before it has answered."""
    until = tmp_path / "until"

    def largest():
        with daemon.proxy() as proxy:
            functions = [[name, 1] for name in WAITING]
            return proxy.runCostFunctions(functions, IDS, "vm", {"until": str(until)})

    with ThreadPoolExecutor() as threads:
        under_way = threads.submit(largest)
        try:
            wait_until(lambda: until.with_suffix(".begun").exists() or under_way.done())
            with daemon.proxy() as proxy:
                began = time.monotonic()
                assert proxy.runFilters(["good"], IDS, "vm", {}) == IDS
                assert proxy.runCostFunctions([["good", 2]], IDS, "vm", {}) == dict.fromkeys(IDS, 2)
                assert time.monotonic() - began < 30  # far below a unit's time of 60 s
            assert not under_way.done()
        finally:
            until.touch()
        assert under_way.result() == dict.fromkeys(IDS, MOST)


def test_what_many_units_print_does_not_fill_the_daemon_memory(daemon):
    """64 units that print 2 MiB each: no more of it is kept than the log shows."""

    def peak() -> int:
        status = Path(f"/proc/{daemon.pid}/status").read_text("ascii")
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) << 10

    with daemon.proxy() as proxy:
        proxy.runCostFunctions([[PRINTING[0], 1]], IDS, "vm", {})
        before = peak()
        scored = proxy.runCostFunctions([[name, 1] for name in PRINTING], IDS, "vm", {})
    assert scored == {host: len(PRINTING) for host in IDS}
    assert f"{PRINTING[-1]} printed to stderr" in daemon.log
    assert peak() - before < 32 << 20


@pytest.mark.parametrize("path", ["/design", "/engine"])
def test_a_call_names_at_most_256_units(daemon, path):
    """One more is refused before anything runs, whether there are units of these names or not."""
    names = [f"unit{number}" for number in range(MOST + 1)]
    many = "257 policy units are named; a call names at most 256"
    with daemon.proxy(path) as proxy:
        said = refusal(BAD_PARAMETERS, proxy.runFilters, names, IDS, "vm", {})
        assert said == f"filters: {many}"
        pairs = [[name, 1] for name in names]
        for functions in (pairs, dict(pairs)):
            said = refusal(BAD_PARAMETERS, proxy.runCostFunctions, functions, IDS, "vm", {})
            assert said == f"cost_functions: {many}"
        of_both = {"filters": ";".join(names[:200]), "cost_functions": ";".join(names[200:])}
        said = refusal(BAD_PARAMETERS, proxy.selectHost, "default", IDS, "vm", of_both)
        assert said == f"properties: {many}"


def test_a_unit_is_named_once(daemon):
    """In the design form; the fault names the unit."""
    with daemon.proxy() as proxy:
        pair = [["waits1", 1], ["good", 2], ["good", 3]]
        assert refusal(BAD_PARAMETERS, proxy.runCostFunctions, pair, IDS, "vm", {}) == (
            "the cost function 'good' is named more than once; name it once"
        )
        said = refusal(BAD_PARAMETERS, proxy.runFilters, ["good", "good"], IDS, "vm", {})
        assert said == "the filter 'good' is named more than once; name it once"
        twice = {"filters": "good;good"}
        said = refusal(BAD_PARAMETERS, proxy.selectHost, "default", IDS, "vm", twice)
        assert said == "the filter 'good' is named more than once; name it once"


def test_of_a_unit_that_an_engine_names_again_the_first_counts(daemon):
    """With its factor, and the answer has a note on it; the bound of a cost is that of one."""
    with daemon.proxy("/engine") as proxy:
        pairs = [["good", 2], *([["good", 3]] * 99)]
        answer = proxy.runCostFunctions(pairs, IDS, "vm", {"cost": "1000000000"})
        assert answer["result"] == [[host, 500_000_000, "good"] for host in IDS]
        note = "the cost function 'good' is named more than once; the first counts"
        assert answer["plugin_errors"] == {"good": [note]}
        answer = proxy.runFilters(["good", "none", "none", "good"], IDS, "vm", {})
        assert answer["result"] == IDS
        said = {name: text.partition(";")[0] for name, (text,) in answer["plugin_errors"].items()}
        assert said == {
            "good": "the filter 'good' is named more than once",
            "none": "there is no filter named 'none'",
        }


@pytest.mark.parametrize("more", [{}, {"file": "yes"}], ids=["anonymous", "of a file"])
def test_shared_mappings_are_bounded(daemon, more):
    """memory_limit does not count them; one process has 4 GiB beyond it for all that it maps."""
    with daemon.proxy("/engine") as proxy:

        def shares(size: int) -> dict[str, object]:
            given = {"size": str(size), **more}
            return proxy.runFilters(["shares", "good"], IDS, "vm", given)

        assert shares(1 << 30)["result"] == IDS[:1]
        refused = shares(5 << 30)
    assert refused["result"] == IDS
    (message,) = refused["plugin_errors"]["shares"]
    assert "Cannot allocate memory" in message
