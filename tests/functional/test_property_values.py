"""Values of custom properties, as a caller of the real daemon gives them (contract 1.5, 5.8).

A regex that tries endlessly many ways gets the unit's time, and no more.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from xmlrpc.client import Fault, ServerProxy

import pytest

H1, H2 = (f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "12")
HOSTS = [H1, H2]
VM = "33333333-3333-3333-3333-333333333333"
SLOW = {"a": "x" * 40}  # 2 to the power of 40 ways
SECONDS = 0.2  # for a unit with such a regex; the processor is busy for as long
WHOLE_REQUEST = 60  # seconds

PLUGINS = {
    "slow": """
class Slow:
    properties_validation = "a=(x+)+y"
    def do_filter(self, hosts_ids, vm_id, args_map):
        return []
    def do_score(self, hosts_ids, vm_id, args_map):
        return [(host, 7) for host in hosts_ids]
    def do_balance(self, hosts_ids, args_map):
        return vm_id, hosts_ids
""",
    "good": """
class Good:
    def do_filter(self, hosts_ids, vm_id, args_map):
        return hosts_ids[:1]
    def do_score(self, hosts_ids, vm_id, args_map):
        return [(host, 1) for host in hosts_ids]
""",
    "patient": """
class Patient:
    properties_validation = "a=(x+)+y"
    def do_filter(self, hosts_ids, vm_id, args_map):
        return []
""",
    "picky": """
def do_filter(hosts, vm, properties):
    return hosts[:int(properties["percent"]) // 10]
""",
    "chooses": """
from ovirt_scheduler.plugin import HostSelector
class Chooses(HostSelector):
    properties_validation = "a=(x+)+y"
    def candidates(self, hosts, vm, properties):
        return hosts
""",
}


@pytest.fixture(scope="module")
def daemon(start_daemon):
    confs = dict.fromkeys(("slow", "chooses"), f"timeout = {SECONDS}\n")
    confs["patient"] = "timeout = 1.5\n"
    confs["picky"] = 'customProperties = "percent={0-99}"\ndefaultValues = "10"\n'
    settings = f"ssl = false\nrequest_timeout = {WHOLE_REQUEST}"
    return start_daemon(PLUGINS, settings, confs=confs)


@pytest.fixture
def call(daemon):
    """Calls a method in one of the forms; fails where the whole request's time was waited for."""

    def run(form: str, method: str, *arguments: object) -> object:
        begun = time.monotonic()
        try:
            with ServerProxy(f"{daemon.url}/{form}") as proxy:
                return getattr(proxy, method)(*arguments)
        except Fault as fault:
            return fault
        finally:
            assert time.monotonic() - begun < WHOLE_REQUEST / 2

    return run


def test_properties_have_defaults_and_are_checked(call):
    """A value that its pattern refuses is fault 103."""
    given = {"percent": "20", "other": "x"}
    assert call("design", "runFilters", ["picky"], HOSTS, VM, {}) == [H1]
    assert call("design", "runFilters", ["picky"], HOSTS, VM, given) == HOSTS
    fault = call("design", "runFilters", ["picky"], HOSTS, VM, {"percent": "100"})
    assert fault.faultCode == 103
    assert re.match("filter picky: .*percent.*'100'", fault.faultString)


CALLS = {
    "filter Slow": ("runFilters", ["Slow", "Good"], HOSTS, VM, SLOW),
    "cost function Slow": ("runCostFunctions", [["Slow", 1], ["Good", 1]], HOSTS, VM, SLOW),
    "balance Slow": ("runLoadBalancing", "Slow", HOSTS, SLOW),
    "scheduler Chooses": ("selectHost", "Chooses", HOSTS, VM, SLOW),
}


@pytest.mark.parametrize("owner", CALLS)
def test_the_design_form_has_a_fault(call, owner):
    """It is a value that was not taken; the message names the property and what to do."""
    fault = call("design", *CALLS[owner])
    assert isinstance(fault, Fault)
    assert fault.faultCode == 103
    assert fault.faultString == (
        f"{owner}: property a: its regex was not done with the value after {SECONDS} s; write "
        "one that does not try so many ways"
    )


@pytest.mark.parametrize(
    ("owner", "result"),
    [
        ("filter Slow", [H1]),
        ("cost function Slow", [[H1, 1, "Good"], [H2, 1, "Good"]]),
        ("balance Slow", ["", []]),
        ("scheduler Chooses", ""),
    ],
)
def test_the_engine_form_has_the_units_failure(daemon, call, owner, result):
    """The others of the call still count, and the log has what happened."""
    answer = call("engine", *CALLS[owner])
    assert answer["result"] == result
    ((unit, (message,)),) = answer["plugin_errors"].items()
    assert unit == owner.rpartition(" ")[2]
    assert (
        f"{owner}: property a: its regex was not done with the value after {SECONDS} s" in message
    )
    (milliseconds,) = re.findall(rf" {owner} timed out after (\d+) ms", daemon.log)
    assert int(milliseconds) >= SECONDS * 1000


def test_a_good_call_is_answered_beside_a_slow_one(call):
    """And after it, by the same processes: no alarm is left that could end them."""
    with ThreadPoolExecutor(1) as threads:
        for _ in range(2):
            slow = threads.submit(call, "design", "runFilters", ["Patient"], HOSTS, VM, SLOW)
            calls = 0
            while not slow.done():
                assert call("design", "runFilters", ["Good"], HOSTS, VM, SLOW) == [H1]
                calls += 1
            assert calls > 3
            assert slow.result().faultCode == 103
            assert call("design", "runFilters", ["Patient"], HOSTS, VM, {"a": "xxy"}) == []
